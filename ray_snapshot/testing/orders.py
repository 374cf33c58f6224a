"""Which orders reach a state, and which avoid it: two questions to one search.

An order that reaches a goal is what breaks "never the goal"; one that avoids it is what breaks "eventually the goal": a run to
an end, or for ever, on which each message that can be accepted is accepted at some time. Never imports Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ray_snapshot.testing.exploring import MOST_STATES, Counterexample, Progress, Search, listed, told_within
from ray_snapshot.testing.faults import Faults
from ray_snapshot.testing.space import NeedsClockError
from ray_snapshot.testing.stage import Stage

Word = Literal["reach", "avoid"]


@dataclass
class Orders:
    """The answer to `reach` or `avoid`."""

    word: Word
    goal: str
    """The name of the predicate."""
    order: Counterexample | None
    """`.steps`, `.schedule`, `.loop_from`, `.diagram(path)`; None: none was found."""
    states: int
    """How many distinct states were looked at."""
    complete: bool
    """Whether the answer is certain: an order was found, or all were tried (with `within`: all that stay within)."""
    why: list[str] = field(default_factory=list)
    """Why it is not certain, a sentence each."""
    failures: int = 0
    """So many steps were met at which an action raises: a run ends there, as on Ray."""
    within: str | None = None
    """The name of the constraint; None: there was none."""
    outside: int = 0
    """How many of the states break it."""

    def __bool__(self) -> bool:
        raise TypeError("Orders are neither true nor false: ask .order, and .complete")

    def __str__(self) -> str:
        if self.order is not None:
            lines = str(self.order).splitlines()[1:]
            return "\n".join([f"{self.word} {self.goal}: {self._told()}", *lines])
        verb = "reaches" if self.word == "reach" else "avoids"
        if self.complete:
            states = f"{self.states:,} states, all there are{self._bounded()}"
            return f"{self.word} {self.goal}: no order {verb} it ({states}){self._ended()}"
        states = f"{self.states:,} states{self._bounded()}"
        lines = [f"{self.word} {self.goal}: no order that {verb} it was found in {states}{self._ended()}"]
        return "\n".join([*lines, *(f"  not complete: {reason}" for reason in self.why)])

    def _bounded(self) -> str:
        return "" if self.within is None else told_within(self.within, self.outside)

    def _told(self) -> str:
        assert self.order is not None
        count = len(self.order.steps)
        if self.word == "reach":
            return f"{count} steps, and no order has fewer"
        if self.order.loop_from is None:
            return f"{count} steps, and then nothing is left to happen"
        return f"{self.order.loop_from} steps, and then {count - self.order.loop_from} that repeat for ever"

    def _ended(self) -> str:
        return f"; {self.failures:,} times a run ends because an action raises: see `explore`" if self.failures else ""


def reach(build: Callable[[Any], object], goal: Any, **options: Any) -> Orders:
    """A shortest order in which a goal comes to hold; `.order` is None if there is none.

    `goal`: a detector, or a function of the machine objects by name. `options`: `crashes`, `most_states`, `mailbox_bound`,
    `rollback`, `duplicates`, `overtakes`, `within`, `progress`, as of `explore`. An action that raises ends its run. Raises as
    `explore` does.
    """
    return _asked("reach", build, goal, "never", **options)


def avoid(build: Callable[[Any], object], goal: Any, **options: Any) -> Orders:
    """An order in which a goal never comes to hold, to an end or for ever, fairly; `.order` is None if there is none.

    As `reach`.
    """
    return _asked("avoid", build, goal, "eventually", **options)


def _asked(
    word: Word,
    build: Callable[[Any], object],
    goal: Any,
    role: str,
    *,
    crashes: int = 0,
    rollback: bool = False,
    duplicates: int = 0,
    overtakes: int = 0,
    within: Any = (),
    most_states: int = MOST_STATES,
    mailbox_bound: int | None = None,
    progress: Progress | None = None,
) -> Orders:
    faults = Faults(crashes, rollback, duplicates, overtakes)
    faults.check()
    for has_clock in (False, True):
        with Stage(build) as stage:
            search = Search(
                stage, **{role: [goal]}, has_clock=has_clock, faults=faults, bound=mailbox_bound,
                within=listed(within), most_states=most_states, progress=progress, ends_at_failures=True,
            )  # fmt: skip
            try:
                found = search.run()
            except NeedsClockError:
                continue
            name = (search.never or search.eventually)[0].name
            is_certain = found.counterexample is not None or found.complete
            return Orders(word, name, found.counterexample, found.states, is_certain, found.why, search.failures,
                          found.within, found.outside)  # fmt: skip
    raise AssertionError("a search with the clock has asked for the clock")
