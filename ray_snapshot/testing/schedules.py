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
    return Schedule(tuple(frozen(given["steps"])), dict(given.get("settings") or {}), given.get("loop_from"))


def frozen(item: Any) -> Any:
    """JSON lists as tuples, all the way down."""
    return tuple(frozen(one) for one in item) if isinstance(item, list | tuple) else item
