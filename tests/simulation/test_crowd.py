"""The benchmark of many hosts: what it counts is what the protocols promise, and what it makes of that."""

import pytest

from benchmarks.crowd import complete, ring, rounds_of, scattered, tree

pytestmark = pytest.mark.contract


def counted(targets: list[list[int]], protocol: str = "chandy-lamport") -> dict[str, int]:
    return dict(rounds_of(targets, 1, protocol)[0].sent)


@pytest.mark.parametrize("graph", [complete, ring, tree, scattered])
def test_a_snapshot_takes_a_request_and_a_report_of_each_party_and_a_marker_on_each_link(graph: object) -> None:
    targets = graph(12)  # type: ignore[operator]
    links = sum(map(len, targets)) + 12  # and those from the driver
    assert counted(targets) == {"request": 13, "report": 13, "marker": links}


def test_barriers_take_as_many_and_observers_no_markers() -> None:
    assert counted(complete(12), protocol="aligned-barrier") == {"request": 13, "report": 13, "marker": 12 * 11}
    assert counted(complete(12), protocol="observer") == {"request": 13, "report": 13}


@pytest.mark.parametrize("hosts", [4, 40])
def test_complete_snapshots_are_handed_on_large_ones_in_pieces(hosts: int) -> None:
    """Else the bytes that the analyst gets, and the time that this takes, are not in the figures."""
    (one,) = rounds_of(ring(hosts), 1)
    assert one.size["handed on"] > 5_000 * hosts
