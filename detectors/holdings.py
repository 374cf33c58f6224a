"""What each machine and each message in flight holds, by JSON paths into states and arguments.

Values are parsed many at a time (`json_column`), else some thousands at a time: one JSON array of many states costs a
third of as many single ones.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import MOST_LISTED, Booleans, Integers, is_any_of, texts
from ray_snapshot.detectors.json_column import values_at
from ray_snapshot.detectors.json_path import JsonPath, compile_path
from ray_snapshot.errors import SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot

CONSTRUCTOR = "__init__"
"""The method of the message that makes a machine."""

UNREADABLE = object()
_MOST_ROWS, _MOST_BYTES = 5_000, 8_000_000
_MOST_LINES = 200_000

StatePath = str | Mapping[str, str]
"""One path for all machines, or one for each class that holds anything."""


@dataclass(slots=True)
class Holdings:
    """The values found: `rows` (positions in the table) and `values` (MISSING where there is nothing)."""

    rows: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)
    """(row, why) where a value is needed but was not recorded whole."""


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
    return Holdings(found.rows, found.values, list(found.unknown))


def _in_machines(table: Any, state: StatePath) -> Holdings:
    driver = is_any_of(table["machine"], DRIVER) & _unrecorded(table["state"])
    found = Holdings()
    for class_name, path in state.items() if isinstance(state, Mapping) else [(None, state)]:
        mask = ~driver if class_name is None else ~driver & is_any_of(table["class_name"], class_name)
        _collect(found, table, mask, "state", compile_path(path))
    return found


class _Last:
    """What was last read of one table of machines: detectors that ask for the same path are asked one after the other."""

    def __init__(self) -> None:
        self._known: tuple[weakref.ref[Any] | None, dict[str, Holdings]] = None, {}

    def read(self, table: Any, state: StatePath) -> Holdings:
        of, known = self._known
        if of is None or of() is not table:
            known = {}
            self._known = weakref.ref(table, self._clear), known
        key = repr(state)
        if key not in known:
            known[key] = _in_machines(table, state)
        return known[key]

    def _clear(self, of: weakref.ref[Any]) -> None:
        if self._known[0] is of:
            self._known = None, {}


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
            _collect(found, table, mask, "args", compile_path(path))
    return found


def unmade(snapshot: Snapshot, messages: Mapping[str, Any]) -> Unmade:
    """The machines whose `__init__` still runs, or is in flight where `messages` has no path to what they are made with."""
    places = [("calls", "machine")] if CONSTRUCTOR in messages else [("calls", "machine"), ("messages", "target")]
    count, names = 0, list[str]()
    for table_name, column in places:
        table = snapshot.tables[table_name]
        rows = np.flatnonzero(is_any_of(table["method"], CONSTRUCTOR)).tolist()
        count += len(rows)
        names += [machine for (machine,) in labels(table, rows[: MOST_LISTED - len(names)], column)]
    return Unmade(count, names)


def is_bare(snapshot: Snapshot, machines: int) -> bool:
    """Whether nothing has been made yet: none of the `machines` that count, and no channel."""
    return not machines and not snapshot.tables["channels"].num_rows


def _collect(found: Holdings, table: Any, mask: Booleans, column: str, path: JsonPath) -> None:
    truncated = pc.fill_null(table[f"{column}_truncated"], False).to_numpy() & mask
    missing = _unrecorded(table[column]) & mask
    found.unknown += [
        (row, f"its {column} was cut off when it was recorded") for row in np.flatnonzero(truncated).tolist()
    ]
    found.unknown += [(row, f"its {column} was not recorded") for row in np.flatnonzero(missing & ~truncated).tolist()]
    rows = np.flatnonzero(mask & ~truncated & ~missing)
    for chosen in _chunks(table[column], rows, _MOST_LINES):
        values = values_at(texts(_taken(table[column], chosen)), path)
        if values is None:
            _collect_parsed(found, table, chosen, column, path)
        else:
            found.rows += chosen.tolist()
            found.values += values


def _taken(column: Any, rows: Integers) -> Any:
    """The rows `rows` of a column; without a copy if they are next to each other."""
    count = len(rows)
    return column.slice(rows[0], count) if rows[-1] - rows[0] == count - 1 else column.take(pa.array(rows))


def _collect_parsed(found: Holdings, table: Any, rows: Integers, column: str, path: JsonPath) -> None:
    for row, value in zip(rows.tolist(), _parsed(table[column], rows), strict=True):
        if value is UNREADABLE:
            found.unknown.append((row, f"its {column} is not JSON"))
        else:
            found.rows.append(row)
            found.values.append(path.find(value))


def _chunks(column: Any, rows: Integers, most_rows: int) -> list[Integers]:
    """`rows`, so many at a time that their texts are of moderate size."""
    chunk = max(1, min(most_rows, _MOST_BYTES * len(column) // (column.nbytes + 1)))
    return [rows[start : start + chunk] for start in range(0, len(rows), chunk)]


def _unrecorded(column: Any) -> Booleans:
    """Rows without a value: null, or JSON's null, which a state or a list of arguments never is by itself."""
    found: Booleans = pc.fill_null(pc.equal(column, pa.scalar("null")), True).to_numpy()
    return found


def _parsed(column: Any, rows: Any) -> Iterator[Any]:
    """The JSON values of those rows of the column, in order."""
    for some in _chunks(column, rows, _MOST_ROWS):
        chosen = column.take(pa.array(some)).to_pylist()
        try:
            values = json.loads(f"[{','.join(chosen)}]")
        except (ValueError, RecursionError):
            values = []
        yield from values if len(values) == len(chosen) else map(_parsed_alone, chosen)


def _parsed_alone(text: str) -> Any:
    try:
        return json.loads(text)
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
