"""One program in all its ways: what differs, how long it took, and what its snapshots could tell."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from catalogue import Program
from planted_hangs import Answer
from real_runs import Ended, installed, plainly, watched
from shares import Share, shares
from surroundings import around


@dataclass(frozen=True, slots=True)
class Result:
    """A row of `docs/real-programs.md`."""

    name: str
    uses: str
    differences: list[str]
    """Empty for a program that behaves as it does unwatched."""
    plain_seconds: float
    watched_seconds: float
    shares: dict[str, Share]
    measured: str
    """The day, and the machine's load over the 15 minutes before the end."""
    hangs: tuple[Answer, ...] = ()
    """What was said of each hang that is planted in it."""

    @property
    def ratio(self) -> float:
        return self.watched_seconds / self.plain_seconds

    def as_json(self) -> str:
        """For `from_json`."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """What `as_json` made."""
        found: dict[str, Any] = json.loads(text)
        told = {name: Share(**one) for name, one in found.pop("shares").items()}
        hangs = tuple(Answer(**one) for one in found.pop("hangs", ()))
        return cls(**found, shares=told, hangs=hangs)


def compare(program: Program, kept: Path | None = None, times: int = 1) -> Result:
    """Run it plainly, watched and, where the catalogue says so, with `rs.install()`; `kept`: where its histories stay.

    Plainly and watched it runs so many `times`, in turns; of the wall times the least of each kind counts.
    """
    with tempfile.TemporaryDirectory(prefix="real-history-") as folder:
        histories = kept or Path(folder)
        plains, runs = [], []
        for turn in range(times):
            plains.append(_plain_of(program))
            runs.append(_run_of(program, histories / f"run-{turn}"))
        differences = _of_the_plain(plains[0], program)
        differences += [f"plain: {text}" for plain in plains[1:] for text in differences_between(plains[0], plain)]
        differences += [f"run: {text}" for run in runs for text in _of_the_watched(plains[0], run, program)]
        if program.is_installed_too:
            with around(program) as settings:
                other = installed(program, histories / "install", settings)
            differences += [f"install: {text}" for text in differences_between(plains[0], other)]
        told = shares([histories / f"run-{turn}" for turn in range(times)])
    differences += ["run: a verdict says that it is deadlocked"] if told["deadlock"].alarms else []
    seconds = [min(one.seconds for one in every) for every in (plains, runs)]
    measured = f"{date.today()}, load {os.getloadavg()[2]:.0f}"
    return Result(program.name, program.uses, differences, *seconds, told, measured)


def _plain_of(program: Program) -> Ended:
    with around(program) as settings:
        return plainly(program, settings)


def _run_of(program: Program, history: Path) -> Ended:
    with around(program) as settings:
        return watched(program, history, settings)


def _of_the_watched(plain: Ended, run: Ended, program: Program) -> list[str]:
    found = differences_between(plain, run)
    if not program.is_watched and "ray-snapshot: nothing is watched" not in run.errors:
        found.append("it is not said that nothing is watched")
    if program.is_short and "ray-snapshot: watching" not in run.errors:  # of the others there are snapshots
        found.append("it is not said that it is watched")
    return found


def _of_the_plain(plain: Ended, program: Program) -> list[str]:
    if plain.exit_code == program.exit_code and (plain.exit_code or plain.lines[-1:] == ["app: the end"]):
        return []
    return [f"plain: exit code {plain.exit_code}, {plain.lines[-1:]}: {plain.errors[-2_000:]}"]


def differences_between(plain: Ended, other: Ended) -> list[str]:
    found = []
    if other.exit_code != plain.exit_code:
        found.append(f"exit code {other.exit_code} instead of {plain.exit_code}: {other.errors[-2_000:]}")
    if other.lines != plain.lines:
        missing = [line for line in plain.lines if line not in other.lines]
        more = [line for line in other.lines if line not in plain.lines]
        found.append(f"output: not {missing or 'in this order'}, but {more}: {other.errors[-2_000:]}")
    if other.exception != plain.exception:
        found.append(f"exception: not {plain.exception!r}, but {other.exception!r}")
    return found + [f"said: {line}" for line in other.faults]
