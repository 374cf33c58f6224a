"""`testing.simulate`: the user's machines under the protocols, on simulated hosts."""

from typing import Any

import explored_machines as machines
import pytest

from ray_snapshot import detectors, testing
from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, PROTOCOLS

MONEY = detectors.TokenConservation(total=150, state="$.balance", messages={"deposit": "$[0]"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_snapshot_of_a_run_has_all_the_money(protocol: str) -> None:
    in_flight = 0
    for seed in range(12):
        run = testing.simulate(machines.bank, seed=seed, protocol=protocol, detectors=[MONEY], snapshots=3)
        assert len(run.snapshots) == 3, f"seed {seed}"
        assert run.is_over
        assert (run.machines["a"].balance, run.machines["b"].balance) == (95, 55), f"seed {seed}"
        for snapshot in run.snapshots:
            in_flight += snapshot.in_flight_count
            if protocol != AT_LEAST_ONCE:
                snapshot.verify()
        if protocol != AT_LEAST_ONCE:
            assert [verdict.holds for verdict in run.verdicts] == [True] * 3, f"seed {seed}"
    assert in_flight, "else nothing was shown"


@pytest.mark.contract
def test_the_same_seed_gives_the_same_run_and_a_schedule_replays_it(tmp_path: Any) -> None:
    one, other = (testing.simulate(machines.asking, seed=5, snapshots=2, hosts=1) for _ in range(2))
    assert one.schedule == other.schedule
    assert one.steps == other.steps
    different = {testing.simulate(machines.asking, seed=seed).schedule.steps for seed in range(5)}
    assert len(different) == 5
    again = testing.replay(machines.asking, str(one.schedule))
    assert again.steps == one.steps
    assert [snapshot.messages for snapshot in again.snapshots] == [snapshot.messages for snapshot in one.snapshots]
    svg = tmp_path / "run.svg"
    one.diagram(svg)
    assert "snapshot 1" in svg.read_text(encoding="utf-8")


@pytest.mark.contract
@pytest.mark.parametrize(
    "build",
    [
        machines.embrace,
        machines.asking,
        machines.family,
        machines.joining,
        machines.racing,
        machines.throwing,
        machines.clocked,
    ],
)
def test_every_end_of_a_run_and_every_snapshot_is_a_state_that_exploring_finds(build: Any) -> None:
    ends, all_seen = set(), set()

    def note(states: Any) -> bool:
        all_seen.add(_key(states))
        return True

    assert testing.explore(build, always=[note]).ok
    for seed in range(15):
        run = testing.simulate(build, seed=seed, snapshots=2)
        assert run.is_over, f"seed {seed}"
        assert _key(run.machines) in all_seen, f"seed {seed}"
        ends.add(_key(run.machines))
        for snapshot in run.snapshots:
            snapshot.verify()
    assert ends


def _key(states: Any) -> str:
    return repr([(name, sorted(vars(one).items())) for name, one in sorted(states.items())])


@pytest.mark.contract
def test_a_deadlock_is_in_the_last_snapshot_and_stays() -> None:
    dead, alive = 0, 0
    for seed in range(20):
        run = testing.simulate(machines.embrace, seed=seed, detectors=[detectors.Deadlock()], snapshots=4)
        answers = [verdict.holds for verdict in run.verdicts]
        assert answers == sorted(answers), f"seed {seed}: once true, stays true"
        dead += bool(answers[-1])
        alive += not answers[0]
    assert dead == 20, "whoever begins, the other asks back"
    assert alive > 0


@pytest.mark.contract
def test_an_action_that_raises_ends_the_run() -> None:
    run = testing.simulate(machines.bad("fail"), seed=1)
    assert run.failure is not None
    assert "ValueError: as meant" in run.failure
    assert not run.is_over


@pytest.mark.contract
def test_a_run_without_an_end_is_stopped_and_its_snapshots_complete() -> None:
    run = testing.simulate(machines.ring, seed=3, snapshots=2, most_steps=200)
    assert not run.is_over
    assert len(run.snapshots) == 2


@pytest.mark.contract
def test_every_order_of_a_protocol_is_a_bounded_search_of_its_own() -> None:
    def build(system: Any) -> None:
        system.spawn(machines.Account, 6, name="a").deposit.send(4)

    money = detectors.TokenConservation(total=10, state="$.balance", messages={"deposit": "$[0]"})
    found = testing.explore(build, always=[money], protocol="observer", most_states=2_000)
    assert found.ok, str(found)
    assert not found.complete
    assert "bounded" in found.why[0]
    wrong = detectors.TokenConservation(total=11, state="$.balance", messages={"deposit": "$[0]"})
    found = testing.explore(build, always=[wrong], protocol="chandy-lamport", most_states=20_000)
    assert found.broken == "conservation"
    again = testing.replay(build, found.counterexample.schedule)  # type: ignore[union-attr]
    assert len(again.snapshots) == 1


@pytest.mark.contract
def test_what_is_asked_wrongly_is_told() -> None:
    with pytest.raises(SettingError, match="there is no protocol 'carrier-pigeon'"):
        testing.simulate(machines.bank, protocol="carrier-pigeon")
    with pytest.raises(SettingError, match="hosts=0"):
        testing.simulate(machines.bank, hosts=0)


@pytest.mark.contract
def test_a_host_that_is_lost_is_told_to_those_who_wait_for_it() -> None:
    failures = set()
    for seed in range(40):
        run = testing.simulate(machines.asking, seed=seed, crashes=1, snapshots=0)
        failures.add("HostDiedError: the host of b died" in (run.failure or ""))
        assert testing.replay(machines.asking, run.schedule).steps == run.steps, f"seed {seed}"
    assert failures == {True, False}
