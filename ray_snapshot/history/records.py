"""What a history answers with: rows that are dictionaries with attributes, beside the Arrow table they came
from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

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
