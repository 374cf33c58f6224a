"""How much a file may become in memory: a small file of a stranger can stand for any number of rows and bytes.

Equal texts take next to nothing in Parquet, and equal rows neither. So before rows are read, the file's footer is asked how
many there are, and the texts that it stores once for many rows are measured, without a copy for each row. What a file may
become depends on its own size: files of real snapshots become 15 to 25 times as large, and have 7 bytes a row or more.
Imports no Ray.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import AnyPath
from ray_snapshot.limits import LIMITS

_FIXED = 16
"""The most bytes that a value takes beside its text: the value or the offset, and what a list adds."""


class Allowance:
    """How much of the rows that are read together has been used, file by file; raises `ValueError` for too much."""

    def __init__(self, size: int) -> None:
        self.bytes = max(LIMITS.read_bytes, LIMITS.read_bytes_per_byte * size)
        self.rows = max(LIMITS.read_rows, LIMITS.read_rows_per_byte * size)

    def use(self, path: AnyPath, rows: int, size: int) -> None:
        """Subtract some rows of a file, or the bytes that they take in memory."""
        self.rows -= rows
        self.bytes -= size
        if rows < 0 or size < 0 or self.rows < 0 or self.bytes < 0:
            raise ValueError(
                f"{path} stands for more rows or text than a file of its size may, and would exhaust memory"
            )


def check_file(size: int, path: AnyPath, source: Any) -> None:
    """Raise `ValueError` if a whole file takes more memory than one of its size may; `source()` opens it for Arrow."""
    import pyarrow.parquet as pq

    with source() as file, pq.ParquetFile(file) as parquet:
        about = parquet.metadata
        names = {about.schema.column(place).path for place in range(about.num_columns)}
        check_groups(Allowance(size), path, about, range(about.num_row_groups), names, source)


def check_groups(
    allowance: Allowance, path: AnyPath, about: Any, groups: Iterable[int], columns: Collection[str], source: Any
) -> None:
    """Use the allowance up for groups of rows of a file, in some of its columns; `about`: its footer.

    Raises `ValueError` when it is used up.
    """
    repeated: dict[str, list[int]] = {}
    rows = size = 0
    for number in groups:
        group = about.row_group(number)
        rows += group.num_rows
        for name, kind, stored, values, is_repeated in map(_FACTS, map(group.column, range(group.num_columns))):
            if name not in columns and "." not in name:
                continue
            if stored < 0 or values < 0:
                raise ValueError(f"{path} has a footer of which nothing fits")
            size += stored + _FIXED * values
            if kind == "BYTE_ARRAY" and is_repeated and stored * values > LIMITS.suspicious_bytes:
                repeated[name] = [*repeated.get(name, ()), number]
    allowance.use(path, rows, size)
    if repeated:
        _measure(allowance, path, about, repeated, source)


def _measure(allowance: Allowance, path: AnyPath, about: Any, repeated: dict[str, list[int]], source: Any) -> None:
    """Use the allowance up for texts that are stored once for many rows, each counted as often as it stands there."""
    import pyarrow.parquet as pq

    with source() as file, pq.ParquetFile(file, metadata=about, read_dictionary=list(repeated)) as parquet:
        for name, numbers in repeated.items():
            for begin in range(0, len(numbers), LIMITS.looked_at_groups):
                found = parquet.read_row_groups(numbers[begin : begin + LIMITS.looked_at_groups], columns=[name])
                allowance.use(path, 0, sum(map(_length, found.column(0).chunks)))


_FACTS = attrgetter("path_in_schema", "physical_type", "total_uncompressed_size", "num_values", "has_dictionary_page")


def _length(chunk: pa.Array) -> int:
    kind = chunk.type
    if pa.types.is_struct(kind):
        return sum(map(_length, chunk.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _length(chunk.flatten())
    if not pa.types.is_dictionary(chunk.type):
        return int(chunk.nbytes)
    lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(chunk.indices.drop_null())).as_py() or 0
