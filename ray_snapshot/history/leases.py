"""The writers of a history in an object store: a record for each, which its writer renews; no lock reaches so far.

A record is an object `_writers/<owner>.json`, as in a folder (see `owners`). Every `renew_lease_s` its writer puts it anew, if
it still has the tag (ETag) that the writer's last put has given it. Who wants to clean up looks at the tag, and again later:
a record whose tag is the same for `lease_s` of the looker's own monotonic clock is of a writer that died. No clock of one
computer is held against that of another.

A writer that only slept may wake up behind that. So whoever cleans up first takes the record over, by a put on its tag, and
then commits to `snapshots` that this writer is over (`commits.end`); a writer whose commit comes behind that is refused by
Delta itself, whatever its clock says. Only then are the rows removed that it had not listed. Imports no Ray.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import objects
from ray_snapshot.history.stores import StoreFault
from ray_snapshot.limits import LIMITS

FOLDER = "_writers"


Clock = Callable[[], float]


class Lease:
    """This writer's record; `key` says what it does: that of its system, or of upkeep."""

    def __init__(self, history: StorePath, key: str, clock: Clock = time.monotonic) -> None:
        self.owner = uuid.uuid4().hex[:12]
        self.history = history
        self.path = history / FOLDER / f"{self.owner}.json"
        self.about: dict[str, Any] = {"key": key, "host": socket.gethostname(), "pid": os.getpid()}
        self.clock = clock
        self.tag: str | None = None
        """Of the record as it was put last; None: there is none."""
        self.sent = b""
        """The record that was sent last, whatever was heard of it."""
        self.is_lost = False
        self.renewed_at = 0.0
        self.count = 0
        self.lock = threading.Lock()
        self.done = threading.Event()
        """Set while nothing has to be renewed."""
        self.done.set()

    def intend(self, snapshot_ids: Collection[str]) -> None:
        """Note which snapshots are about to be written or dropped; an empty collection: nothing is under way.

        From now on until `close` the record is renewed. Raises `HistoryWriteError` if it was taken over.
        """
        with self.lock:
            self._put({**self.about, "snapshot_ids": sorted(snapshot_ids)})
            if self.done.is_set():
                self.done = threading.Event()
                renewing = (weakref.ref(self), self.done)
                threading.Thread(target=_renew_often, args=renewing, name="lease", daemon=True).start()

    def check(self) -> None:
        """Return if the lease holds, renewed if it has not been for long; raises `HistoryWriteError` if it was lost."""
        with self.lock:
            if self.tag is not None and self.clock() - self.renewed_at > LIMITS.renew_lease_s:
                self._put(self.about)
            self._raise_if_lost()

    def close(self) -> None:
        """Remove the record: all is done, and there would be nothing to clean up. `intend` makes a new one."""
        with self.lock:
            self.done.set()
            if self.tag is not None and not self.is_lost:
                objects.unlink(self.history, self.path)
            self.tag = None

    def lose(self) -> None:
        """It was taken over: nothing is committed any more under this name."""
        self.is_lost = True
        self.done.set()

    def _raise_if_lost(self) -> None:
        if self.is_lost:
            raise HistoryWriteError(
                f"history {self.history}: this writer did not renew its lease for {LIMITS.lease_s:.0f} s, and another process"
                " has cleaned up after it: what it had not committed is lost; start it anew",
                path=str(self.history),
            )

    def _put(self, about: dict[str, Any]) -> None:
        """Put the record, if it is still ours."""
        self._raise_if_lost()
        self.about, self.count = about, self.count + 1
        content = json.dumps({**about, "count": self.count}).encode()
        before, self.sent = self.sent, content
        tag = objects.put_if(self.path, content, self.tag)
        if tag is None and (found := objects.read_tagged(self.path, LIMITS.writer_record_bytes)) is not None:
            if found[0] == content:  # our own put came through, and its answer did not
                tag = found[1]
            elif found[0] == before:  # so it was with the last one
                tag = objects.put_if(self.path, content, found[1])
        if tag is None:
            self.lose()
            self._raise_if_lost()
        self.tag, self.renewed_at = tag, self.clock()

    def renew(self) -> None:
        """Put the record anew; raises `HistoryWriteError` if it was taken over."""
        with self.lock:
            if not self.done.is_set():
                self._put(self.about)


def _renew_often(lease: weakref.ref[Lease], done: threading.Event) -> None:
    """Renew a lease as long as there is somebody who has it."""
    while not done.wait(LIMITS.renew_lease_s) and (held := lease()) is not None:
        try:
            held.renew()
        except HistoryWriteError:
            return
        except StoreFault:  # the next time, or `check` says so
            continue
        finally:
            del held


# ---- of others --------------------------------------------------------------------------------------------------------------


@dataclass
class Looks:
    """When which tag of a record was seen first, by this process's own monotonic clock."""

    clock: Clock = time.monotonic
    pause: Callable[[float], None] = time.sleep
    first: dict[str, tuple[str, float]] = field(default_factory=dict)

    def take(self, owner: str, tag: str) -> float:
        """Look at a record; for how long it has had this tag at least, in seconds."""
        now = self.clock()
        known, since = self.first.get(owner, ("", now))
        if known != tag:
            self.first[owner] = tag, now
            return 0.0
        return now - since


@dataclass(frozen=True, slots=True)
class Dead:
    """A writer that died; its record is ours until `done`."""

    owner: str
    key: str
    snapshot_ids: list[str]
    history: StorePath
    path: StorePath

    def done(self) -> None:
        """Remove its record: what it had begun to write is gone."""
        objects.unlink(self.history, self.path)

    def leave(self) -> None:
        """Keep the record: not all is gone, and the next upkeep tries again."""


def dead_writers(history: StorePath, key: str | None, looks: Looks) -> Iterator[Dead]:
    """Writers whose records have not been renewed for `lease_s`, each taken over; `key`: only those with this key.

    A record that is seen the first time is of a writer that lives.
    """
    for path, about in _records(history):
        if looks.take(path.name, about.tag) < LIMITS.lease_s:
            continue
        found = objects.read_tagged(path, LIMITS.writer_record_bytes)
        said = None if found is None or found[1] != about.tag else _said(found[0])
        if said is None or (key is not None and said.get("key", key) != key):
            continue
        taken = json.dumps({**said, "taken_by": f"{socket.gethostname()} {os.getpid()}", "at": uuid.uuid4().hex})
        if objects.put_if(path, taken.encode(), about.tag) is None:  # it has just been renewed, closed, or taken
            continue
        yield Dead(path.name.removesuffix(".json"), str(said.get("key", "")), _ids_in(said), history, path)


def owners_there(history: StorePath) -> set[str]:
    """The writers that have a record: they may live."""
    return {path.name.removesuffix(".json") for path, _ in _records(history)}


def intended(history: StorePath, *, but: str) -> set[str]:
    """The snapshots that the records of all writers `but` one say are being written, or dropped."""
    found = set[str]()
    for path, _ in _records(history):
        if path.name != f"{but}.json" and (read := objects.read_tagged(path, LIMITS.writer_record_bytes)) is not None:
            found.update(_ids_in(_said(read[0])))
    return found


def wait(history: StorePath, looks: Looks) -> None:
    """Return when every record has been renewed, is gone, or has been seen unchanged for `lease_s`: so long at most."""
    alive = set[str]()
    began = looks.clock()
    while True:
        undecided = False
        for path, about in _records(history):
            known = looks.first.get(path.name)
            age = looks.take(path.name, about.tag)
            if known is not None and known[0] != about.tag:
                alive.add(path.name)
            undecided |= path.name not in alive and age < LIMITS.lease_s
        if not undecided or looks.clock() - began > 2 * LIMITS.lease_s:
            return
        looks.pause(0.5)


def _records(history: StorePath) -> list[tuple[StorePath, objects.About]]:
    return [
        (path, about)
        for path, about in objects.entries(history, history / FOLDER)
        if path.suffix == ".json" and about.st_size <= LIMITS.writer_record_bytes
    ]


def _ids_in(said: dict[str, Any]) -> list[str]:
    ids = said.get("snapshot_ids")
    return [item for item in ids if isinstance(item, str)] if isinstance(ids, list) else []


def _said(content: bytes) -> dict[str, Any]:
    """What a record says; nothing if it is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
