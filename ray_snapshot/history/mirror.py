"""A history of an object store, copied into a folder of this computer: for programs that read files only, like Spark.

A copy has the log of each table as far as it was read, and the files of that version; `refresh` brings what came since. So
versions mean the same in both. Nothing writes into a copy. Imports no Ray.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import inside, objects, tables
from ray_snapshot.limits import LIMITS
from ray_snapshot.schema import TABLES

_LAST = ("snapshots",)
"""The table that is read first and copied last: what it lists, the others have."""


class Mirror:
    """The copy in `folder` of the history at `source`."""

    def __init__(self, source: StorePath, folder: Path, most_bytes: int = LIMITS.mirror_bytes) -> None:
        self.source, self.folder, self.most_bytes = source, folder, most_bytes
        self.copied_bytes = 0

    def refresh(self) -> None:
        """Bring what has come since; raises `HistoryFormatError` for what is damaged, or too large to be copied."""
        for attempt in range(LIMITS.read_attempts):
            try:
                for name, version, files in self._plan():
                    self._copy(name, version, files)
                return
            except FileNotFoundError as fault:  # compacted and vacuumed meanwhile
                if attempt == LIMITS.read_attempts - 1:
                    raise HistoryFormatError(
                        f"history {self.source}: a file of it is gone: {fault}; see `ray-snapshot history verify`",
                        path=self.source,
                    ) from fault

    def missing_bytes(self) -> int:
        """The bytes that `refresh` would copy, of rows."""
        return sum(size for _, _, files in self._plan() for _, size in files)

    def _plan(self) -> list[tuple[str, int, list[tuple[StorePath, int]]]]:
        """Table by table: its version, and the files of it that are not here, with their bytes."""
        found = []
        for name in [*_LAST, *(name for name in TABLES if name not in _LAST)]:
            if tables.has_log(self.source / name):
                table = tables.open_table(self.source, name)
                with tables.faults(self.source, name, "read", HistoryFormatError):
                    files = tables.data_files(self.source, name, table)
                    sizes = tables.check_files(files)
                missing = [
                    (file.path, size)
                    for file, size in zip(files, sizes, strict=True)
                    if isinstance(file.path, StorePath) and not self._here(file.path).exists()
                ]
                found.append((name, int(table.version()), missing))
        self._check_room(sum(size for _, _, files in found for _, size in files))
        return sorted(found, key=lambda item: item[0] in _LAST)

    def _check_room(self, size: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        room = min(self.most_bytes - self.copied_bytes, shutil.disk_usage(self.folder).free - LIMITS.spare_disk_bytes)
        if size > room:
            raise HistoryFormatError(
                f"history {self.source}: {size:,} bytes would have to be copied to this computer, and {max(0, room):,} may be:"
                " keep fewer snapshots (ray-snapshot history compact --keep), set TMPDIR to a larger disk, or read it with"
                ' spark.read.format("ray_snapshot"), which copies nothing',
                path=self.source,
            )

    def _copy(self, name: str, version: int, files: list[tuple[StorePath, int]]) -> None:
        for path, size in files:
            self._fetch(path, size)
            self.copied_bytes += size
        log = self.source / name / tables.LOG
        for path, size, _ in objects.log_entries(self.source, log):
            if _version(path.name) <= version and path.parent == log and not self._here(path).exists():
                self._fetch(path, size)

    def _here(self, path: StorePath) -> Path:
        return self.folder / path.relative_to(self.source)

    def _fetch(self, path: StorePath, size: int) -> None:
        """Copy one object; it gets its name when it is whole."""
        here = self._here(path)

        def write(file: object) -> None:
            for piece in _pieces(path, size):
                file.write(piece)  # type: ignore[attr-defined]

        inside.write_whole(self.folder, here, here.with_name(f"_{here.name}"), write)


def _pieces(path: StorePath, size: int) -> Iterator[bytes]:
    ranged = objects.Ranged(path, size)
    while piece := ranged.read(LIMITS.object_piece_bytes):
        yield piece


def _version(name: str) -> int:
    """The version that a file of a log is of; past all versions if it is of none."""
    first = name.partition(".")[0]
    return int(first) if first.isdecimal() and len(first) == 20 else 2**63
