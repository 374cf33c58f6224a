"""What is measured of a system among Ray's own metrics: what Ray is told, and what a cluster exports."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from incidents import deadlocked, healthy, judged

from ray_snapshot import Snapshot
from ray_snapshot.glances import Glances
from ray_snapshot.runtime.analyst import ray_metrics
from ray_snapshot.runtime.analyst.ray_metrics import RayMetrics


class Told:
    """In place of a metric of Ray's."""

    def __init__(self, name: str, _help: str, *, tag_keys: tuple[str, ...]) -> None:
        self.name = name
        self.tag_keys = tag_keys

    def _tell(self, how: str, value: float, tags: dict[str, str]) -> None:
        assert tuple(tags) == self.tag_keys
        SAID.append((how, self.name, *tags.values(), value))

    def set(self, value: float, *, tags: dict[str, str]) -> None:
        self._tell("set", value, tags)

    def inc(self, value: float, *, tags: dict[str, str]) -> None:
        self._tell("inc", value, tags)


SAID: list[tuple[Any, ...]] = []


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> RayMetrics:
    monkeypatch.setattr("ray.util.metrics.Counter", Told)
    monkeypatch.setattr("ray.util.metrics.Gauge", Told)
    SAID.clear()
    return RayMetrics("bank")


def take(metrics: RayMetrics, glances: Glances, snapshot: Snapshot, generation: int = 0) -> list[tuple[Any, ...]]:
    SAID.clear()
    glances.add(snapshot, judged(snapshot), generation)
    metrics.take(glances.totals, glances.last)
    return list(SAID)


def test_counters_grow_by_what_came_and_gauges_have_what_is(metrics: RayMetrics) -> None:
    glances = Glances()
    first = take(metrics, glances, healthy(1))
    assert ("inc", "snapshot_completed_total", "bank", 1) in first
    assert ("set", "snapshot_alarm", "bank", "deadlock", 0) in first
    assert not [one for one in first if one[:2] == ("inc", "snapshot_restores_total")], "nothing to add"
    second = take(metrics, glances, deadlocked(2), generation=3)
    assert ("inc", "snapshot_completed_total", "bank", 1) in second
    assert ("inc", "snapshot_restores_total", "bank", 3) in second
    assert ("set", "snapshot_alarm", "bank", "deadlock", 1) in second
    assert ("set", "snapshot_blocked_machines", "bank", "Account", 2) in second


def test_a_class_that_is_no_more_is_zero_and_forgotten(metrics: RayMetrics) -> None:
    glances = Glances()
    take(metrics, glances, healthy(1))
    other = Snapshot.from_rows(machines=[{"machine": "x", "class_name": "Other"}], snapshot_id="x", system="bank")
    assert ("set", "snapshot_machines", "bank", "Account", 0.0) in take(metrics, glances, other)
    assert not [one for one in take(metrics, glances, other) if "Account" in one]


def test_what_a_detector_said_that_is_asked_no_more_is_no_number(metrics: RayMetrics) -> None:
    glances = Glances()
    take(metrics, glances, healthy(1))
    SAID.clear()
    glances.add(healthy(2), judged(healthy(2))[:1])
    metrics.take(glances.totals, glances.last)
    (gone,) = [one for one in SAID if one[1:4] == ("snapshot_verdict", "bank", "termination")]
    assert math.isnan(gone[-1])


def test_rays_classes_are_made_once_and_only_when_there_is_something_to_tell(
    metrics: RayMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metrics._made == {}
    glances = Glances()
    take(metrics, glances, healthy(1))
    monkeypatch.setattr(ray_metrics, "_made", lambda: pytest.fail("made again"))
    take(metrics, glances, healthy(2))


PROGRAM = """
import sys, time, urllib.request
import ray
import ray_snapshot as rs

class Idle(rs.SnapshotMixin):
    pass

ray.init(num_cpus=2, include_dashboard=True, dashboard_host="127.0.0.1", log_to_driver=False)
port = ray.nodes()[0]["MetricsExportPort"]
wanted = {'ray_snapshot_completed_total{', 'ray_snapshot_verdict{', 'ray_snapshot_machines{'}
with rs.System("idlers", every=0.5) as system:
    system.spawn_many(Idle, [() for _ in range(3)])
    system.start()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                lines = [line for line in answer.read().decode().splitlines() if "idlers" in line]
        except OSError:
            lines = []
        if all(any(line.startswith(one) for line in lines) for one in wanted):
            print("exported")
            break
        time.sleep(0.5)
    else:
        print(sorted({line.split("{")[0] for line in lines}))
"""


@pytest.mark.contract
@pytest.mark.libraries
@pytest.mark.ray
def test_a_cluster_with_a_dashboard_exports_them_under_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = clean_environment(HOME=str(tmp_path), RAY_AUTH_MODE="disabled")
    done = ran(sys.executable, tmp_path / "program.py", env=env, seconds=300)
    assert done.stdout == "exported\n", done.stdout + done.stderr[-2_000:]
