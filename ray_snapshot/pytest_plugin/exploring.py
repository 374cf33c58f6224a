"""The fixtures `explored` and `simulated`: machines of the test's own, without Ray.

What is wrong is told with its steps; the diagram and the schedule are written beside, and one line says how to replay it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot import testing

MOST_LINES = 200


class Explorer:
    """`explored(build, always=..., never=..., eventually=...)`, as `testing.explore`: the test fails on a counterexample."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, build: Callable[[Any], object], **options: Any) -> testing.Exploration:
        """Explore; fails the test with the steps if there is a counterexample, and warns if the search is not complete."""
        found = testing.explore(build, **options)
        if found.counterexample is not None:
            found.counterexample.diagram(self.folder / "counterexample.svg")
            found.counterexample.schedule.save(self.folder / "schedule.json")
            pytest.fail(f"{found.counterexample}\n{_written(self.folder, build, 'counterexample.svg')}", pytrace=False)
        if not found.complete:
            warnings.warn(f"the search is not complete: {'; '.join(found.why)}", pytest.PytestWarning, stacklevel=2)
        return found


class Simulator:
    """`simulated(build, seed=...)`, as `testing.simulate`: a failing test shows the steps of its last run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[tuple[Callable[[Any], object], testing.Run]] = []

    def __call__(self, build: Callable[[Any], object], **options: Any) -> testing.Run:
        """Run once; fails the test if an action raises."""
        run = testing.simulate(build, **options)
        self.runs.append((build, run))
        if run.failure is not None:
            pytest.fail(run.failure, pytrace=False)
        return run

    def told(self) -> str | None:
        """The last run in words, its diagram and schedule written; None if there was none."""
        if not self.runs:
            return None
        build, run = self.runs[-1]
        run.diagram(self.folder / "run.svg")
        run.schedule.save(self.folder / "schedule.json")
        lines = str(run).splitlines()
        shown = lines[-MOST_LINES:]
        left = [f"({len(lines) - len(shown)} lines before)"] if len(shown) < len(lines) else []
        return "\n".join([f"seed {run.seed}", *left, *shown, _written(self.folder, build, "run.svg")])


def _written(folder: Path, build: Callable[[Any], object], name: str) -> str:
    called = getattr(build, "__name__", "build")
    return f"diagram: {folder / name}\nreplay: testing.replay({called}, {str(folder / 'schedule.json')!r})"
