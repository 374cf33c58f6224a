"""What the rows of each table must be by themselves, so that every reader can read them: values, numbers, texts, JSON.

Arrow reads a column that is not there as nulls, and texts without looking whether they are texts. Imports no Ray.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import tables
from ray_snapshot.history.records import JSON_COLUMNS
from ray_snapshot.json_text import NotStoredError, strictly_parsed
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.history.reader import History

NEEDED: dict[str, tuple[str, ...]] = {
    "snapshots": (
        *("snapshot_id", "run_id", "sequence", "protocol", "status", "started_at"),
        *("machine_count", "channel_count", "in_flight_count", "consistent"),
    ),
    "machines": ("snapshot_id", "run_id", "machine", "status"),
    "channels": (
        *("snapshot_id", "run_id", "source", "target", "kind", "sent_count", "accepted_count", "settled_count"),
        *("in_flight_count", "duplicate_count"),
    ),
    "messages": ("snapshot_id", "run_id", "source", "target", "kind", "number"),
    "calls": ("snapshot_id", "run_id", "machine"),
    "waits": ("snapshot_id", "run_id", "machine", "k"),
    "verdicts": ("snapshot_id", "run_id", "detector", "evaluator"),
    "actions": ("run_id", "machine", "number", "method", "accepted", "sent", "colour", "acted_at"),
    "classes": ("class_name", "version", "run_id"),
}
"""The columns that no reader can do without a value of."""

ALONE = {
    "channels": ("source", "target", "kind"),
    "calls": ("machine", "call_id"),
    "actions": ("run_id", "machine", "number"),
}
"""What no two rows of a snapshot (of a table, for the trace) have in common.

Rows of waits may be equal: an action may wait twice for the same; and a verdict may be written again where a commit seemed to
have failed.
"""

SHAPES: dict[str, type] = {
    "accepted": list,
    "sent": list,
    "waits": list,
    "fields": list,
    "coverage": dict,
    "evidence": dict,
}
"""What a JSON text is, if it was not too long to be stored whole."""

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since 1970 that are a time in Python."""


def problems(history: History, name: str, system: str | None) -> list[str]:
    """What is wrong with a table whose rows belong to no snapshot, file by file."""
    keys, found = [], list[str]()
    try:
        for file in history.stored.data_files(name, system=system):
            with tables.faults(history.path, name, "read", RaySnapshotError):
                rows = tables.scan(name, [file])
            found += unreadable(name, rows) or wrong(name, rows)
            keys.append(rows.select(ALONE.get(name, ())))
            if len(found) >= LIMITS.told_problems:
                break
    except RaySnapshotError as error:
        return [*found, str(error)]
    return found[: LIMITS.told_problems] or (_twice(name, pa.concat_tables(keys)) if keys and name in ALONE else [])


def without(name: str, rows: pa.Table) -> list[str]:
    """The values that every reader needs, and that are not there, in the columns that were read."""
    return [
        f"{name} has {rows[column].null_count} rows without {column}"
        for column in NEEDED[name]
        if column in rows.column_names and rows[column].null_count
    ]


def untimely(name: str, rows: pa.Table) -> list[str]:
    """The times that Python cannot hold, in the columns that were read: whoever looked at such a row would fall over it."""
    found = []
    for field in rows.schema:
        if pa.types.is_timestamp(field.type):
            ends = pc.min_max(rows[field.name].cast(pa.int64())).as_py()
            if ends["min"] is not None and (ends["min"] < _FIRST or ends["max"] > _LAST):
                found.append(f"{name} has a {field.name} that is no time")
    return found


def unreadable(name: str, rows: pa.Table) -> list[str]:
    """What is so wrong with rows of a table that nothing else can be asked of them."""
    found = without(name, rows) + untimely(name, rows)
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as fault:
        return [*found, f"{name} has texts that are none: {str(fault)[:200]}"]
    numbers = (field.name for field in rows.schema if pa.types.is_int64(field.type))
    return found + [f"{name} has a negative {column}" for column in numbers if (pc.min(rows[column]).as_py() or 0) < 0]


def wrong(name: str, rows: pa.Table) -> list[str]:
    """What else is wrong with rows that are not `unreadable`: their JSON, or rows that are there twice."""
    return list(_json_problems(name, rows)) + (_twice(name, rows) if name in ALONE else [])


def _twice(name: str, rows: pa.Table) -> list[str]:
    keys = list(ALONE[name])
    if rows.num_rows < 2:
        return []
    distinct = rows.select(keys).group_by(keys).aggregate([]).num_rows
    return [f"{name} has {rows.num_rows - distinct} rows twice"] if distinct < rows.num_rows else []


def _json_problems(name: str, rows: pa.Table) -> Iterator[str]:
    count = 0
    for column in JSON_COLUMNS.get(name, ()):
        for begin in range(0, rows.num_rows, LIMITS.parsed_rows):
            for row, text in enumerate(rows[column].slice(begin, LIMITS.parsed_rows).to_pylist(), begin):
                problem = None if text is None else _json_problem(column, text)
                if problem is not None:
                    yield f"{column} in row {row} of {name} is {problem}"
                    count += 1
                if count == LIMITS.told_problems:
                    return


def _json_problem(column: str, text: str) -> str | None:
    try:
        found = strictly_parsed(text)
    except NotStoredError as fault:
        return str(fault)
    except ValueError:
        return "no strict JSON"
    shape = SHAPES.get(column)
    if (
        shape is None
        or isinstance(found, shape)
        or (isinstance(found, dict) and any(key.startswith("$") for key in found))
    ):
        return None
    return f"no JSON {'list' if shape is list else 'object'}"
