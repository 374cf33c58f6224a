"""Arrow tables on their way between processes: one buffer a table.

Ray pickles a table column by column and chunk by chunk; a snapshot has a hundred columns, and is sent several times. The
Arrow stream format takes a table as a whole, and is read without copying.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa


def inner(schema: pa.Schema) -> pa.Schema:
    """A table's columns, but for those that have one value in all rows of a snapshot."""
    return _of_schema(schema)[1]


def nothing(schema: pa.Schema) -> pa.Table:
    """No rows of these columns; making such a table takes as long as one of a few rows."""
    return _of_schema(schema)[2]


_OF_SCHEMA: dict[int, tuple[pa.Schema, pa.Schema, pa.Table]] = {}
"""By the identity of a schema (to hash one takes 10 us): itself, its `inner` columns, and no rows of them."""


def _of_schema(schema: pa.Schema) -> tuple[pa.Schema, pa.Schema, pa.Table]:
    found = _OF_SCHEMA.get(id(schema))
    if found is None:
        ours = pa.schema([item for item in schema if item.name not in ("snapshot_id", "run_id")])
        found = _OF_SCHEMA[id(schema)] = (schema, ours, ours.empty_table())
    return found


PIECE_ROWS = 1 << 17
"""A column of one value in more rows is one piece of so many, again and again."""


def alike(value: Any, rows: int) -> pa.ChunkedArray:
    """A column that has this value (an Arrow scalar) in all rows; of ten million it takes no more room than of `PIECE_ROWS`."""
    piece, (whole, rest) = pa.repeat(value, min(rows, PIECE_ROWS)), divmod(rows, PIECE_ROWS)
    return pa.chunked_array([*[piece] * whole, *([piece[:rest]] if rest or not whole else [])])


def labelled(table: pa.Table, snapshot_id: str, run_id: str) -> pa.Table:
    """Rows with the columns that have one value in a snapshot."""
    for position, (name, value) in enumerate((("snapshot_id", snapshot_id), ("run_id", run_id))):
        table = table.add_column(position, name, alike(pa.scalar(value), table.num_rows))
    return table


def packed(table: Any, compression: str | None = None) -> pa.Buffer:
    """A table or record batch as one buffer; `compression`: of its columns, as Arrow calls it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write(table)
    return sink.getvalue()


LEAST_LEAN = 1_000
"""Tables of fewer rows are sent as they are."""

_Batch = tuple[int, list[str], pa.Buffer, pa.Buffer]
"""How many rows; the columns in their order; one row of those that have one value; and the others."""


def lean(table: pa.Table | pa.RecordBatch) -> pa.Buffer | list[_Batch]:
    """A table for another process, without what all rows of a batch have in common, which is there once; see `whole`.

    Of a million channels or messages most columns have one value. To look for that takes 1 ns a value, and a byte of a large
    report takes some 10 ns in all processes on its way.
    """
    if table.num_rows < LEAST_LEAN:
        return packed(table)
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    return [_split(batch) for batch in batches if batch.num_rows]


def whole(sent: pa.Buffer | list[_Batch]) -> pa.Table:
    """The table that was given to `lean`."""
    return pa.Table.from_batches([_joined(*one) for one in sent]) if isinstance(sent, list) else unpacked(sent)


Columns = tuple[int, Mapping[str, pa.Array]]
"""How many rows, and by name what each of them has: an array of so many values, or of the one that all have."""


def unspread(sent: pa.Buffer | list[_Batch]) -> list[Columns]:
    """The same in batches, for those who need no array of a million equal values."""
    if isinstance(sent, list):
        return [(rows, _chunks(unpacked(of_one)) | _chunks(unpacked(others))) for rows, _, of_one, others in sent]
    return in_batches(unpacked(sent))


def in_batches(table: pa.Table | pa.RecordBatch) -> list[Columns]:
    """A table of this process in the same way."""
    batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    return [(batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))) for batch in batches]


def spread(batch: Columns) -> pa.RecordBatch:
    """Such a batch with a value of its own for each row."""
    rows, columns = batch
    whole = {name: one if len(one) == rows else _repeated(one, rows) for name, one in columns.items()}
    return pa.RecordBatch.from_arrays([*whole.values()], [*whole])


def _chunks(table: pa.Table) -> dict[str, pa.Array]:
    """The columns of a table of one batch."""
    return {name: table[name].chunk(0) for name in table.column_names}


def _split(batch: pa.RecordBatch) -> _Batch:
    names = batch.schema.names
    of_one = [name for name, column in zip(names, batch.columns, strict=True) if _has_one_value(column)]
    others = [name for name in names if name not in of_one]
    return batch.num_rows, names, packed(batch.select(of_one).slice(0, 1)), packed(batch.select(others))


def _joined(rows: int, names: list[str], of_one: pa.Buffer, others: pa.Buffer) -> pa.RecordBatch:
    found = {name: _repeated(one, rows) for name, one in _chunks(unpacked(of_one)).items()} | _chunks(unpacked(others))
    return pa.RecordBatch.from_arrays([found[name] for name in names], names)


def _has_one_value(column: pa.Array) -> bool:
    """Whether the values are all the same, as far as can be told quickly; of lists, whether all are empty."""
    if column.null_count:
        return bool(column.null_count == len(column))
    if pa.types.is_list(column.type):
        return not len(column.flatten())
    values = column.indices if pa.types.is_dictionary(column.type) else column
    if pa.types.is_floating(values.type) or not values[0].equals(values[-1]):
        return False  # 0.0 would be -0.0
    import pyarrow.compute as pc  # some 0.2 s of a process that only sends small tables

    return bool(pc.all(pc.equal(values, values[0])).as_py())


def _repeated(one: pa.Array, rows: int) -> pa.Array:
    """So many rows of the value of the one row."""
    if one.null_count:
        return pa.nulls(rows, one.type)
    if pa.types.is_list(one.type):
        return pa.ListArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows + 1), one.values[:0]).cast(one.type)
    return pa.repeat(one[0], rows)


LEAST_SQUEEZED = 60_000
MOST_SQUEEZED = 1_000_000_000
"""Bytes. Fewer a call carries as they are; LZ4 takes no more than twice as many."""


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
