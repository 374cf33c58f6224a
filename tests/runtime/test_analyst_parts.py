"""Snapshots as they come to an analyst, and the verdicts that it keeps, each alone."""

import pytest
from limited import limit

from ray_snapshot import Verdict
from ray_snapshot.runtime.analyst.arrivals import Arrivals, Handed, InWork
from ray_snapshot.runtime.analyst.verdict_queue import VerdictQueue
from ray_snapshot.runtime.collected import Collected, SnapshotHeader


def handed(arrivals: Arrivals, place: int | None, *, number: int = 0) -> Handed:
    collected = Collected(SnapshotHeader(number or place or 0, "shop", "s", "observer", [], 0.0), [])
    return Handed(collected, place, None if place is None else arrivals.session)


def taken(arrivals: Arrivals) -> list[int]:
    return [arrivals.inbox.get_nowait().collected.header.number for _ in range(arrivals.inbox.qsize())]


def test_what_is_behind_a_gap_has_come_and_is_not_in_order_and_what_has_no_place_waits_for_nothing() -> None:
    arrivals = Arrivals()
    arrivals.put(handed(arrivals, 2))
    arrivals.put(handed(arrivals, None, number=9))
    assert (arrivals.received, arrivals.in_order, taken(arrivals)) == (2, 1, [9])


def test_a_session_forgets_what_was_behind_a_gap_and_refuses_what_was_sent_before() -> None:
    arrivals = Arrivals()
    late = handed(arrivals, 1)
    arrivals.put(handed(arrivals, 2))
    arrivals.begin_session()
    assert not arrivals.put(late)
    assert arrivals.received == 0
    assert arrivals.put(handed(arrivals, 1, number=7))
    assert taken(arrivals) == [7]


def test_safe_are_those_in_front_of_the_first_that_is_not_and_no_other_sessions() -> None:
    arrivals, safe = Arrivals(), {1, 3}
    for place in (1, 2, 3):
        arrivals.evaluated(handed(arrivals, place), mark=place, verdicts=0)
    old = handed(arrivals, 4)

    def is_done(one: InWork) -> bool:
        return one.mark in safe

    assert arrivals.finished(is_done) == 1
    safe.add(2)
    assert arrivals.finished(is_done) == 3
    arrivals.evaluated(old, mark=9, verdicts=0)
    arrivals.begin_session()
    arrivals.evaluated(old, mark=1, verdicts=0)
    assert arrivals.finished(is_done) == 0
    arrivals.evaluated(handed(arrivals, 1), mark=1, verdicts=0)
    assert arrivals.finished(is_done) == 1


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
