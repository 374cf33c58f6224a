"""Rows of a snapshot that belong to a few machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.detectors.common import is_any_of
from ray_snapshot.snapshot import Snapshot


def rows_by(table: pa.Table, column: str, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """By name: the rows of a table that have it in this column."""
    found: dict[str, list[dict[str, Any]]] = {}
    if names:
        for row in table.filter(pa.array(is_any_of(table[column], *names))).to_pylist():
            found.setdefault(row[column], []).append(row)
    return found


def classes_of(snapshot: Snapshot, names: Sequence[str]) -> dict[str, str]:
    """The classes of these machines."""
    table = snapshot.tables["machines"].select(["machine", "class_name"])
    rows = table.filter(pa.array(is_any_of(table["machine"], *names))).to_pylist() if names else []
    return {row["machine"]: row["class_name"] for row in rows}
