"""What travels with calls, and what a machine records of them. Plain data, picklable; imports the standard library only.

The rules are in `calls`, the join of the reports in `call_collector`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import Ranges

if TYPE_CHECKING:
    from ray_snapshot.protocol.demands import Demand, Held
    from ray_snapshot.protocol.tasks import Ended, TasksOf

CONSTRUCTOR = 0
"""The number of the call that creates a machine, on the channel from its creator."""


class Header(NamedTuple):
    """What travels with each call; the target is where it arrives."""

    source: str
    incarnation: int
    """Of the source."""
    number: int
    colour: int
    floor: int
    """The sender knows the fate of every number below; the receiver forgets them."""
    is_retried: bool = False
    """It is executed again if its target dies: so it is acknowledged when it ends, not when it is accepted."""


class Acks(NamedTuple):
    """Calls that `target` has accepted, for `source`; all were accepted (or ended, if retried) in this colour."""

    source: str
    incarnation: int
    """Of the source."""
    target: str
    colour: int
    numbers: Ranges


class Sent(NamedTuple):
    """An entry of the sender's log."""

    method: str
    about: Any
    """Immutable; see `frozen`."""
    sent_at: float
    is_retried: bool = False
    needs: tuple[str | None, ...] = ()
    """Calls whose replies are arguments: Ray lets it begin only when they are there. None: something we know nothing of."""
    group: str | None = None
    """The concurrency group that the call names; None: that of its method."""
    kept: Any = None
    """Its arguments, as a restore needs them, if they are kept."""
    demand: Demand | None = None
    """Of a plain task or a constructor: what must be free on a node; None: not known, or nothing."""


@dataclass(frozen=True, slots=True)
class RunningCall:
    """A call that was accepted and has not ended."""

    call_id: str
    method: str
    started_at: float
    caller: str | None = None
    """Machine; None if the call came without a header."""
    group: str | None = None
    """Concurrency group."""
    holds_slot: bool = True
    is_repeated: bool = False
    """It was accepted more than once: another run of it may have answered it already."""
    yielded: int = 0
    """How many items it has yielded, if it is a streaming generator."""


class Awaited(NamedTuple):
    """What a wait needs of one call: its end, or one item of a streaming generator."""

    call_id: str | None
    """By `call_id_of`; None: something we know nothing of, that may answer at any time."""
    item: int | None = None
    """Which item (from 0); None: the end of the call."""


def awaited(of: Iterable[Awaited | str | None]) -> tuple[Awaited, ...]:
    """What a wait is for; the id of a call alone stands for its end."""
    return tuple([one if isinstance(one, Awaited) else Awaited(one) for one in of])


@dataclass(frozen=True, slots=True)
class CallWait:
    """A call waits until `k` of `on` have answered."""

    wait_id: int
    call_id: str | None
    """Who waits; None: the machine itself (the driver)."""
    on: tuple[Awaited, ...]
    k: int
    waiting_since: float
    call_site: str = ""
    """ "file:line"; with ", in subprocess.run" behind it where a function of a library waits."""
    may_act: bool = False
    """It ends by itself too (a timeout, a timer): who waits is active."""
    is_local: bool = False
    """It waits for something of its own machine (an asyncio event, a lock): only a later call to the machine ends it."""
    timeout_at: float | None = None
    is_ready: bool = False
    """What it waits for has come; it goes on by itself when its thread or loop has time."""
    raises: bool = False
    """The first error of any of `on` ends it (`ray.get` of a list), whatever `k` is."""
    may_raise: bool = False
    """Its list holds objects that are there, besides, of which it is not known whether they are errors."""
    owed: tuple[tuple[str, str], ...] = ()
    """Replies that machines of hosts owe: (machine, call id). They count like those of `on`, and their hosts tell of them."""
    keeps_cpu: bool = False
    """Ray does not take back the CPU of the task that waits: a thread of its own waits for it, or its event loop."""
    is_callback: bool = False
    """No thread is in it: the app has left a callback on each of `on`."""
    at_yield: bool = False
    """A streaming generator stands at a `yield`: it goes on by itself unless Ray holds it there (`streams`)."""
    is_long: bool = False
    """It has stood at that `yield` for long."""
    is_unsure: bool = False
    """Its process cannot tell that nothing else runs for it."""
    objects: int = 0
    """So many objects its thread waits for, with no bound of time, that no watched call gives: of `ray.put` in another process,
    of refs of others."""
    what: str = ""
    """The primitive a local wait is on, for a person: "asyncio.Lock (held by Ledger.add)"."""

    @property
    def calls(self) -> tuple[str | None, ...]:
        """The calls of which it waits for an end or an item, one for each of `on`."""
        return tuple([one.call_id for one in self.on])


class Stream(NamedTuple):
    """A streaming generator whose items this machine takes: Ray gives them to who has made the call, and to nobody else."""

    read: int
    """How many items it has taken."""
    at_most: int
    """So many items may lie there untaken; then Ray holds the generator at its `yield`. NO_BOUND, or NOT_KNOWN."""


NO_BOUND = -1
"""Ray never holds a generator."""

NOT_KNOWN = 0
"""Ray holds a generator by a rule that is not followed here."""


@dataclass(frozen=True, slots=True)
class OutReport:
    """A channel at its sender's instant."""

    target: str
    sent_count: int
    settled_count: int
    last: int
    """The highest number sent; 0 if there is at most a constructor."""
    log: Mapping[int, Sent]
    """What was sent and neither settled nor known to be accepted."""
    target_incarnation: int = 0
    """Of the target, as far as the sender has heard."""
    fresh_from: int = 0
    """Numbers from here on can have gone to no earlier incarnation."""
    errors: Ranges = ()
    """What was settled, from `errors_since` on: these calls ended in an error, as far as the sender knows."""
    errors_since: int = 0


@dataclass(frozen=True, slots=True)
class InReport:
    """A channel at its receiver's instant."""

    source: str
    incarnation: int
    """Of the source."""
    floor: int
    accepted: Ranges
    """Numbers from the floor on."""
    accepted_count: int
    errors: Ranges = ()
    """Calls that ended in an error, from `errors_since` on; below it is not known."""
    errors_since: int = 0


@dataclass(frozen=True, slots=True)
class MachineReport:
    """What one machine recorded."""

    machine: str
    incarnation: int
    number: int
    colour: int
    """Of the machine just before it recorded."""
    is_born: bool = True
    """False: the machine came to be outside the cut, and is no part of it."""
    has_left: bool = False
    """The final counts of a machine that has ended; they hold for every later snapshot."""
    has_state: bool = False
    state: Any = None
    was_inside: bool = False
    """It turned red while one of its threads was inside an action: so there is no state."""
    status: str = "passive"
    """`passive`, `active`, `blocked`, `stopped`."""
    outputs: tuple[OutReport, ...] = ()
    inputs: tuple[InReport, ...] = ()
    calls: tuple[RunningCall, ...] = ()
    waits: tuple[CallWait, ...] = ()
    holds: tuple[str, ...] = ()
    """Machines whose handle this one has, or once had."""
    reads: tuple[str, ...] = ()
    """Machines whose replies it may still read."""
    tasks: tuple[TasksOf, ...] = ()
    """Plain tasks that it has sent."""
    ended: Mapping[str, Ended] = field(default_factory=dict)
    """Plain tasks that have ended here; of a worker."""
    to_tasks: tuple[str, ...] = ()
    """Machines of which every plain task may have a handle, or a ref to a reply."""
    outcomes: Mapping[str, bool] = field(default_factory=dict)
    """Plain tasks whose replies it has and waits for no more, though it has not gone on: whether they ended in an error."""
    held: Held | None = None
    """What its process had of its node."""
    streams: Mapping[str, Stream] | None = None
    """By call: the streaming generators whose items it takes. One that it has dropped is not among them. None: not told."""


def call_id_of(source: str, incarnation: int, target: str, number: int) -> str:
    """The name of a call, wherever it is spoken of (a retried run has `#2` behind it while the first lasts)."""
    return f"{source}/{incarnation}/{target}/{number}"


class CallId(NamedTuple):
    """The parts of a call's id."""

    source: str
    incarnation: int
    target: str
    number: int


def parsed(call_id: str) -> CallId:
    """The parts of `call_id`; raises `ProtocolError` if it is none."""
    parts = call_id.partition("#")[0].split("/")
    if len(parts) != 4 or not (parts[1].isdecimal() and parts[3].isdecimal()):
        raise ProtocolError(f"{call_id!r} is no call id: SOURCE/INCARNATION/TARGET/NUMBER")
    return CallId(parts[0], int(parts[1]), parts[2], int(parts[3]))


_ATOMS = (type(None), bool, int, float, complex)
_SIZED = (str, bytes, tuple, list, dict, set, frozenset, bytearray)
SMALL = 256
"""Characters, bytes or items that a log keeps of one value."""


def frozen(value: Any) -> Any:
    """`value` if it is small and nothing can change it any more, else what it is: its type, and how many items it has.

    What a log keeps must not change with the program's objects, nor keep them alive.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind in (str, bytes) and len(value) <= SMALL:
        return value
    if kind is tuple and len(value) <= SMALL:
        return tuple([item if type(item) in _ATOMS else frozen(item) for item in value])
    return f"<{kind.__name__} of {len(value)}>" if isinstance(value, _SIZED) else f"<{kind.__name__}>"
