"""Columns that hold more text than one Arrow array can, which is 2 GiB: they come in several pieces, and stay so.

Arrow makes several pieces of its own accord where it reads Python's texts, or joins the pieces of a table. Not where it puts
rows into another order: that is here. What makes one array of a column of states or arguments fails where they are large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MOST_TOGETHER = 2**31 - 1
"""Bytes of text, at most, in one array."""

PIECE = 2**30
"""So much text is in a piece, about, where a column has more than one may hold."""


def joined(columns: Iterable[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    """These columns of one type (at least one), one behind the other."""
    pieces = [column.chunks if isinstance(column, pa.ChunkedArray) else [column] for column in columns]
    return pa.chunked_array([piece for some in pieces for piece in some])


def taken(rows: pa.Table, places: pa.Array) -> pa.Table:
    """The rows at these places, each at most once."""
    if rows.nbytes <= MOST_TOGETHER:
        return rows.take(places)
    wide = rows.cast(_wide(rows.schema)).combine_chunks()
    pieces = [wide.take(places.slice(begin, end - begin)).cast(rows.schema) for begin, end in _pieces(wide, places)]
    return pa.concat_tables(pieces)


def in_order(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows in ascending order of these columns, nulls last."""
    return taken(rows, pc.sort_indices(rows, sort_keys=[(key, "ascending") for key in keys]))


def picked(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The values at these places, at least one and in ascending order, that fit into one array."""
    begins = np.cumsum([0, *map(len, column.chunks)])
    edges = np.searchsorted(rows, begins)
    pieces = zip(column.chunks, begins.tolist(), pairwise(edges.tolist()), strict=False)
    return pa.concat_arrays(
        [piece.take(pa.array(rows[first:end] - begin)) for piece, begin, (first, end) in pieces if end > first]
    )


def _pieces(wide: pa.Table, places: pa.Array) -> list[tuple[int, int]]:
    """From where to where `places` are taken together."""
    lengths = [
        pc.fill_null(pc.binary_length(wide[name]), 0)
        for name in wide.column_names
        if pa.types.is_large_string(wide[name].type)
    ]
    size: npt.NDArray[np.int64] = sum((length.to_numpy() for length in lengths), start=np.zeros(len(wide), np.int64))
    ends = np.flatnonzero(np.diff(size[places.to_numpy()].cumsum() // PIECE)) + 1
    edges = [0, *ends.tolist(), len(places)]
    return [*pairwise(edges)]


def _wide(schema: pa.Schema) -> pa.Schema:
    """The same columns, of which each holds as much text as there may be."""
    return pa.schema([item.with_type(pa.large_string()) if item.type == pa.string() else item for item in schema])
