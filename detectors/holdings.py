"""What each machine and each message in flight holds, by JSON paths into states and arguments.

Values are parsed many at a time (`json_column`), else some thousands at a time: one JSON array of many states costs a
third of as many single ones.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import Booleans, Integers, is_any_of, texts
from ray_snapshot.detectors.json_column import arrays_at, may_hold_nulls
from ray_snapshot.detectors.json_path import MISSING, JsonPath, compile_path
from ray_snapshot.errors import SettingError
from ray_snapshot.json_text import strictly_parsed, unique_keys
from ray_snapshot.large_columns import picked
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot

CONSTRUCTOR = "__init__"
"""The method of the message that makes a machine."""

UNREADABLE = object()
HALF = 32

StatePath = str | Mapping[str, str]
"""One path for all machines, or one for each class that holds anything."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What was read as a column: whole numbers, or truth values."""

    rows: Integers
    """Positions in the table, ascending, of what has a value."""
    values: Integers | Booleans
    nothing: Integers
    """Positions of what has nothing there."""

    @property
    def count(self) -> int:
        return len(self.rows) + len(self.nothing)

    @property
    def sum(self) -> int:
        """The exact sum; true counts 1."""
        values = self.values.astype(np.int64)
        upper, lower = values >> HALF, values & ((1 << HALF) - 1)  # neither sum can be too large for 64 bits
        return (int(upper.sum()) << HALF) + int(lower.sum())

    def below(self, bound: Fraction) -> Booleans:
        """Which of the values are less."""
        least = math.ceil(bound)
        if not -(2**63) <= least < 2**63:
            return np.full(len(self.values), least > 0)
        found: Booleans = self.values < least
        return found

    def only(self, chosen: Booleans) -> Numbers:
        """The values that are `chosen`, and what has nothing there."""
        return Numbers(self.rows[chosen], self.values[chosen], self.nothing)

    def among(self, chosen: Booleans) -> Numbers:
        """Those of the rows that are `chosen`."""
        mine = chosen[self.rows]
        return Numbers(self.rows[mine], self.values[mine], self.nothing[chosen[self.nothing]])


@dataclass(slots=True)
class Holdings:
    """The values found: `numbers` where a whole column could be read, else `rows` (positions in the table) and `values`
    (MISSING where there is nothing)."""

    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)
    """(row, why) where a value is needed but was not recorded whole."""
    numbers: list[Numbers] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many values, and places without one."""
        return len(self.rows) + sum(part.count for part in self.numbers)

    def pairs(self) -> Iterator[tuple[int, Any]]:
        """All as (row, value): a Python object for each."""
        for part in self.numbers:
            yield from zip(part.rows.tolist(), part.values.tolist(), strict=True)
            yield from ((row, MISSING) for row in part.nothing.tolist())
        yield from zip(self.rows, self.values, strict=True)

    def among(self, chosen: Booleans) -> Holdings:
        """Those of the rows that are `chosen`."""
        kept = [(row, value) for row, value in zip(self.rows, self.values, strict=True) if chosen[row]]
        return Holdings(
            [row for row, _ in kept],
            [value for _, value in kept],
            [(row, why) for row, why in self.unknown if chosen[row]],
            [part.among(chosen) for part in self.numbers],
        )


@dataclass(frozen=True, slots=True)
class Unmade:
    """Machines that are still to be made: how many, and the names of some."""

    count: int
    names: list[str]


def check_state_path(state: object) -> StatePath:
    """Return `state` if it is a path or a dict of paths by class name; raises `SettingError`."""
    if isinstance(state, Mapping):
        for class_name, path in state.items():
            _check_key(class_name, "state")
            compile_path(path)
        return dict(state)
    return compile_path(state).text


def check_message_paths(messages: object, *, optional: bool = False) -> dict[str, str | None]:
    """Return `messages` if it is a dict of paths by method (`optional`: or None); raises `SettingError`."""
    if not isinstance(messages, Mapping):
        raise SettingError(
            f"messages={messages!r} is not a dict of JSON paths by method, such as {{'deposit': '$[0]'}}"
        )
    for method, path in messages.items():
        _check_key(method, "messages")
        if not (optional and path is None):
            compile_path(path)
    return dict(messages)


def _check_key(key: object, setting: str) -> None:
    if not isinstance(key, str):
        raise SettingError(f"{setting} has the key {key!r}, which is not a name")


def in_machines(snapshot: Snapshot, state: StatePath) -> Holdings:
    """What the paths of `state` find in the states of the machines.

    With a dict, machines of other classes are left out. So is the driver where its state is null: the
    driver is a program, not an object of the system, and holds nothing by nature.
    """
    table = snapshot.tables["machines"]
    found = _LAST.read(table, state)
    return Holdings(found.rows, found.values, list(found.unknown), found.numbers)


def _by_class(table: Any, state: Mapping[str, str]) -> Holdings:
    is_object, found = _objects(table), Holdings()
    for class_name, path in state.items():
        mask = is_object & is_any_of(table["class_name"], class_name)
        _collect([found], table, mask, "state", [compile_path(path)])
    return found


def _together(table: Any, paths: list[str]) -> dict[str, Holdings]:
    """What each of some paths finds in all machines; the states are read once."""
    found = {path: Holdings() for path in paths}
    _collect(list(found.values()), table, _objects(table), "state", [compile_path(path) for path in paths])
    return found


def _objects(table: Any) -> Booleans:
    """All machines but a driver without a state."""
    driver = is_any_of(table["machine"], DRIVER)
    return ~(driver & _unrecorded(_plain(table["state"]))) if driver.any() else ~driver


class _Last:
    """What was last read of one table of machines: detectors that ask for the same path are asked one after the other.

    The detectors of a system ask the same of every snapshot. So with the first path that is asked of a table all those
    are read that were asked of the one before.
    """

    def __init__(self) -> None:
        self._known = _Read(None, {}, {})

    def read(self, table: Any, state: StatePath) -> Holdings:
        last = self._known
        if last.table is None or last.table() is not table:
            last = self._known = _Read(weakref.ref(table, self._clear), {}, last.asked)
        key = repr(state)
        if key not in last.found:
            if isinstance(state, Mapping):
                last.found[key] = _by_class(table, state)
            else:
                wanted = (
                    list(dict.fromkeys([state, *last.before]))[: LIMITS.holding_states] if not last.found else [state]
                )
                last.found |= {repr(path): found for path, found in _together(table, wanted).items()}
        if isinstance(state, str):
            last.asked[state] = None
        return last.found[key]

    def _clear(self, of: weakref.ref[Any]) -> None:
        if self._known.table is of:
            self._known = _Read(None, {}, {}, self._known.asked)


@dataclass(slots=True)
class _Read:
    """What is known of one table."""

    table: weakref.ref[Any] | None
    found: dict[str, Holdings]
    before: dict[str, None]
    """The paths that were asked of the table before."""
    asked: dict[str, None] = field(default_factory=dict)
    """Those that have been asked of this one."""


_LAST = _Last()


def in_messages(snapshot: Snapshot, messages: Mapping[str, str | None]) -> Holdings:
    """What the paths find in the arguments of messages in flight, by method; True for a path of None."""
    table = snapshot.tables["messages"]
    found = Holdings()
    for method, path in messages.items():
        mask = is_any_of(table["method"], method)
        if path is None:
            rows = np.flatnonzero(mask).tolist()
            found.rows += rows
            found.values += [True] * len(rows)
        else:
            _collect([found], table, mask, "args", [compile_path(path)])
    return found


def unmade(snapshot: Snapshot, messages: Mapping[str, Any]) -> Unmade:
    """The machines whose `__init__` still runs, or is in flight where `messages` has no path to what they are made with."""
    places = [("calls", "machine")] if CONSTRUCTOR in messages else [("calls", "machine"), ("messages", "target")]
    count, names = 0, list[str]()
    for table_name, column in places:
        table = snapshot.tables[table_name]
        rows = np.flatnonzero(is_any_of(table["method"], CONSTRUCTOR)).tolist()
        count += len(rows)
        names += [machine for (machine,) in labels(table, rows[: LIMITS.listed - len(names)], column)]
    return Unmade(count, names)


def is_bare(snapshot: Snapshot, machines: int) -> bool:
    """Whether nothing has been made yet: none of the `machines` that count, and no channel."""
    return not machines and not snapshot.channel_count


def _collect(found: Sequence[Holdings], table: Any, mask: Booleans, column: str, paths: Sequence[JsonPath]) -> None:
    """Add what each path finds in the rows of `mask` to the holdings at the same place."""
    truncated = pc.fill_null(table[f"{column}_truncated"], False).to_numpy() & mask
    stored = _plain(table[column])
    missing = _unrecorded(stored) & mask
    lacking = [(row, f"its {column} was cut off when it was recorded") for row in np.flatnonzero(truncated).tolist()]
    lacking += [(row, f"its {column} was not recorded") for row in np.flatnonzero(missing & ~truncated).tolist()]
    for one in found:
        one.unknown += lacking
    for chosen in _chunks(np.flatnonzero(mask & ~truncated & ~missing), LIMITS.holding_lines, _lengths(stored)):
        recorded = texts(_taken(stored, chosen))
        for one, path, values in zip(found, paths, arrays_at(recorded, paths), strict=True):
            if values is None or (values.null_count and may_hold_nulls(recorded)):
                _collect_parsed(one, stored, chosen, column, path)
            else:
                one.numbers.append(_numbers(chosen, values))


def _plain(column: Any) -> Any:
    """A column of texts; other libraries make dictionaries of them."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _numbers(rows: Integers, values: Any) -> Numbers:
    if not values.null_count:
        return Numbers(rows, values.to_numpy(zero_copy_only=False), rows[:0])
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    return Numbers(rows[is_there], values.drop_null().to_numpy(zero_copy_only=False), rows[~is_there])


def _taken(column: Any, rows: Integers) -> Any:
    """The rows `rows` of a column; without a copy if they are next to each other."""
    count = len(rows)
    return column.slice(rows[0], count) if rows[-1] - rows[0] == count - 1 else picked(column, rows)


def _collect_parsed(found: Holdings, stored: Any, rows: Integers, column: str, path: JsonPath) -> None:
    for row, value in zip(rows.tolist(), _parsed(stored, rows), strict=True):
        if value is UNREADABLE:
            found.unknown.append((row, f"its {column} is not JSON"))
        else:
            found.rows.append(row)
            found.values.append(path.find(value))


def _chunks(rows: Integers, most_rows: int, lengths: Integers) -> Iterator[Integers]:
    """`rows`, so many at a time that their texts are of moderate size; `lengths`: of the texts of all rows."""
    ends = np.cumsum(lengths[rows], dtype=np.int64) // LIMITS.holding_bytes
    for part in np.split(rows, np.flatnonzero(np.diff(ends)) + 1):
        yield from (part[start : start + most_rows] for start in range(0, len(part), most_rows))


def _lengths(column: Any) -> Integers:
    """By row: the bytes of its text."""
    lengths: Integers = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return lengths


def _unrecorded(column: Any) -> Booleans:
    """Rows without a value: null, or JSON's null, which a state or a list of arguments never is by itself."""
    found: Booleans = pc.fill_null(pc.equal(column, pa.scalar("null")), True).to_numpy(zero_copy_only=False)
    return found


def _parsed(column: Any, rows: Any) -> Iterator[Any]:
    """The JSON values of those rows of the column, in order."""
    for some in _chunks(rows, LIMITS.holding_rows, _lengths(column)):
        chosen = _taken(column, some).to_pylist()
        try:
            values = json.loads(f"[{','.join(chosen)}]", object_pairs_hook=unique_keys)
        except (ValueError, RecursionError):
            values = []
        yield from values if len(values) == len(chosen) else map(_parsed_alone, chosen)


def _parsed_alone(text: str) -> Any:
    try:
        return strictly_parsed(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def labels(table: Any, rows: list[int], *columns: str) -> list[tuple[Any, ...]]:
    """The named columns of those rows, as tuples."""
    return list(
        zip(
            *(texts(table[name].take(pa.array(rows, pa.int64()))).to_pylist() for name in columns),
            strict=True,
        )
    )
