"""When an app counts as standing still, on snapshots written by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors import Stall
from ray_snapshot.detectors.places import places
from ray_snapshot.errors import SettingError
from ray_snapshot.names import name_ranges

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def snapshot(
    still_s: float | None, whats: tuple[str, ...] = (), uncovered: tuple[str, ...] = (), **more: Any
) -> rs.Snapshot:
    since = (NOW - timedelta(seconds=60)).isoformat()
    waits = [{"machine": "b", "call_site": "app.py:7", "since": since, "what": what} for what in whats]
    coverage: dict[str, Any] = {"uncovered": [*uncovered], "unexplained": waits}
    if still_s is not None:
        coverage["still_since"] = (NOW - timedelta(seconds=still_s)).isoformat()
    machines = [
        {"machine": "a", "status": "blocked", "waits_for": ["b"], "wait_mode": "all"},
        {"machine": "b", "status": "active"},
    ]
    rows = {"machines": machines, "waits": [{"machine": "a", "on_machine": "b"}], **more}
    return rs.Snapshot.from_rows(started_at=NOW, coverage=coverage, **rows)


EVENT = "in threading.Event.wait"
SOCKET, SERVER = "in self.recv, for a socket", "in accept, for a socket that listens on 127.0.0.1:80"


@pytest.mark.parametrize(
    ("still_s", "whats", "holds"),
    [
        (None, (SOCKET,), None),
        (119.0, (SOCKET,), False),
        (121.0, (SOCKET,), True),
        (121.0, (SOCKET, SERVER), True),
        (121.0, (SERVER,), False),
        (121.0, ("in input, for its standard input",), False),
        (121.0, (), False),
        (121.0, (EVENT,), True),
    ],
)
def test_it_holds_where_nothing_has_moved_and_no_end_is_known(
    still_s: float | None, whats: tuple[str, ...], holds: bool | None
) -> None:
    verdict = Stall().evaluate(snapshot(still_s, whats))
    assert verdict.holds is holds, verdict.sentence
    assert Stall(seconds=500.0).evaluate(snapshot(still_s, whats)).holds is not True


def test_what_a_thread_beside_it_may_end_is_no_stall_and_who_has_no_wait_goes_on() -> None:
    acts = ("thread Thread-1 (serve) of b",)
    assert Stall().evaluate(snapshot(121.0, (EVENT,), acts)).holds is False
    assert Stall().evaluate(snapshot(121.0, (EVENT, SOCKET), acts)).holds is True
    sleeps = [{"machine": "a", "method": "sleeps", "call_id": "x/0/a/1", "call_site": "app.py:9", "started_at": NOW}]
    assert Stall().evaluate(snapshot(121.0, (SOCKET,), calls=sleeps)).holds is False


def test_who_only_asks_in_vain_is_no_progress() -> None:
    machines = [{"machine": "a", "status": "blocked"}]
    waits = [{"machine": "a", "on_machine": None, "k": 1}]
    told = snapshot(121.0, uncovered=("thread Thread-1 (report) of a",), machines=machines, waits=waits)
    assert Stall().evaluate(told).holds is False
    asked = {"machine": "b", "class": "B", "method": "size", "call_site": "app.py:7", "times": 40, "answer": "0"}
    poll = {"kind": "poll", "machine": "a", "class": "A", "call_id": None, "thread": "report", "asked": [asked]}
    told.coverage["happened"] = [poll | {"at": NOW.isoformat(), "is_bounded": False, "is_moving": False}]
    assert Stall().evaluate(told).holds is True


def test_places_are_grouped_the_smallest_group_first() -> None:
    machines = [{"machine": f"rank-{n}", "class_name": "Rank", "status": "active"} for n in range(10)]
    calls = [
        {"machine": f"rank-{n}", "method": "step", "call_site": f"app.py:{9 if n == 3 else 7}", "started_at": NOW}
        for n in range(9)
    ]
    assert places(snapshot(0.0, machines=machines, calls=calls, waits=[])) == [
        "rank-3 (1 of 10) in Rank.step (app.py:9) for 0 s",
        "rank-[0-2,4-8] (8 of 10) in Rank.step (app.py:7) for 0 s",
        "rank-9: no call",
    ]


def test_names_that_are_no_numbers_stay_as_they_are() -> None:
    assert name_ranges(["b-07", "a", "b-1", "b-3"]) == "a, b-07, b-[1,3]"


def test_seconds_above_zero_are_needed() -> None:
    with pytest.raises(SettingError, match="seconds"):
        Stall(seconds=0.0)
