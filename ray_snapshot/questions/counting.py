"""What each snapshot holds, by the paths of a ledger: in machines, in messages in flight, and what cannot be counted.

The rules are those of `spark_jobs/engine/amounts.py`. Read `ledger` for what is made of the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import is_any_of, texts
from ray_snapshot.detectors.holdings import CONSTRUCTOR
from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.history import History
from ray_snapshot.large_columns import portions
from ray_snapshot.names import DRIVER
from ray_snapshot.questions.amounts import MOST, Amounts, Booleans, Integers, Sum, amounts_at, sums
from ray_snapshot.questions.reading import places, rows_of

Pairs = tuple[tuple[str | None, str], ...]
"""Names, of classes or methods, and the path to what such a machine or message holds; None: whatever its class is."""

MACHINES = ("snapshot_id", "machine", "class_name", "state", "state_truncated")
MESSAGES = ("snapshot_id", "method", "args", "args_truncated")
CALLS = ("snapshot_id", "method")


class Paths(NamedTuple):
    """Where a ledger finds its amounts, by class and by method."""

    states: Pairs
    messages: Pairs


class Count(NamedTuple):
    """What one snapshot holds."""

    in_machines: Sum = Sum()
    in_flight: Sum = Sum()
    unreadable: int = 0
    """How many numbers are due and are none; one more if those that are cannot be added exactly."""
    has_machines: bool = False
    has_amounts: bool = False
    is_unmade: bool = False
    """Whether a machine is being made of which it is not known what it will hold."""


class Held(NamedTuple):
    """Rows of a table that a ledger counts, by their places in it, and the amount of each."""

    rows: Integers
    amounts: Amounts


def counts(history: History, snapshot_ids: Sequence[str], ledgers: Sequence[Paths]) -> dict[Paths, list[Count]]:
    """By the paths of each ledger: the count of each of these snapshots."""
    machines = rows_of(history, "machines", snapshot_ids, MACHINES)
    messages = rows_of(history, "messages", snapshot_ids, MESSAGES)
    calls = rows_of(history, "calls", snapshot_ids, CALLS)
    of_machines, of_messages = places(machines, snapshot_ids), places(messages, snapshot_ids)
    size = len(snapshot_ids)
    running, coming = _constructors(calls, snapshot_ids), _constructors(messages, snapshot_ids)
    found = {}
    for paths in ledgers:
        held = _Tally(in_machines(machines, paths.states), of_machines, size)
        sent = _Tally(in_messages(messages, paths.messages), of_messages, size)
        unmade = running if CONSTRUCTOR in dict(paths.messages) else running + coming
        found[paths] = [_count(held, sent, place, bool(unmade[place])) for place in range(size)]
    return found


def in_machines(machines: pa.Table, states: Pairs) -> Iterator[Held]:
    """The machines that a ledger counts. A driver without a state holds nothing; one whose state was cut off may."""

    def counted(some: pa.Table) -> Booleans:
        has_state = pc.fill_null(pc.not_equal(some["state"], "null"), False).to_numpy()
        found: Booleans = ~is_any_of(some["machine"], DRIVER) | has_state
        return found

    return _held(machines, "state", "class_name", states, counted, nothing_is_nought=True)


def in_messages(messages: pa.Table, methods: Pairs) -> Iterator[Held]:
    """The messages in flight that a ledger counts; each must have a number."""
    return _held(
        messages, "args", "method", methods, lambda some: np.ones(some.num_rows, np.bool_), nothing_is_nought=False
    )


def _held(
    table: pa.Table,
    column: str,
    named_by: str,
    pairs: Pairs,
    counted: Callable[[pa.Table], Booleans],
    *,
    nothing_is_nought: bool,
) -> Iterator[Held]:
    begin = 0
    for some in portions(table):
        recorded, is_counted = _recorded(some, column), counted(some)
        for path in dict.fromkeys(path for _, path in pairs):
            names = [name for name, one in pairs if one == path and name is not None]
            mask = is_counted & is_any_of(some[named_by], *names) if (None, path) not in pairs else is_counted
            rows = np.flatnonzero(mask)
            mine = recorded if len(rows) == some.num_rows else recorded.take(pa.array(rows))
            yield Held(begin + rows, amounts_at(mine, compile_path(path), nothing_is_nought=nothing_is_nought))
        begin += some.num_rows


def _recorded(table: pa.Table, column: str) -> Any:
    """The texts of a JSON column that were recorded whole: JSON's null is no state and no list of arguments."""
    found = texts(table[column])
    is_cut = pc.fill_null(table[f"{column}_truncated"].combine_chunks(), False)
    is_none = pc.fill_null(pc.equal(found, "null"), True)
    return pc.if_else(pc.or_(is_cut, is_none), pa.scalar(None, pa.string()), found)


class _Tally:
    """What was found in one table, by snapshot."""

    def __init__(self, parts: Iterable[Held], snapshots: Integers, size: int) -> None:
        self.sums = [Sum()] * size
        self.rows, self.unreadable, self.amounts = (np.zeros(size, np.int64) for _ in range(3))
        for held in parts:
            of, amounts = snapshots[held.rows], held.amounts
            unreadable = amounts.is_unreadable
            self.rows += np.bincount(of, minlength=size)
            self.unreadable += np.bincount(of[unreadable], minlength=size)
            self.amounts += np.bincount(of[~unreadable & ~amounts.is_nothing], minlength=size)
            self.sums = [one.plus(other) for one, other in zip(self.sums, sums(amounts, of, size), strict=True)]


def _count(held: _Tally, sent: _Tally, place: int, is_unmade: bool) -> Count:
    both = held.sums[place], sent.sums[place]
    unreadable = int(held.unreadable[place] + sent.unreadable[place])
    exact = [one.exact for one in both if one.exact is not None]
    if any(abs(one) >= MOST for one in (*exact, sum(exact))):
        unreadable, both = unreadable + 1, (Sum(None, both[0].rounded), Sum(None, both[1].rounded))
    has_amounts = bool(held.amounts[place] + sent.amounts[place])
    return Count(*both, unreadable, bool(held.rows[place]), has_amounts, is_unmade)


def _constructors(rows: pa.Table, snapshot_ids: Sequence[str]) -> Integers:
    """How many rows of each snapshot are of a constructor."""
    of = places(rows, snapshot_ids)[is_any_of(rows["method"], CONSTRUCTOR)]
    return np.bincount(of, minlength=len(snapshot_ids))
