"""A history's files in an object store: the same questions as `inside` answers for a folder.

An object is there whole or not at all, and it is durable when the store has said so: nothing is begun under another name,
and nothing has to be synced. There are no links, pipes and folders. Imports no Ray.
"""

from __future__ import annotations

import io
import stat
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history.stores import StoreFault, client, told
from ray_snapshot.limits import LIMITS

_KEPT: deque[Any] = deque(maxlen=256)
"""Files that Arrow read last: were one of its threads the last to have one, it would need Python for letting it go, also
while Python ends, and end the process by that."""


@dataclass(frozen=True, slots=True)
class About:
    """What is known of an object, by the names that a file's have."""

    st_size: int
    st_mtime: float
    """By the store's own clock."""
    tag: str
    st_mode: int = stat.S_IFREG


def _about(found: Any) -> About:
    changed = found["last_modified"]
    moment = changed.timestamp() if isinstance(changed, datetime) else 0.0
    return About(int(found["size"]), moment, str(found["e_tag"] or found["version"] or ""))


# ---- asking -----------------------------------------------------------------------------------------------------------------


def below(top: StorePath, path: StorePath) -> Iterator[tuple[StorePath, About]]:
    """All objects below a place, in the order of their keys."""
    yield from sorted(_listed(top, path), key=lambda item: item[0])


def _listed(top: StorePath, path: StorePath) -> Iterator[tuple[StorePath, About]]:
    with told(path):
        for chunk in _list(path):
            for item in chunk:
                found = StorePath(path.root, item["path"])
                if ".." in found.key.split("/"):
                    raise HistoryFormatError(f"history {top}: {str(found)[:200]} is the key of no file", path=str(top))
                yield found, _about(item)


def _list(path: StorePath) -> Any:
    import obstore

    return obstore.list(client(path), prefix=path.key or None, chunk_size=1_000)


def entries(top: StorePath, path: StorePath) -> list[tuple[StorePath, About]]:
    """The objects right below a place."""
    return [(found, about) for found, about in below(top, path) if found.parent == path]


def names(path: StorePath) -> list[str]:
    """The names right below a place, of objects and of what has objects below it."""
    import obstore

    with told(path):
        found = obstore.list_with_delimiter(client(path), prefix=path.key or None)
    keys = [*found["common_prefixes"], *(item["path"] for item in found["objects"])]
    return [key.rstrip("/").rsplit("/", 1)[-1] for key in keys if key.rstrip("/") != path.key]


def is_any_below(path: StorePath) -> bool:
    """Whether there is any object below a place."""
    return next(_listed(path, path), None) is not None


def size(top: StorePath, path: StorePath) -> int:  # noqa: ARG001 - as `inside` has it
    """The bytes of an object; raises `FileNotFoundError`."""
    return about(path).st_size


def about(path: StorePath) -> About:
    """What the store knows of an object; raises `FileNotFoundError`."""
    import obstore

    with told(path):
        return _about(obstore.head(client(path), path.key))


def sizes(top: StorePath, paths: Sequence[StorePath]) -> list[int]:
    """The bytes of several objects of one table; raises `FileNotFoundError` if one is not there."""
    if len(paths) < 4:
        return [size(top, path) for path in paths]
    table = top / paths[0].relative_to(top).parts[0]
    known = {found: about.st_size for found, about in _listed(top, table)}
    return [known[path] if path in known else size(top, path) for path in paths]


def exists(top: StorePath, path: StorePath) -> bool:
    """Whether there is an object."""
    try:
        size(top, path)
    except FileNotFoundError:
        return False
    return True


def refuse_links(top: StorePath, path: StorePath) -> None:
    """There are no links in a store."""


def now(top: StorePath) -> float:
    """The time by the store's clock, in seconds since 1970: that of an object which is put for this and removed."""
    probe = top / f"_probe-{uuid.uuid4().hex}"
    put(probe, b"")
    try:
        return about(probe).st_mtime
    finally:
        unlink(top, probe)


def check_writable(top: StorePath) -> None:
    """Raise `StoreFault` unless objects can be put there; nothing is left behind."""
    probe = top / f"_probe-{uuid.uuid4().hex}"
    put(probe, b"")
    unlink(top, probe)


# ---- reading ----------------------------------------------------------------------------------------------------------------


def read_bytes(top: StorePath, path: StorePath, most: int) -> bytes:
    """An object of at most `most` bytes; raises `HistoryFormatError` for a larger one."""
    import obstore

    with told(path):
        found = obstore.get(client(path), path.key)
        if found.meta["size"] > most:
            raise HistoryFormatError(
                f"history {top}: {path} has {found.meta['size']} bytes, and no writer of a history makes it larger than"
                f" {most}: put it back from a copy",
                path=str(top),
            )
        return bytes(found.bytes())


def read_tagged(path: StorePath, most: int) -> tuple[bytes, str] | None:
    """An object and its tag; None if it is not there, or larger."""
    import obstore

    with suppress(FileNotFoundError), told(path):
        found = obstore.get(client(path), path.key)
        if found.meta["size"] <= most:
            return bytes(found.bytes()), _about(found.meta).tag
    return None


def native_file(top: StorePath, path: StorePath) -> Any:
    """An object for Arrow to read: whole in memory if it is small, else by ranges."""
    import pyarrow as pa

    length = size(top, path)
    if length > LIMITS.whole_object_bytes:
        found = pa.PythonFile(Ranged(path, length), mode="r")
        _KEPT.append(found)
        return found
    content = read_bytes(top, path, LIMITS.whole_object_bytes)
    memory = pa.allocate_buffer(len(content))  # Arrow's own: its threads let go of it without Python
    pa.FixedSizeBufferWriter(memory).write(content)
    return pa.BufferReader(memory)


def opened(top: StorePath, path: StorePath) -> closing[Any]:
    """An object for Arrow to read."""
    return closing(native_file(top, path))


def open_binary(top: StorePath, path: StorePath) -> Any:
    """An object as a file of bytes, and nothing of it in memory; raises `FileNotFoundError`."""
    return io.BufferedReader(Ranged(path, size(top, path)), LIMITS.object_piece_bytes)


class Ranged(io.RawIOBase):
    """An object that is read by ranges."""

    def __init__(self, path: StorePath, length: int) -> None:
        self.path, self.length, self.place = path, length, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As of files."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.length}[whence]
        self.place = max(0, base + offset)
        return self.place

    def tell(self) -> int:
        """As of files."""
        return self.place

    def read(self, count: int = -1) -> bytes:
        """As of files; one request."""
        import obstore

        left = max(0, self.length - self.place)
        wanted = left if count is None or count < 0 else min(count, left)
        if not wanted:
            return b""
        with told(self.path):
            found = bytes(obstore.get_range(client(self.path), self.path.key, start=self.place, length=wanted))
        self.place += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        """As of files."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


# ---- writing ----------------------------------------------------------------------------------------------------------------


def put(path: StorePath, content: bytes | IO[bytes]) -> None:
    """Put an object; it replaces another."""
    import obstore

    with told(path):
        obstore.put(client(path), path.key, content)


def put_if(path: StorePath, content: bytes, tag: str | None) -> str | None:
    """Put an object if there is none (`tag` None), or if it still has this tag; its new tag, or None if it was not put."""
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    mode: Any = "create" if tag is None else {"e_tag": tag}
    with told(path):
        try:
            found = obstore.put(client(path), path.key, content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return None
        except FileNotFoundError as fault:
            if "NoSuchBucket" in str(fault):
                raise
            return None
    return str(found["e_tag"] or found["version"] or "")


def unlink(top: StorePath, path: StorePath) -> None:  # noqa: ARG001 - as `inside` has it
    """Remove an object, if it is still there."""
    import obstore

    with suppress(FileNotFoundError), told(path):
        obstore.delete(client(path), path.key)


def write_whole(
    top: StorePath,  # noqa: ARG001 - as `inside` has it
    path: StorePath,
    begun: StorePath,  # noqa: ARG001 - as `inside` has it
    write: Callable[[Any], None],
    mode: int = 0o666,  # noqa: ARG001 - as `inside` has it
) -> None:
    """An object as `write` writes it, or none."""
    with tempfile.SpooledTemporaryFile(LIMITS.spooled_bytes) as file:
        write(file)
        file.seek(0)
        put(path, file)


class Begun:
    """An object in the making: it waits in a file of this computer, and is put when it is whole."""

    def __init__(self, top: StorePath, path: StorePath) -> None:  # noqa: ARG002 - as `inside` has it
        import pyarrow as pa

        self.path = path
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - `finish` and `abandon` close it
        self.sink = pa.PythonFile(self.file, mode="w")

    def finish(self, first: StorePath) -> tuple[int, float]:  # noqa: ARG002 - as `inside` has it
        """Put it; returns its bytes, and the time when it was written."""
        self.sink.flush()
        self.file.flush()
        length = self.file.seek(0, io.SEEK_END)
        self.file.seek(0)
        put(self.path, self.file)
        found = about(self.path)
        if found.st_size != length:
            raise StoreFault(f"{self.path} has {found.st_size} bytes, and {length} were put")
        self.file.close()
        return length, found.st_mtime

    def abandon(self) -> None:
        """Nothing is left of it, unless it was finished."""
        self.file.close()


def sync_log(top: StorePath, log: StorePath, since: int) -> None:
    """What a store has taken is durable."""


def log_entries(top: StorePath, log: StorePath) -> Iterator[tuple[StorePath, int, object]]:
    """The files of a Delta log: where, bytes, and what changes if it is replaced."""
    for path, about in _listed(top, log):
        yield path, about.st_size, about.tag
