"""A detector of one's own: which machines can nobody reach any more who will ever act?

A machine that is passive, has nothing in flight to it, and whose handle is in no state and no message of anybody who can act,
or can be reached by one who can, will never act again: it may be stopped, and its memory freed (Kafura, Washabaugh and
Nelson 1990 for actors; here on a consistent cut, so that a handle on its way is not overlooked). A deadlocked circle that
nobody knows of is garbage too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import (
    MOST_LISTED,
    Booleans,
    Integers,
    answer,
    check_name,
    distinct,
    integers,
    is_any_of,
    listed,
    plural,
    texts,
    uncovered,
    unsound,
)
from ray_snapshot.detectors.groups import check_group, members
from ray_snapshot.name_index import NameIndex
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

_MOST_TEXTS = 100_000


class Garbage:
    """True iff there are machines that nobody who can act can ever reach.

    - `unless`: names, or patterns such as `worker-*`, of machines that the program itself uses no more. What its variables
      hold is in no snapshot, so it may reach all others, and these are never garbage.
    - `roots`: machines that are reached by a name which a machine puts together (`self.machine(f"worker-{n}")`): that
      cannot be seen.

    Who can act: active machines, those to which anything is in flight or whose timers are pending, and the program. They reach
    whose handles, or whose names as texts, are in their states and in what is in flight to them; who calls them; and so on.

    Evidence: `garbage` (the first 100 by name), `count`, `classes` (how many of each), `state_bytes`. Stable. None where a
    state or message that counts was not recorded whole, or anything uncovered may have handles. Needs all rows.
    Cost: O(bytes of states and arguments).
    """

    stable: bool = True
    alarm_when: bool | None = None
    looks_at = frozenset({"statuses", "states"})

    def __init__(self, unless: Any, *, roots: Any = None, name: str = "garbage") -> None:
        self.name = check_name(name)
        self.unless = check_group(unless, "unless")
        self.roots = None if roots is None else check_group(roots, "roots")
        self.spec: dict[str, Any] = {"type": "garbage", "name": name, "unless": self.unless, "roots": self.roots}

    def __repr__(self) -> str:
        return f"Garbage({self.unless!r}, roots={self.roots!r}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Go from those who can act along handles, as far as they lead."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Garbage cannot be told: {reason}.")
        machines = snapshot.tables["machines"]
        names = texts(machines["machine"])
        who, whom = _acquaintances(snapshot, names)
        seeds = _can_act(snapshot, names) | self._roots(names)
        seeds[whom[who < 0]] = True
        reached = _reached(seeds, who[who >= 0], whom[who >= 0])
        left = ~reached & ~is_any_of(machines["status"], "stopped")
        evidence = _listed(machines, left)
        doubts = [*_watched(machines), *_unread(snapshot, names, reached), *map(str, uncovered(snapshot))]
        if not evidence["count"]:
            return answer(
                self, snapshot, False, evidence, "No garbage: every machine can be reached by one that can act."
            )
        if doubts:
            evidence["unknown"] = doubts[:MOST_LISTED]
            text = f"Garbage cannot be told: {plural(evidence['count'], 'machine')} may be, but for {listed(doubts)}."
            return answer(self, snapshot, None, evidence, text)
        text = f"Garbage: nobody can reach {listed(evidence['garbage'], evidence['count'])} any more."
        return answer(self, snapshot, True, evidence, text)

    def _roots(self, names: Any) -> Booleans:
        """The program, what it may still use, and what the user names."""
        found = ~members(names, self.unless) | is_any_of(names, DRIVER)
        return found | members(names, self.roots) if self.roots else found


def _can_act(snapshot: Snapshot, names: Any) -> Booleans:
    """Who acts, may go on by itself, or has something coming."""
    machines, waits, recorded = snapshot.tables["machines"], snapshot.tables["waits"], snapshot.recorded_names
    found = ~is_any_of(machines["status"], "passive", "stopped")
    held = waits.filter(pc.invert(pc.or_(pc.fill_null(waits["satisfied"], False), pc.is_valid(waits["timeout_at"]))))
    is_held = np.zeros(len(names), np.bool_)
    is_held[_there(recorded.positions(texts(held["machine"])))] = True
    free = waits.filter(pc.or_(pc.fill_null(waits["satisfied"], False), pc.is_valid(waits["timeout_at"])))
    is_held[_there(recorded.positions(texts(free["machine"])))] = False
    found &= ~(is_held & is_any_of(machines["status"], "blocked"))
    found[_there(recorded.positions(texts(snapshot.tables["messages"]["target"])))] = True
    return found


def _acquaintances(snapshot: Snapshot, names: Any) -> tuple[Integers, Integers]:
    """(who, whom): who has a handle, or a name, of whom, in its state or in what is in flight to it; who answers whom. -1: one
    that is being born."""
    tables = snapshot.tables
    machines, messages, recorded = tables["machines"], tables["messages"], snapshot.recorded_names
    owners, known = list[Integers](), list[Integers]()
    of_messages = recorded.positions(texts(messages["target"]))
    for column, of in ((machines["state"], np.arange(len(names))), (messages["args"], of_messages)):
        for row, target in _named(column, names):
            owners.append(of[row])
            known.append(target)
    asked = messages.filter(pc.is_valid(messages["call_id"]))
    for who, whom in ((tables["calls"]["machine"], tables["calls"]["caller"]), (asked["target"], asked["source"])):
        source, target = recorded.positions(texts(who)), recorded.positions(texts(whom))
        owners.append(source[target >= 0])
        known.append(target[target >= 0])
    who, whom = np.concatenate(owners), np.concatenate(known)
    acts = np.append(~is_any_of(machines["status"], "stopped"), True)
    return who[acts[who]], whom[acts[who]]


def _named(column: Any, names: Any) -> Iterator[tuple[Integers, Integers]]:
    """(row, machine) of each text in a column of JSON that is a machine's name.

    Between two quotation marks of JSON is a text, or what stands between two texts. A name that has to be escaped is looked
    for as it is written.
    """
    written = pa.array([json.dumps(name, ensure_ascii=False)[1:-1] for name in names.to_pylist()], pa.string())
    odd = np.flatnonzero(pc.not_equal(written, names).to_numpy(zero_copy_only=False))
    index, first = NameIndex(written), 0
    for some in _in_parts(column):
        pieces = pc.split_pattern(some, '"')
        found = index.positions(texts(pc.list_flatten(pieces)))
        rows = pc.list_parent_indices(pieces).to_numpy().astype(np.int64)
        yield rows[found >= 0] + first, found[found >= 0]
        for at in odd.tolist():  # written with a quotation mark in it, or with a backslash
            rows = np.flatnonzero(pc.match_substring(some, written[at].as_py()).to_numpy(zero_copy_only=False))
            yield rows + first, np.full(len(rows), at, np.int64)
        first += len(some)


def _in_parts(column: Any) -> Iterator[Any]:
    """A column of texts, some at a time; one array may not hold them all."""
    for piece in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for begin in range(0, len(piece), _MOST_TEXTS):
            yield pc.fill_null(texts(piece.slice(begin, _MOST_TEXTS)), "")


def _reached(seeds: Booleans, source: Integers, target: Integers) -> Booleans:
    """Who is reached from `seeds` along edges. O(V + E)."""
    order = np.argsort(source, kind="stable")
    target = target[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=len(seeds)))])
    found, front = seeds.copy(), np.flatnonzero(seeds)
    while len(front):
        count = starts[front + 1] - starts[front]
        before = np.cumsum(count) - count
        reached = target[np.repeat(starts[front] - before, count) + np.arange(count.sum())]
        front = distinct(reached[~found[reached]])
        found[front] = True
    return found


def _unread(snapshot: Snapshot, names: Any, reached: Booleans) -> list[str]:
    """Of those that were reached: whose state, or what is in flight to whom, was not recorded whole."""
    machines, messages = snapshot.tables["machines"], snapshot.tables["messages"]
    lacking = (
        pc.is_null(machines["state"]).to_numpy() | pc.fill_null(machines["state_truncated"], False).to_numpy()
    ) & ~is_any_of(machines["machine"], DRIVER)
    found = [f"the state of {name} was not recorded whole" for name in _some(names, lacking & reached)]
    cut = messages.filter(pc.fill_null(messages["args_truncated"], False))
    found += [f"a message to {name} was not recorded whole" for name in cut["target"].slice(0, MOST_LISTED).to_pylist()]
    return found


def _watched(machines: Any) -> list[str]:
    found = pc.any(pc.starts_with(pc.fill_null(machines["host"], ""), "pid-")).as_py()
    return ["whose handles watched actors have: it is not in a snapshot"] if found else []


def _listed(machines: Any, left: Booleans) -> dict[str, Any]:
    table = machines.filter(pa.array(left))
    counts = pc.value_counts(table["class_name"]).to_pylist()
    return {
        "garbage": sorted(table["machine"].to_pylist())[:MOST_LISTED],
        "count": table.num_rows,
        "classes": {one["values"]: one["counts"] for one in counts},
        "state_bytes": int(integers(table["state_bytes"], 0).sum()),
    }


def _some(names: Any, chosen: Booleans) -> list[str]:
    found: list[str] = names.filter(pa.array(chosen)).slice(0, MOST_LISTED).to_pylist()
    return found


def _there(rows: Integers) -> Integers:
    return rows[rows >= 0]
