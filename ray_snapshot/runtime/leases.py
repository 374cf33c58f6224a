"""Snapshots that a program holds while rows of theirs are still with the hosts: these keep them for it.

When the system ends, what the program still holds is fetched: a snapshot can be read for as long as there is one.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import SnapshotRowsLostError
from ray_snapshot.runtime.kept_rows import KeptRows

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot


MOST_S = 60.0
"""How long the end of a system waits for rows, in all."""


class Leases:
    """The leases of one program; used by several threads."""

    def __init__(self) -> None:
        self._held: list[tuple[weakref.ref[Snapshot], KeptRows]] = []
        self._is_over = False
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot, rows: KeptRows) -> None:
        """The program gets this snapshot. Rows of those that it has dropped meanwhile are given back."""
        with self._lock:
            is_over, held = self._is_over, self._held
            asked = [_may_ask(one()) for one, _ in held]  # once: an object may go between two looks
            dropped = [kept for (_, kept), may_ask in zip(held, asked, strict=True) if not may_ask]
            self._held = [one for one, may_ask in zip(held, asked, strict=True) if may_ask]
            self._held.append((weakref.ref(snapshot), rows))
        _tell(rows, dropped)
        if is_over:
            self.load()

    def load(self) -> None:
        """The system ends: fetch all that the program may still ask for, now and from now on. What cannot be had within
        `MOST_S` in all is lost, and told where it is asked for."""
        deadline = time.monotonic() + MOST_S
        with self._lock:
            held, self._held, self._is_over = self._held, [], True
        for one, kept in held:
            if (found := one()) is None or not _may_ask(found):
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                kept.lost.append(f"rows of snapshot {kept.snapshot_id} stayed with hosts that have ended")
            with suppress(SnapshotRowsLostError):
                found.load(left)


def _tell(taken: KeptRows, dropped: Sequence[KeptRows]) -> None:
    """Lease the rows of a snapshot, and give back those of others: one call a process."""
    told: dict[int, tuple[Any, list[int], list[int]]] = {}
    for kept in (taken, *dropped):
        for actor in kept.hosts.values():
            _, begun, over = told.setdefault(id(actor), (actor, [], []))
            (begun if kept is taken else over).append(kept.number)
    for actor, begun, over in told.values():
        with suppress(Exception):  # Ray raises of many kinds where a host is gone: who asks for its rows is told so
            actor.lease.remote(begun, over)


def _may_ask(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.parted[1] is not None
