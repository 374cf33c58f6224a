"""A run that is chosen by hand, step by step, with a way back. Never imports Ray unless a machine calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.errors import ScheduleError
from ray_snapshot.testing.records import MACHINE, TIMERS, Gone, Inside, Mail, Move, Rest, State, Unborn, When
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.runs import walk
from ray_snapshot.testing.schedules import Schedule
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.telling import Teller, public
from ray_snapshot.views.space_time import Event, diagram
from ray_snapshot.witness.log import short

MOST_SHOWN = 200
"""So many characters of a state are shown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A step that is enabled."""

    text: str
    move: Move


class Walk:
    """One run of a system, in a `with Stage(build)` block: its steps so far, and what may come next.

    `crashes`: so many machines may be lost.
    """

    def __init__(self, stage: Stage, *, crashes: int = 0) -> None:
        self.stage = stage
        self.space = Space(stage, has_clock=True, crashes=crashes)
        self.shown = Shown(self.space)
        self.trail: list[tuple[State, Move]] = []
        """(state before, step), from the beginning."""
        beginnings = self.space.start()
        if len(beginnings) == 1:
            self.trail.append(((), beginnings[0]))
        self._first = len(self.trail)

    @property
    def state(self) -> State:
        """Where it is."""
        return self.trail[-1][1].after if self.trail else ()

    @property
    def failure(self) -> str | None:
        """What the last action raised: then the run is over, as on Ray."""
        return self.trail[-1][1].failure if self.trail else None

    def choices(self) -> list[Choice]:
        """The enabled steps, in an order that is the same in every process; none where an action has raised."""
        if self.failure is not None:
            return []
        if not self.trail:
            return [Choice(f"chance comes out as {move.step.chances}", move) for move in self.space.start()]
        teller, state = Teller(self.space, self.shown), self.state
        return [
            Choice(self._told(teller, state, move), move)
            for task in self.space.tasks(state)
            for move in self.space.moves_of(state, task)
        ]

    def _told(self, teller: Teller, state: State, move: Move) -> str:
        task = move.step.task
        if move.effect is None:
            return f"{teller.machine_of(move)} crashes"
        text = teller.begun(state, teller.machine_of(move), move.effect, task)
        cell, place = (task, 0) if type(task) is int else (task[1], task[2]) if task[0] == "timer" else (0, 0)
        if cell and self.space.cells[cell][0] == TIMERS:
            text += f" (in {left_of(self.space, state, self.space.at(state, cell)[place][0]):g} s)"
        elif type(task) is tuple and task[0] == "timeout":
            text += f" (in {left_of(self.space, state, self.space.at(state, task[1]).when):g} s)"
        return text + (f"; chance comes out as {', '.join(map(str, move.step.chances))}" if move.step.chances else "")

    def take(self, move: Move) -> str:
        """Take an enabled step; returns what happened, and what changed."""
        self.trail.append((self.state, move))
        return self.told()[-1]

    def back(self) -> bool:
        """Undo the last step; returns False at the beginning."""
        if len(self.trail) <= self._first:
            return False
        self.trail.pop()
        return True

    def follow(self, schedule: Schedule) -> None:
        """Go from the beginning as a schedule has it; raises `ScheduleError`, and then it is where the schedule stopped.

        It has as many crashes as this walk, or fewer.
        """
        if schedule.settings.get("protocol") is not None:
            raise ScheduleError("the schedule is of a run under a protocol, whose steps are not those here: testing.replay"
                                " takes it", step=None)  # fmt: skip
        self.trail.clear()
        try:
            walk(self.space, schedule, lambda before, move: self.trail.append((before, move)))
        finally:
            self.space.chooser = None
        if not self.trail:
            raise ScheduleError("the schedule has no steps", step=None)

    # ---- what it looks like -----------------------------------------------------------------------------------------

    def _teller(self) -> Teller:
        teller = Teller(self.space, self.shown)
        for before, move in self.trail:
            teller.note(before, move)
        return teller

    def told(self) -> list[str]:
        """What happened so far, a line a step."""
        return self._teller().steps

    def events(self) -> list[Event]:
        """The same, for a space-time diagram."""
        return self._teller().events

    def svg(self, title: str) -> str:
        """The same as a space-time diagram."""
        return diagram(self.events(), title=title)

    @property
    def schedule(self) -> Schedule:
        """What `testing.replay` takes."""
        steps = tuple(public(self.space, move) for _, move in self.trail)
        return Schedule(steps, {"crashes": self.space.crashes.most})

    def machines(self) -> Iterator[tuple[str, str, str, str]]:
        """(name, class, what it does, state as JSON) of each machine."""
        for name, record in self.space.machines(self.state):
            kind = self.stage.kinds[record.kind].__name__
            yield name, kind, self._status(name, record), self._shown_state(name)

    def _status(self, name: str, record: Any) -> str:
        if isinstance(record, Unborn):
            return f"not constructed; created by {record.creator}"
        if isinstance(record, Gone):
            return "crashed"
        if isinstance(record, Inside):
            wait = record.wait.site or "?"
            return f"waits in {record.act.method} at {wait}" + (
                "" if record.when is None else f" ({left_of(self.space, self.state, record.when):g} s)"
            )
        assert isinstance(record, Rest)
        if record.is_stopped:
            return "stopped"
        said = self.shown.said(cell := self.space.cell(MACHINE, name), self.state[cell])
        if said.wait is None:
            return said.status
        return "waits for " + " or ".join(
            f"{'' if one.k == len(one.on) else f'{one.k} of '}{', '.join(one.on)}" for one in said.wait.alternatives
        )

    def _shown_state(self, name: str) -> str:
        cell = self.space.cell(MACHINE, name)
        if self.shown.object(cell, self.state[cell]) is None:
            return ""
        return short(self.shown.state(cell, self.state[cell]), MOST_SHOWN)

    def channels(self) -> Iterator[tuple[str, str]]:
        """(channel, what is in flight on it) of each that holds something."""
        for (source, target, kind), mails in in_flight(self.space, self.state):
            held = [
                f"{mail.method}({', '.join(short(item) for item in self.shown.arguments(mail.payload))})"
                + ("" if left is None else f" in {left:g} s")
                for mail, left in mails
            ]
            yield f"{source} -> {target}" + ("" if kind == "mail" else f" ({kind})"), ", ".join(held)

    def verdicts(self) -> list[str]:
        """What the ready-made detectors say of where it is."""
        snapshot = self.shown.snapshot(self.state)
        return [detector.evaluate(snapshot).sentence for detector in (Termination(), Deadlock())]


def in_flight(space: Space, state: State) -> Iterator[tuple[tuple[str, str, str], list[tuple[Mail, float | None]]]]:
    """As `Space.channels`, of a space with a clock: timers with the seconds that are left of them, the next one first."""
    for (source, target, kind), mails in space.channels(state):
        if kind != "timer":
            yield (source, target, kind), [(mail, None) for mail in mails]
            continue
        queue = space.at(state, space.cell(TIMERS, (source, target, kind)))
        timers = sorted(((left_of(space, state, when), mail) for when, mail in queue), key=lambda timer: timer[0])
        yield (source, target, kind), [(space.values[mail], left) for left, mail in timers]


def left_of(space: Space, state: State, when: When) -> float:
    """The seconds until it is due, in a space with a clock."""
    return max(0.0, round((when.due or 0.0) - (space.values[state[0]].clock or 0.0), 9))
