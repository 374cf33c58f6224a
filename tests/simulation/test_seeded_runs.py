"""Does it hold in any order? Hundreds of seeds of each kind of world, each run checked by the oracle.

A run is chance with faults first (batches overtake each other and come twice, control messages too, snapshots are given
up), then quiet: then every open snapshot must complete. A failure names its seed and the command that replays it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ray_snapshot.protocol.collector import Answer
from ray_snapshot.simulation import __main__ as command
from ray_snapshot.simulation import schedules
from ray_snapshot.simulation.oracle import OracleError
from ray_snapshot.simulation.schedules import PROFILES, run_seeded
from ray_snapshot.simulation.world import World

SEEDS = 200


def _seen(world: World) -> Counter[str]:
    """What a run met, so that a test can tell that its seeds meet it at all."""
    seen: Counter[str] = Counter(completed=len(world.completed), aborted=len(world.aborted))
    seen["in flight"] = sum(len(messages) for one in world.completed for messages in one.channels.values())
    seen["creations in flight"] = sum(len(one.creations) for one in world.completed)
    seen["timers in flight"] = sum(key[2] == "timer" for one in world.completed for key in one.channels)
    seen["calls in flight"] = sum(key[2] == "call" for one in world.completed for key in one.channels)
    seen["waiting callers"] = sum(
        state.waits_for is not None for one in world.completed for state in one.states.values()
    )
    seen["hosts born"] = sum(name.startswith("host-of") for name in world.hosts)
    seen["doubles answered"] = world.answers[Answer.DUPLICATE] + world.answers[Answer.DISCARDED]
    cuts = [set(cut.values()) for cut in world.log.cuts.values()]
    seen["cuts that are no instant"] = sum(len(cut) > 1 for cut in cuts)
    return seen


@pytest.mark.parametrize("profile", PROFILES)
def test_every_snapshot_is_a_state_that_could_have_been(profile: str) -> None:
    seen = sum((_seen(run_seeded(profile, seed)) for seed in range(SEEDS)), Counter())

    expected = ["completed", "in flight", "doubles answered", "cuts that are no instant"]
    expected += ["aborted"] * PROFILES[profile].aborts
    expected += ["creations in flight", "hosts born"] * bool(PROFILES[profile].birthplaces)
    expected += ["timers in flight"] * ("timer" in PROFILES[profile].habits)
    expected += ["calls in flight", "waiting callers"] * ("call" in PROFILES[profile].habits)
    assert {what: seen[what] for what in expected if seen[what] < SEEDS // 20} == {}
    assert seen["completed"] > 2 * SEEDS


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
def test_every_snapshot_is_right_over_ten_thousand_seeds(profile: str) -> None:
    for seed in range(SEEDS, 10_000):
        run_seeded(profile, seed)


def test_the_same_seed_is_the_same_run() -> None:
    traces: list[list[str]] = [[], [], []]
    for seed, trace in zip((7, 7, 8), traces, strict=True):
        run_seeded("everything", seed, trace)

    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_a_failure_names_the_seed_and_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(schedules, "check_run", fails)

    with pytest.raises(OracleError, match=r"replay: python -m ray_snapshot.simulation births 5") as caught:
        run_seeded("births", 5)
    assert "seed 5 of profile births" in str(caught.value)


def test_the_command_replays_a_seed_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    trace: list[str] = []
    run_seeded("pairs", 3, trace)

    assert command.main(["pairs", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == trace
    assert command.main(["nonsense", "3"]) == 2


def test_a_snapshot_whose_parts_do_not_come_is_given_up_at_its_deadline() -> None:
    world = schedules.build(PROFILES["pairs"])
    schedules.run_script(world, ["snapshot h0"])  # nobody asks h1, and there is no link to it
    schedules.calm(world)
    world.perform(("tick", 9_999))
    assert world.aborted == []
    world.perform(("tick", 1))
    schedules.calm(world)

    assert [one.reason for one in world.aborted] == ["timed out waiting for the report of h1"]
    schedules.check_quiet(world)
