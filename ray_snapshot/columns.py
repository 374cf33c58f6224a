"""Arrow tables on their way between processes: one buffer a table.

Ray pickles a table column by column and chunk by chunk; a snapshot has a hundred columns, and is sent several times. The
Arrow stream format takes a table as a whole, and is read without copying.
"""

from __future__ import annotations

import pickle
from functools import cache
from typing import Any

import pyarrow as pa


@cache
def inner(schema: pa.Schema) -> pa.Schema:
    """A table's columns, but for those that have one value in all rows of a snapshot."""
    return pa.schema([item for item in schema if item.name not in ("snapshot_id", "run_id")])


@cache
def nothing(schema: pa.Schema) -> pa.Table:
    """No rows of these columns; making such a table takes as long as one of a few rows."""
    return inner(schema).empty_table()


def labelled(table: pa.Table, snapshot_id: str, run_id: str) -> pa.Table:
    """Rows with the columns that have one value in a snapshot."""
    for position, (name, value) in enumerate((("snapshot_id", snapshot_id), ("run_id", run_id))):
        table = table.add_column(position, name, pa.repeat(pa.scalar(value), table.num_rows))
    return table


def packed(table: Any, compression: str | None = None) -> pa.Buffer:
    """A table or record batch as one buffer; `compression`: of its columns, as Arrow calls it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write(table)
    return sink.getvalue()


LEAST_SQUEEZED = 60_000
MOST_SQUEEZED = 5_000_000
"""Bytes. Below it a call carries them as they are; above it copying them is cheaper than making them fewer."""


class _Squeezed:
    def __init__(self, pickled: bytes) -> None:
        self.length = len(pickled)
        self.bytes = _codec().compress(pickled, asbytes=True)

    def __reduce__(self) -> tuple[Any, ...]:
        return _expanded, (self.bytes, self.length)


def squeezed(pickled: bytes) -> bytes:
    """A pickle that yields what this one does: a quarter of its bytes if it is worth it (1 ms/MB here, 0.8 to read it)."""
    return pickle.dumps(_Squeezed(pickled), protocol=5) if LEAST_SQUEEZED <= len(pickled) <= MOST_SQUEEZED else pickled


def _expanded(compressed: bytes, length: int) -> Any:
    return pickle.loads(_codec().decompress(compressed, length))


@cache
def _codec() -> pa.Codec:
    return pa.Codec("lz4_raw")


def unpacked(buffer: pa.Buffer) -> pa.Table:
    """The table of a buffer; its columns are views of it."""
    with pa.ipc.open_stream(buffer) as stream:
        return stream.read_all()
