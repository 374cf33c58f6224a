"""A run as a value: its steps, and what it was run with. Plain JSON, the same in every process."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray_snapshot.errors import ScheduleError

_KIND = "ray-snapshot schedule"


@dataclass(frozen=True)
class Schedule:
    """What `replay` takes: `steps` (lists of names and numbers), the `settings` of the run, and `loop_from` of a lasso."""

    steps: tuple[Any, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    loop_from: int | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        found = {"kind": _KIND, "settings": self.settings, "loop_from": self.loop_from, "steps": self.steps}
        return json.dumps(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        Path(path).write_text(f"{self}\n", encoding="utf-8")


def schedule_of(given: Any) -> Schedule:
    """A schedule, its JSON, or the file that holds it; raises `ScheduleError` for what is none."""
    if isinstance(given, Schedule):
        return given
    if isinstance(given, str | os.PathLike):
        try:
            text = (
                given if isinstance(given, str) and given.lstrip().startswith("{") else Path(given).read_text("utf-8")
            )
            given = json.loads(text)
        except (OSError, ValueError) as error:
            raise ScheduleError(f"{str(given)[:200]!r} is no schedule: {error}", step=None) from None
    if not isinstance(given, dict) or given.get("kind") != _KIND or not isinstance(given.get("steps"), list):
        raise ScheduleError(
            f"{str(given)[:80]!r} is no schedule: take .schedule of a run or a counterexample", step=None
        )
    settings, loop_from = given.get("settings") or {}, given.get("loop_from")
    if not isinstance(settings, dict) or not isinstance(loop_from, int | None):
        raise ScheduleError(f"a schedule has no settings {settings!r} and loop_from {loop_from!r}", step=None)
    return Schedule(tuple(frozen(given["steps"])), dict(settings), loop_from)


def check_steps(schedule: Schedule) -> None:
    """Raises `ScheduleError` unless each step of a run under a protocol is (word, ..., chances)."""
    for number, step in enumerate(schedule.steps, 1):
        if not (_is_words(step) and _are_chances(step[-1]) and len(step) > 1):
            raise malformed(number, step)


def checked(number: int, raw: Any) -> tuple[Any, ...]:
    """A step on the space of states: (word, machine, detail, chances, births); raises `ScheduleError` for what is none."""
    step: Any = frozen(raw)
    is_step = _is_words(step) and len(step) == 5 and _are_chances(step[3]) and isinstance(step[4], tuple)
    if not is_step or not all(
        isinstance(birth, tuple) and len(birth) == 2 and _are_chances(birth[1]) for birth in step[4]
    ):
        raise malformed(number, raw)
    found: tuple[Any, ...] = step
    return found


def malformed(number: int, step: Any) -> ScheduleError:
    """The error of a step that is none."""
    return ScheduleError(
        f"step {number} of the schedule, {str(step)[:80]!r}, is no step: take .schedule of a run or a counterexample",
        step=number,
    )


def _is_words(step: Any) -> bool:
    return isinstance(step, tuple) and bool(step) and isinstance(step[0], str)


def _are_chances(item: Any) -> bool:
    return isinstance(item, tuple | list) and all(type(one) is int for one in item)


def frozen(item: Any) -> Any:
    """JSON lists as tuples, all the way down."""
    return tuple(frozen(one) for one in item) if isinstance(item, list | tuple) else item
