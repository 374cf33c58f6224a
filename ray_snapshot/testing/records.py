"""What the cells of a state hold, and what a step is. Never imports Ray.

Nothing changes what is made here; as in `acts`, those of which each action makes one are not frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ray_snapshot.testing.acts import Act, Around, Outcome, Ref, Sent, Waits
from ray_snapshot.testing.values import Loose, as_bytes

State = tuple[int, ...]
"""By cell: what is in it; 0: nothing. Cells that nobody knew yet when the state was found are left out at the end."""

MACHINE, CHANNEL, TIMERS, ANSWER, TIMES = range(5)
"""Kinds of cells, beside the first one, which holds what is `Here`. `TIMES`: when a machine set its timers."""

CHANNELS = frozenset({CHANNEL, TIMERS})


@dataclass(frozen=True, slots=True)
class Here:
    """What the first cell holds."""

    around: Around
    clock: float | None
    """Seconds since the start; None: nobody has asked."""


class When(NamedTuple):
    """When a timer is due."""

    seconds: float
    """How long it takes."""
    instant: int
    """When it was set: a place in the `TIMES` of its owner."""
    due: float | None = None
    """The same by the clock; None: nobody has asked for the time."""


@dataclass(slots=True, unsafe_hash=True)
class Mail:
    """A message in a channel."""

    method: str
    payload: Loose
    call: Ref | None = None
    refs: frozenset[Ref] = frozenset()

    @classmethod
    def of(cls, sent: Sent, source: str) -> Mail:
        """What a machine sends: mail, a call or a timer."""
        call = (source, sent.number or 0) if sent.what == "call" else None
        return cls(sent.method, sent.payload, call, sent.refs)


@dataclass(frozen=True, slots=True)
class Unborn:
    """A machine that is created, and not constructed."""

    creator: str
    kind: int
    payload: Loose
    refs: frozenset[Ref] = frozenset()
    method: str = "__init__"
    is_late: bool = False
    """Whether its creation was in flight when the system began (`moments`): it is constructed at any moment."""

    @classmethod
    def of(cls, sent: Sent, source: str) -> Unborn:
        """What a machine creates."""
        return cls(source, sent.kind, sent.payload, sent.refs, sent.method, bool(sent.source))


@dataclass(slots=True, unsafe_hash=True)
class Rest:
    """A machine between two actions."""

    kind: int
    state: Loose
    refs: frozenset[Ref] = frozenset()
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Inside:
    """A machine that waits inside an action."""

    act: Act
    shown: bytes
    """Its state where it waits."""
    inputs: tuple[Any, ...]
    emitted: int
    """How many outputs of the action are out."""
    taken: tuple[tuple[str, str, Mail], ...]
    """(source, kind, message) of what it accepted."""
    wait: Waits
    refs: frozenset[Ref] = frozenset()
    when: When | None = None
    """When that is due."""

    @property
    def kind(self) -> int:
        return self.act.kind


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine that has crashed."""

    kind: int
    refs: frozenset[Ref] = frozenset()


Record = Unborn | Rest | Inside | Gone


def exact(item: Any) -> Any:
    """A record, a message or an action of one run with its values as bytes, so that equal ones are the same."""
    kind = type(item)
    if kind is Rest:
        return item if type(item.state) is bytes else replace(item, state=as_bytes(item.state))
    if kind in (Mail, Unborn):
        return item if type(item.payload) is bytes else replace(item, payload=as_bytes(item.payload))
    if kind is Inside:
        taken = tuple((source, word, exact(mail)) for source, word, mail in item.taken)
        return replace(item, act=exact(item.act), taken=taken)
    if kind is Act:
        before = None if item.before is None else as_bytes(item.before)
        return replace(item, before=before, payloads=tuple(map(as_bytes, item.payloads)))
    return item


Task = Any
"""What is done in a step: the cell of a channel (its head is accepted), or a tuple that begins with a word: `timer` (not
the head), `join`, `resume`, `timeout`, `birth`, `driver`, or `crash`, which need never happen."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a task, and how chance came out in it."""

    task: Task
    chances: tuple[int, ...] = ()


@dataclass(slots=True)
class Effect:
    """What an action does to a state, once its messages have been taken."""

    chances: tuple[int, ...]
    act: Act
    outcome: Outcome
    fresh: tuple[Sent, ...]
    """What it sends in this step."""
    value: int = 0
    """What its machine's cell holds then."""
    appends: tuple[tuple[int, int], ...] = ()
    timers: tuple[tuple[int, float, int], ...] = ()
    sets: tuple[tuple[int, int], ...] = ()
    answers: tuple[tuple[Ref, int], ...] = ()
    stops: tuple[str, ...] = ()
    around: int | None = None
    failure: str | None = None
    is_more: bool = False
    """Whether it does more than to send mail and to call."""


@dataclass(slots=True)
class Move:
    """An edge of the space."""

    step: Step
    after: State
    effect: Effect | None = None
    """None: no action, but a crash."""
    births: tuple[tuple[Step, Effect], ...] = ()
    """Machines that the driver created are constructed in the same breath."""

    @property
    def failure(self) -> str | None:
        """What an action raised in it."""
        effects = [self.effect, *(effect for _, effect in self.births)]
        return next((one.failure for one in effects if one is not None and one.failure), None)
