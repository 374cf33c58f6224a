"""A system for a whole file of tests: two hosts, in which each test creates machines of its own."""

from collections.abc import Iterator

import pytest
from runtime_machines import Gate, House

import ray_snapshot as rs
from ray_snapshot import detectors


@pytest.fixture(scope="module")
def house(ray_cluster: None, request: pytest.FixtureRequest) -> Iterator[House]:
    """A module may define SETTINGS for its system."""
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    watch = [detectors.Termination(), detectors.Deadlock()]
    with rs.System(name, detectors=watch, **getattr(request.module, "SETTINGS", {})) as system:
        yield House(system)


@pytest.fixture(autouse=True)
def gates_that_a_failed_test_left_shut() -> Iterator[None]:
    """A machine that stays at a gate would hold up the tests that follow."""
    yield
    for gate in Gate.all:
        gate.open(times=16)
    Gate.all.clear()
