"""Where checkpoints are kept: the last few in memory, and all of them in the history, if there is one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import pyarrow as pa

from ray_snapshot.errors import NotRestorableError, RaySnapshotError
from ray_snapshot.history import checkpoints
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.history.restorable import not_restorable
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.recovery_line import Retention
from ray_snapshot.runtime.collected import Collected
from ray_snapshot.runtime.planning import Ground, Plan, planned
from ray_snapshot.snapshot import Snapshot


class Keeper:
    """The checkpoints of one run; `source`: another history that this run begins from."""

    def __init__(self, run_id: str, history: str | None, key: bytes | None, source: str | None = None) -> None:
        self.run_id = run_id
        self.history = history
        self.key = key
        self.source = source
        self.aliases: list[str] = []
        """Runs that this one goes on from: handles in what they recorded are of this one now."""
        self.kept: OrderedDict[str, Checkpoint] = OrderedDict()
        self.seen: OrderedDict[str, list[str] | None] = OrderedDict()
        """By snapshot: why it cannot be restored; None if it can."""
        self.retention = Retention()
        """What stays in memory, however much comes after it."""
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A keeper is made in the driver and pickled for an analyst, with the checkpoints that it has by then."""
        known = list(self.kept.values())
        return _keeper, (self.run_id, self.history, self.key, self.source, known, self.aliases)

    def keep(self, snapshot: Snapshot, collected: Collected) -> Snapshot:
        """Keep what a restore of this snapshot needs, if there is one; the snapshot, as it is to be listed."""
        if snapshot.restorable:
            about = {
                "snapshot_id": snapshot.snapshot_id,
                "system": snapshot.system,
                "run_id": snapshot.run_id,
                "number": snapshot.sequence,
                "protocol": snapshot.protocol,
                "aliases": self.aliases,
                "sections_of_actors": collected.sections_of_actors,
                "life": collected.life,
            }
            snapshot = self._stored(snapshot, Checkpoint(about, collected.checkpoints))
        with self.lock:
            self.seen[snapshot.snapshot_id] = None if snapshot.restorable else list(snapshot.obstacles)
            if len(self.seen) > LIMITS.seen_snapshots:
                self.seen.popitem(last=False)
        return snapshot

    def _stored(self, snapshot: Snapshot, checkpoint: Checkpoint) -> Snapshot:
        try:
            if self.history is not None and self.key is not None:
                checkpoints.write(self.history, checkpoint, self.key)
        except RaySnapshotError as error:
            return _not_restorable(snapshot, str(error))
        with self.lock:
            self.kept[snapshot.snapshot_id] = checkpoint
            self._evict()
        return snapshot

    def _evict(self) -> None:
        """Drop the oldest checkpoints in memory, but for those that are held and the last two; under the lock."""
        most = LIMITS.memory_checkpoints if self.history is None else LIMITS.recovery_checkpoints
        for snapshot_id in self.retention.loose(self.kept, LIMITS.recovery_checkpoints):
            if len(self.kept) <= most and self._size() <= LIMITS.memory_checkpoints_bytes:
                return
            del self.kept[snapshot_id]

    def lend(self, snapshot_id: str) -> Checkpoint | None:
        """The checkpoint of a snapshot, for the driver to copy; None if it is not in memory any more."""
        with self.lock:
            self.retention.lend(snapshot_id)
            return self.kept.get(snapshot_id)

    def pin(self, snapshot_id: str) -> None:
        """From now on the system goes back to this snapshot, and not behind it."""
        with self.lock:
            self.retention.pin(snapshot_id)

    def _size(self) -> int:
        return sum(len(section) for checkpoint in self.kept.values() for section in checkpoint.sections)

    def recall(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint that an analyst that has died had kept, and that the system may go back to."""
        self.retention.recall(checkpoint.snapshot_id)
        self.kept[checkpoint.snapshot_id] = checkpoint
        self.seen[checkpoint.snapshot_id] = None

    def has_seen(self, snapshot_id: str) -> bool:
        """Whether the snapshot has come by."""
        return snapshot_id in self.seen

    def is_kept(self, snapshot_id: str) -> bool:
        """Whether the snapshot has come by and can be restored."""
        return self.seen.get(snapshot_id, []) is None

    def plan(self, snapshot_id: str, ground: Ground) -> Plan:
        """Deal a checkpoint out. Raises `NotRestorableError`, naming the obstacles, and `CheckpointError`."""
        found = self.fetch(snapshot_id)
        plan = planned(found.about, found.of_hosts, ground)
        known = {*self.aliases, self.run_id}
        self.aliases += [run for run in (*found.about["aliases"], found.about["run_id"]) if run not in known]
        return plan

    def fetch(self, snapshot_id: str) -> Checkpoint:
        """A checkpoint, as it was kept. Raises `NotRestorableError`, naming the obstacles, and `CheckpointError`."""
        obstacles = self.seen.get(snapshot_id)
        if obstacles is not None:
            raise not_restorable(snapshot_id, obstacles)
        with self.lock:
            self.retention.plan(snapshot_id)
            found = self.kept.get(snapshot_id)
        return self._read(snapshot_id) if found is None else found

    def _read(self, snapshot_id: str) -> Checkpoint:
        places = [place for place in (self.source, self.history) if place is not None]
        if not places or self.key is None:
            raise NotRestorableError(
                f"the checkpoint of snapshot {snapshot_id} is not kept any more: in memory there are the last"
                f" {LIMITS.memory_checkpoints}, or fewer if they are larger than"
                f" {LIMITS.memory_checkpoints_bytes // 1_000_000} MB together; there is no history that keeps others:"
                " System(history=..., checkpoint=True)",
                obstacles=["its checkpoint is not kept any more"],
            )
        there = next((place for place in places if checkpoints.there(place, [snapshot_id])), places[-1])
        return checkpoints.read(there, snapshot_id, self.key)


def _not_restorable(snapshot: Snapshot, obstacle: str) -> Snapshot:
    table = snapshot.tables["snapshots"]
    changed: dict[str, Any] = {"restorable": False, "obstacles": [*snapshot.obstacles, obstacle]}
    for name, value in changed.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array([value], table.schema.field(place).type))
    tables, absent = snapshot.apart()
    return Snapshot({**tables, "snapshots": table}, absent)


def _keeper(
    run_id: str,
    history: str | None,
    key: bytes | None,
    source: str | None,
    known: list[Checkpoint],
    aliases: list[str],
) -> Keeper:
    found = Keeper(run_id, history, key, source)
    found.aliases += aliases
    for checkpoint in known:
        found.recall(checkpoint)
    return found
