"""What a source can read again from any position: a text file, a folder of Parquet files, a sequence that a function makes.

A reader is a plain value that says what is read; `open(position)` begins to read there (None: at the beginning). A
position is a plain value, too: it is in the source's state, so in the snapshot. A source that opens at a recorded
position gets what comes behind it, or `SourceChangedError` if that is not the same data any more. Imports no Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ray_snapshot.errors import SettingError, SourceChangedError

REMEMBERED = 64
"""So many bytes in front of a position are part of it: a file that was cut and has grown again has others there."""

LONGEST_LINE = 64 * 1_024 * 1_024


class Reading(Protocol):
    """A reader at work."""

    @property
    def position(self) -> Any:
        """Where the next batch begins."""

    def read(self, most: int, is_final: bool) -> list[Any]:
        """The next rows, at most so many; none if there are none now. `is_final`: whether nothing more will be added."""


class Reader(Protocol):
    """What is read."""

    @property
    def follow(self) -> bool:
        """Whether more may be added while it is read."""

    def open(self, position: Any) -> Reading:
        """Begin to read at a position."""


# ---- text -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextFile:
    """The lines of a text file, without their ends; `follow`: it is being appended to, and half a line waits for its end.

    A position is an offset in bytes, with the bytes in front of it: a file that was truncated, replaced or rotated is an error.
    """

    path: str
    follow: bool = False
    encoding: str = "utf-8"
    errors: str = "strict"
    chunk_bytes: int = 65_536
    """About so many bytes are a batch, if that is not too many lines."""

    def open(self, position: Any) -> Reading:
        """Begin to read at a position."""
        return _Lines(self, position or {"offset": 0, "before": ""})


class _Lines:
    def __init__(self, spec: TextFile, position: dict[str, Any]) -> None:
        self.spec = spec
        self.offset = int(position["offset"])
        self.before = bytes.fromhex(position["before"])

    @property
    def position(self) -> dict[str, Any]:
        return {"offset": self.offset, "before": self.before.hex()}

    def read(self, most: int, is_final: bool) -> list[str]:
        try:
            with open(self.spec.path, "rb") as file:
                self._check(file)
                whole = self._whole_lines(file, is_final)
        except FileNotFoundError:
            if self.offset == 0 and not is_final:
                return []  # it is still to be made
            raise self._changed("is gone") from None
        lines = _split(whole)[:most]
        self._go_behind(b"".join(lines))
        return [line.removesuffix(b"\n").decode(self.spec.encoding, self.spec.errors) for line in lines]

    def _check(self, file: BinaryIO) -> None:
        size = file.seek(0, 2)
        if size < self.offset:
            raise self._changed(
                f"has {size} bytes and had been read up to byte {self.offset}: it was truncated or rotated"
            )
        file.seek(self.offset - len(self.before))
        if file.read(len(self.before)) != self.before:
            raise self._changed(
                f"has other bytes in front of byte {self.offset} than when that was read: it was replaced"
            )

    def _whole_lines(self, file: BinaryIO, is_final: bool) -> bytes:
        """A chunk from here up to the end of a line; what is no line yet only if nothing more comes."""
        found = b""
        while len(found) <= LONGEST_LINE:
            more = file.read(self.spec.chunk_bytes)
            found += more
            end = found.rfind(b"\n") + 1
            if end:
                return found[:end]
            if not more:
                return found if is_final else b""
        raise SourceChangedError(
            f"{self.spec.path}: the line at byte {self.offset} is longer than {LONGEST_LINE} bytes: is it text?",
            path=self.spec.path,
        )

    def _go_behind(self, taken: bytes) -> None:
        self.offset += len(taken)
        self.before = (self.before + taken)[-REMEMBERED:]

    def _changed(self, what: str) -> SourceChangedError:
        return SourceChangedError(
            f"{self.spec.path} {what}; a source can only be replayed from a file that is appended to: put it back as it was,"
            " or begin anew",
            path=self.spec.path,
        )


def _split(text: bytes) -> list[bytes]:
    """Lines with their ends; one kind of end (`bytes.splitlines` knows others)."""
    *whole, rest = text.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


# ---- Parquet ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetFolder:
    """The rows of the Parquet files of a folder, as dictionaries; `follow`: files may be added while it is read.

    Files are read in the order of their names, one that was added late when its turn has come or has passed. Names that begin
    with `_` or `.` are skipped: a file must come in whole, by a rename. A position is the files that are done, and the row in
    the one that is being read; that one must stay.
    """

    path: str
    columns: tuple[str, ...] | None = None
    follow: bool = False

    def open(self, position: Any) -> Reading:
        """Begin to read at a position."""
        return _Rows(self, position or {"done": [], "file": None, "row": 0, "rows": 0})


class _Rows:
    def __init__(self, spec: ParquetFolder, position: dict[str, Any]) -> None:
        self.spec = spec
        self.done: list[str] = list(position["done"])
        self.file: str | None = position["file"]
        self.row, self.rows = int(position["row"]), int(position["rows"])
        self.opened: Any = None
        self.group: tuple[int, int, Any] = (0, 0, None)
        """(its first row, the row behind it, its rows) of the group of rows that is being read."""

    @property
    def position(self) -> dict[str, Any]:
        return {"done": list(self.done), "file": self.file, "row": self.row, "rows": self.rows}

    def read(self, most: int, is_final: bool) -> list[dict[str, Any]]:  # noqa: ARG002 - files come in whole
        while self.file is not None or self._begin_next():
            self._open()
            if self.row < self.rows:
                first, end, rows = self._group()
                found: list[dict[str, Any]] = rows.slice(self.row - first, min(most, end - self.row)).to_pylist()
                self.row += len(found)
                return found
            self.done.append(str(self.file))
            self.file, self.opened = None, None
        return []

    def _begin_next(self) -> bool:
        try:
            names = {path.name for path in Path(self.spec.path).iterdir() if path.suffix == ".parquet"}
        except FileNotFoundError:
            raise SourceChangedError(f"{self.spec.path}: there is no such folder", path=self.spec.path) from None
        waiting = sorted(name for name in names.difference(self.done) if name[0] not in "_.")
        if waiting:
            self.file, self.row, self.rows = waiting[0], 0, -1
        return bool(waiting)

    def _open(self) -> None:
        if self.opened is not None:
            return
        import pyarrow.parquet as pq

        path = Path(self.spec.path) / str(self.file)
        try:
            self.opened = pq.ParquetFile(path)
        except FileNotFoundError:
            raise SourceChangedError(
                f"{path} is gone; it had been read up to row {self.row}: put it back", path=str(path)
            ) from None
        count = self.opened.metadata.num_rows
        if self.rows not in (-1, count):
            raise SourceChangedError(
                f"{path} has {count} rows and had {self.rows} when a part of it was read: it was replaced",
                path=str(path),
            )
        self.rows, self.group = count, (0, 0, None)

    def _group(self) -> tuple[int, int, Any]:
        first, end, rows = self.group
        if rows is None or not first <= self.row < end:
            first, about = 0, self.opened.metadata
            for number in range(about.num_row_groups):
                end = first + about.row_group(number).num_rows
                if self.row < end:
                    columns = None if self.spec.columns is None else list(self.spec.columns)
                    self.group = first, end, self.opened.read_row_group(number, columns=columns)
                    break
                first = end
        return self.group


# ---- a sequence -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """What `factory(*args)` yields, which must be the same each time; a position is a count.

    After a restore it is made anew and skipped forward: by its own `seek(count)`, if it has that, or item by item.
    """

    factory: Callable[..., Iterable[Any]]
    args: tuple[Any, ...] = field(default=())

    @property
    def follow(self) -> bool:
        """False: a sequence ends by itself."""
        return False

    def open(self, position: Any) -> Reading:
        """Begin to read at a position."""
        return _Items(self, int(position or 0))


class _Items:
    def __init__(self, spec: Generated, position: int) -> None:
        made = spec.factory(*spec.args)
        if not isinstance(made, Iterable):
            raise SettingError(f"Generated({spec.factory!r}): it returned {made!r}, which cannot be iterated over")
        self.position = position
        if hasattr(made, "seek"):
            made.seek(position)
            self.items: Iterator[Any] = iter(made)
            return
        self.items = iter(made)
        skipped = sum(1 for _ in islice(self.items, position))
        if skipped < position:
            raise SourceChangedError(
                f"Generated({spec.factory!r}) yielded {skipped} items, and had yielded {position} before: it must yield the"
                " same each time",
                path=None,
            )

    def read(self, most: int, is_final: bool) -> list[Any]:  # noqa: ARG002 - it ends by itself
        found = list(islice(self.items, most))
        self.position += len(found)
        return found
