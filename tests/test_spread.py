"""Of a test with many cases some run by day, spread over all of them, and all at night."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from clean import clean_environment
from spread import spread

ROOT = Path(__file__).parent.parent
FILES = (
    "tests/detectors/test_deadlock_against_the_game.py",
    "tests/history/test_history_crash.py",
    "tests/spark/test_without_rest.py",
)


@pytest.mark.parametrize("count", [1, 2, 10, 46, 59])
def test_every_case_has_its_turn_and_the_first_lie_all_over(count: int) -> None:
    order = spread(count)
    assert sorted(order) == [*range(count)]
    for most in range(2, count + 1):
        first = [-1, *sorted(order[:most]), count]
        assert max(after - before for before, after in pairwise(first)) <= 3 * count / most + 1


def collected(*more: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *more, *FILES],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_by_day_and_by_night_together_are_all() -> None:
    by_day, by_night = collected("-m", "not nightly"), collected("-m", "nightly")
    assert by_day | by_night == collected()
    assert not by_day & by_night
    assert len({name for name in by_day if "test_deadlock_against_the_game" in name}) < len(
        {name for name in collected() if "test_deadlock_against_the_game" in name}
    )
