"""The trace of one run: actions as plain data, in a causal order. Pure; see `stage` for doing them again.

An action that waits inside is as many steps as it has waits, and one more. Each is an `Action` here, and what is said of atomic
actions holds of steps: a step accepts messages, or the replies behind which it goes on. Read `steps` for where they come from.

Never imports Ray, a protocol or the user's code.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.errors import RaySnapshotError

ChannelId = tuple[str, str, str]
"""(source, target, kind)."""

MessageId = tuple[str, str, str, int]
"""(source, target, kind, number); number 0 is the creation of the target. A reply has the number of its call."""

ActionId = tuple[str, int]
"""(machine, how many steps it has done with this one)."""


class DiffersError(RaySnapshotError, AssertionError):
    """The equivalent computation does something else than what was logged or recorded; `.machine`, `.number`."""

    number: int | None = None
    """Of the action; None if it is of none."""


class NotReplayableError(RaySnapshotError, ValueError):
    """An action cannot be done again; the message names it and says what to do; `.machine`, `.number`."""

    number: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was logged by one of its ends."""

    key: MessageId
    method: str
    args: list[Any]
    """The arguments as recorded: parsed JSON."""
    exact: list[Any] | None = None
    """The arguments with tags for what plain JSON loses; None if it loses nothing."""
    class_name: str | None = None
    """The class of a creation, "module:qualname"."""
    seconds: float | None = None
    """How long a timer was set for."""
    call_id: str | None = None
    """Of a call: what its result is known by."""
    ref: str | None = None
    """Of a call: Ray's name of its result, in hexadecimal digits."""
    colour: int | None = None
    """The message's colour, if it is not its action's, for the machine recorded in the middle of the action; else
    None."""

    @property
    def channel(self) -> ChannelId:
        return self.key[:3]

    @property
    def is_creation(self) -> bool:
        return self.key[3] == 0

    @property
    def said(self) -> tuple[Any, ...]:
        """All that is said again if it is sent again."""
        return *self.key, self.method, self.args, self.class_name, self.seconds

    @property
    def row(self) -> dict[str, Any]:
        """As a snapshot has it in its table `messages`."""
        named = dict(zip(("source", "target", "kind", "number"), self.key, strict=True))
        return {**named, "method": self.method, "args": self.args}

    def __str__(self) -> str:
        arguments = ", ".join(short(item) for item in self.args)
        return f"{self.method}({arguments})"


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait inside an action: one step ends in it, and the next begins when it is over."""

    function: str
    """`get`, `wait`, or `locate`: a call looks for the host of a machine, of which the program sees nothing."""
    k: int
    place: int
    """How many messages the action had sent before it."""
    calls: tuple[MessageId, ...]
    """Of what it waits for, the calls of machines, in their order."""
    site: str | None
    is_foreign: bool = False
    """Whether it was also for something that no machine owes."""
    timeout: float | None = None
    came: Mapping[str, Any] | None = None
    """`values`, `places` or `error` (see `runtime.tracing`); None if it is not over."""

    @property
    def may_act(self) -> bool:
        """Whether the machine may go on although no other lets it: then a snapshot has it as active."""
        return self.timeout is not None or self.is_foreign or self.function == "locate"

    @property
    def told(self) -> str:
        return f"waits at {self.site or 'an unknown place'}"


@dataclass(frozen=True, slots=True)
class Action:
    """One atomic action as it was logged; of one that waited inside, one of its steps."""

    machine: str
    number: int
    """Of the action, from 1 in its machine; 1 is the constructor (the driver has none)."""
    method: str
    accepted: tuple[Message, ...]
    sent: tuple[Message, ...]
    colour: int
    """The highest snapshot number that its machine had recorded when it began."""
    acted_at: Any = None
    is_over: bool = True
    waited_at: str | None = None
    """Where it waited, if the trace says no more of that: it is of an older version."""
    raised: str | None = None
    step: int = 0
    """Which step of the action it is, from 0."""
    place: int = 0
    """Which step of its machine it is, from 1."""
    behind: Wait | None = None
    """The wait that is over where it begins; None of a first step."""
    ends_in: Wait | None = None
    """The wait in which it ends; None of a last step."""
    heard: tuple[MessageId, ...] = ()
    """The replies that it accepts."""
    answers: tuple[MessageId, ...] = ()
    """The replies that it gives."""

    @property
    def key(self) -> ActionId:
        return self.machine, self.place

    def __str__(self) -> str:
        step = f", step {self.step + 1}" if self.step or self.ends_in else ""
        return f"action {self.number} of {self.machine} ({self.method}){step}"


@dataclass(slots=True)
class Log:
    """A run: its actions in their original order, as far as the trace can be followed."""

    actions: list[Action]
    left_out: list[Action] = field(default_factory=list)
    """The last actions: not over when the trace ended, or behind what one had sent whose own log ends before."""
    sent_by: dict[MessageId, Action] = field(default_factory=dict)
    """Who sent a message, or gave a reply."""


def reply_to(call: MessageId) -> MessageId:
    """The reply to a call."""
    caller, target, _, number = call
    return target, caller, "reply", number


def listed(args: Any) -> list[Any]:
    """Recorded arguments as a list; what was too large to be recorded whole says so in place of them all."""
    if isinstance(args, dict) and "$truncated" in args:
        return [args]
    if not isinstance(args, list):
        raise TypeError(f"arguments are a list, and not {args!r}")
    return args


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same; unlike `==`, it tells `true` from `1` and `1` from `1.0`."""
    return bool(one == other) and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def log_of(actions: Sequence[Action]) -> Log:
    """The actions in a causal order that follows the hosts' clocks; raises `DiffersError` if the trace has a hole."""
    by_machine: dict[str, list[Action]] = defaultdict(list)
    for action in sorted(actions, key=lambda action: action.key):
        by_machine[action.machine].append(action)
    for line in by_machine.values():
        _check_numbers(line)
        _check_colours(line)
        _check_channels(line)
    sent_by = {message.key: action for action in actions for message in action.sent}
    sent_by |= {reply: action for action in actions for reply in action.answers}
    ordered = list(_ordered(by_machine, sent_by))
    taken = {action.key for action in ordered}
    left_out = [action for line in by_machine.values() for action in line if action.key not in taken]
    _check_left_out(left_out, sent_by)
    return Log(ordered, left_out, sent_by)


def _check_numbers(line: list[Action]) -> None:
    expected = 0
    for action in line:
        expected += action.step == 0
        if action.number != expected:
            what = "is there twice" if action.number < expected else f"comes behind action {expected - 1}"
            raise differs(action, f"{what}: rows were lost or changed", before="the trace has a hole: ")


def _check_colours(line: list[Action]) -> None:
    """A machine turns red once for each snapshot, and stays so: a cut is a beginning of its actions."""
    last, before = 0, line[0]
    for action in line:
        for colour in (action.colour, *(message.colour for message in action.sent)):
            if colour is not None and colour < last:
                raise differs(
                    action,
                    f"has colour {colour} behind {before}, which had colour {last}: who has recorded a snapshot has recorded"
                    " it for good; rows were changed",
                )
            last, before = last if colour is None else colour, action


def _check_channels(line: list[Action]) -> None:
    """A machine numbers what it sends on each channel from 1, in the order of sending, and creates each child once."""
    numbers: dict[ChannelId, int] = defaultdict(int)
    born: set[MessageId] = set()
    for action in line:
        for message in action.sent:
            key, expected = message.key, numbers[message.channel] + 1
            if message.is_creation and key not in born:
                born.add(key)
            elif key[3] == expected:
                numbers[message.channel] = expected
            else:
                gap = f"nobody sent number {expected}" if key[3] > expected else "it was sent before"
                text = f"sent {told_id(key)}, and {gap}: rows were lost or changed"
                raise differs(action, text, before="the trace has a hole: ")


def _ordered(by_machine: Mapping[str, list[Action]], sent_by: Mapping[MessageId, Action]) -> Iterator[Action]:
    """Each machine's actions in their order, each behind those whose messages it accepts; else by time."""
    ready: list[tuple[Any, str, int]] = []
    waiting: dict[ActionId, list[Action]] = defaultdict(list)
    missing: dict[ActionId, int] = {}

    def consider(action: Action) -> None:
        needed = [*(message.key for message in action.accepted), *action.heard]
        senders = {sender.key for key in needed if (sender := sent_by.get(key)) is not None}
        absent = [key for key in needed if key not in sent_by]
        behind = [key for key in senders if key not in done]
        for key in behind:
            waiting[key].append(action)
        missing[action.key] = len(behind) + len(absent)
        if not missing[action.key] and action.is_over:
            heapq.heappush(ready, (action.acted_at, *action.key))

    done: set[ActionId] = set()
    for line in by_machine.values():
        consider(line[0])
    while ready:
        _, machine, place = heapq.heappop(ready)
        action = by_machine[machine][place - 1]
        yield action
        done.add(action.key)
        if place < len(by_machine[machine]):
            consider(by_machine[machine][place])
        for other in waiting.pop(action.key, ()):
            missing[other.key] -= 1
            if not missing[other.key] and other.is_over:
                heapq.heappush(ready, (other.acted_at, *other.key))


def _check_left_out(left_out: list[Action], sent_by: Mapping[MessageId, Action]) -> None:
    """An action may accept a message that no logged action sent only if the log of the sender ends before it.

    Then it is left out, at the end. For other messages `_check_channels` makes sure of that: the numbers on a channel
    have no gap and begin with 1. Here it is checked for creations, which have no such numbers.
    """
    for action in left_out:
        for message in action.accepted:
            if message.is_creation and message.key not in sent_by:
                raise differs(action, f"accepts its creation from {message.key[0]}, which no logged action sent")


def differs(action: Action, text: str, *, before: str = "") -> DiffersError:
    """The error of an action that does something else than was logged; `before`: words in front of it."""
    return DiffersError(f"{before}{action} {text}", machine=action.machine, number=action.number)


def not_replayable(action: Action, text: str) -> NotReplayableError:
    """The error of an action that cannot be done again."""
    return NotReplayableError(f"{action} {text}", machine=action.machine, number=action.number)


def unlike(action: Action, text: str) -> DiffersError:
    """`differs`, where a machine that is not deterministic may be why."""
    return differs(
        action,
        f"{text}: {action.machine} is not deterministic (chance, clocks, files, threads: keep what decides in the state or in"
        " messages), or the log was changed",
    )


def told_id(key: MessageId) -> str:
    """A message, for a person."""
    source, target, kind, number = key
    if kind == "reply":
        return f"the reply of {source} to call {number} of {target}"
    return f"the creation of {target}" if number == 0 else f"{kind} {number} from {source} to {target}"


def told_channel(channel: ChannelId) -> str:
    """A channel, for a person."""
    return f"{channel[0]} -> {channel[1]}" + ("" if channel[2] == "mail" else f" ({channel[2]})")


def short(value: Any, most: int = 40) -> str:
    """A recorded value, for a person."""
    if isinstance(value, dict) and "$machine" in value:
        return str(value["$machine"])
    if isinstance(value, dict) and "$kwargs" in value:
        return ", ".join(f"{name}={short(item)}" for name, item in value["$kwargs"].items())
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."
