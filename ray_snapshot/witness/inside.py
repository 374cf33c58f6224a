"""An action that a machine is in the middle of: what it was begun with, what its waits have given, and where it waits.

Read `stage` first, which does its steps. Nothing here acts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.here import call_site
from ray_snapshot.runtime.unwinding import Unwound, handler_around, told_caught
from ray_snapshot.witness.answers import Came
from ray_snapshot.witness.channels import Held
from ray_snapshot.witness.log import Action, Message, MessageId, differs, not_replayable, same, told_id, unlike


@dataclass(frozen=True, slots=True)
class Halt:
    """Where an action waits for what has not come yet."""

    calls: tuple[MessageId, ...]
    k: int
    function: str
    site: str
    handler: str | None
    """The handler that would catch what ends the action."""


@dataclass(slots=True)
class UnderWay:
    """The action that a machine is in, as far as it has been done."""

    action: Action
    """Its current step."""
    inputs: list[Held]
    before: Any = None
    """A copy of the machine before it, if it waits inside; None of one that is to be constructed."""
    came: list[Came] = field(default_factory=list)
    """What its waits so far have given."""
    logged: list[Message] = field(default_factory=list)
    """What the log says that it has sent, its current step included."""
    sent: list[Held] = field(default_factory=list)
    """What it had sent when its last step was over."""
    outputs: list[Held] = field(default_factory=list)
    """What it has sent in its current step, which begins with all that was sent before."""
    place: int = 0
    """How many waits it has left in its current step."""
    halt: Halt | None = None
    trouble: Exception | None = None
    """What ends the current step, if the user's code should catch it."""
    result: Any = None
    error: BaseException | None = None

    def begin(self, action: Action) -> None:
        """Its next step is done: all from the beginning."""
        self.action, self.sent, self.outputs, self.place = action, self.outputs, [], 0
        self.halt = self.error = None
        self.logged += action.sent

    @property
    def calls(self) -> list[MessageId]:
        """The calls that it answers."""
        return [one.message.key for one in self.inputs if one.message.key[2] == "call"]


def halted(calls: tuple[MessageId, ...], k: int, function: str) -> Halt:
    """The action that called us waits where it did."""
    frame = sys._getframe(1)
    return Halt(calls, k, function, call_site(frame) or "an unknown place", handler_around(frame))


def check_end(way: UnderWay) -> None:
    """A step ends where the log says that it does: in the same wait, or not in one."""
    action, halt, then = way.action, way.halt, way.action.ends_in
    if way.place < len(way.came):
        raise unlike(action, "waits less often here than then")
    if halt is not None and not isinstance(way.error, Unwound):
        raise not_replayable(action, "cannot be done again: " + told_caught("it", halt.site, halt.handler))
    if halt is None and then is None:
        return
    if halt is None or then is None:
        here = "is over here" if halt is None else f"waits at {halt.site} here"
        what = "and was not over then" if then is None else f"and {then.told.replace('waits', 'waited')} then"
        raise unlike(action, f"{here}, {what}")
    if (halt.calls, halt.k, halt.function) != (then.calls, then.k, then.function):
        raise unlike(
            action,
            f"waits at {halt.site} for {told_calls(halt.calls, halt.k)} here, and at {then.site} for"
            f" {told_calls(then.calls, then.k)} then",
        )


def check_method(way: UnderWay, body: Any) -> None:
    """An action runs the method that its message names, or the join of its ports."""
    action, accepted = way.action, tuple(one.message.method for one in way.inputs)
    if any(method.startswith("__") for method in accepted):
        raise differs(action, f"accepted {' and '.join(accepted)}, which no handle sends: the log was changed")
    ports = getattr(getattr(type(body), action.method, None), "__join_ports__", None)
    if accepted not in ((action.method,), ports):
        raise differs(
            action, f"accepted {' and '.join(accepted)}, of which {action.method} is not made: the log was changed"
        )


def check_done(way: UnderWay, raised: str | None) -> None:
    """A step has done what was logged, and what it did before; `raised`: the name of the error that it has raised."""
    action, outputs = way.action, [one.message for one in way.outputs]
    if action.raised is not None and raised is None:
        raise unlike(action, f"raises nothing here, and raised {action.raised} then")
    for place, (first, again) in enumerate(zip(way.sent, outputs, strict=False)):
        if not same(first.message.said, again.said):
            raise unlike(
                action,
                f"sends {told_sent(again)} as message {place + 1} of its action, and {told_sent(first.message)} when that"
                " was done before",
            )
    if len(outputs) < len(way.sent):
        raise unlike(action, f"does not send {told_sent(way.sent[-1].message)}, as it did before")
    for place, (was, now) in enumerate(zip_longest(action.sent, outputs[len(way.sent) :])):
        if was is None or now is None or not same(was.said, now.said):
            raise unlike(
                action, f"sends {told_sent(now)} here as its message {place + 1}, and sent {told_sent(was)} then"
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


def told_sent(message: Message | None) -> str:
    """A message that was sent, for a person."""
    if message is None:
        return "nothing"
    _, target, kind, number = message.key
    what = "the creation" if number == 0 else "" if kind == "mail" else f"the {kind}"
    return f"{what} {message} to {target}".strip()
