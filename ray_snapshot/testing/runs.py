"""One run of a system without Ray, and how a schedule is replayed on the space of states."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ray_snapshot.errors import ScheduleError
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.testing.history import Told, Written
from ray_snapshot.testing.judging import ByFunction
from ray_snapshot.testing.records import Move, State
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.schedules import Schedule, checked
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.telling import Teller
from ray_snapshot.verdicts import Verdict
from ray_snapshot.views.space_time import diagram
from ray_snapshot.witness.log import short


@dataclass
class Run:
    """One run: what its machines are at the end, and how it came there."""

    machines: Mapping[str, Any]
    """The machine objects at the end, by name; they are copies, to be looked at."""
    schedule: Schedule
    """What `testing.replay` takes."""
    told: Told | Written = field(repr=False)
    """What happened, to be put in words."""
    seed: int | None = None
    """What chose the order; None: a schedule did."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Those that were taken and are complete, in the order of their numbers."""
    verdicts: list[Verdict] = field(default_factory=list)
    """Of each detector on each snapshot."""
    failure: str | None = None
    """What an action raised; None: nothing."""
    is_over: bool = True
    """Whether there was nothing left to happen; False: `most_steps` came first, or the schedule ended."""
    cuts: list[Any] = field(default_factory=list, repr=False)
    """How many actions of each machine lie before each snapshot."""

    @cached_property
    def steps(self) -> list[str]:
        """What happened, a line a step."""
        return self.told.lines()

    @cached_property
    def events(self) -> list[Any]:
        """Its actions, as `views.space_time` draws them."""
        return self.told.events()

    def diagram(self, path: str | os.PathLike[str]) -> str:
        """Draw the run as a space-time diagram (SVG) into a file; returns the path."""
        title = "A replayed run" if self.seed is None else f"A run without Ray, seed {self.seed}"
        Path(path).write_text(diagram(self.events, self.cuts, title=title), encoding="utf-8")
        return os.fspath(path)

    def __str__(self) -> str:
        lines = [f"{number:>4}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([*lines, *([f"      failed: {self.failure}"] if self.failure else [])])


class Forced:
    """How chance comes out: what a schedule says."""

    def __init__(self) -> None:
        self.left: list[int] = []

    def __call__(self, options: int) -> int:
        if not self.left:
            raise ScheduleError(
                "the schedule does not say how chance came out here: it is of other machines", step=None
            )
        chosen = self.left.pop(0)
        if not 0 <= chosen < options:
            raise ScheduleError(f"the schedule has outcome {chosen} of {options}: it is of other machines", step=None)
        return chosen

    def check(self, number: int) -> None:
        """Raises `ScheduleError` if a step of a schedule has outcomes that nothing has asked for."""
        if self.left:
            raise ScheduleError(
                f"step {number} of the schedule has {len(self.left)} outcomes of chance that no machine asks for: it is of"
                " other machines, or they have changed",
                step=number,
            )


def walk(space: Space, schedule: Schedule, note: Callable[[State, Move], None]) -> State:
    """Take the steps of a schedule; raises `ScheduleError` at the first that cannot be taken."""
    forced = space.chooser = Forced()
    state: State = ()
    for number, raw in enumerate(schedule.steps, 1):
        step = checked(number, raw)
        chances, births = step[3], step[4]
        forced.left = [*chances, *(chance for _, more in births for chance in more)]
        wanted = step[:3]
        move = _chosen(space, state, wanted)
        if move is None:
            possible = [space.named(task) for task in space.tasks(state)] if state else [("driver", DRIVER, ())]
            raise ScheduleError(
                f"step {number} of the schedule, {_told(wanted)}, cannot be taken here; possible are: "
                f"{'; '.join(map(_told, possible)) or 'none'}. It is of other machines, or they have changed",
                step=number,
            )
        forced.check(number)
        note(state, move)
        state = move.after
    return state


def _chosen(space: Space, state: State, wanted: tuple[Any, ...]) -> Move | None:
    if not state:
        return space.start()[0] if wanted[0] == "driver" else None
    for task in space.tasks(state):
        if space.named(task) == wanted:
            return next(space.moves_of(state, task))
    return None


def _told(step: tuple[Any, ...]) -> str:
    word, machine, detail, *_ = step
    return f"{word} {machine}" + (f" {short(detail)}" if detail else "")


def crashes_of(settings: Mapping[str, Any]) -> int:
    """How many crashes the search tried that a schedule is of; raises `ScheduleError` for what is no number."""
    crashes = settings.get("crashes", 0)
    if type(crashes) is not int or crashes < 0:
        raise ScheduleError(f"the schedule has crashes {crashes!r}: it is a number, 0 or more", step=None)
    return crashes


def replay_states(build: Callable[[Any], object], schedule: Schedule) -> Run:
    """Replay a schedule of the space of states."""
    crashes = crashes_of(schedule.settings)
    with Stage(build) as stage:
        space = Space(stage, has_clock=True, crashes=crashes)
        shown = Shown(space)
        teller = Teller(space, shown)
        failures: list[str] = []

        def note(before: State, move: Move) -> None:
            teller.note(before, move)
            failures.extend([move.failure] if move.failure else [])

        state = walk(space, schedule, note)
        machines = ByFunction(len, space, shown).machines(state)
        is_over = not space.tasks(state)
        return Run(
            machines,
            schedule,
            Written(teller.steps, teller.events),
            failure=failures[0] if failures else None,
            is_over=is_over,
        )
