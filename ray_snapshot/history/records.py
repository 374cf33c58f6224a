"""What a history answers with: rows that are dictionaries with attributes, beside the Arrow table they came from.

And rows on their way in, without what is redacted. Imports no Ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.json_text import parsed_json

JSON_COLUMNS = {
    "snapshots": ("coverage",),
    "machines": ("state",),
    "messages": ("args",),
    "verdicts": ("evidence", "detector_spec"),
    "actions": ("accepted", "sent", "waits"),
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

    def to_arrow(self) -> pa.Table:
        """The same rows as an Arrow table; JSON columns are text."""
        return self.table

    def to_pandas(self) -> Any:
        """The same rows as a pandas DataFrame; pandas comes with the extra `spark`."""
        return self.table.to_pandas()


def parsed(name: str, table: pa.Table) -> Iterator[Row]:
    """The rows of one table with their JSON columns parsed; raises `ValueError` if one is no JSON."""
    columns = JSON_COLUMNS.get(name, ())
    for row in table.to_pylist():
        for column in columns:
            if row[column] is not None:
                row[column] = parsed_json(row[column])
        yield Row(row)


def purged(name: str, table: pa.Table) -> pa.Table:
    """Rows of the table `name` without what is redacted here: the process that recorded them may not have known the names."""
    for column in JSON_COLUMNS.get(name, ()) if redaction.is_active else ():
        matches = pc.fill_null(pc.match_substring_regex(table[column], redaction.pattern()), False)
        if pc.any(matches).as_py():
            texts = [
                _purged_json(text) if has_name else text
                for text, has_name in zip(table[column].to_pylist(), matches.to_pylist(), strict=True)
            ]
            place = table.schema.get_field_index(column)
            table = table.set_column(place, table.schema.field(place), pa.array(texts, pa.string()))
    return table


def _purged_json(text: str) -> str:
    try:
        return json.dumps(redaction.purged(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # what its names hold cannot be told: none of it is kept
        return json.dumps(redaction.mark("unreadable"))
