"""An action that a machine is in the middle of: what it was begun with, what its waits have given, and where it waits.

Read `stage` first, which does its steps. Nothing here acts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.here import call_site
from ray_snapshot.runtime.unwinding import Unwound, handler_around, told_caught
from ray_snapshot.witness.answers import Answer, Came, NotLogged, Unlike, came_of
from ray_snapshot.witness.log import (
    Action,
    Message,
    MessageId,
    differs,
    not_deterministic,
    not_replayable,
    told_id,
)

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Held:
    """A message in a channel of the stage."""

    number: int
    method: str
    args: list[Any]
    """The arguments, as they would be recorded."""
    objects: Callable[[], Arguments]
    """Gives what the method is called with; may raise `NotDecodableError`."""
    class_name: str | None = None


@dataclass(slots=True)
class Sent:
    """What the current action has sent."""

    target: str
    kind: str
    number: int
    method: str
    args: list[Any]
    objects: Arguments
    class_name: str | None = None
    seconds: float | None = None

    @property
    def told(self) -> tuple[Any, ...]:
        return self.target, self.kind, self.number, self.method, self.args, self.class_name, self.seconds

    def __str__(self) -> str:
        return told_message(self.target, self.kind, self.number, self.method, self.args)


@dataclass(slots=True)
class UnderWay:
    """The action that a machine is in, as far as it has been done."""

    inputs: list[Held]
    calls: tuple[MessageId, ...]
    """The calls that it answers."""
    before: Any
    """A copy of the machine before it, if it waits inside; None of one that is to be constructed."""
    came: list[Came] = field(default_factory=list)
    """What its waits so far have given."""
    logged: list[Message] = field(default_factory=list)
    """What the log says that it has sent, its current step included."""
    sent: list[Sent] = field(default_factory=list)
    """What it had sent when its last step was over."""

    @property
    def is_again(self) -> bool:
        return bool(self.came)

    def sent_on(self, target: str, kind: str) -> int:
        """How many messages of earlier steps are on a channel."""
        return sum((one.target, one.kind) == (target, kind) and one.number > 0 for one in self.sent)


@dataclass(frozen=True, slots=True)
class Halt:
    """Where an action waits for what has not come yet."""

    calls: tuple[MessageId, ...]
    k: int
    function: str
    site: str
    handler: str | None
    """The handler that would catch what ends the action."""


def halted(calls: tuple[MessageId, ...], k: int, function: str) -> Halt:
    """The action that called us waits where it did."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_INNER):
        frame = frame.f_back
    return Halt(calls, k, function, call_site(frame) or "an unknown place", handler_around(frame))


_INNER = ("ray_snapshot.witness.", "ray_snapshot.runtime.")


def came_behind(action: Action, answers: Mapping[MessageId, Answer]) -> Came:
    """What the wait gives behind which a step goes on; raises `DiffersError` and `NotReplayableError`."""
    wait = action.behind
    assert wait is not None
    try:
        return came_of(wait, answers)
    except NotLogged as error:
        raise not_replayable(
            action, f"goes on behind a wait at {wait.site} that {error}: keep such errors out of the run"
        ) from None
    except Unlike as error:
        raise differs(
            action, f"is impossible here: behind its wait at {wait.site} it {error}{not_deterministic(action)}"
        ) from None


def check_end(action: Action, way: UnderWay, left: int, halt: Halt | None, error: BaseException | None) -> None:
    """A step ends where the log says that it does: in the same wait, or not in one. `left`: how many waits it has left."""
    then = action.ends_in
    if left < len(way.came):
        raise differs(action, f"waits less often here than then{not_deterministic(action)}")
    if halt is not None and not isinstance(error, Unwound):
        raise not_replayable(action, "cannot be done again: " + told_caught("it", halt.site, halt.handler))
    if halt is None and then is None:
        return
    if halt is None or then is None:
        here = "is over here" if halt is None else f"waits at {halt.site} here"
        what = "and was not over then" if then is None else f"and {then.told.replace('waits', 'waited')} then"
        raise differs(action, f"{here}, {what}{not_deterministic(action)}")
    if (halt.calls, halt.k, halt.function) != (then.calls, then.k, then.function):
        raise differs(
            action,
            f"waits at {halt.site} for {told_calls(halt.calls, halt.k)} here, and at {then.site} for"
            f" {told_calls(then.calls, then.k)} then{not_deterministic(action)}",
        )


def check_replayable(action: Action) -> None:
    """Raise `NotReplayableError` for a step that cannot be done again by what the log says of it."""
    if action.waited_at is not None:
        raise not_replayable(
            action,
            f"waited inside for a reply, at {action.waited_at}: what it heard is not in the trace, which an older version has"
            " written; run the system again, or send the answer as a message of its own instead of waiting for it",
        )
    for wait in (action.behind, action.ends_in):
        if wait is not None and wait.is_foreign and action.machine != DRIVER:
            raise not_replayable(
                action,
                f"waits at {wait.site} for more than calls of machines (an actor, a plain task, ray.put, or a call that another"
                " machine has made): what comes of that is in no trace; let a message bring it",
            )


def told_calls(calls: Sequence[MessageId], k: int) -> str:
    """What is waited for, for a person."""
    told = " and ".join(told_id(call) for call in calls[:5]) or "nothing"
    return told if k == len(calls) else f"{k} of {told}"


def told_message(target: str, kind: str, number: int, method: str, args: list[Any]) -> str:
    """A message that was sent, for a person."""
    what = "the creation" if number == 0 else "" if kind == "mail" else f"the {kind}"
    return f"{what} {Message((' ', target, kind, number), method, args)} to {target}".strip()
