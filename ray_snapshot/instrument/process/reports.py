"""What one process tells of one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.collectives import Membership
from ray_snapshot.instrument.process.ended_children import EndedChild
from ray_snapshot.instrument.process.ended_threads import EndedThread
from ray_snapshot.instrument.process.failures import Raised
from ray_snapshot.instrument.process.polls import Poll
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.process.usage import Usage
from ray_snapshot.names import NO_CALL
from ray_snapshot.protocol.calls import MachineReport

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.states import SavedValue
    from ray_snapshot.runtime.rows import MailPart

OF_A_GRAPH = "for the output of a compiled graph of"


class LongWait(NamedTuple):
    """A wait that has lasted for `LONG_S`, and of which it cannot be told what ends it."""

    since: float
    call_site: str
    """ "file:line"; "" if that is not known."""
    what: str = NO_CALL
    """What it waits for, as it stands behind "has waited for 12 s"."""
    calls: tuple[str, ...] = ()
    """The calls whose replies end it: it is told only if these can hardly come."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A machine's report, and what its process knows besides."""

    report: MachineReport
    recorded_at: float
    call_sites: dict[str, str] = field(default_factory=dict)
    """Where the calls are that run and do not wait."""
    loose: Loose = field(default_factory=Loose)
    """Plain tasks, and handles that went where they are not followed."""
    threads: Threads = field(default_factory=Threads)
    """Threads of the app's own in the process."""
    blocking_call: str | None = None
    """The call that blocks the loop of an async actor, and with it all others."""
    background: str = ""
    """What of the app's own may act on its loop (tasks, timers, ...); "" if nothing can."""
    kept: SavedValue | None = None
    """The state, as a restore needs it; None if nothing is kept, or there is no state."""
    births: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Actors whose constructors are on their way: by machine, what names it (`class`, `name`, `ordinal`), and its `key`."""
    passed: tuple[str, ...] = ()
    """The calls whose refs other processes have passed on to this one; empty unless it has parked calls."""
    passed_before: tuple[str, ...] = ()
    """The machines that answer older calls of this kind."""
    mail: MailPart | None = None
    """What it has sent to machines of hosts."""
    was_starting: bool = False
    """It had to record while a task or an actor was being started: whether that is inside the cut is not known."""
    long_waits: tuple[LongWait, ...] = ()
    """Those that are not among the waits in `report`."""
    groups: tuple[Membership, ...] | None = ()
    """The groups of ranks that it is in (torch.distributed); None: not known."""
    usage: Usage | None = None
    ended_threads: tuple[EndedThread, ...] = ()
    ended_children: tuple[EndedChild, ...] = ()
    raised: tuple[Raised, ...] = ()
    """Calls that ended in an error here, the latest last."""
    read: tuple[str, ...] = ()
    """Errors of calls that were read here; see `failures`."""
    read_forgotten: float = 0.0
    """Of errors that were read until then not all are among these."""
    passed_on: set[str] | None = field(default_factory=set)
    """Machines of which it has passed on refs to replies; None: any."""
    passed_through: tuple[tuple[str, str], ...] = ()
    """(source, method) where a source's latest call has ended, and other calls of that method wait for a lock inside."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """Of a driver in a notebook: what its cells are called there, by file."""
    polls: tuple[Poll, ...] = ()
    """Callers here that ask again and again and get equal answers."""
    plain_methods: tuple[str, ...] = ()
    """Of methods that others call again and again, those of which the answers depend on its plain attributes alone."""
    cpu_s: float = 0.0
    """The processor time that it took to record."""
