"""A clock that goes by a share of processor time: what hosts and watched processes spend is measured, and sets the pace."""

from typing import Any

import pytest
import ray
from until import until

import ray_snapshot as rs
from ray_snapshot.runtime.cluster import ask, service_of


class Ledger(rs.SnapshotMixin):
    volatile = True

    def __init__(self, size: int) -> None:
        self.rows = [{"row": number} for number in range(size)]


def paced(name: str) -> dict[str, Any]:
    """What is told of the system once its pace follows from what was measured; the first snapshots take more than others."""

    def about() -> dict[str, Any]:
        found: dict[str, Any] = ask(service_of(name).about.remote(), "about", 10)
        return found

    return until(about, good=lambda found: found["snapshots"] >= 15)


@pytest.mark.nightly
def test_the_more_a_snapshot_takes_the_more_seldom_it_is_taken(ray_cluster: None) -> None:
    intervals = []
    for size in (10, 5_000):
        with rs.System(f"paced-{size}", every="10%", detectors=[]) as system:
            system.spawn(Ledger, size)
            system.start()
            found = paced(f"paced-{size}")
            assert found["every"] == "10%"
            assert found["cpu_share"] <= 0.1001
            intervals.append(found["interval_s"])
    assert intervals[1] > intervals[0] >= 0.05


@pytest.mark.nightly
def test_so_it_is_with_the_processes_of_a_watched_app(ray_cluster: None) -> None:
    @ray.remote
    @rs.wrap
    class Account:
        def __init__(self) -> None:
            self.rows = [{"row": number} for number in range(1_000)]

        def size(self) -> int:
            return len(self.rows)

    with rs.watch("paced-watch", every="2%"):
        account = Account.remote()
        assert ray.get(account.size.remote()) == 1_000
        found = paced("paced-watch")
        assert found["every"] == "2%"
        assert 0 < found["cpu_share"] <= 0.0201
