"""The theorem as an oracle: is a recorded snapshot a state that could have been? It shares no code with the protocols.

EWD864a: all white actions in their original order, then all red ones in theirs, is an equivalent computation, and the
snapshot is its state in between. So the oracle takes the log of a run, asks for each machine only *when* it recorded, and
then does just that, on fresh machines from S0: every white action must be possible (what it accepts was sent by an earlier
white action, and is the next message of its channel), the state in the middle must equal the snapshot, every red action
must be possible and do what it did, and the end must be the end of the original computation.

Sharp the other way too (the note's additional remark): if a red message was accepted in a white action, no order of the
white actions is possible, and the replay says which message was missing. Imports nothing but behaviours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ray_snapshot.simulation.mail.machines import Ask, Behaviour, Call, Create, Input, Later, Output, Reply, Send, Tell

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

    start: dict[str, tuple[Behaviour, Any]] = field(default_factory=dict)
    """S0: behaviour and state of each machine; see also `channels`."""
    actions: list[Action] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    """How many actions each machine has performed; machines that exist are keys."""
    cuts: dict[int, dict[str, int]] = field(default_factory=dict)
    """Per snapshot: how many actions each machine had performed when it recorded."""
    is_fifo: bool = True
    """Whether channels keep the order of their messages."""
    channels: dict[ChannelId, list[Message]] = field(default_factory=dict)
    """What is in the channels of S0: nothing, unless the run begins with what was restored; numbered from 1."""
    ended: dict[str, int] = field(default_factory=dict)
    """How many actions those had performed that are gone: all are white for a snapshot that had not asked them before."""
    passing: set[str] = field(default_factory=set)
    """Those that come and go, and have no state of their own (`parties`); one that did not report is in no snapshot."""
    lost: set[MessageId] = field(default_factory=set)
    """What never will arrive, for its sender is gone."""

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
        return {**self.ended, **self.cuts.get(number, {})}


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


class Replay:
    """A system of the same machines, without hosts, links, markers or colours: states and strings of messages."""

    def __init__(self, log: Log) -> None:
        self.is_fifo = log.is_fifo
        self.behaviours = {name: behaviour for name, (behaviour, _) in log.start.items()}
        self.states = {name: state for name, (_, state) in log.start.items()}
        self.channels: dict[ChannelId, list[Message]] = defaultdict(list)
        self.sent: Counter[ChannelId] = Counter()
        self.accepted: Counter[ChannelId] = Counter()
        for key, messages in log.channels.items():
            self.channels[key] = list(messages)
            self.sent[key] = len(messages)

    def perform(self, action: Action) -> None:
        """One more action; raises `OracleError` where it is not possible, or does not do what it did."""
        found = {message: self._accept(action, message) for message in sorted(action.accepted)}
        inputs = tuple(found[message] for message in action.accepted)
        if inputs and inputs[0].kind == "creation":
            self._be_born(action, inputs[0])
            return
        if action.machine not in self.states:
            raise OracleError(f"{_told(action)} is impossible here: the machine has not been born")
        state, outputs = self.behaviours[action.machine].react(
            action.machine, self.states[action.machine], inputs, action.choice
        )
        if state != action.after:
            raise OracleError(f"{_told(action)} leads to {state} here, and led to {action.after}")
        self.states[action.machine] = state
        for output, expected in zip(outputs, action.sent, strict=False):  # the last action may not be over
            self._send(action, output, expected)

    def _accept(self, action: Action, message: MessageId) -> Input:
        source, target, kind, number = message
        waiting = self.channels[source, target, kind]
        numbers = [one[0] for one in waiting]
        is_fifo = self.is_fifo and kind in ("mail", "call")
        if number not in numbers or (is_fifo and numbers[0] != number):
            there = f"the channel begins with {numbers[0]}" if numbers else "the channel is empty"
            raise OracleError(
                f"{_told(action)} is impossible here: it accepts {kind} {number} from {source}, and {there}"
            )
        _, method, args = waiting.pop(numbers.index(number))
        self.accepted[source, target, kind] += 1
        return Input(source, kind, method, args)

    def _be_born(self, action: Action, creation: Input) -> None:
        self.behaviours[action.machine], self.states[action.machine] = creation.args

    def _send(self, action: Action, output: Output, expected: MessageId) -> None:
        match output:
            case Send(target, method, args):
                key = action.machine, target, "mail"
            case Later(target, method, args):
                key = action.machine, target, "timer"
            case Call(target, method, args):
                key = action.machine, target, "call"
            case Tell(target, method, args) | Ask(target, method, args):
                key = action.machine, target, "actor-call"
            case Reply(target, args):
                key, method = (action.machine, target, "reply"), "reply"
            case Create(target, _, behaviour, state):
                key, method, args = (action.machine, target, "creation"), "creation", (behaviour, state)
        self.sent[key] += 1
        if (*key, self.sent[key]) != expected:
            raise OracleError(f"{_told(action)} sends {(*key, self.sent[key])} here, and sent {expected}")
        self.channels[key].append((self.sent[key], method, args))

    def strings(self) -> dict[ChannelId, list[Message]]:
        """The channels that have messages in them."""
        return {key: list(messages) for key, messages in self.channels.items() if messages}


def replayed(log: Log) -> Replay:
    """The whole computation in its original order."""
    replay = Replay(log)
    for action in log.actions:
        replay.perform(action)
    return replay


def check_run(
    log: Log, snapshots: Iterable[RecordedSnapshot], end: Mapping[str, Any], *, is_consistent: bool = True
) -> None:
    """Check every snapshot of a run that ended with the states `end`; raises `OracleError`.

    Unless `is_consistent`, alignment was skipped (`check_at_least_once`).
    """
    last = replayed(log)
    lasting = {name: state for name, state in last.states.items() if name not in log.ended}
    _equal("the run, in its original order, ends with the states", lasting, dict(end))
    for recorded in snapshots:
        if is_consistent:
            check(log, recorded, last)
        else:
            check_at_least_once(log, recorded)


def check(log: Log, recorded: RecordedSnapshot, last: Replay | None = None) -> None:
    """Check one snapshot; raises `OracleError` that says what does not fit."""
    last = last or replayed(log)
    cut = log.white(recorded.number)
    replay = Replay(log)
    red = []
    try:
        for action in log.actions:
            if action.index <= cut.get(action.machine, 0):
                replay.perform(action)
            else:
                red.append(action)
        _compare(replay, recorded, log)
        for action in red:
            replay.perform(action)
        _equal("after the red actions, the states are", replay.states, last.states)
        _equal("after the red actions, the channels hold", replay.strings(), last.strings())
    except OracleError as error:
        raise OracleError(f"snapshot {recorded.number}: {error}") from None


def check_at_least_once(log: Log, recorded: RecordedSnapshot) -> None:
    """Check a snapshot whose alignment was skipped: it is no consistent state, but all that it says must be true.

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
    found = {key: sorted(message[0] for message in messages) for key, messages in recorded.channels.items() if messages}
    # What waits at its sender (a timer, a name whose host is not known) is recorded there; if it then goes out and arrives
    # before the barrier is met, it is both in flight and accepted: a restore repeats it.
    keys = {*white, *early}
    both = {key: white[key] & early[key] & set(found.get(key, ())) for key in keys}
    in_flight = {key: sorted((white[key] - early[key]) | both[key]) for key in keys}
    repeated = {key: len((early[key] - white[key]) | both[key]) for key in keys}
    _equal("behind their last white actions, the states are", states, recorded.states)
    _equal("sent by white actions, and not accepted by them (or after all), were", _kept(in_flight), found)
    _equal("accepted by white actions, and sent by red ones, were", _kept(repeated), recorded.duplicates)
    _equal("the white actions sent", _counts(sent), _counts(recorded.sent))
    _equal("the white actions accepted", _counts(accepted), _counts(recorded.accepted))


def check_colours(log: Log, number: int) -> None:
    """No red message is accepted in a white action (EWD864a); raises `OracleError` that names the first one."""
    cut = log.white(number)
    sender = {message: action for action in log.actions for message in action.sent}
    for action in log.actions:
        for message in action.accepted if action.index <= cut.get(action.machine, 0) else ():
            sent_by = sender[message]
            if sent_by.index > cut.get(sent_by.machine, 0):
                raise OracleError(
                    f"snapshot {number}: {_told(action)} is white and accepts {message[2]} {message[3]} from {message[0]},"
                    f" which is red: {_told(sent_by)}, behind its record, has sent it"
                )


def _kept(found: dict[ChannelId, Any]) -> dict[ChannelId, Any]:
    return {key: value for key, value in found.items() if value and key[2] in RECORDED}


def _compare(replay: Replay, recorded: RecordedSnapshot, log: Log) -> None:
    strings = replay.strings()
    unseen = log.passing - recorded.states.keys()
    states = {name: state for name, state in replay.states.items() if name not in unseen}
    _equal("after the white actions, the states are", states, recorded.states)
    in_flight = {key: messages for key, messages in strings.items() if key[2] in RECORDED}
    if log.passing:
        in_flight = _told_or_certain(in_flight, log, recorded)
    if wrong := _wrong_channels(in_flight, recorded.channels):
        raise OracleError(f"after the white actions, the channels hold other messages than recorded: {wrong}")
    creations = {key[:2] for key in strings if key[2] == "creation"}
    _equal("after the white actions, the creations in flight are", creations, recorded.creations)
    sent = Counter({key: count for key, count in replay.sent.items() if key[0] not in unseen})
    _equal("the white actions sent", _counts(sent), _counts(recorded.sent))
    _equal("the white actions accepted", _counts(replay.accepted), _counts(recorded.accepted))


def _told_or_certain(
    strings: dict[ChannelId, list[Message]], log: Log, recorded: RecordedSnapshot
) -> dict[ChannelId, list[Message]]:
    """Of these messages, those that are recorded, or must have been: not what is lost, nor mail of who is uncertain."""

    def is_certain(key: ChannelId, number: int) -> bool:
        return key[0] not in recorded.uncertain and (*key, number) not in log.lost

    found = {
        key: [one for one in messages if one in recorded.channels.get(key, ()) or is_certain(key, one[0])]
        for key, messages in strings.items()
    }
    return {key: messages for key, messages in found.items() if messages}


def _wrong_channels(found: dict[ChannelId, list[Message]], recorded: dict[ChannelId, list[Message]]) -> str:
    """Which messages were in flight and not recorded, or the other way round; "" if none were."""
    wrong = []
    for key in [key for key in {**found, **recorded} if found.get(key, []) != recorded.get(key, [])]:
        one, other, where = found.get(key, []), recorded.get(key, []), f"from {key[0]} to {key[1]}"
        lost = [f"{message[1]} {message[2]} {where} was recorded nowhere" for message in one if message not in other]
        made = [
            f"{message[1]} {message[2]} {where} was recorded, and not in flight"
            for message in other
            if message not in one
        ]
        wrong += lost + made or [f"those {where} were recorded more than once, or in another order"]
    return "; ".join([*wrong[:3], f"and {len(wrong) - 3} more"] if len(wrong) > 3 else wrong)


def _counts(counts: Mapping[ChannelId, int]) -> dict[ChannelId, int]:
    return {key: count for key, count in counts.items() if count and key[2] in RECORDED}


def _equal(what: str, found: Any, other: Any) -> None:
    if found == other:
        return
    if isinstance(found, dict):
        keys = [key for key in {**found, **other} if found.get(key) != other.get(key)]
        found, other = ({key: side.get(key) for key in keys[:3]} for side in (found, other))
    raise OracleError(f"{what} {found}, but recorded or seen was {other}")


def _told(action: Action) -> str:
    return f"action {action.index} of {action.machine}"
