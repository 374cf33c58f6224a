"""What a history answers with: rows that are dictionaries with attributes, beside the Arrow table they came
from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ray_snapshot.history.bounds import DEEPEST_JSON, LONGEST_JSON, MOST_IN_JSON

JSON_COLUMNS = {
    "snapshots": ("coverage",),
    "machines": ("state",),
    "messages": ("args",),
    "verdicts": ("evidence", "detector_spec"),
    "actions": ("accepted", "sent"),
    "classes": ("fields", "json_schema"),
}
"""The columns that hold JSON text, by table; parsed in rows, left as text in Arrow tables."""


class Row(dict[str, Any]):
    """One row: `row["holds"]` and `row.holds`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no column {name!r}; there are {', '.join(self)}") from None


class Records(list[Row]):
    """A list of rows; `.table` is the same as an Arrow table."""

    def __init__(self, name: str, table: pa.Table) -> None:
        super().__init__(parsed(name, table))
        self.table = table


def checked_json(text: str) -> str:
    """A JSON text that is not longer than any that is stored; raises `ValueError`: parsed it takes many times as much."""
    if len(text) > LONGEST_JSON:
        raise ValueError(f"a JSON text of {len(text)} characters, longer than any that is stored")
    return text


def parsed_json(text: str, **how: Any) -> Any:
    """What a JSON text holds, parsed as `json.loads` is told `how`; raises `ValueError` if it is none, or none that is stored.

    What is nested deeper, or holds more lists and objects, than any value that a writer records could be parsed, and not be
    printed.
    """
    found = json.loads(checked_json(text), **how)
    if text.count("[") + text.count("{") > DEEPEST_JSON and _is_too_deep(found):
        raise ValueError(f"a JSON text that is nested more than {DEEPEST_JSON} deep, or of too many lists and objects")
    return found


def _is_too_deep(value: Any) -> bool:
    level, count = [value], 0
    for _ in range(DEEPEST_JSON):
        count += len(level)
        if count > MOST_IN_JSON:
            return True
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, (dict, list))
        ]
    return bool(level)


def parsed(name: str, table: pa.Table) -> Iterator[Row]:
    """The rows of one table with their JSON columns parsed; raises `ValueError` if one is no JSON."""
    columns = JSON_COLUMNS.get(name, ())
    for row in table.to_pylist():
        for column in columns:
            if row[column] is not None:
                row[column] = parsed_json(row[column])
        yield Row(row)
