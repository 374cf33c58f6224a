"""Which verdicts a subscriber hears of: what begins, and what ends. No Ray."""

from __future__ import annotations

from typing import Any

import pytest

from ray_snapshot import Verdict
from ray_snapshot.news import News
from ray_snapshot.runtime.subscribers import Subscriber

ALARMS = {"deadlock": True, "money": False, "termination": None}


def verdict(name: str, holds: bool | None, *cores: str) -> Verdict:
    evidence: dict[str, Any] = {"cores": [list(core) for core in cores]} if cores else {}
    return Verdict(detector=name, holds=holds, evidence=evidence)


def heard(*found: Verdict, repeat: bool = False) -> list[int]:
    """The places of those that were told."""
    told: list[Verdict] = []
    subscriber = Subscriber(told.append, None if repeat else News(ALARMS.get))
    for number, one in enumerate(found):
        subscriber.hear(number, one)
    return [at for at, one in enumerate(found) if any(one is other for other in told)]


@pytest.mark.parametrize(
    ("name", "begins"),
    [("deadlock", True), ("money", False), ("termination", True)],
    ids=["an alarm", "an alarm when it is False", "no alarm"],
)
def test_each_is_told_when_it_begins_and_when_it_ends(name: str, begins: bool) -> None:
    answers = [not begins, begins, begins, None, begins, not begins, not begins, begins]
    assert heard(*(verdict(name, one) for one in answers)) == [1, 5, 7]


def test_with_repeat_every_verdict_is_told() -> None:
    found = [verdict("deadlock", one) for one in (False, True, True, None)]
    assert heard(*found, repeat=True) == [0, 1, 2, 3]


def test_another_deadlock_is_told_and_one_that_grows_is_not() -> None:
    found = [
        verdict("deadlock", True, "ab"),
        verdict("deadlock", True, "abc"),
        verdict("deadlock", True, "abc", "xy"),
        verdict("deadlock", True, "xyz"),
        verdict("deadlock", False),
        verdict("deadlock", True, "ab"),
    ]
    assert heard(*found) == [0, 2, 4, 5]


def test_detectors_do_not_hide_each_other() -> None:
    assert heard(verdict("deadlock", True), verdict("money", False), verdict("deadlock", True)) == [0, 1]
