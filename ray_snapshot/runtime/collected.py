"""What a snapshot is put together from, on its way to the process that does it.

Imports neither Arrow nor numpy: a service, and every worker that gets its handle, would carry them for nothing. See `assembly`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_snapshot.protocol.collector import HostReport, LateReport
    from ray_snapshot.snapshot import Snapshot

CHECKPOINT_OFF = "nothing is kept to restore it from: System(checkpoint=True)"
"""The obstacle of every snapshot that was taken without `checkpoint=True`."""


@dataclass(slots=True)
class SnapshotHeader:
    """What the coordinator knows of a snapshot."""

    number: int
    system: str
    run_id: str
    protocol: str
    initiators: list[str]
    started_at: float
    completed_at: float = 0.0
    control_messages: int = 0
    abort_reason: str | None = None
    abort_machine: str | None = None
    abort_call_site: str | None = None
    uncovered: list[str] = field(default_factory=list)
    is_kept: bool = False
    """Whether what a restore needs is kept with it."""
    restored_from: str | None = None
    generation: int = 0
    listeners: list[str] = field(default_factory=list)
    """Hosts that want to hear that it is kept."""

    @property
    def snapshot_id(self) -> str:
        """Sorts by the time the snapshot was started."""
        started = datetime.fromtimestamp(self.started_at, UTC)
        return f"{started:%Y%m%dT%H%M%S}{started.microsecond:06d}Z-{self.run_id[-6:]}-{self.number:06d}"


@dataclass(frozen=True, slots=True)
class HostPayload:
    """What the collector gets: the counts it decides by, per link, and the part, which it only passes on."""

    number: int
    counts: HostReport | LateReport
    part: bytes
    """A pickled `report.HostPart`."""
    markers: int = 0
    trace: bytes | None = None
    """Rows of `actions` that have not been shipped yet, of no snapshot in particular."""
    checkpoint: bytes | None = None
    """What a restore needs of this report (`checkpointing.Section`), if that is kept."""
    listens: bool = False
    """Whether a machine of this host wants to hear that the snapshot is kept."""


@dataclass(frozen=True, slots=True)
class Collected:
    """All that a snapshot is put together from; the process that needs the snapshot does that (`assemble`), not the
    service."""

    header: SnapshotHeader
    parts: list[bytes]
    """Pickled `HostPart`s; none if the snapshot was given up."""
    traces: tuple[bytes, ...] = ()
    """Rows of `actions` that came with reports."""
    checkpoints: tuple[bytes, ...] = ()
    """Sections of the checkpoint (`checkpointing.Section`), for the analyst only."""

    def snapshot(self) -> Snapshot:
        """The snapshot, put together by `assembly.assemble`."""
        from ray_snapshot.runtime.assembly import assemble

        return assemble(self)
