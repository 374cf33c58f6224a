"""Arrow tables on their way between processes: one buffer a table.

Ray pickles a table column by column and chunk by chunk; a snapshot has a hundred columns, and is sent several times. The
Arrow stream format takes a table as a whole, and is read without copying.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa


@cache
def inner(schema: pa.Schema) -> pa.Schema:
    """A table's columns, but for those that have one value in all rows of a snapshot."""
    return pa.schema([item for item in schema if item.name not in ("snapshot_id", "run_id")])


def packed(table: Any) -> pa.Buffer:
    """A table or record batch as one buffer."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write(table)
    return sink.getvalue()


def unpacked(buffer: pa.Buffer) -> pa.Table:
    """The table of a buffer; its columns are views of it."""
    with pa.ipc.open_stream(buffer) as stream:
        return stream.read_all()
