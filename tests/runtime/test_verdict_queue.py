"""The verdicts that an analyst keeps, alone: what a late caller gets, and what subscribers are owed."""

from __future__ import annotations

import pytest
from limited import limit

from ray_snapshot import Verdict
from ray_snapshot.runtime.analyst.verdict_queue import VerdictQueue


@pytest.fixture(autouse=True)
def _three_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, late_verdicts=3)


def verdicts(*numbers: int) -> list[tuple[int, Verdict]]:
    return [(number, Verdict(sentence=str(number))) for number in numbers]


def behind(queue: VerdictQueue, seen: int) -> tuple[int, list[int]]:
    count, found = queue.after(seen)
    return count, [number for number, _ in found]


def test_a_late_caller_gets_those_that_are_kept_and_the_count_of_all() -> None:
    queue = VerdictQueue()
    assert queue.extend(verdicts(1, 2)) == 2
    assert queue.extend(verdicts(3, 4, 5)) == 5
    assert behind(queue, 0) == (5, [3, 4, 5])
    assert behind(queue, 4) == (5, [5])
    assert behind(queue, 5) == (5, [])
    assert queue.count == 5


def test_a_subscriber_that_is_behind_gets_them_all() -> None:
    queue = VerdictQueue()
    queue.extend(verdicts(1, 2))
    assert queue.subscribe() == 2
    queue.extend(verdicts(3, 4, 5, 6, 7))
    assert behind(queue, 2) == (7, [3, 4, 5, 6, 7])
    queue.handed_out(3)
    assert behind(queue, 0) == (7, [4, 5, 6, 7])
    queue.handed_out(7)
    assert behind(queue, 0) == (7, [5, 6, 7])


def test_what_subscribers_have_is_known_and_without_any_they_have_all() -> None:
    queue = VerdictQueue()
    queue.extend(verdicts(1))
    assert queue.has_handed_out(1)
    queue.subscribe()
    queue.extend(verdicts(2))
    assert queue.has_handed_out(1)
    assert not queue.has_handed_out(2)
    queue.handed_out(2)
    assert queue.has_handed_out(2)


def test_a_successor_counts_on_where_its_predecessor_was() -> None:
    queue = VerdictQueue()
    queue.begin(40, has_subscribers=True)
    assert not queue.has_handed_out(41)
    assert queue.extend(verdicts(1, 2, 3, 4)) == 44
    assert behind(queue, 40) == (44, [1, 2, 3, 4])
    assert behind(queue, 42) == (44, [3, 4])
