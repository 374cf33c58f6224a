"""Snapshots as they come to an analyst, alone: out of order, of another session, and how far all is safe."""

from __future__ import annotations

from ray_snapshot.runtime.analyst.arrivals import Arrivals, Handed, InWork
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
