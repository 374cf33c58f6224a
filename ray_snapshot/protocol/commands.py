"""What a coordinator says to its parties: one frozen class for each command, and who may be told which.

A host is pushed its commands; a process of a watched app and the driver of a system ask for theirs. The party matches
over its union to the end (`typing.assert_never`), so a command that a party does not know is found by the type checker, and
at run time is an error with the command's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.protocol.call_messages import Acks
from ray_snapshot.protocol.rollback import Asked

# ---- snapshots -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Record snapshot `number` at the next boundary."""

    number: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """To a host that joins: the snapshots that are pending, all of which it must record, and the highest number so far."""

    pending: tuple[int, ...]
    last: int


@dataclass(frozen=True, slots=True)
class Overdue:
    """Half of the snapshot's time is over: record it now, in the middle of an action if need be."""

    number: int


@dataclass(frozen=True, slots=True)
class Close:
    """The snapshot is complete: forget it. Every party has recorded it."""

    number: int
    held: frozenset[str] = frozenset()
    """Plain tasks that are over, and that their senders have not dropped."""
    ended: frozenset[str] = frozenset()
    """Workers that have ended: they will call nobody any more."""
    unsettled: frozenset[str] = frozenset()
    """Plain tasks in a log of which it is not known whether they are over."""
    is_store_short: bool = False
    """Whether some node's object store is short of room: then it is wanted who owns what is in there."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The snapshot is given up: forget it."""

    number: int


@dataclass(frozen=True, slots=True)
class Based:
    """If a process dies, the app goes back to this snapshot from now on, and not behind it.

    Of the program's calls to each machine it has those behind itself whose numbers are not above `sent`, but for those in
    flight: (machine, number). `incarnation`: the program's, for these numbers.
    """

    number: int
    incarnation: int
    sent: Mapping[str, int]
    in_flight: frozenset[tuple[str, int]]


# ---- machines and channels of a system -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """To the host of a machine: stop it behind the driver's first `count` messages to it; the driver's colour."""

    machine: str
    colour: int
    count: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Machines have stopped, on a host of this colour: sending to them is an error."""

    machines: tuple[str, ...]
    colour: int


@dataclass(frozen=True, slots=True)
class AwaitInput:
    """To the host of `target`: barriers align on the channel from `source`."""

    target: str
    source: str


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """To the host of `source`: there is a channel to `target`, though nothing has been sent on it."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class OpenDriverChannel:
    """To the driver: there is a channel from it to `target`, which lives on `host`."""

    target: str
    host: str


@dataclass(frozen=True, slots=True)
class DeclarePort:
    """To the host of `target`: `source` sends to that port of it; `site`: the place in the program that says so."""

    target: str
    port: str
    source: str
    site: str | None


@dataclass(frozen=True, slots=True)
class Fail:
    """The system has failed: nothing is sent or accepted any more."""

    error: RaySnapshotError


# ---- the driver's part in a recovery -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Secure:
    """The snapshot is kept: see to it that the system can go back to it, whichever process dies."""

    number: int
    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Seek:
    """The program restores this snapshot (`number` 0: of another run): hold a copy of it before anybody stops."""

    number: int
    snapshot_id: str


@dataclass(frozen=True, slots=True)
class Allow:
    """Numbers up to `most` may be given out: a later service begins behind them."""

    most: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Start this incarnation of a host in the place of a process that is gone."""

    host: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Roll:
    """A step of a rollback; `share`: what the party loads, with the step that loads it."""

    asked: Asked
    share: Any = None


# ---- watched apps --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Release:
    """The restore was given up before anybody loaded: go on."""

    generation: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Calls of this machine have been accepted."""

    acks: Acks


@dataclass(frozen=True, slots=True)
class Died:
    """A machine is gone for good."""

    machine: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """A machine has started again."""

    machine: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The watching is over."""

    fault: str = ""
    """What has ended it, if it was a fault of ours."""


@dataclass(frozen=True, slots=True)
class HostsLeft:
    """The hosts have ended, and their machines with them."""


SharedCommand = Request | Overdue | Close | Abort | Stopped | Fail
"""What hosts and the driver are told alike."""

HostCommand = (
    Request
    | Welcome
    | Overdue
    | Close
    | Abort
    | Stop
    | Stopped
    | AwaitInput
    | OpenChannel
    | DeclarePort
    | Fail
    | Acknowledged
    | Died
    | Restarted
)

DriverCommand = (
    Request | Overdue | Close | Abort | Stopped | OpenDriverChannel | Fail | Secure | Seek | Allow | Replace | Roll
)


@dataclass(frozen=True, slots=True)
class Collect:
    """Collect garbage: in it may be a handle of an actor whose resources others wait for."""


@dataclass(frozen=True, slots=True)
class Condemn:
    """The waits of this call end in this error, as far as snapshot `number` has seen them: they can never end otherwise."""

    number: int
    call_id: str
    error: Any


@dataclass(frozen=True, slots=True)
class TellStacks:
    """Somebody asks where the threads and coroutines of the process are."""

    question: int
    with_locals: bool


ProcessCommand = (
    Request
    | TellStacks
    | Collect
    | Condemn
    | Overdue
    | Close
    | Abort
    | Based
    | Acknowledged
    | Died
    | Restarted
    | Roll
    | Release
    | Leave
    | Stopped
    | HostsLeft
)
