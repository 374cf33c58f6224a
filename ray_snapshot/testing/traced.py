"""A traced run, done again up to one of its actions, as the beginning of runs without Ray.

The actions are done by the witness (`witness.stage`), each checked against what the trace says that it did; no checkpoint is
needed, and nothing is unpickled that a history holds. Where the run is left, its machines and what is in flight are a `Moment`.
Imports Ray only where a machine calls.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ray_snapshot.decoding import NotDecodableError
from ray_snapshot.errors import NotRestorableError, SettingError
from ray_snapshot.runtime.staged_calls import CallRef
from ray_snapshot.testing.moments import CALL, TIMER, Flying, Held, Moment, Unmade, opened_blob
from ray_snapshot.witness.log import Action, Log, Message, MessageId, reply_to, told_id
from ray_snapshot.witness.modules import Modules, loaded
from ray_snapshot.witness.proof import class_names
from ray_snapshot.witness.stage import Stage
from ray_snapshot.witness.traces import run_of, trace_of

if TYPE_CHECKING:
    import os


def from_trace(
    history: str | os.PathLike[str], snapshot_id: str, until: str | tuple[str, int], *, modules: Iterable[str] = ()
) -> Moment:
    """A run with `trace=True`, done again up to an action and left behind it, as a `build`.

    `snapshot_id`: any snapshot of the run. `until`: the action, `("bob", 7)` or `"bob:7"`: all actions up to it, in the
    order in which they happened. `modules`: those whose machine classes may be imported because the history names them,
    beside classes that are loaded already.

    Raises `HistoryNotFoundError` if there is no trace, `SettingError` for an action that it does not have,
    `NotReplayableError` and `DiffersError` as the witness does, `NotRestorableError` where a machine is in the middle of an
    action, or keeps a result that is there. Calls in flight, for which nobody waits there, are taken over.
    """
    from ray_snapshot.history import History

    opened = History(history)
    run_id = run_of(opened, snapshot_id)
    return moment_behind(run_id, trace_of(opened, run_id), action_id(until), modules)


def action_id(text: str | tuple[str, int]) -> tuple[str, int]:
    """(machine, number) of "bob:7"; raises `SettingError`."""
    if not isinstance(text, str):
        return text
    machine, colon, number = text.rpartition(":")
    if not colon or not machine or not number.isdecimal():
        raise SettingError(f"{text!r} names no action: write MACHINE:NUMBER, such as bob:7")
    return machine, int(number)


def moment_behind(run_id: str, log: Log, until: tuple[str, int], modules: Iterable[str]) -> Moment:
    """Do the actions of a trace up to one of them."""
    last = _place(log, until)
    allowed = Modules(loaded(class_names(log)) | frozenset(modules))
    with Stage(run_id, allowed) as stage:
        for action in log.actions[: last + 1]:
            stage.perform(action)
        return _moment(stage, log, last)


def _place(log: Log, until: tuple[str, int]) -> int:
    steps = [(place, action) for place, action in enumerate(log.actions) if (action.machine, action.number) == until]
    if steps:
        place, last = steps[-1]
        if last.ends_in is not None:
            raise SettingError(f"action {until[1]} of {until[0]} is not over in the trace: it {last.ends_in.told}")
        return place
    machine, number = until
    numbers = [action.number for action in log.actions if action.machine == machine]
    there = f"it has its actions 1 to {max(numbers)}" if numbers else f"it has none of {machine}"
    raise SettingError(f"the trace has no action {number} of {machine} that can be done again: {there}")


def _moment(stage: Stage, log: Log, last: int) -> Moment:
    at = _seconds(log.actions[last])
    _check_waits(stage, log, last)
    sent = {message.key: (action, message) for action in log.actions[: last + 1] for message in action.sent}
    refs = _Refs(stage, log.actions[last])
    machines = [
        Held(name, type(body), refs.translated(body.snapshot_state(), name), name in stage.stopped)
        for name, body in sorted(stage.bodies.items())
    ]
    flying: list[Flying] = []
    unmade: list[Unmade] = []
    for (source, target, kind), held in sorted(stage.channels.items()):
        timers: list[Flying] = []
        for one in held:
            args, kwargs = refs.translated(_objects(one, source), source)
            if one.number == 0:
                kind_of_child = stage.modules.machine_class(str(one.class_name))
                unmade.append(Unmade(source, target, kind_of_child, args, kwargs))
                continue
            left = _left(*sent[source, target, kind, one.number], at) if kind == TIMER else 0.0
            call = refs.number((source, target, kind, one.number)) if kind == CALL else None
            timers.append(Flying(source, target, one.method, args, kwargs, kind, left, call))
        flying += timers
    machine, number = log.actions[last].machine, log.actions[last].number
    return Moment(f"run {stage.run_id} behind action {number} of {machine}", machines, flying, unmade, at=at)


def _check_waits(stage: Stage, log: Log, last: int) -> None:
    """Nobody is inside an action: what a machine is there is not its state alone."""
    now = {action.machine: action for action in log.actions[: last + 1]}
    for name in sorted(stage.under_way):
        step = now[name]
        assert step.ends_in is not None
        raise NotRestorableError(
            f"behind action {log.actions[last].number} of {log.actions[last].machine}, {name} {step.ends_in.told}, inside its"
            f" action {step.number}: where it stands in its code cannot be gone on from: choose another action",
            obstacles=[f"{name} waits inside an action"],
        )


def _objects(held: Any, source: str) -> Any:
    try:
        return held.objects()
    except NotDecodableError as error:
        raise NotRestorableError(
            f"a message of {source}, {held.method}, cannot be built again from the trace: {error}",
            obstacles=[f"a message of {source} cannot be built again"],
        ) from None


def _left(action: Action, message: Message, at: float) -> float:
    """What is left of a timer."""
    return max(0.0, round((message.seconds or 0.0) - (at - _seconds(action)), 6))


def _seconds(action: Action) -> float:
    moment = action.acted_at
    return float(moment.timestamp() if hasattr(moment, "timestamp") else moment)


class _Refs:
    """The results of calls where a run is left: those that are still to come become results of a system without Ray.

    Their callers wait for none of them there, but may have kept them.
    """

    def __init__(self, stage: Stage, last: Action) -> None:
        self.stage = stage
        self.last = last
        self.numbers: dict[MessageId, int] = {}
        self.counts: Counter[str] = Counter()

    def number(self, call: MessageId) -> int:
        """The number of a call's result among those of its caller."""
        if call not in self.numbers:
            self.numbers[call] = self.counts[call[0]]
            self.counts[call[0]] += 1
        return self.numbers[call]

    def translated(self, value: Any, holder: str) -> Any:
        """Fresh objects; handles of the run, and results of its calls, are of a system without Ray."""

        def ref(caller: str, target: str, number: int, _recorded: str) -> CallRef:
            call = caller, target, CALL, number
            if reply_to(call) not in self.stage.answers:
                return CallRef(caller, self.number(call))
            raise NotRestorableError(
                f"behind action {self.last.number} of {self.last.machine}, {holder} keeps {told_id(reply_to(call))}, which is"
                " there already: a result that was not read yet cannot be taken over: choose another action",
                obstacles=[f"{holder} keeps the result of a call"],
            )

        return opened_blob(pickle.dumps(value, protocol=5), {self.stage.run_id}, ref)
