"""The theorem as an oracle: is a recorded snapshot a state that could have been? It shares no code with the protocols.

EWD864a: all white actions in their original order, then all red ones in theirs, is an equivalent computation, and the
snapshot is its state in between. So the oracle takes the log of a run, asks for each machine only *when* it recorded, and
then does just that, on fresh machines from S0: every white action must be possible (what it accepts was sent by an earlier
white action, and is the next message of its channel), the state in the middle must equal the snapshot, every red action
must be possible and do what it did, and the end must be the end of the original computation.

Sharp the other way too (the note's additional remark): if a red message was accepted in a white action, no order of the
white actions is possible, and the replay says which message was missing. Imports nothing but behaviours and logs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.simulation.mail.oracle import (
    Action,
    ChannelId,
    Log,
    Message,
    MessageId,
    OracleError,
    RecordedSnapshot,
    check_recorded,
    compare,
    of_recorded_kinds,
    told,
)
from worlds.mail.machines import Ask, Call, Create, Input, Later, Output, Reply, Send, Tell


@dataclass(slots=True)
class WorldLog(Log):
    """What happened in a run in which processes come and go."""

    ended: dict[str, int] = field(default_factory=dict)
    """How many actions those had performed that are gone: all are white for a snapshot that had not asked them before."""
    passing: set[str] = field(default_factory=set)
    """Those that come and go, and have no state of their own (`parties`); one that did not report is in no snapshot."""
    lost: set[MessageId] = field(default_factory=set)
    """What never will arrive, for its sender is gone."""

    def white(self, number: int) -> dict[str, int]:
        """How many actions of each machine are inside the cut."""
        return {**self.ended, **self.cuts.get(number, {})}


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
            raise OracleError(f"{told(action)} is impossible here: the machine has not been born")
        state, outputs = self.behaviours[action.machine].react(
            action.machine, self.states[action.machine], inputs, action.choice
        )
        if state != action.after:
            raise OracleError(f"{told(action)} leads to {state} here, and led to {action.after}")
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
                f"{told(action)} is impossible here: it accepts {kind} {number} from {source}, and {there}"
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
            raise OracleError(f"{told(action)} sends {(*key, self.sent[key])} here, and sent {expected}")
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
    log: WorldLog, snapshots: Iterable[RecordedSnapshot], end: Mapping[str, Any], *, is_consistent: bool = True
) -> None:
    """Check every snapshot of a run that ended with the states `end`; raises `OracleError`.

    Unless `is_consistent`, alignment was skipped (`check_recorded`).
    """
    last = replayed(log)
    lasting = {name: state for name, state in last.states.items() if name not in log.ended}
    compare("the run, in its original order, ends with the states", lasting, dict(end))
    for recorded in snapshots:
        if is_consistent:
            check(log, recorded, last)
        else:
            check_recorded(log, recorded)


def check(log: WorldLog, recorded: RecordedSnapshot, last: Replay | None = None) -> None:
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
        compare("after the red actions, the states are", replay.states, last.states)
        compare("after the red actions, the channels hold", replay.strings(), last.strings())
    except OracleError as error:
        raise OracleError(f"snapshot {recorded.number}: {error}") from None


def _compare(replay: Replay, recorded: RecordedSnapshot, log: WorldLog) -> None:
    strings = replay.strings()
    unseen = log.passing - recorded.states.keys()
    states = {name: state for name, state in replay.states.items() if name not in unseen}
    compare("after the white actions, the states are", states, recorded.states)
    in_flight = of_recorded_kinds(strings)
    if log.passing:
        in_flight = _told_or_certain(in_flight, log, recorded)
    if wrong := _wrong_channels(in_flight, recorded.channels):
        raise OracleError(f"after the white actions, the channels hold other messages than recorded: {wrong}")
    creations = {key[:2] for key in strings if key[2] == "creation"}
    compare("after the white actions, the creations in flight are", creations, recorded.creations)
    sent = Counter({key: count for key, count in replay.sent.items() if key[0] not in unseen})
    compare("the white actions sent", of_recorded_kinds(sent), of_recorded_kinds(recorded.sent))
    compare("the white actions accepted", of_recorded_kinds(replay.accepted), of_recorded_kinds(recorded.accepted))


def _told_or_certain(
    strings: dict[ChannelId, list[Message]], log: WorldLog, recorded: RecordedSnapshot
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
