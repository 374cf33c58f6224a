"""The writers of a history: a record for each, held by a lock while it lives, so that its leftovers can be told.

A record is a file `_writers/<owner>.json` in the history, locked by its process. Before a writer commits anything, it
notes there which snapshots it is about to write or to drop; when that is done, it removes the record. A record that no
process has locked is of a writer that died: only then, and only by the record, is anything removed. Imports no Ray.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.history import inside, leases
from ray_snapshot.history.leases import FOLDER
from ray_snapshot.limits import LIMITS

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def owner_of(history: AnyPath, key: str) -> Owner | leases.Lease:
    """A new writer's record, in a folder or in a store."""
    return leases.Lease(history, key) if isinstance(history, StorePath) else Owner(history, key)


class Owner:
    """This writer's record; `key` says what it does: that of its system, or of upkeep."""

    def __init__(self, history: Path, key: str) -> None:
        self.owner = uuid.uuid4().hex[:12]
        self.history = history
        self.path = history / FOLDER / f"{self.owner}.json"
        self.about = {"key": key, "host": socket.gethostname(), "pid": os.getpid()}
        self.file: IO[str] | None = None

    def intend(self, snapshot_ids: Collection[str]) -> None:
        """Note which snapshots are about to be written or dropped; an empty collection: nothing is under way.

        Each note is a line of its own: if writing it is cut short, the line before it still counts.
        """
        file = self._open()
        if not snapshot_ids:
            file.seek(0)
            file.truncate()
        json.dump({**self.about, "snapshot_ids": sorted(snapshot_ids)}, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())

    def check(self) -> None:
        """Nothing can take a lock away."""

    def close(self) -> None:
        """Remove the record: all is done, and there would be nothing to clean up. `intend` makes a new one."""
        if self.file is not None:
            inside.unlink(self.history, self.path)
            self.file.close()
            self.file = None

    def _open(self) -> IO[str]:
        while self.file is None:
            with inside.folder(self.history, self.path.parent, is_made=True):
                pass
            file = os.fdopen(inside.open_file(self.history, self.path, _APPEND), "a", encoding="utf-8")
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_at(self.history, self.path, file):
                self.file = file
            else:  # another process took it for a dead writer's, and removed it, before it was locked
                file.close()
        return self.file


def _is_at(history: Path, path: Path, file: IO[str]) -> bool:
    """Whether an open file is the one that lies at `path`."""
    with suppress(FileNotFoundError), inside.folder(history, path.parent) as folder:
        there = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        return os.path.samestat(os.fstat(file.fileno()), there)
    return False


@dataclass(frozen=True, slots=True)
class Dead:
    """A writer that died; the lock on its record is ours until `done`, so that no other process cleans up after it."""

    owner: str
    key: str
    snapshot_ids: list[str]
    history: Path
    path: Path
    file: IO[str]

    def done(self) -> None:
        """Remove its record: all that it left is gone."""
        inside.unlink(self.history, self.path)
        self.file.close()

    def leave(self) -> None:
        """Give the lock back and keep the record: not all is gone, and the next upkeep tries again."""
        self.file.close()


def dead_writers(
    history: AnyPath, key: str | None = None, looks: leases.Looks | None = None
) -> Iterator[Dead | leases.Dead]:
    """Writers that died while they had work under way; `key`: only those whose record has this key.

    Of a history in a folder: those of this computer. In a store: those that were looked at for long enough.
    """
    if isinstance(history, StorePath):
        yield from leases.dead_writers(history, key, looks or leases.Looks())
    else:
        yield from _dead_here(history, key)


def _dead_here(history: Path, key: str | None) -> Iterator[Dead]:
    for path, about in inside.entries(history, history / FOLDER):
        if (
            path.suffix != ".json" or not stat.S_ISREG(about.st_mode) or about.st_size > LIMITS.writer_record_bytes
        ):  # no writer's
            continue
        with suppress(OSError):
            handle = inside.open_file(history, path, os.O_RDWR)
            file = os.fdopen(handle, "r+", encoding="utf-8", errors="replace")
            found = _held(history, path, file, key)
            if found is None:
                file.close()
            else:
                yield found


def _held(history: Path, path: Path, file: IO[str], key: str | None) -> Dead | None:
    """The writer of a record, if it is dead (so the record can be locked) and its key is `key` (None: any)."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it lives
        return None
    if not _is_at(history, path, file):  # it has just closed
        return None
    about = _about(file)
    if about.get("host", socket.gethostname()) != socket.gethostname() or (
        key is not None and about.get("key", key) != key
    ):
        return None
    ids = about.get("snapshot_ids")
    listed = [item for item in ids if isinstance(item, str)] if isinstance(ids, list) else []
    return Dead(path.stem, str(about.get("key", "")), listed, history, path, file)


def _about(file: IO[str]) -> dict[str, Any]:
    """What a record says: its last whole line; nothing if there is none, for then nothing had been begun."""
    found: dict[str, Any] = {}
    for line in file:
        try:
            about = json.loads(line)
        except (ValueError, RecursionError):
            continue
        found = about if isinstance(about, dict) else found
    return found
