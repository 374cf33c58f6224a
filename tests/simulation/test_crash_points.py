"""A death at every point: before each step of a run with snapshots, and before each step of the recovery itself.

Every point is tried in turn, with the same chance before it; then there are no more faults, and everything must be complete and
right (`storms.check`). Who dies is a host, or the coordinator, in whose place another begins behind its last generation.
"""

import random
from collections.abc import Callable

import pytest
from worlds.rollback import storms

from ray_snapshot.protocol.rollback import HostExpected, HostJoined, RollbackAsked, RollbackCoordinator
from ray_snapshot.simulation.mail.oracle import OracleError

PROTOCOLS = ("chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier", "at-least-once-barrier")
STEPS, STRIDE = 240, 12
MOST_STEPS = 200


def run_of(protocol: str, steps: int) -> storms.Run:
    """The same for the same number of steps, and for one more, but for the last."""
    run = storms._without_crashes(storms._flow(protocol, random.Random(11), None, None))
    run.world.perform(("snapshot",))
    storms.weather(run, steps)
    return run


def a_host_dies(run: storms.Run, which: int) -> None:
    hosts = sorted(run.rollback.alive)
    if hosts:
        run.rollback.perform(("crash", hosts[which % len(hosts)]))


def the_coordinator_dies(run: storms.Run, which: int) -> None:
    """Another begins, with what is known of the hosts: which there are, and which life each is in."""
    rollback = run.rollback
    rollback.coordinator = RollbackCoordinator(last=rollback.coordinator.generation)
    for host in rollback.absent:
        rollback.coordinator.step(HostExpected(host))
    for host in sorted({*rollback.alive, *(name for name, _ in rollback.unnoticed)}):
        rollback.coordinator.step(HostJoined(host, rollback.lives[host], rollback.coordinator.generation))
    rollback._coordinate(RollbackAsked("the coordinator has died"))


def check(run: storms.Run, where: str) -> None:
    try:
        storms.settle(run)
        storms.check(run)
    except OracleError as error:
        raise AssertionError(f"{where}: {error}") from error


Death = Callable[[storms.Run, int], None]


@pytest.mark.by_day(4)
@pytest.mark.parametrize("death", [a_host_dies, the_coordinator_dies])
@pytest.mark.parametrize("stride", [STRIDE, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_somebody_dies_before_a_step_of_a_run(protocol: str, stride: int, death: Death) -> None:
    for point in range(0, STEPS, stride):
        run = run_of(protocol, point)
        death(run, point)
        check(run, f"{death.__name__} before step {point}")


def recovering(protocol: str, steps: int) -> storms.Run | None:
    """A run that recovers from the death of a host, so many steps of the recovery later; None if it is over by then."""
    run = run_of(protocol, 60)
    a_host_dies(run, 0)
    for _ in range(steps):
        enabled = run.rollback.enabled()
        if not enabled:
            return None
        run.rollback.perform(enabled[0], 1)
    return run


@pytest.mark.by_day(4)
@pytest.mark.parametrize("death", [a_host_dies, the_coordinator_dies])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_somebody_dies_before_a_step_of_the_recovery(protocol: str, death: Death) -> None:
    for point in range(MOST_STEPS):
        run = recovering(protocol, point)
        if run is None:
            assert point > 6, "a recovery has three steps for each host at least"
            return
        death(run, point)
        check(run, f"{death.__name__} before step {point} of the recovery")
    pytest.fail("the recovery does not end")
