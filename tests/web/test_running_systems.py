"""Pages over systems that run: what is seen of them, and an end."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from gates import Gate, pass_gate
from until import until
from viewing import Viewer, viewer

import ray_snapshot as rs
from ray_snapshot.errors import ClusterError
from ray_snapshot.web.live import Asker, Clusters

pytestmark = pytest.mark.ray

SLOW_S = 120.0


class Till(rs.SnapshotMixin):
    """Coins, and a gate at which it may be stopped."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def put(self, coins: int) -> None:
        self.coins += coins

    def wait_at(self, path: str) -> None:
        pass_gate(path)


@contextmanager
def looked_at(*histories: Path, **more: Any) -> Iterator[Viewer]:
    """Pages over the cluster that this process is connected to."""
    with viewer(*histories, **more) as seen:
        seen.served.live = clusters = Clusters(seen.served, ray.get_runtime_context().gcs_address)
        try:
            yield seen
        finally:
            clusters.close()


def running(seen: Viewer, name: str) -> dict[str, Any] | None:
    """What is said of a running system, if it is among those."""
    found = (one for one in seen.json("/")["systems"] if one["name"] == name and one["is_running"])
    return next(found, None)


@pytest.fixture(scope="module")
def seen(ray_cluster: None) -> Iterator[Viewer]:
    """Pages over the tests' cluster."""
    with looked_at() as found:
        yield found


def test_a_system_without_a_history_is_seen_in_counts(seen: Viewer) -> None:
    with rs.System("counter", detectors=[rs.detectors.Termination(), rs.detectors.Deadlock()]) as system:
        till = system.spawn(Till, 5, name="till")
        system.start()
        till.put.send(2)
        system.wait_for("termination", timeout=SLOW_S)
        told = until(lambda: running(seen, "counter"), good=lambda one: one and one["snapshot_id"], seconds=SLOW_S)
        assert told is not None
        assert (told["place"], told["level"]) == (None, "clear")
        assert {one["name"]: one["total"] for one in told["classes"]}["Till"] == 1
        said = {one["detector"]: one["word"] for one in told["said"]}
        assert (said.keys(), said["deadlock"]) == ({"deadlock", "termination"}, "does not hold")
        assert seen.client.get("/live/counter/run.svg").status_code == 200
        assert running(seen, "counter")
    until(lambda: running(seen, "counter"), good=lambda one: one is None, seconds=SLOW_S)


@pytest.mark.nightly
def test_while_a_snapshot_is_taken_it_is_seen_how_many_have_reported(seen: Viewer, tmp_path: Path) -> None:
    with rs.System("held", detectors=[], snapshot_timeout=SLOW_S) as system:
        gate = Gate(tmp_path)
        system.spawn(Till, 5, name="till").wait_at.send(gate.path)
        system.start()
        gate.await_arrival()
        system._service.begin_snapshot.remote()
        told = until(lambda: running(seen, "held"), good=lambda one: one and one["open"], seconds=SLOW_S)
        assert told is not None
        (one,) = told["open"]
        assert (one["number"], one["lacking"] >= 1) == (1, True)
        assert "Snapshot 1 is being taken" in seen.page("/")
        gate.open()
        until(
            lambda: running(seen, "held"),
            good=lambda one: one and one["snapshot_id"] and not one["open"],
            seconds=SLOW_S,
        )


@pytest.mark.nightly
def test_a_process_that_asks_may_die_and_the_pages_go_on(ray_cluster: None) -> None:
    with looked_at() as seen, rs.System("lasting", detectors=[]) as system:
        system.spawn(Till, 5, name="till")
        system.start()
        until(lambda: running(seen, "lasting"), seconds=SLOW_S)
        clusters = seen.served.live
        assert isinstance(clusters, Clusters)
        (asker,) = clusters.askers.values()
        os.kill(asker._process.pid, signal.SIGKILL)
        system.snapshot()
        until(lambda: running(seen, "lasting"), good=lambda one: one and one["snapshot_id"], seconds=SLOW_S)


def test_a_question_that_is_not_answered_in_time_ends_the_process_and_is_told() -> None:
    asker = Asker(None)
    with pytest.raises(ClusterError, match=r"the clusters of this machine did not answer within 0\.01 s"):
        asker.ask(0.01, "find", "127.0.0.1:1")
    with pytest.raises(ClusterError, match="no Ray cluster can be reached"):
        asker.ask(SLOW_S, "find", "127.0.0.1:1")
    asker.close()
