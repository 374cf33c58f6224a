"""The first action of a traced run behind which something is wrong that was right before.

A snapshot says that money is missing; the trace of its run says where it went. The run's actions are done again one by one, by
the witness (`stage`), each checked against what was logged; behind each a detector is asked about the states and what is in
flight: that is a state which really was. So the action that is named is not where the fault was seen, but where it was made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ray_snapshot.adding import AddsUp
from ray_snapshot.errors import SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Standards, Verdict
from ray_snapshot.witness.log import Action, DiffersError, Log, Message, NotReplayableError
from ray_snapshot.witness.modules import Modules, loaded
from ray_snapshot.witness.proof import class_names
from ray_snapshot.witness.stage import Stage

EVERY = 1_000
"""How often `progress` is told."""

WHO_WAITS = frozenset({"termination", "deadlock", "orphaned-wait", "garbage"})
"""Kinds of detectors that ask who acts and waits, and not what actions have made."""


@dataclass(slots=True)
class Blame:
    """What was found out about one detector."""

    detector: str
    done: int = 0
    """How many actions were done again."""
    action: Action | None = None
    """The first behind which it was wrong; None if there is none."""
    verdict: Verdict | None = None
    """What the detector says behind it."""
    before: Any = None
    """The recorded state of the action's machine before it; None of one that it made, and of the driver."""
    after: Any = None
    source: str | None = None
    """ "file:line" of the method."""
    problem: DiffersError | NotReplayableError | None = None
    """Why the run could not be done again further; then `action` is None."""
    was_right: bool = False
    """Whether the detector was ever content: before that, while machines are made, nobody is to blame."""


def blame(
    run_id: str,
    log: Log,
    item: Detector,
    modules: Iterable[str] = (),
    progress: Callable[[int], object] = lambda done: None,  # noqa: ARG005 - nobody is told
) -> Blame:
    """Do a run again until the detector alarms. `modules`: those whose code may be run, beside what is loaded already.

    Raises `SettingError` for a detector that never alarms, or asks what actions do not tell: who waits for what.
    """
    kind = (getattr(item, "spec", None) or {}).get("type")
    if kind in WHO_WAITS:
        raise SettingError(
            f"detector {item.name} asks who acts and waits, not what actions have made: nothing is to blame"
        )
    if item.alarm_when is None:
        raise SettingError(f"detector {item.name} has no answer that is wrong: say alarm_when=True or False")
    found, standards = Blame(item.name), Standards()
    with Stage(run_id, Modules(loaded(class_names(log)) | frozenset(modules))) as stage:
        for action in log.actions:
            machine = action.machine
            before = _states(stage, machine)
            try:
                stage.perform(action)
            except (DiffersError, NotReplayableError) as error:
                found.problem = error
                return found
            found.done += 1
            if found.done % EVERY == 0:
                progress(found.done)
            is_last = found.done == len(log.actions)
            if not is_last and not _may_matter(item, action, before, _states(stage, machine)):
                continue
            verdict = standards.evaluate(item, _snapshot_of(stage, found.done), evaluator="blame")
            found.was_right |= verdict.holds is not None and not verdict.alarm
            if verdict.alarm and found.was_right:
                found.action, found.verdict = action, verdict
                found.before, found.after = before.get(machine), _states(stage, machine).get(machine)
                found.source = _source_of(stage, action)
                return found
    return found


def _states(stage: Stage, machine: str) -> dict[str, Any]:
    """The recorded state of a machine, if there is such a machine yet."""
    return {machine: stage.state_of(machine)} if machine in stage.bodies else {}


def _may_matter(item: Detector, action: Action, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether what an action has taken and what it has left may differ for a detector; only of one that adds up is it known
    that they do not."""
    if not isinstance(item, AddsUp):
        return True
    sides = (before, action.accepted), (after, action.sent)
    told = [
        (getattr(one, "found", one), getattr(one, "unknown", ()))
        for one in (item.partial(_part(*side)) for side in sides)
    ]
    return bool(told[0] != told[1])


def _part(states: dict[str, Any], messages: Iterable[Message]) -> Snapshot:
    return Snapshot.from_rows(
        machines=[{"machine": name, "state": state} for name, state in states.items()],
        messages=[{**message.row, "number": number} for number, message in enumerate(messages, 1)],
    )


def _snapshot_of(stage: Stage, number: int) -> Snapshot:
    """The state in which the run is now."""
    return Snapshot.from_rows(
        snapshot_id=f"step {number}",
        run_id=stage.run_id,
        sequence=number,
        machines=[
            {"machine": name, "class_name": type(stage.bodies[name]).__qualname__, "state": state}
            for name, state in stage.states().items()
        ],
        channels=[
            {"source": channel[0], "target": channel[1], "kind": channel[2], "sent_count": sent,
             "accepted_count": stage.channels.accepted[channel]}
            for channel, sent in stage.channels.sent.items()
        ],
        messages=[message.row for message in stage.channels.in_flight()],
        coverage={"uncovered": []},
    )  # fmt: skip


def _source_of(stage: Stage, action: Action) -> str | None:
    """Where the method of an action is written; of a step behind a wait, where it waited."""
    if action.behind is not None:
        return action.behind.site
    if action.machine == DRIVER or action.machine not in stage.bodies:
        return None
    method = inspect.unwrap(getattr(type(stage.bodies[action.machine]), action.method, None) or (lambda: None))
    code = getattr(method, "__code__", None)
    return None if code is None or code.co_name != action.method else f"{code.co_filename}:{code.co_firstlineno}"
