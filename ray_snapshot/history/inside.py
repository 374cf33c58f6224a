"""Inside a history: whatever lies below its folder is reached folder by folder, and no link is followed on the way.

A history may be a stranger's file. A link in it could lead any command that reads, writes or removes to other files of
the reader. So every folder is opened by descriptor, from the history's own folder on (which may be a link: that was the
user's choice). Files are read, written, renamed and removed relative to the descriptor of the folder that holds them:
so no other process can put a link there between the check and the use. `top` is the folder of the history, `path`
something below it. Hard links and mounts are not told apart from files and folders of the history. Imports no Ray.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.limits import LIMITS

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe is opened, and refused, without waiting


@contextmanager
def folder(top: Path, path: Path, *, is_made: bool = False, mode: int = 0o777) -> Iterator[int]:
    """A descriptor of the folder `path`, while the block lasts; `is_made`: make what is missing of it.

    Raises `HistoryFormatError` where a link stands in the place of a folder.
    """
    handle = os.open(top, _FOLDER)
    try:
        there = top
        for name in _names(top, path):
            there = there / name
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except OSError as fault:
                if not is_made or fault.errno != errno.ENOENT:
                    _explain(fault, handle, name, top, there, "folder")
                inner = _made(handle, name, top, there, mode)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _names(top: Path, path: Path) -> tuple[str, ...]:
    names = path.relative_to(top).parts
    if ".." in names:
        raise HistoryFormatError(f"history {top}: {path} lies outside of it", path=top)
    return names


def _made(handle: int, name: str, top: Path, there: Path, mode: int) -> int:
    """A descriptor of a new folder in another."""
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=handle)
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
    except OSError as fault:
        _explain(fault, handle, name, top, there, "folder")


def _explain(fault: OSError, handle: int, name: str, top: Path, there: Path, what: str) -> NoReturn:
    """Raise what a person can act on: which link it is, or the same fault with the whole path."""
    if fault.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                raise _link(top, there, what) from None
    raise OSError(fault.errno, fault.strerror, str(there)) from None


def _link(top: Path, path: Path, what: str = "file") -> HistoryFormatError:
    problem = f"{path} is a link: in a history that is no {what}"
    return HistoryFormatError(
        f"history {top}: {problem}, and nothing is followed out of it; put the real {what} in its place, or remove the link",
        path=top,
        problem=problem,
    )


def open_file(top: Path, path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """A descriptor of a regular file; raises `HistoryFormatError` for a link, a pipe, a device."""
    with folder(top, path.parent) as handle:
        try:
            found = os.open(path.name, flags | _FILE, mode, dir_fd=handle)
        except OSError as fault:
            if fault.errno == errno.ENXIO:  # a pipe or a socket without a reader
                raise _no_file(top, path) from None
            _explain(fault, handle, path.name, top, path, "file")
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise _no_file(top, path)


def _no_file(top: Path, path: Path) -> HistoryFormatError:
    problem = f"{path} is no file"
    return HistoryFormatError(f"history {top}: {problem}: put it back from a copy", path=top, problem=problem)


def read_bytes(top: Path, path: Path, most: int) -> bytes:
    """The content of a file of at most `most` bytes; raises `HistoryFormatError` for a larger one."""
    with os.fdopen(open_file(top, path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise HistoryFormatError(
                f"history {top}: {path} has {size} bytes, and no writer of a history makes it larger than {most}: put it"
                " back from a copy",
                path=top,
            )
        return file.read(most)


def create(top: Path, path: Path, mode: int = 0o666) -> int:
    """A descriptor of a new file, to write; folders that are missing are made. Raises `FileExistsError`."""
    with folder(top, path.parent, is_made=True) as handle:
        return os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=handle)


def rename(top: Path, path: Path, new: Path) -> None:
    """Give a file another name in its folder; it replaces what had that name."""
    with folder(top, path.parent) as handle:
        os.rename(path.name, new.name, src_dir_fd=handle, dst_dir_fd=handle)


def write_whole(top: Path, path: Path, begun: Path, write: Callable[[BinaryIO], None], mode: int = 0o666) -> None:
    """A file that is on the disk as `write` writes it, or not there; while that lasts it is called `begun`."""
    handle = create(top, begun, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(handle)
        rename(top, begun, path)
    except BaseException:
        unlink(top, begun)
        raise
    sync_names(top, path, path.parent)


class Begun:
    """A file in the making: written under a name with `_` in front, which readers skip, until it is whole."""

    def __init__(self, top: Path, path: Path) -> None:
        self.top, self.path, self.begun = top, path, path.with_name(f"_{path.name}")
        self.handle = create(top, self.begun)
        self.sink = native(self.handle, "wb")

    def finish(self, first: Path) -> tuple[int, float]:
        """Give it its name, once it is on the disk; returns its bytes, and the time when it was written.

        The names of the folders below `first` are on the disk then, too.
        """
        self.sink.close()
        os.fsync(self.handle)
        about = os.fstat(self.handle)
        rename(self.top, self.begun, self.path)
        os.close(self.handle)
        sync_names(self.top, self.path, first)
        return about.st_size, about.st_mtime

    def abandon(self) -> None:
        """Remove what is there of it."""
        self.sink.close()
        unlink(self.top, self.begun)
        os.close(self.handle)


def unlink(top: Path, path: Path) -> None:
    """Remove a file, or a link itself, if it is still there."""
    with suppress(FileNotFoundError), folder(top, path.parent) as handle:
        os.unlink(path.name, dir_fd=handle)


def sync_names(top: Path, path: Path, first: Path) -> None:
    """Return when the name of a file, and those of the folders between it and `first`, would outlast a power cut."""
    while path != first:
        path = path.parent
        with folder(top, path) as handle:
            os.fsync(handle)


def sync_log(top: Path, log: Path, since: int) -> None:
    """Return when the entries of a Delta log after a version, up to the last, would outlast a power cut."""
    with suppress(FileNotFoundError):
        while True:
            since += 1
            entry = open_file(top, log / f"{since:020}.json")
            os.fsync(entry)
            os.close(entry)
    sync_names(top, log / "any", log)


def entries(top: Path, path: Path) -> list[tuple[Path, os.stat_result]]:
    """What lies in a folder, in the order of names; nothing if there is no such folder."""
    found = []
    with suppress(FileNotFoundError), folder(top, path) as handle, os.scandir(handle) as scanned:
        for entry in scanned:
            with suppress(FileNotFoundError):  # it has just been removed
                found.append((path / entry.name, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda entry: entry[0])


def below(top: Path, path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All that lies below a folder, but for folders; raises `HistoryFormatError` at the first link."""
    for inner, about in entries(top, path):
        if stat.S_ISLNK(about.st_mode):
            raise _link(top, inner)
        if not stat.S_ISDIR(about.st_mode):
            yield inner, about
        elif len(inner.relative_to(top).parts) > LIMITS.folder_depth:
            raise HistoryFormatError(f"history {top}: {inner} lies deeper than any folder of a history", path=top)
        else:
            yield from below(top, inner)


def refuse_links(top: Path, path: Path) -> None:
    """Raise `HistoryFormatError` if there is a link anywhere below a folder, or in its place."""
    for _ in below(top, path):
        pass


def refuse_all_but_files(top: Path, path: Path) -> None:
    """Raise `HistoryFormatError` if anything below a folder is no regular file: opening a pipe or device may never
    end."""
    for inner, about in below(top, path):
        if not stat.S_ISREG(about.st_mode):
            raise _no_file(top, inner)


def exists(top: Path, path: Path) -> bool:
    """Whether there is a regular file; raises `HistoryFormatError` for a link in its place."""
    try:
        os.close(open_file(top, path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def size(top: Path, path: Path) -> int:
    """The bytes of a regular file; raises as `open_file`."""
    handle = open_file(top, path)
    try:
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def sizes(top: Path, paths: Sequence[Path]) -> list[int]:
    """The bytes of each of several files."""
    return [size(top, path) for path in paths]


def now(top: Path) -> float:  # noqa: ARG001 - a store has a clock of its own
    """The time, in seconds since 1970."""
    return time.time()


def check_writable(top: Path) -> None:
    """Raise `OSError` unless files can be written to a folder, which is made if it is not there."""
    top.mkdir(parents=True, exist_ok=True)
    probe(top, top)


def probe(top: Path, path: Path) -> None:
    """Raise `OSError` unless files can be written to a folder of a history."""
    name = f"_probe-{uuid.uuid4().hex}"
    with folder(top, path) as handle:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=handle))
        os.unlink(name, dir_fd=handle)


def log_entries(top: Path, log: Path) -> Iterator[tuple[Path, int, object]]:
    """The files of a Delta log: where, bytes, and what changes if it is replaced; raises for anything but files.

    `deltalake` follows links, and waits at pipes.
    """
    with folder(top, log) as handle, os.scandir(handle) as scanned:
        for entry in scanned:
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # the temporary file of a writer, removed meanwhile
                continue
            if stat.S_ISREG(about.st_mode):
                yield log / entry.name, about.st_size, (about.st_dev, about.st_ino, about.st_mtime_ns)
            else:
                _check_no_file(top, log / entry.name, about)


def _check_no_file(top: Path, entry: Path, about: os.stat_result) -> None:
    """A folder in a log must lead nowhere; all else that is no file is refused."""
    if not (stat.S_ISDIR(about.st_mode) or stat.S_ISLNK(about.st_mode)):
        raise ValueError(f"{entry} is no file")
    for inner, found in below(top, entry):
        if not stat.S_ISREG(found.st_mode) or found.st_size:
            raise ValueError(f"{inner} lies in a folder of the log, and no writer of a history puts anything there")


def open_binary(top: Path, path: Path) -> BinaryIO:
    """A file of bytes; raises as `open_file`."""
    return os.fdopen(open_file(top, path), "rb")


def opened(top: Path, path: Path) -> closing[Any]:
    """A file for Arrow to read."""
    return closing(native_file(top, path))


def native(handle: int, mode: str = "rb") -> Any:
    """Arrow's own file on the file of a descriptor: Arrow reads and writes it without Python, from several threads."""
    import pyarrow as pa

    return pa.OSFile(f"/dev/fd/{handle}", mode)


def native_file(top: Path, path: Path) -> Any:
    """A file for Arrow to read, opened as `open_file` does; no thread of Arrow's needs Python for it."""
    handle = open_file(top, path)
    try:
        return native(handle)
    finally:
        os.close(handle)
