"""Rows without what is redacted: looked at once more on their way into a history. Imports no Ray."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.history.records import JSON_COLUMNS

_FREE_TEXTS = {"snapshots": ("abort_reason",), "actions": ("raised",), "verdicts": ("sentence",)}


def purged(found: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables (by name) without what is redacted in this process: the process that recorded the rows may not have known of it.

    A secret that is met on the way may also stand in a row that was done before: then all rows are done once more.
    """
    known = -1
    while redaction.is_active and known != redaction.secret_count():
        known = redaction.secret_count()
        found = {name: _purged_table(name, table, redaction.pattern()) for name, table in found.items()}
    return found


def _purged_table(name: str, table: pa.Table, pattern: str | None) -> pa.Table:
    if pattern is None:
        return table
    for column in JSON_COLUMNS.get(name, ()):
        table = _rewritten(table, column, pattern, _purged_json)
    for column in _FREE_TEXTS.get(name, ()):
        table = _rewritten(table, column, pattern, redaction.scrubbed)
    return _with_obstacles_purged(table) if "obstacles" in table.column_names else table


def _with_obstacles_purged(table: pa.Table) -> pa.Table:
    """`table` with its lists of obstacles, which may hold texts of errors, rewritten."""
    texts = [listed and [redaction.scrubbed(text) for text in listed] for listed in table["obstacles"].to_pylist()]
    place = table.schema.get_field_index("obstacles")
    return table.set_column(place, table.schema.field(place), pa.array(texts, table.schema.field(place).type))


def _rewritten(table: pa.Table, column: str, pattern: str, rewrite: Callable[[str], str]) -> pa.Table:
    """`table` with those texts of one column rewritten that match."""
    matches = pc.fill_null(pc.match_substring_regex(table[column], pattern), False)
    if not pc.any(matches).as_py():
        return table
    texts = [
        rewrite(text) if found else text
        for text, found in zip(table[column].to_pylist(), matches.to_pylist(), strict=True)
    ]
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(place), pa.array(texts, table.schema.field(place).type))


def _purged_json(text: str) -> str:
    try:
        return json.dumps(redaction.purged(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # it cannot be parsed, so a secret in it cannot be found: none of it is kept
        return json.dumps(redaction.mark("unreadable"))
