"""Snapshots that a program holds while rows of theirs are still with the hosts: these keep them for it.

When the system ends, what the program still holds is fetched: a snapshot can be read for as long as there is one.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from ray_snapshot.errors import SnapshotRowsLostError
from ray_snapshot.runtime.collected import KeptRows

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot


class Leases:
    """The leases of one program; used by several threads."""

    def __init__(self) -> None:
        self._held: list[tuple[weakref.ref[Snapshot], KeptRows]] = []
        self._lock = threading.Lock()

    def take(self, snapshot: Snapshot, rows: KeptRows) -> None:
        """The program gets this snapshot. Rows of those that it has dropped meanwhile are given back."""
        rows.lease()
        with self._lock:
            held, self._held = self._held, [(weakref.ref(snapshot), rows)]
        for one, kept in held:
            found = one()
            if found is None or found.parted[1] is None:
                kept.lease(is_begun=False)
            else:
                with self._lock:
                    self._held.append((one, kept))

    def load(self) -> None:
        """Fetch all that the program may still ask for; what is lost is told where it is asked for."""
        with self._lock:
            held, self._held = self._held, []
        for one, _ in held:
            if (found := one()) is not None:
                with suppress(SnapshotRowsLostError):
                    found.load()
