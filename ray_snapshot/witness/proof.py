"""Dijkstra's theorem on one snapshot of a traced run (EWD864a): S0, white actions, the snapshot, red actions, S1.

All white actions in their original order, then all red ones in theirs, are done again on fresh machines; of an action that
waited inside, each step has its own colour, and is taken for an action here (`docs/protocols.md`, "Steps"). It is shown that
each is possible there and does what it did; that the state in between is the recorded snapshot, machine by machine and
channel by channel; and that the end is the end of the original computation. Shares no code with the protocols.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.decoding import NotDecodableError, decoded
from ray_snapshot.json_text import parsed_json
from ray_snapshot.names import DRIVER
from ray_snapshot.witness.log import (
    Action,
    ActionId,
    ChannelId,
    DiffersError,
    Log,
    Message,
    MessageId,
    NotReplayableError,
    differs,
    listed,
    not_replayable,
    same,
    short,
    told_channel,
    told_id,
)
from ray_snapshot.witness.modules import Modules, loaded, names_in
from ray_snapshot.witness.stage import Stage

Strings = dict[ChannelId, list[tuple[int, str, list[Any]]]]


@dataclass(slots=True)
class WitnessedSnapshot:
    """A snapshot as the history holds it, in the witness's words."""

    snapshot_id: str
    number: int
    states: dict[str, Any] = field(default_factory=dict)
    """By machine: its recorded state; the driver is left out."""
    classes: dict[str, str] = field(default_factory=dict)
    """By machine, the last part of its class's name."""
    without_state: list[str] = field(default_factory=list)
    """Machines that were recorded in the middle of an action."""
    strings: Strings = field(default_factory=dict)
    counts: dict[ChannelId, tuple[int, int]] = field(default_factory=dict)
    """(sent, accepted) of each channel."""
    waiting: dict[str, set[str]] | None = None
    """By machine that waits inside an action for calls: their ids; None if it is not known which do."""
    repeated: int = 0
    """Messages from outside the cut that `at-least-once-barrier` let into it: no state that could have been."""

    @property
    def in_flight(self) -> list[Message]:
        """What is in the channels."""
        return [
            Message((*channel, number), method, args)
            for channel, held in self.strings.items()
            for number, method, args in held
        ]


@dataclass(slots=True)
class Witness:
    """The equivalent computation, and what was found on the way."""

    run_id: str
    recorded: WitnessedSnapshot
    log: Log
    start: WitnessedSnapshot | None = None
    """S0, if it is not the system's start."""
    modules: Modules = field(default_factory=Modules)
    before: list[Action] = field(default_factory=list)
    """Actions before S0."""
    white: list[Action] = field(default_factory=list)
    red: list[Action] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    """What was shown, a sentence each."""
    problem: DiffersError | None = None
    """Where it differed first; None if all was shown."""

    @property
    def trivial(self) -> str | None:
        """Why the cut says nothing of the order of actions: all are on one side of it; None if some are on each."""
        if not self.red:
            return (
                "every action of the trace is before it, so white and red are not told apart: it is the end of the run"
            )
        if not self.white:
            return "every action of the trace is behind it, so white and red are not told apart: it is where the replay begins"
        return None

    @property
    def cut(self) -> dict[str, int]:
        """How many actions (steps, of those that waited inside) of each machine the snapshot has behind it."""
        cut = {action.machine: 0 for action in self.log.actions}
        for action in (*self.before, *self.white):
            cut[action.machine] = max(cut[action.machine], action.place)
        return cut


def recorded_of(snapshot: Any) -> WitnessedSnapshot:
    """What the witness compares with, of a `ray_snapshot.Snapshot`."""
    tables, said = snapshot.tables, snapshot.coverage.get("without_state", ())
    found = WitnessedSnapshot(snapshot.snapshot_id, snapshot.sequence, repeated=snapshot.repeats_by_design)
    for row in tables["machines"].select(["machine", "class_name", "state"]).to_pylist():
        if row["machine"] == DRIVER:
            continue
        if row["class_name"] is not None:
            found.classes[row["machine"]] = row["class_name"]
        if row["state"] is None and row["machine"] in said:
            found.without_state.append(row["machine"])
        else:  # a state that is missing, though nothing says why, equals none
            found.states[row["machine"]] = None if row["state"] is None else parsed_json(row["state"])
    strings: Strings = defaultdict(list)
    for row in tables["messages"].to_pylist():
        message = row["number"], row["method"], listed(parsed_json(row["args"] or "[]"))
        strings[row["source"], row["target"], row["kind"]].append(message)
    found.strings = {channel: sorted(held, key=lambda one: one[0]) for channel, held in sorted(strings.items())}
    for row in tables["channels"].to_pylist():
        found.counts[row["source"], row["target"], row["kind"]] = row["sent_count"], row["accepted_count"]
    found.waiting = defaultdict(set)
    for row in tables["waits"].select(["machine", "on_call_id"]).to_pylist():
        if row["on_call_id"] is not None and row["machine"] != DRIVER:
            found.waiting[row["machine"]].add(row["on_call_id"])
    return found


def prove(
    run_id: str,
    log: Log,
    recorded: WitnessedSnapshot,
    *,
    start: WitnessedSnapshot | None = None,
    others: Iterable[WitnessedSnapshot] = (),
    modules: Iterable[str] = (),
) -> Witness:
    """Build the equivalent computation for one snapshot, and carry it out.

    `start`: begin with this earlier snapshot as S0. `others`: further snapshots of the run, with which machines are compared
    where they fit. `modules`: those whose code may be run, beside machine classes that this process has loaded. Raises
    `NotReplayableError`; what differs is in `problem`.
    """
    first = 0 if start is None else start.number
    allowed = Modules(loaded(class_names(log)) | frozenset(modules))
    witness = Witness(run_id, recorded, log, start, allowed)
    for action in log.actions:
        part = witness.before if action.colour < first else witness.white
        (part if action.colour < recorded.number else witness.red).append(action)
    try:
        _check_cut(witness)
        _carry_out(witness, list(others))
    except DiffersError as error:
        witness.problem = error
    return witness


def _check_cut(witness: Witness) -> None:
    """The trace reaches behind the cut, and no action lies across it."""
    number = witness.recorded.number
    for action in witness.log.left_out:
        if action.colour < number and action.is_over:
            accepted = ", ".join(told for key, told in _needed(action) if key not in witness.log.sent_by)
            what = (
                f"accepts {accepted}, which no logged action sent"
                if accepted
                else "lies behind one that is not there, or behind itself"
            )
            raise differs(action, f"is white, and {what}: the trace has lost rows, or was changed")
        if action.colour < number:
            raise _across(action)
    for action in (*witness.before, *witness.white):
        if any(message.colour is not None and message.colour >= number for message in action.sent):
            raise _across(action)
    _check_waits(witness)


def _needed(action: Action, *, with_source: bool = False) -> list[tuple[MessageId, str]]:
    """(key, words) of what a step accepts: messages, and replies."""
    accepted = [(m.key, f"{m} from {m.key[0]}" if with_source else str(m)) for m in action.accepted]
    return [*accepted, *((reply, told_id(reply)) for reply in action.heard)]


def _check_waits(witness: Witness) -> None:
    """Who waits inside an action in the snapshot has white steps up to that wait, and nobody else ends in one."""
    if witness.recorded.waiting is None:
        return
    waiting = witness.recorded.waiting
    ids = {message.key: message.call_id for message in _messages(witness.log) if message.call_id}
    last = {action.machine: action for action in (*witness.before, *witness.white)}
    for machine, calls in sorted(waiting.items()):
        step = last.get(machine)
        wait = None if step is None else step.ends_in
        if wait is not None and calls == {ids.get(call) for call in wait.calls}:
            continue
        told = " and ".join(sorted(calls)[:5])
        if wait is None and not any(action.machine == machine for action in witness.red):
            raise NotReplayableError(
                f"{machine} waits in the snapshot inside an action that the trace has not yet: it is written when it is over,"
                " or with the system's end",
                machine=machine,
            )
        raise DiffersError(
            f"{machine} waits in the snapshot for the calls {told}, and its last white action is {step or 'none'}: rows were"
            " changed",
            machine=machine,
            number=None if step is None else step.number,
        )
    for machine, step in sorted(last.items()):
        wait = step.ends_in
        if wait is None or wait.may_act or machine in waiting:
            continue
        if machine in witness.recorded.states:
            text = f"is the last white one of {machine}, and {wait.told}; in the snapshot it waits for nothing"
            raise differs(step, f"{text}: rows were changed")


def _across(action: Action) -> NotReplayableError:
    where = f" (it waited at {action.waited_at})" if action.waited_at else ""
    return not_replayable(
        action,
        f"was still under way when the snapshot recorded it{where}: the theorem is about atomic actions; choose another"
        " snapshot, or let the action end sooner",
    )


def _carry_out(witness: Witness, others: list[WitnessedSnapshot]) -> None:
    _check_all_replayable(witness)
    original = _original(witness, others)
    end, end_strings = original.states(), original.channels.strings()
    with _begun(witness) as stage:
        _perform_white(stage, witness)
        _compare_middle(stage, witness)
        for action in witness.red:
            stage.perform(action)
        _equal("after the red actions, the state of", stage.states(), end, "at the end of the original computation")
        _equal_strings(
            "after the red actions,", stage.channels.strings(), end_strings, "at the end of the original computation"
        )
    witness.proven.append(
        f"the {len(witness.red)} red actions are possible behind it, in their order, and do what they did; their end, S1, is"
        " the end of the original computation"
    )
    _compare_end(witness, others, end, end_strings)


def _check_all_replayable(witness: Witness) -> None:
    """Name the first action that cannot be done again before anything is compared."""
    with Stage(witness.run_id, witness.modules) as stage:
        for action in (*witness.white, *witness.red):
            for message in action.accepted:
                if message.is_creation and message.class_name is not None:
                    _check_class(witness.recorded, action.machine, message.class_name)
                    stage.empty(action.machine, message.class_name)


def _check_class(recorded: WitnessedSnapshot, machine: str, class_name: str) -> None:
    """A machine is of the class that the snapshot says."""
    then = recorded.classes.get(machine)
    if then is not None and class_name.rpartition(":")[2].rpartition(".")[2] != then:
        raise DiffersError(
            f"the trace creates {machine} of class {class_name}, and the snapshot has it of class {then}: rows were changed",
            machine=machine,
            number=1,
        )


def class_names(log: Log) -> set[str]:
    """The classes of the machines that a trace creates."""
    return {message.class_name for message in _messages(log) if message.is_creation and message.class_name}


def foreign_names(log: Log, start: WitnessedSnapshot | None = None) -> set[str]:
    """All classes and functions that a replay would look up, "module:name" or "module.name"."""
    held = [message.args if message.exact is None else message.exact for message in _messages(log)]
    return class_names(log) | {*names_in(held)} | {*names_in([] if start is None else [*start.states.values()])}


def _messages(log: Log) -> Iterator[Message]:
    for action in log.actions:
        yield from action.accepted
        yield from action.sent


def _begun(witness: Witness) -> Stage:
    """A stage at S0."""
    stage = Stage(witness.run_id, witness.modules)
    if witness.start is not None:
        stage.__enter__()
        _load(stage, witness, witness.start)
    return stage


def _load(stage: Stage, witness: Witness, start: WitnessedSnapshot) -> None:
    for machine in start.without_state:
        raise NotReplayableError(
            f"S0 holds no state of {machine}: it was recorded in the middle of an action; begin with another snapshot",
            machine=machine,
        )
    classes = {message.key[1]: message.class_name for message in _messages(witness.log) if message.is_creation}
    for machine, state in start.states.items():
        body = stage.bodies[machine] = stage.empty(machine, str(classes.get(machine)))
        try:
            body.restore_state(decoded(state, stage.handle, stage.modules.find))
        except NotDecodableError as error:
            raise NotReplayableError(
                f"the state of {machine} in S0 cannot be built again: {error}: begin with the system's start (no --from)",
                machine=machine,
            ) from None
        except Exception as error:
            raise NotReplayableError(
                f"{machine} does not take its state of S0 back: restore_state raised {type(error).__name__}: {error}",
                machine=machine,
            ) from None
    logged = {message.key: message for action in witness.log.actions for message in action.sent}
    for channel, held in start.strings.items():
        for number, method, args in held:
            message = logged.get((*channel, number), Message((*channel, number), method, args))
            if message.method != method or not same(message.args, args):
                raise DiffersError(
                    f"{told_id(message.key)} is {Message(message.key, method, args)} in S0, and {message} in the trace",
                    machine=channel[0],
                )
            stage.channels.put(stage.recorded(message))
    for channel, (sent, accepted) in start.counts.items():
        stage.channels.sent[channel], stage.channels.accepted[channel] = sent, accepted


def _original(witness: Witness, others: list[WitnessedSnapshot]) -> Stage:
    """The original computation; machines are compared wherever a snapshot recorded them: so the first to differ is named."""
    cuts = _points(witness, [*others, witness.recorded])
    last_equal: dict[str, Action] = {}
    with _begun(witness) as stage:
        before = {action.key for action in witness.before}
        for action in witness.log.actions:
            if action.key in before:
                continue
            stage.perform(action)
            for snapshot_id, state in cuts.get(action.key, ()):
                _check_state(stage, action, snapshot_id, state, last_equal)
    return stage


def _points(witness: Witness, snapshots: list[WitnessedSnapshot]) -> dict[ActionId, list[tuple[str, Any]]]:
    """By action: the snapshots whose cut comes right after it, and the states that they recorded of its machine."""
    found: dict[ActionId, list[tuple[str, Any]]] = defaultdict(list)
    for recorded in snapshots:
        ends: dict[str, Action] = {}
        for action in witness.log.actions:
            if action.colour < recorded.number:
                ends[action.machine] = action
        for machine, action in ends.items():
            if machine in recorded.states:
                found[action.key].append((recorded.snapshot_id, recorded.states[machine]))
    return found


def _check_state(stage: Stage, action: Action, snapshot_id: str, recorded: Any, last_equal: dict[str, Action]) -> None:
    found = stage.state_of(action.machine)
    if same(found, recorded):
        last_equal[action.machine] = action
        return
    before = last_equal.get(action.machine)
    since = f"; behind its action {before.number} both were equal" if before is not None else ""
    text = f"{action.machine} holds {short(found, 120)} here, and held {short(recorded, 120)} then (snapshot {snapshot_id})"
    why = "it is not deterministic (chance, clocks, files, threads), or the history was changed"
    raise DiffersError(
        f"behind {action}, {text}{_difference(found, recorded)}{since}: {why}",
        machine=action.machine,
        number=action.number,
    )


def _perform_white(stage: Stage, witness: Witness) -> None:
    for action in witness.white:
        try:
            stage.perform(action)
        except DiffersError as error:
            senders = [(told, witness.log.sent_by.get(key)) for key, told in _needed(action, with_source=True)]
            red = [(told, sender) for told, sender in senders if sender and sender.colour >= witness.recorded.number]
            if not red:
                raise
            raise differs(
                action,
                f"is white and accepts {red[0][0]}, which {red[0][1]} sent when it was red: by EWD864a's additional remark no"
                " order of the white actions is possible, and the cut is not consistent",
            ) from error
    witness.proven.append(
        f"the {len(witness.white)} white actions are possible on their own, in their order, and do what they did"
    )


def _compare_middle(stage: Stage, witness: Witness) -> None:
    recorded = witness.recorded
    found = {machine: state for machine, state in stage.states().items() if machine not in recorded.without_state}
    _equal("after the white actions, the state of", found, recorded.states, "in the snapshot")
    _equal_strings("after the white actions,", stage.channels.strings(), recorded.strings, "in the snapshot")
    now = stage.channels
    used = {channel: (0, 0) for channel, count in now.sent.items() if count}
    for channel, (sent, accepted) in {**used, **recorded.counts}.items():
        if (now.sent[channel], now.accepted[channel]) != (sent, accepted):
            raise DiffersError(
                f"the white actions sent {now.sent[channel]} and accepted {now.accepted[channel]} messages on"
                f" {told_channel(channel)}; the snapshot counts {sent} and {accepted}",
                machine=channel[0],
            )
    in_flight = sum(map(len, recorded.strings.values()))
    less = f" ({', '.join(recorded.without_state)} recorded without state)" if recorded.without_state else ""
    witness.proven.append(
        f"the state between white and red is the snapshot: {len(recorded.states)} machines{less}, {in_flight} messages in"
        f" flight, the counts of {len(recorded.counts)} channels"
    )


def _compare_end(witness: Witness, others: list[WitnessedSnapshot], end: Mapping[str, Any], strings: Strings) -> None:
    """S1 against a later snapshot whose cut ends there."""
    last = max((action.colour for action in witness.log.actions), default=0)
    at_end = [one for one in others if one.number > max(last, witness.recorded.number)]
    if not at_end:
        return
    other = at_end[0]
    states = {machine: state for machine, state in end.items() if machine not in other.without_state}
    _equal("at S1, the state of", states, other.states, f"in the later snapshot {other.snapshot_id}")
    _equal_strings("at S1,", strings, other.strings, f"in the later snapshot {other.snapshot_id}")
    witness.proven.append(f"S1 is the state that the later snapshot {other.snapshot_id} recorded")


def _equal(what: str, found: Mapping[str, Any], other: Mapping[str, Any], where: str) -> None:
    for machine in sorted({**found, **other}):
        if machine not in found or machine not in other:
            place = "not there" if machine not in found else f"there, but not {where}"
            raise DiffersError(f"{what} {machine}: it is {place}", machine=machine)
        if not same(found[machine], other[machine]):
            raise DiffersError(
                f"{what} {machine} is {short(found[machine], 120)}, and {short(other[machine], 120)} {where}"
                f"{_difference(found[machine], other[machine])}",
                machine=machine,
            )


def _equal_strings(what: str, found: Strings, other: Strings, where: str) -> None:
    for channel in sorted({**found, **other}):
        ours, theirs = found.get(channel, []), other.get(channel, [])
        if not same(ours, theirs):
            place = next(i for i in range(len(ours) + len(theirs)) if not same(ours[i : i + 1], theirs[i : i + 1]))
            raise DiffersError(
                f"{what} {told_channel(channel)} holds {_told(ours[place : place + 1])} as message {place + 1} of"
                f" {len(ours)}, and {_told(theirs[place : place + 1])} of {len(theirs)} {where}",
                machine=channel[0],
            )


def _told(messages: list[tuple[int, str, list[Any]]]) -> str:
    if not messages:
        return "nothing"
    number, method, args = messages[0]
    return f"{Message((' ', ' ', 'mail', number), method, args)} (number {number})"


def _difference(found: Any, other: Any) -> str:
    """Where two states differ first, if both have names."""
    if not isinstance(found, dict) or not isinstance(other, dict):
        return ""
    for key in sorted({**found, **other}):
        if not same(found.get(key), other.get(key)):
            return f" ({key}: {short(found.get(key), 120)} against {short(other.get(key), 120)})"
    return ""
