"""Two arms, alternating: A B B A, so that a machine that grows slower or faster favours neither."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One figure: the ratio of two arms, its spread over the pairs, and what was promised."""

    name: str
    ratio: float
    low: float
    high: float
    goal: str
    arms: dict[str, float]
    """Median of each arm, by a name that holds its unit."""
    parts: dict[str, float] = field(default_factory=dict)
    """Where the difference comes from, by names with units."""

    @property
    def is_met(self) -> bool:
        sign, bound = self.goal.split()
        return self.ratio >= float(bound) if sign == ">=" else self.ratio <= float(bound)

    def row(self) -> dict[str, object]:
        return {
            "name": self.name,
            "ratio": round(self.ratio, 3),
            "low": round(self.low, 3),
            "high": round(self.high, 3),
            "goal": self.goal,
            "met": self.is_met,
            "arms": _short(self.arms),
            **({"parts": _short(self.parts)} if self.parts else {}),
        }


def _short(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def timed_s(work: Callable[[], Any]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def timed_ms(work: Callable[[], Any]) -> float:
    """The same in milliseconds."""
    return 1e3 * timed_s(work)


def alternate(
    name: str,
    goal: str,
    one: tuple[str, Callable[[], float]],
    other: tuple[str, Callable[[], float]],
    *,
    pairs: int = 8,
) -> Result:
    """Run `one` and `other` in the order A B B A ...; the ratio is one / other, pair by pair; one round is not counted."""
    (one_name, run_one), (other_name, run_other) = one, other
    run_one(), run_other()
    ones, others = [], []
    for pair in range(pairs):
        if pair % 2 == 0:
            ones.append(run_one())
            others.append(run_other())
        else:
            others.append(run_other())
            ones.append(run_one())
    ratios = sorted(a / b for a, b in zip(ones, others, strict=True))
    arms = {one_name: median(ones), other_name: median(others)}
    return Result(name, median(ratios), ratios[0], ratios[-1], goal, arms)
