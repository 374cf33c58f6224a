"""Every reachable state of a system, breadth first: so the first counterexample is a shortest one.

Nothing is reduced: with a predicate over all machines every action is visible, and a reduction that keeps only the ends would
not keep the states that `always` and `never` are about (`Exploration.reduction`). Never imports Ray.
"""

from __future__ import annotations

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.testing.judging import Judge, judge_of
from ray_snapshot.testing.liveness import Edges, Lasso, lasso_of
from ray_snapshot.testing.memory import Memory, Pace
from ray_snapshot.testing.records import Move, State
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.schedules import Schedule
from ray_snapshot.testing.space import NeedsClockError, Space
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.telling import Teller, public
from ray_snapshot.views.space_time import diagram

MOST_STATES = 1_000_000

Progress = Callable[["Report"], None]


@dataclass(frozen=True, slots=True)
class Report:
    """How far a search has come."""

    states: int
    expanded: int
    depth: int
    seconds: float

    @property
    def per_second(self) -> float:
        """States a second."""
        return self.states / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.states - self.expanded:,} to be expanded, {self.per_second:,.0f} a second"
        )


@dataclass
class Counterexample:
    """A run that breaks what was asked for."""

    broken: str
    """The name of the predicate that it breaks, or "no action raises"."""
    sentence: str
    """What is wrong at its end, or for ever in its loop."""
    steps: list[str]
    """What happens, a line a step."""
    schedule: Schedule
    """What `testing.replay` takes."""
    loop_from: int | None = None
    """From this place in `steps` on it repeats for ever; None: it ends with the last step."""
    is_shortest: bool = True
    """Whether none has fewer steps; of a lasso it is not known."""
    events: list[Any] = field(default_factory=list, repr=False)
    """Its actions, as `views.space_time` draws them."""

    def diagram(self, path: str | os.PathLike[str]) -> str:
        """Draw it as a space-time diagram (SVG) into a file; returns the path."""
        Path(path).write_text(self.svg(), encoding="utf-8")
        return os.fspath(path)

    def svg(self) -> str:
        """The diagram as text."""
        return diagram(self.events, title=f"Counterexample to {self.broken}")

    def __str__(self) -> str:
        lines = []
        for number, step in enumerate(self.steps):
            if number == self.loop_from:
                lines.append("      from here on, again and again:")
            lines.append(f"{number + 1:>4}. {step}")
        return "\n".join([f"{self.broken}: {self.sentence}", *lines])


@dataclass
class Exploration:
    """What a search came to."""

    states: int
    """How many distinct states were reached."""
    complete: bool
    """Whether these are all that can be reached, and every predicate could be told in each: with `within`, all that can be
    reached without going on from a state outside. False where a counterexample ended the search."""
    counterexample: Counterexample | None = None
    why: list[str] = field(default_factory=list)
    """Why it is not complete, a sentence each."""
    ends: int = 0
    """How many states have nothing left to happen."""
    depth: int = 0
    """How many steps the farthest state is away, on the shortest way to it; with `within`, the farthest that is within."""
    executions: int = 0
    """How many actions were carried out; all others were known."""
    seconds: float = 0.0
    """How long the search took."""
    reduction: str = "off: every order was tried, for every action may be seen by a predicate over all machines"
    within: str | None = None
    """The name of the constraint; None: there was none."""
    outside: int = 0
    """How many of the states break the constraint: they were judged, and not gone on from."""

    @property
    def ok(self) -> bool:
        """Whether no counterexample was found."""
        return self.counterexample is None

    @property
    def broken(self) -> str | None:
        """The name of what the counterexample breaks."""
        return None if self.counterexample is None else self.counterexample.broken

    def __bool__(self) -> bool:
        raise TypeError("an Exploration is neither true nor false: ask .ok, and .complete")

    def __str__(self) -> str:
        rate = f", {self.states / self.seconds:,.0f} a second" if self.seconds > 1 else ""
        bounded = "" if self.within is None else told_within(self.within, self.outside)
        states = f"{self.states:,} states{rate}"
        if self.counterexample is not None:
            return f"{states}; a counterexample ended the search{bounded}\n{self.counterexample}"
        head = f"{states}; {'complete' if self.complete else 'not complete'}{bounded}"
        return "\n".join([head, *(f"  not complete: {reason}" for reason in self.why), "no counterexample"])


def told_within(name: str, outside: int) -> str:
    """How far a search went that has a constraint, for a person."""
    if not outside:
        return f", and all are within {name}"
    return f" within {name}: {outside:,} of them {'is' if outside == 1 else 'are'} outside, and not gone on from"


class _FullError(Exception):
    """There are more states than are to be looked at."""


class Search:
    """One breadth-first search."""

    def __init__(
        self,
        stage: Stage,
        *,
        always: Any = (),
        never: Any = (),
        eventually: Any = (),
        stays: Any = (),
        within: Any = (),
        crashes: int = 0,
        most_states: int = MOST_STATES,
        has_clock: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.stage = stage
        self.space = Space(stage, has_clock=has_clock, crashes=crashes)
        self.shown = Shown(self.space)
        self.always, self.never, self.eventually, self.stays, self.within = (
            [judge_of(item, self.space, self.shown) for item in listed(items)]
            for items in (always, never, eventually, stays, within)
        )
        self.outside = 0
        self.farthest = 0
        """How many steps the last state that was gone on from is away."""
        self.most_states = most_states
        self.progress = progress
        self.settings: dict[str, Any] = {"crashes": crashes}
        self.numbers: dict[State, int] = {}
        self.states: list[State] = []
        self.parents = array("q")
        self.depths = array("l")
        self.moves_to: list[Any] = []
        """By state: (step, births) of the edge from its parent."""
        self.edges = Edges() if self.eventually else None
        self.goals = [bytearray() for _ in self.eventually]
        self.unknown: Counter[str] = Counter()
        self.ends = 0
        self.expanded = 0
        self.began = time.perf_counter()

    # ---- the search -------------------------------------------------------------------------------------------------

    def run(self) -> Exploration:
        """Search; raises `NeedsClockError` if it is to be begun anew with the clock."""
        why: list[str] = []
        found = self._breadth_first(why)
        if found is None and self.edges is not None:
            found = self._liveness()
        if changed := self.shown.changed():
            why.append(f"a predicate or a hook has changed {', '.join(changed[:3])}: they must only look")
        why += [f"{name} could not be told in {count:,} states" for name, count in sorted(self.unknown.items())]
        why += self.stage.not_followed()
        why += [*self.space.partial]
        is_whole = found is None and self.expanded == len(self.states)
        depth = self.farthest if self.within else max(self.depths, default=0)
        return Exploration(
            len(self.states), is_whole and not why, found, why, self.ends, depth, self.stage.executions,
            time.perf_counter() - self.began, outside=self.outside,
            within=" and ".join(judge.name for judge in self.within) or None,
        )  # fmt: skip

    def _breadth_first(self, why: list[str]) -> Counterexample | None:
        memory = Memory()
        try:
            for move in self.space.start():
                if (wrong := self._arrive(-1, (), move)) is not None:
                    return wrong
            self._check_beginnings()
            return self._expand_all(memory, why)
        except _FullError:
            why.append(f"it was stopped at most_states={self.most_states:,}; {self._left:,} states are not expanded")
            return None

    def _check_beginnings(self) -> None:
        """Raises `SettingError` where a constraint leaves nothing to search."""
        for judge in self.within:
            if all(judge.holds(state) is False for state in self.states):
                raise SettingError(
                    f"within={judge.name}: it does not hold in the state in which the system begins, so no step would be taken."
                    " It says of which states the search goes on, as TLC's CONSTRAINT does"
                )

    def _is_outside(self, state: State) -> bool:
        """Whether a state breaks the constraint; one of which it cannot be told is gone on from."""
        return any(self._ask(judge, state, f"the constraint {judge.name}") is False for judge in self.within)

    def _ask(self, judge: Judge, state: State, name: str | None = None) -> bool | None:
        """What a judge says of a state; where it cannot be told, that is counted."""
        holds = judge.holds(state)
        if holds is None:
            self.unknown[name or judge.name] += 1
        return holds

    def _expand_all(self, memory: Memory, why: list[str]) -> Counterexample | None:
        pace = Pace()
        while self.expanded < len(self.states):
            if pace.is_due():
                if self.progress is not None:
                    self.progress(self.report())
                if (told := memory.is_short()) is not None:
                    why.append(told)
                    return None
            if (wrong := self._expand(self.expanded)) is not None:
                return wrong
            self.expanded += 1
        return None

    def _expand(self, number: int) -> Counterexample | None:
        state = self.states[number]
        if self.within:
            if self._is_outside(state):
                self.outside += 1
                if self.edges is not None:
                    self.edges.end_state(is_end=False)  # an end of the search, and not of a run
                return None
            self.farthest = self.depths[number]
        space, edges, numbers, is_end = self.space, self.edges, self.numbers, True
        for task in space.tasks(state):
            need_not_come = type(task) is tuple and task[0] == "crash"
            is_end = is_end and need_not_come
            for move in space.moves_of(state, task):
                target = numbers.get(move.after)
                if target is None or move.effect is None or move.effect.failure or move.births or self.stays:
                    if (wrong := self._arrive(number, state, move)) is not None:
                        return wrong
                    target = numbers[move.after]
                if edges is not None:
                    edges.add(target, None if need_not_come else task, move)
        self.ends += is_end
        if edges is not None:
            edges.end_state(is_end=is_end)
        return None

    def _arrive(self, parent: int, before: State, move: Move) -> Counterexample | None:
        """An edge leads to a state, known or not; what is wrong with it, if anything is."""
        number = self.numbers.get(move.after)
        is_new = number is None
        if is_new:
            if len(self.states) == self.most_states:
                raise _FullError
            self.numbers[move.after] = len(self.states)
            self.states.append(move.after)
            self.parents.append(parent)
            self.depths.append(0 if parent < 0 else self.depths[parent] + 1)
            self.moves_to.append((move.step, tuple(step for step, _ in move.births)))
        if move.failure is not None:
            return self._path("no action raises", move.failure, parent, move)
        if is_new and (wrong := self._judge(move.after)) is not None:
            return self._path(*wrong, parent, move)
        for judge in self.stays if before else ():
            if judge.holds(before) is True and judge.holds(move.after) is False:
                text = f"it held one step before, and is to stay true. {judge.sentence(move.after)}"
                return self._path(judge.name, text, parent, move)
        return None

    def _judge(self, state: State) -> tuple[str, str] | None:
        for judge, wrong in [*((one, False) for one in self.always), *((one, True) for one in self.never)]:
            if self._ask(judge, state) is wrong:
                return judge.name, judge.sentence(state)
        for goal, judge in zip(self.goals, self.eventually, strict=True):
            # where it cannot be told it may hold: no counterexample goes there
            goal.append(self._ask(judge, state) is not False)
        for judge in self.stays:
            self._ask(judge, state)
        return None

    @property
    def _left(self) -> int:
        return len(self.states) - self.expanded

    def report(self) -> Report:
        """How far it has come."""
        depth = self.depths[self.expanded] if self.expanded < len(self.depths) else 0
        return Report(len(self.states), self.expanded, depth, time.perf_counter() - self.began)

    # ---- counterexamples --------------------------------------------------------------------------------------------

    def _edges_to(self, number: int) -> list[Any]:
        found = []
        while number >= 0:
            found.append(self.moves_to[number])
            number = self.parents[number]
        return found[::-1]

    def _path(self, name: str, sentence: str, parent: int, last: Move) -> Counterexample:
        births = tuple(step for step, _ in last.births)
        return self._counterexample(name, sentence, [*self._edges_to(parent), (last.step, births)], None)

    def _liveness(self) -> Counterexample | None:
        assert self.edges is not None
        for judge, goal in zip(self.eventually, self.goals, strict=True):
            roots = [number for number, parent in enumerate(self.parents) if parent < 0]
            found = lasso_of(self.edges, goal, roots)
            if found is not None:
                return self._lasso(judge, found)
        return None

    def _lasso(self, judge: Judge, found: Lasso) -> Counterexample:
        edges = [self.moves_to[found.root], *found.steps]
        state = self.states[found.last]
        if found.loop_from is None:
            return self._counterexample(
                judge.name, f"nothing is left to happen, and it has never held. {judge.sentence(state)}", edges, None
            )
        count = len(found.steps) - found.loop_from
        told = f"the last {count} steps repeat for ever, and each machine gets its turn"
        sentence = f"it never holds: {told}. {judge.sentence(state)}"
        return self._counterexample(judge.name, sentence, edges, found.loop_from + 1)

    def _counterexample(self, name: str, sentence: str, edges: list[Any], loop_from: int | None) -> Counterexample:
        """Take the steps again, to tell them."""
        teller = Teller(self.space, self.shown)
        steps: list[Any] = []
        state: State = ()
        for step, births in edges:
            moves = self.space.moves_of(state, step.task) if state else self.space.start()
            move = next(one for one in moves if one.step == step and tuple(birth for birth, _ in one.births) == births)
            teller.note(state, move)
            steps.append(public(self.space, move))
            state = move.after
        schedule = Schedule(tuple(steps), self.settings, loop_from)
        return Counterexample(name, sentence, teller.steps, schedule, loop_from, loop_from is None, teller.events)


def search(build: Callable[[Any], object], **options: Any) -> Exploration:
    """Search the states of a system; anew with the clock if a machine asks for the time."""
    for has_clock in (False, True):
        with Stage(build) as stage:
            try:
                found = Search(stage, has_clock=has_clock, **options).run()
            except NeedsClockError:
                continue
            if has_clock:
                found.complete = False
                found.why.append(
                    "machines ask for the time, by self.now(): it goes on to timers and timeouts that come, and messages take"
                    " no time; states that differ in it alone are counted apart"
                )
            return found
    raise AssertionError("a search with the clock has asked for the clock")


def listed(items: Any) -> list[Any]:
    """An item, or several, as a list."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        return [items]
    return list(items)
