"""Whether a snapshot of a history can be gone on from: what `restore`, and `testing.from_snapshot`, ask before they read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray_snapshot.errors import NotRestorableError
from ray_snapshot.names import listed

if TYPE_CHECKING:
    from ray_snapshot.history.reader import History
    from ray_snapshot.snapshot import Snapshot


def not_restorable(snapshot_id: str, obstacles: list[str]) -> NotRestorableError:
    """The error that says why a snapshot cannot be restored."""
    why = listed(obstacles, mark="; ") or "it was given up"
    return NotRestorableError(f"snapshot {snapshot_id} cannot be restored: {why}", obstacles=obstacles)


def check(history: History, found: Snapshot) -> None:
    """Raise `NotRestorableError`, with the obstacles and the latest snapshot that has none, if this one has some."""
    if found.status == "complete" and found.restorable:
        return
    reason = f"snapshot {found.snapshot_id} was given up: {found.abort_reason}"
    if found.status == "complete":
        reason = str(not_restorable(found.snapshot_id, found.obstacles))
    others = history.restorable()
    remedy = f"the latest that can be restored is {others[-1]}" if others else "none of this history can be restored"
    raise NotRestorableError(f"{reason}; {remedy}", obstacles=found.obstacles)
