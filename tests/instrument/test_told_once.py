"""What `diagnose` says of one snapshot: a deadlock once, by its report, and of every other detector one line."""

from pathlib import Path
from typing import Any

import ray_snapshot as rs
from ray_snapshot.instrument.diagnosis import DEADLOCK, HEALTHY, diagnosis
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.protocol.tasks import worker_name

NEEDS = {"source": "ray-worker-12", "target": "f()", "numbers": [[1, 1]], "needs": {"seat": 1}, "since": 5.0}
ROOM = {
    "demands": [{**NEEDS, "group": None, "bundle": -1, "nodes": None}],
    "nodes": {"n": {"seat": 1}},
    "groups": [],
    "holders": [{"machine": "f-0", "node": "n", "amounts": {"seat": 1}, "task": True, "by": [], "checked": True}],
    "unsure": [],
}


def snapshot_of(**coverage: Any) -> rs.Snapshot:
    """A plain task that holds the only seat, and waits for another one that needs it."""
    run, inner = "driver/0/f-0/1", "ray-worker-12/0/f()/1"
    site = f"{Path.cwd()}/app.py:7"
    wait = {"machine": "f-0", "call_id": run, "on_machine": "f()", "on_call_id": inner, "satisfied": False}
    return rs.Snapshot.from_rows(
        machines=[{"machine": "f-0", "class_name": "", "host": "pid-12", "status": "blocked", "max_concurrency": 1}],
        calls=[{"machine": "f-0", "call_id": run, "caller": "driver", "method": "f", "call_site": site}],
        messages=[
            {"source": "ray-worker-12", "target": "f()", "kind": "call", "call_id": inner, "method": "f", "number": 1}
        ],
        waits=[wait],
        system="app",
        coverage={"uncovered": [], "collectives": [], **coverage},
    )


def test_a_deadlock_is_told_once_and_what_has_not_begun_refers_to_it() -> None:
    snapshot = snapshot_of(resources=ROOM)
    found = diagnosis(snapshot)
    text = "\n".join(found.lines)
    assert found.exit_code == DEADLOCK
    assert found.lines[0].startswith("app: 1 machine, 1 call or message in flight, snapshot ")
    assert text.count("f-0 holds seat 1 of 1") == 1, text
    assert "f() of f-0 has waited for " in text
    assert text.endswith(" s: see the deadlock"), text
    assert "  deadlock: " not in text
    assert "  termination: " not in text
    assert "ray-worker" not in text
    assert str(Path.cwd()) not in text


def test_where_there_is_none_each_detector_has_its_line() -> None:
    found = diagnosis(snapshot_of())
    assert found.exit_code == HEALTHY
    assert "  deadlock: No deadlock: 1 call blocked, and what it waits for can still come." in found.lines
    assert [line.partition(":")[0] for line in found.lines[1:3]] == ["  deadlock", "  termination"]


def test_a_worker_of_rays_bears_its_process_in_its_name_also_when_it_takes_part_anew() -> None:
    roster = Roster(lambda _: False, lambda: {})
    facts = {"class": "ray-worker", "ordinal": 12}
    for session, shown in ((1, "ray-worker-12"), (2, "ray-worker-12-0"), (3, "ray-worker-12-1")):
        roster.enter(worker_name("key", session), dict(facts), 0)
        assert roster.name_of(worker_name("key", session)) == shown
