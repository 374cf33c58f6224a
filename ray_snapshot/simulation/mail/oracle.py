"""What happened in a simulated run, and whether a snapshot of it is right: by the run alone, without the protocols.

A snapshot is given by its cut: how many actions of each machine are white (EWD864a). So from the log it follows what each
machine was, and what was on each channel; and a cut is consistent if no white action accepts what a red one has sent. That
such a snapshot is a state that could have been, by doing all white actions and then all red ones, is the theorem;
`tests/worlds/mail/theorem.py` carries it out. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

T = TypeVar("T")

MessageId = tuple[str, str, str, int]
"""(source, target, kind, number); kinds are `mail`, `call`, `timer`, `creation`, `reply`, and `actor-call` for a call of a
watched actor."""

ChannelId = tuple[str, str, str]

Message = tuple[int, str, Any]
"""(number, method, arguments)."""

RECORDED = ("mail", "call", "timer")
"""Kinds of channels that a snapshot holds as such; a reply in flight is no part of it."""


class OracleError(AssertionError):
    """A snapshot is not the state between the white and the red actions, or the run itself is impossible."""


@dataclass(slots=True)
class Action:
    """One atomic action, as it happened."""

    machine: str
    index: int
    """From 1 in the history of its machine."""
    accepted: tuple[MessageId, ...]
    choice: int
    after: Any = None
    """The state that the machine had after it."""
    sent: list[MessageId] = field(default_factory=list)


@dataclass(slots=True)
class Log:
    """What happened in a run."""

    start: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """S0: behaviour (None where nothing is done again) and state of each machine; see also `channels`."""
    actions: list[Action] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    """How many actions each machine has performed; machines that exist are keys."""
    cuts: dict[int, dict[str, int]] = field(default_factory=dict)
    """Per snapshot: how many actions each machine had performed when it recorded."""
    is_fifo: bool = True
    """Whether channels keep the order of their messages."""
    channels: dict[ChannelId, list[Message]] = field(default_factory=dict)
    """What is in the channels of S0: nothing, unless the run begins with what was restored; numbered from 1."""

    def begin(self, machine: str, accepted: Iterable[MessageId], choice: int) -> Action:
        """A machine acts."""
        self.lengths[machine] = self.lengths.get(machine, 0) + 1
        action = Action(machine, self.lengths[machine], tuple(accepted), choice)
        self.actions.append(action)
        return action

    def record(self, number: int, machines: Iterable[str]) -> None:
        """These machines have turned red for `number`, each behind its last action (if it exists)."""
        cut = self.cuts.setdefault(number, {})
        for machine in machines:
            if machine in self.lengths:
                cut.setdefault(machine, self.lengths[machine])

    def white(self, number: int) -> dict[str, int]:
        """How many actions of each machine are inside the cut."""
        return self.cuts.get(number, {})


@dataclass
class RecordedSnapshot:
    """A completed snapshot, in the oracle's words."""

    number: int
    states: dict[str, Any] = field(default_factory=dict)
    channels: dict[ChannelId, list[Message]] = field(default_factory=dict)
    """Messages in flight, channels without any left out."""
    creations: set[tuple[str, str]] = field(default_factory=set)
    """(creator, child) of creations in flight."""
    sent: dict[ChannelId, int] = field(default_factory=dict)
    accepted: dict[ChannelId, int] = field(default_factory=dict)
    duplicates: dict[ChannelId, int] = field(default_factory=dict)
    """Accepted inside the cut and sent outside it, as the snapshot foretells; none but where alignment is skipped."""
    blocked: dict[str, int] = field(default_factory=dict)
    """Machines that aligned, with the messages that waited for it."""
    payloads: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    """Per creation in flight: (behaviour, state) of the child."""
    waiting: set[str] = field(default_factory=set, repr=False)
    """Machines that were inside an action, at a wait for a reply."""
    uncertain: frozenset[str] = frozenset()
    """Those of whose messages in flight it may lack some, as it says itself."""

    @cached_property
    def text(self) -> str:
        """What it says, in whatever order its parts came; nothing of it changes any more once it is completed."""
        counts = (self.channels, self.sent, self.accepted, self.duplicates)
        kept = [sorted((key, value) for key, value in one.items() if value) for one in counts]
        return repr((self.number, sorted(self.states.items()), kept, sorted(self.creations)))


def check_recorded(log: Log, recorded: RecordedSnapshot) -> None:
    """Check that all is true that a snapshot says, also of one that is no consistent state as alignment was skipped.

    Each state is that of its machine behind its last white action; on each channel, what white actions sent and accepted,
    what they sent and did not accept, and how much they accepted that red ones had sent. What waited at a white sender (a
    timer, a message to a name not found) and was dispatched and accepted before its target recorded is both: in flight, and
    a duplicate. Raises `OracleError`.
    """
    cut = log.cuts.get(recorded.number, {})
    states: dict[str, Any] = {}
    sent, accepted = Counter[ChannelId](), Counter[ChannelId]()
    white: dict[ChannelId, set[int]] = defaultdict(set)
    early: dict[ChannelId, set[int]] = defaultdict(set)
    for name, (_, state) in log.start.items():
        states[name] = state
    for key, messages in log.channels.items():
        white[key].update(message[0] for message in messages)
        sent[key] += len(messages)
    for action in log.actions:
        if action.index <= cut.get(action.machine, 0):
            states[action.machine] = action.after
            for source, target, kind, number in action.accepted:
                early[source, target, kind].add(number)
                accepted[source, target, kind] += 1
            for source, target, kind, number in action.sent:
                white[source, target, kind].add(number)
                sent[source, target, kind] += 1
    found = {key: [message[0] for message in messages] for key, messages in recorded.channels.items() if messages}
    # What waits at its sender (a timer, a name whose host is not known) is recorded there; if it then goes out and arrives
    # before the barrier is met, it is both in flight and accepted: a restore repeats it.
    keys = {*white, *early}
    both = {key: white[key] & early[key] & set(found.get(key, ())) for key in keys}
    in_flight = {key: sorted((white[key] - early[key]) | both[key]) for key in keys}
    repeated = {key: len((early[key] - white[key]) | both[key]) for key in keys}
    compare("behind their last white actions, the states are", states, recorded.states)
    compare("sent by white actions, and not accepted by them (or after all), were", of_recorded_kinds(in_flight), found)
    compare("accepted by white actions, and sent by red ones, were", of_recorded_kinds(repeated), recorded.duplicates)
    compare("the white actions sent", of_recorded_kinds(sent), of_recorded_kinds(recorded.sent))
    compare("the white actions accepted", of_recorded_kinds(accepted), of_recorded_kinds(recorded.accepted))


def check_colours(log: Log, number: int) -> None:
    """No red message is accepted in a white action (EWD864a); raises `OracleError` that names the first one."""
    cut = log.white(number)
    sender = {message: action for action in log.actions for message in action.sent}
    for action in log.actions:
        for message in action.accepted if action.index <= cut.get(action.machine, 0) else ():
            sent_by = sender[message]
            if sent_by.index > cut.get(sent_by.machine, 0):
                raise OracleError(
                    f"snapshot {number}: {told(action)} is white and accepts {message[2]} {message[3]} from {message[0]},"
                    f" which is red: {told(sent_by)}, behind its record, has sent it"
                )


def of_recorded_kinds(found: Mapping[ChannelId, T]) -> dict[ChannelId, T]:
    """What there is of channels that a snapshot holds."""
    return {key: value for key, value in found.items() if value and key[2] in RECORDED}


def compare(what: str, found: Any, other: Any) -> None:
    """Raises `OracleError` with what is not equal."""
    if found == other:
        return
    if isinstance(found, dict):
        keys = [key for key in {**found, **other} if found.get(key) != other.get(key)]
        found, other = ({key: side.get(key) for key in keys[:3]} for side in (found, other))
    raise OracleError(f"{what} {found}, but recorded or seen was {other}")


def told(action: Action) -> str:
    """An action, for a person."""
    return f"action {action.index} of {action.machine}"
