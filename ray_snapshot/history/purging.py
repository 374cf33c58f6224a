"""Rows without what is redacted: looked at once more on their way into a history. Imports no Ray."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.history.records import JSON_COLUMNS


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
