"""Where a history is: a folder of this computer, or a place in an object store; who asks for its files asks here.

`inside` answers for folders, and follows no link in them; `objects` for stores. Imports no Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.history import inside, objects


class Begun(Protocol):
    """A file in the making: what is written to `sink` gets its name when it is finished, or never."""

    sink: Any

    def finish(self, first: Any) -> tuple[int, float]:
        """The file is there for good; returns its bytes, and when it was written."""

    def abandon(self) -> None:
        """Nothing is left of it."""


class Files(Protocol):
    """The files of a history. `top`: where the history is; `path`: something below it."""

    def Begun(self, top: Any, path: Any) -> Begun:
        """A new file."""

    def below(self, top: Any, path: Any) -> Iterator[tuple[Any, Any]]:
        """All files below a folder, with `st_size`, `st_mtime`, `st_mode`."""

    def entries(self, top: Any, path: Any) -> list[tuple[Any, Any]]:
        """What lies in a folder; nothing if there is none."""

    def exists(self, top: Any, path: Any) -> bool:
        """Whether there is a file."""

    def sizes(self, top: Any, paths: Sequence[Any]) -> list[int]:
        """The bytes of several files of one table; raises `FileNotFoundError`."""

    def opened(self, top: Any, path: Any) -> AbstractContextManager[Any]:
        """A file for Arrow to read, while the block lasts."""

    def native_file(self, top: Any, path: Any) -> Any:
        """A file for Arrow to read."""

    def open_binary(self, top: Any, path: Any) -> BinaryIO:
        """A file of bytes."""

    def read_bytes(self, top: Any, path: Any, most: int) -> bytes:
        """The content of a file that is no larger."""

    def write_whole(
        self, top: Any, path: Any, begun: Any, write: Callable[[BinaryIO], None], mode: int = 0o666
    ) -> None:
        """A file as `write` writes it, or none; `begun`: its name until then, in a folder."""

    def unlink(self, top: Any, path: Any) -> None:
        """Remove a file, if it is there."""

    def log_entries(self, top: Any, log: Any) -> Iterator[tuple[Any, int, object]]:
        """The files of a Delta log: where, bytes, and what changes if it is replaced."""

    def sync_log(self, top: Any, log: Any, since: int) -> None:
        """Return when the entries of a Delta log behind a version would outlast a power cut."""

    def refuse_links(self, top: Any, path: Any) -> None:
        """Raise `HistoryFormatError` if there is a link below."""

    def check_writable(self, top: Any) -> None:
        """Raise `OSError` unless files can be written there."""

    def now(self, top: Any) -> float:
        """The time by the clock that dates the files, in seconds since 1970."""


def at(path: AnyPath) -> Files:
    """Who answers for the files of a history, or of a part of it."""
    return objects if isinstance(path, StorePath) else inside
