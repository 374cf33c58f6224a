"""The theorem for calls: is a recorded snapshot a state that could have been, and do its verdicts hold?

As `oracle` does for mail: the log of a run is replayed, white events in their order, then red ones in theirs, on a model
without colours, numbers' fates, logs, or acknowledgements. Every event must be possible where it comes; the state in the
middle must equal the snapshot; the end must be the end. Shares no code with the protocol; imports the standard library
only.

Deaths, lost and cancelled calls reach their callers by errors that Ray makes, which carry no colour: an error may be seen
in a white action though what caused it is red. The replay lets it be; a machine that died while a snapshot was open is
named in the snapshot's obstacles, and no verdict is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.simulation.mail.oracle import OracleError

CallName = tuple[str, int, str, int]
"""(source, incarnation of the source, target, number)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for what."""

    caller: CallName | None
    on: tuple[CallName, ...]
    k: int
    is_local: bool = False
    may_act: bool = False
    raises: bool = False
    """The first error ends it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a machine did."""

    machine: str
    index: int
    """From 1 in the history of its machine."""
    kind: str
    """submit, settle, accept, begin, step, wait, wake, finish, again, die, leave."""
    call: CallName | None = None
    waiting: Waiting | None = None
    is_retried: bool = False


@dataclass(slots=True)
class Log:
    """What happened in a run."""

    events: list[Event] = field(default_factory=list)
    lengths: Counter[str] = field(default_factory=Counter)
    cuts: dict[int, dict[str, int]] = field(default_factory=dict)
    """Per snapshot: how many events each machine had behind it when it recorded; 0 if it was born outside."""
    ended: dict[str, int] = field(default_factory=dict)
    """The length of those that are gone: in snapshots that they did not record, all of it is white."""
    failed: set[CallName] = field(default_factory=set)
    """Calls whose callers were told of an error."""
    raised: set[CallName] = field(default_factory=set)
    """Calls that have ended by raising."""
    faults: list[int] = field(default_factory=list)
    """At which events something happened that no machine did: a call was lost, repeated, cancelled, a machine died."""

    def add(self, machine: str, kind: str, call: CallName | None = None, **more: Any) -> None:
        self.lengths[machine] += 1
        self.events.append(Event(machine, self.lengths[machine], kind, call, **more))

    def fault(self) -> None:
        """Something happens now that no machine does."""
        self.faults.append(len(self.events))

    def record(self, numbers: Iterable[int], machine: str, length: int | None = None) -> None:
        """A machine has turned red for these numbers, behind its last event (or was, behind so many)."""
        for number in numbers:
            self.cuts.setdefault(number, {}).setdefault(machine, self.lengths[machine] if length is None else length)

    def is_white(self, event: Event, number: int) -> bool:
        cut = self.cuts.get(number, {})
        return event.index <= cut.get(event.machine, self.ended.get(event.machine, 0))


@dataclass(slots=True)
class Seen:
    """A completed snapshot, in the oracle's words."""

    number: int
    began: int
    """How many events there were when it was started, and when it was complete."""
    ended: int
    was_quiet: bool
    """Nothing but snapshots was going on when it was started."""
    states: dict[str, Any] = field(default_factory=dict)
    """Of the machines whose state was copied."""
    machines: dict[str, int] = field(default_factory=dict)
    """Those that recorded, with their incarnations."""
    active: set[str] = field(default_factory=set)
    running: Counter[CallName] = field(default_factory=Counter)
    waits: Counter[Waiting] = field(default_factory=Counter)
    ready: set[Waiting] = field(default_factory=set)
    """Local waits whose event has come."""
    sent: dict[tuple[str, int, str], int] = field(default_factory=dict)
    accepted: dict[tuple[str, int, str], int] = field(default_factory=dict)
    settled: dict[tuple[str, int, str], int] = field(default_factory=dict)
    in_flight: dict[CallName, tuple[CallName, ...]] = field(default_factory=dict)
    """With the calls whose replies each needs before it can begin."""
    answers: dict[CallName, bool | None] = field(default_factory=dict)
    """What it says of the calls that are waited for."""
    errors: dict[Waiting, tuple[tuple[CallName | None, bool], ...]] = field(default_factory=dict)
    """Of waits that the first error ends: the calls that may still end them so, and whether they have. None: not known."""
    callers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of machines in a local wait: who may call them."""
    problems: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    gone: set[str] = field(default_factory=set)

    def content(self) -> str:
        """What it holds, in one form: equal for equal snapshots, whenever they were taken."""
        tables = (
            self.states,
            self.machines,
            self.running,
            self.waits,
            self.sent,
            self.settled,
            self.in_flight,
            self.answers,
        )
        sets = self.active, self.ready, self.gone, self.obstacles
        return repr(
            (self.number, [sorted(map(repr, one.items())) for one in tables], [sorted(map(repr, one)) for one in sets])
        )


class Model:
    """A system of calls, without any snapshot."""

    def __init__(self, failed: set[CallName], raised: set[CallName]) -> None:
        self.failed = failed
        self.raised = raised
        self.sent: set[CallName] = set()
        self.retried: set[CallName] = set()
        self.settled: set[CallName] = set()
        self.accepted: set[CallName] = set()
        self.by_the_dead: set[CallName] = set()
        """Accepted by an incarnation that died."""
        self.finished: set[CallName] = set()
        self.running: Counter[tuple[CallName, str]] = Counter()
        """(call, who has accepted it)."""
        self.sender_of: dict[CallName, str] = {}
        self.accepted_by: dict[str, set[CallName]] = {}
        """By who has ever accepted it: calls."""
        self.waits: Counter[tuple[Waiting, str]] = Counter()
        """(wait, who waits)."""
        self.states: Counter[str] = Counter()
        self.dead: set[str] = set()
        """Machines that have died, also those that started again."""

    def perform(self, event: Event) -> None:
        """One more event; raises `OracleError` where it is not possible."""
        _PERFORM[event.kind](self, event)

    def _submit(self, event: Event) -> None:
        self.sent.add(_call(event))
        self.sender_of[_call(event)] = event.machine
        if event.is_retried:
            self.retried.add(_call(event))

    def _settle(self, event: Event) -> None:
        if _call(event) not in self.sent:
            raise OracleError(f"{_told(event)} is impossible here: it has not been sent")
        self.settled.add(_call(event))

    def _accept(self, event: Event) -> None:
        call = _call(event)
        if call not in self.sent:
            raise OracleError(f"{_told(event)} is impossible here: it has not been sent")
        self.accepted.add(call)
        self.running[call, event.machine] += 1
        self.accepted_by.setdefault(event.machine, set()).add(call)

    def _begin(self, event: Event) -> None:
        """A machine of a host acts: what it accepts is no call."""
        self.running[_call(event), event.machine] += 1

    def _step(self, event: Event) -> None:
        self.states[event.machine] += 1

    def _wait(self, event: Event) -> None:
        assert event.waiting is not None
        self.waits[event.waiting, event.machine] += 1

    def _wake(self, event: Event) -> None:
        waiting = event.waiting
        assert waiting is not None
        answered = [call in self.finished or call in self.failed for call in waiting.on]
        has_raised = waiting.raises and any(
            call in self.failed or (call in self.raised and call in self.finished) for call in waiting.on
        )
        if not (waiting.is_local or waiting.may_act or has_raised) and sum(answered) < waiting.k:
            raise OracleError(
                f"{_told(event)} is impossible here: of {waiting.on}, only {sum(answered)} have been answered"
            )
        self._take(self.waits, (waiting, event.machine), event)
        self.states[event.machine] += 1

    def _finish(self, event: Event) -> None:
        self._take(self.running, (_call(event), event.machine), event)
        self.finished.add(_call(event))

    def _again(self, event: Event) -> None:
        """A task has raised, and is on its way once more."""
        call = _call(event)
        self._take(self.running, (call, event.machine), event)
        self.accepted.discard(call)
        self.accepted_by[event.machine].discard(call)  # should this machine die later, it runs elsewhere

    def _cancelled(self, event: Event) -> None:
        call = _call(event)
        self._take(self.running, (call, event.machine), event)
        for key in [key for key in self.waits if key[0].caller == call]:
            del self.waits[key]

    def _die(self, event: Event) -> None:
        """What the machine was doing ends; what Ray will execute again is on its way again."""
        machine = event.machine
        self.dead.add(machine)
        for call in self.accepted_by.get(machine, set()) & self.accepted:
            self.by_the_dead.add(call)
            if call in self.retried and call not in self.finished:
                self.accepted.discard(call)
        self.running = Counter({key: count for key, count in self.running.items() if key[1] != machine})
        self.waits = Counter({key: count for key, count in self.waits.items() if key[1] != machine})
        self.states[machine] = 0

    def _leave(self, event: Event) -> None:
        gone = {key for key in self.waits if key[0].caller is None and key[1] == event.machine}
        self.waits = Counter({key: count for key, count in self.waits.items() if key not in gone})

    def _take(self, items: Counter[Any], item: Any, event: Event) -> None:
        if items[item] < 1:
            raise OracleError(f"{_told(event)} is impossible here: {item} is not there")
        items[item] -= 1
        if not items[item]:
            del items[item]

    def in_flight(self) -> set[CallName]:
        return self.sent - self.accepted - self.settled

    def within(self, machines: Mapping[str, int]) -> tuple[Counter[CallName], Counter[Waiting]]:
        """What runs, and the waits, on these machines."""
        running: Counter[CallName] = Counter()
        waits: Counter[Waiting] = Counter()
        for (call, place), count in self.running.items():
            running[call] += count * (place in machines)
        for (waiting, place), count in self.waits.items():
            waits[waiting] += count * (place in machines)
        return +running, +waits


_KINDS = "submit settle accept begin step wait wake finish again cancelled die leave"
_PERFORM = {name: getattr(Model, f"_{name}") for name in _KINDS.split()}


def _call(event: Event) -> CallName:
    assert event.call is not None
    return event.call


def is_task(call: CallName) -> bool:
    """Whether this is a plain task: who has started it, its name does not say."""
    return call[0] == "*"


def _told(event: Event) -> str:
    return f"event {event.index} of {event.machine} ({event.kind} {event.call or event.waiting})"


def replayed(log: Log) -> Model:
    """The whole run in its original order."""
    model = Model(log.failed, log.raised)
    for event in log.events:
        model.perform(event)
    return model


def check_calls(log: Log, snapshots: Iterable[Seen], slots: Mapping[str, int], *, is_roomy: bool = True) -> None:
    """Check every snapshot of a run; raises `OracleError`.

    `is_roomy`: nothing waits for room on a node; else more may stand still than is told here.
    """
    last = replayed(log)
    for seen in snapshots:
        try:
            by_the_dead = _check_cut(log, seen, last)
            unsure = log.failed | by_the_dead | {call for call in log.raised if is_task(call)}
            is_doubtful = not is_roomy or any(call in unsure for call in seen.in_flight)
            is_doubtful = is_doubtful or None in seen.answers.values()
            is_doubtful = is_doubtful or any((None, False) in errors for errors in seen.errors.values())
            _check_verdicts(log, seen, slots, is_doubtful)
        except OracleError as error:
            raise OracleError(f"snapshot {seen.number}: {error}") from None


def _check_cut(log: Log, seen: Seen, last: Model) -> set[CallName]:
    """Returns the calls that were accepted by machines that died inside the cut."""
    model = Model(log.failed, log.raised)
    white = [event for event in log.events if log.is_white(event, seen.number)]
    red = [event for event in log.events if not log.is_white(event, seen.number)]
    for event in white:
        model.perform(event)
    _compare(model, seen)
    by_the_dead = set(model.by_the_dead)
    for event in red:
        model.perform(event)
    _equal("after the red events, what runs is", model.running, last.running)
    _equal("after the red events, the waits are", model.waits, last.waits)
    _equal("after the red events, the states are", model.states, last.states)
    _equal("after the red events, sent is", model.sent, last.sent)
    return by_the_dead


def _compare(model: Model, seen: Seen) -> None:
    if seen.problems:
        raise OracleError(f"it names problems itself: {seen.problems}")
    _equal("the states are", {name: model.states[name] for name in seen.states}, seen.states)
    waiting = {one.caller for one, _ in model.waits}
    inside = {call for call, _ in model.running if call[2] in seen.states and call not in waiting}
    _equal("inside actions of machines whose state was copied are", inside, set())
    running, waits = model.within(seen.machines)
    _equal("what runs is", running, seen.running)
    _equal("the waits are", waits, seen.waits)
    _compare_channels(model, seen)
    _compare_tasks(model, seen)
    _compare_answers(model, seen)


def _compare_tasks(model: Model, seen: Seen) -> None:
    """Of all plain tasks at once: who runs one, Ray chooses."""
    if seen.gone:
        return
    truth = {call for call in model.in_flight() if is_task(call) and model.sender_of[call] not in model.dead}
    flying = {call for call in seen.in_flight if is_task(call)}
    doubtful = {call for call in model.by_the_dead if is_task(call)} | (model.failed & flying)
    doubtful |= model.raised & model.retried  # was it the last try?
    doubtful |= {call for call in flying if model.sender_of.get(call) in model.dead}  # whichever life of it
    if not truth <= flying <= truth | doubtful:
        raise OracleError(f"the tasks {sorted(truth)} are in flight, and recorded are {sorted(flying)}")
    channels = [channel for channel in seen.sent if channel[2].endswith(TASKS_OF) and channel[0] not in model.dead]
    for source, _, functions in channels:
        sent = [call for call in model.sent if model.sender_of[call] == source and call[2].startswith(functions)]
        _equal(f"tasks sent by {source} are", len(sent), seen.sent[source, _, functions])


TASKS_OF = ":task-"
"""What the target of a channel ends in that stands for all tasks of a function."""


def _compare_channels(model: Model, seen: Seen) -> None:
    for channel, sent in seen.sent.items():
        if channel[2].endswith(TASKS_OF):
            continue
        flying = {call for call in seen.in_flight if call[:3] == channel}
        if sent != seen.accepted[channel] + seen.settled[channel] + len(flying):
            raise OracleError(f"on {channel}, sent is not accepted + in flight + settled")
        if _is_doubtful(channel, seen, model):
            continue
        truth = {call for call in model.in_flight() if call[:3] == channel}
        doubtful = {call for call in model.by_the_dead if call[:3] == channel}
        if not truth <= flying <= truth | doubtful:
            raise OracleError(f"on {channel}, {sorted(truth)} are in flight, and recorded are {sorted(flying)}")
        ever = {call for call in model.sent if call[:3] == channel}
        _equal(f"sent on {channel} is", len(ever), sent)
        settled = {call for call in model.settled if call[:3] == channel}
        fewest = len(settled - model.accepted)
        if not doubtful and not fewest <= seen.settled[channel] <= len(settled):
            raise OracleError(f"on {channel}, {fewest} are settled, and recorded are {seen.settled[channel]}")
    for call in model.in_flight():
        if not is_task(call) and call[:3] not in seen.sent and seen.machines.get(call[0]) == call[1]:
            raise OracleError(f"{call} is in flight, and its channel is not recorded")


def _is_doubtful(channel: tuple[str, int, str], seen: Seen, model: Model) -> bool:
    """One end is gone, and what it knew with it."""
    source, incarnation, target = channel
    if source in seen.gone or seen.machines.get(source) != incarnation:
        return True
    return target in seen.gone or (target in model.dead and target not in seen.machines)


def _compare_answers(model: Model, seen: Seen) -> None:
    for call, answer in seen.answers.items():
        is_doubtful = not is_task(call) and _is_doubtful(call[:3], seen, model)
        if answer is None or seen.gone or call in model.by_the_dead or is_doubtful:
            continue
        if answer and call not in model.finished | model.failed | model.settled:
            raise OracleError(f"the reply of {call} is said to be there, and it has not ended")
        if not answer and call in model.finished and call not in {one for one, _ in model.running}:
            raise OracleError(f"the reply of {call} is said not to be there, and it has ended")


# ---- verdicts -------------------------------------------------------------------------------------------------------


def _check_verdicts(log: Log, seen: Seen, slots: Mapping[str, int], is_doubtful: bool) -> None:
    """What a snapshot says for good stays so; what held before it began, it says. Faults excuse both.

    `is_doubtful`: calls count as in flight that are not, or may have been answered, because their sender or an earlier
    incarnation of their target is gone; or they wait for room.
    """
    stuck = deadlocked(seen, slots)
    done = is_terminated(seen)
    is_undisturbed = not any(seen.began <= at <= seen.ended for at in log.faults)
    if seen.was_quiet and is_undisturbed and not is_doubtful and not seen.gone:
        running = {call for call in seen.running if not _may_go(call, seen)}
        _equal("all was quiet when it was started, and what waits is", running, set(stuck))
    if (stuck or done) and not seen.gone:
        _check_nothing_moves(log, seen, stuck, done)


def _may_go(call: CallName | None, seen: Seen) -> bool:
    return any(one.may_act for one in seen.waits if one.caller == call)


def _check_nothing_moves(log: Log, seen: Seen, stuck: set[CallName], done: bool) -> None:
    """No member of a deadlock, and no machine of a terminated system, does anything behind the snapshot."""
    until = min((at for at in log.faults if at >= seen.began), default=len(log.events))
    for event in log.events[seen.ended : until]:
        if done and event.kind in ("submit", "accept", "step"):
            raise OracleError(f"it says that all is done, and then comes {_told(event)}")
        caller = event.waiting.caller if event.waiting is not None else event.call
        if event.kind in ("wake", "finish") and caller is not None and caller in stuck:
            raise OracleError(f"it says that {caller} is deadlocked, and then comes {_told(event)}")


def is_terminated(seen: Seen) -> bool:
    """Nothing runs, nothing is in flight, and no machine acts unasked."""
    return not (seen.running or seen.in_flight or seen.active or seen.waits)


def deadlocked(seen: Seen, slots: Mapping[str, int]) -> set[CallName]:
    """Running calls that cannot go on, whatever the others do: the rest of what can, to its fixed point."""
    movers: set[CallName | None] = set()
    while True:
        fresh = {call for call in [*seen.running, None] if call not in movers and _can_move(call, movers, seen, slots)}
        if not fresh:
            return {call for call in seen.running if call not in movers}
        movers |= fresh


def _can_move(call: CallName | None, movers: set[CallName | None], seen: Seen, slots: Mapping[str, int]) -> bool:
    waits = [one for one in seen.waits if one.caller == call]
    if call is None and not waits:
        return bool(seen.active & {"driver"})
    return not waits or any(_can_end(one, movers, seen, slots) for one in waits)


def _can_end(one: Waiting, movers: set[CallName | None], seen: Seen, slots: Mapping[str, int]) -> bool:
    if one.may_act or one in seen.ready:
        return True
    if one.is_local:
        assert one.caller is not None
        return any(_can_act(name, movers, seen, slots) for name in seen.callers[one.caller[2]])
    if any(
        has_ended or call is None or _can_answer(call, movers, seen, slots)
        for call, has_ended in seen.errors.get(one, ())
    ):
        return True
    return sum(_can_answer(call, movers, seen, slots) for call in one.on) >= one.k


def _can_act(machine: str, movers: set[CallName | None], seen: Seen, slots: Mapping[str, int]) -> bool:
    if machine == "driver":
        return None in movers or "driver" in seen.active
    if any(call is not None and call[2] == machine for call in movers):
        return True
    return any(call[2] == machine and _can_answer(call, movers, seen, slots) for call in seen.in_flight)


def _can_answer(
    call: CallName, movers: set[CallName | None], seen: Seen, slots: Mapping[str, int], depth: int = 0
) -> bool:
    if seen.answers.get(call, False) is not False:
        return True
    if call in seen.running:
        return call in movers
    if call not in seen.in_flight:
        return True  # it has ended
    if depth > len(seen.in_flight):
        return False  # calls that need each other's replies
    target = call[2]
    here = [one for one in seen.running if one[2] == target]
    is_built = call[3] == 0 or not any(one[3] == 0 for one in [*here, *seen.in_flight] if one[2] == target)
    builders = [one for one in [*here, *seen.in_flight] if one[2] == target and one[3] == 0 and one != call]
    has_slot = sum(seen.running[one] for one in here) < slots.get(target, 1) or any(one in movers for one in here)
    return (
        has_slot
        and (is_built or all(_can_answer(one, movers, seen, slots, depth + 1) for one in builders))
        and all(_can_answer(one, movers, seen, slots, depth + 1) for one in seen.in_flight[call])
    )


def _equal(what: str, found: Any, other: Any) -> None:
    if found != other:
        raise OracleError(f"{what} {found}, but recorded or seen was {other}")
