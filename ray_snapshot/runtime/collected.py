"""What a snapshot is put together from, on its way to the process that does it.

Imports neither Arrow nor numpy: a service, and every worker that gets its handle, would carry them for nothing. See `assembly`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.protocol.call_messages import MachineReport
    from ray_snapshot.protocol.collector import HostReport, LateReport
    from ray_snapshot.snapshot import Snapshot

CHECKPOINT_OFF = "nothing is kept to restore it from: System(checkpoint=True)"
"""The obstacle of every snapshot that was taken without `checkpoint=True`."""


def begun_at(snapshot_id: str) -> float:
    """When a snapshot was begun, as `time.time` counts, by its id; infinity of an id that does not tell."""
    try:
        return datetime.strptime(f"{snapshot_id.partition('-')[0]}+0000", "%Y%m%dT%H%M%S%fZ%z").timestamp()
    except ValueError:
        return math.inf


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
    is_journaled: bool = False
    """Whether the program's calls behind it would be made again, so that what it waits for comes."""
    restored_from: str | None = None
    generation: int = 0
    listeners: list[str] = field(default_factory=list)
    """Hosts that want to hear that it is kept."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    """By host, or watched process: the processor time that it has spent on this snapshot, as far as it has told."""

    def spent(self, party: str, seconds: float) -> None:
        """A party has spent more processor time on it."""
        self.cpu_s[party] = self.cpu_s.get(party, 0.0) + seconds

    @property
    def snapshot_id(self) -> str:
        """Sorts by the time the snapshot was started."""
        started = datetime.fromtimestamp(self.started_at, UTC)
        return f"{started:%Y%m%dT%H%M%S}{started.microsecond:06d}Z-{self.run_id[-6:]}-{self.number:06d}"


@dataclass(frozen=True, slots=True)
class JoinedSystem:
    """What a process is told of a system of machines that has joined its watch."""

    protocol: str
    spawn_timeout: float
    run_id: str
    """What handles of its machines say: of each system that joins, in its turn, another."""
    life: int
    """Which of the systems that have joined it is."""
    stopped: tuple[str, ...] = ()
    """Machines of it that have stopped."""
    generation: int = 0
    """The generation of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCalls:
    """What the machines of a host have to do with watched actors, at its instant."""

    host: str
    threads: Any
    """Threads of the user's own (`instrument.process.blocked_threads.Threads`)."""
    loose: Any
    """What has left this process by ways that are not followed (`instrument.process.unfollowed.Loose`)."""
    reports: tuple[MachineReport, ...] = ()
    """Of the ledgers of those that have called any."""
    handles: frozenset[str] = frozenset()
    """Actors of which a handle, or a reference to a reply, has come to this host."""
    kept: frozenset[str] = frozenset()
    """Actors of which a handle is in what is kept of its machines."""
    births: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Actors that its machines have made and whose constructors are on their way; as of a process (`ProcessReport.births`)."""
    has_strays: bool = False
    """Whether threads there have called actors that are in no machine's action."""


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
    calls: MachineCalls | None = None
    """Where its machines and watched actors are one system."""
    cpu_s: float = 0.0
    """The processor time that was spent on it: turning red, copying, and making this report."""


@dataclass(frozen=True, slots=True)
class Collected:
    """All that a snapshot is put together from; the process that needs the snapshot does that (`assemble`), not the
    service."""

    header: SnapshotHeader
    parts: Sequence[bytes]
    """Pickled `HostPart`s; none if the snapshot was given up."""
    traces: tuple[bytes, ...] = ()
    """Rows of `actions` that came with reports."""
    checkpoints: tuple[bytes, ...] = ()
    """Sections of the checkpoint (`checkpointing.Section`), for the analyst only."""
    sections_of_actors: int = 0
    """How many of these, the first, are of watched actors (`watcher.sections.Section`)."""
    life: int = 0
    """Which of the systems that have joined a watch the hosts' sections are of."""

    def snapshot(self) -> Snapshot:
        """The snapshot, put together by `assembly.assemble`."""
        from ray_snapshot.runtime.assembly import assemble

        return assemble(self)
