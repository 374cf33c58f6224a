"""Random systems, every fault, crashes and rollbacks, then quiet: then everything must be complete and right.

Each run is a seed; a failure prints the command that replays it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ray_snapshot.simulation import __main__ as command
from ray_snapshot.simulation.following import check_agreement
from ray_snapshot.simulation.mail.oracle import OracleError
from ray_snapshot.simulation.rollback import storms
from ray_snapshot.simulation.rollback.storms import STORMS, run_storm

SEEDS = 120
RESTORES = 20
NIGHTLY = {"storm": 1_500, "flow": 1_500, "restore": 300, "mixed": 1_500}
"""Per protocol; five protocols make 100,000."""

EXPECTED = {
    "storm": (
        "completed",
        "aborted",
        "crashes",
        "rollbacks to a snapshot",
        "messages refilled",
        "stragglers",
        "rollbacks during a rollback",
    ),
    "flow": (
        "completed",
        "aborted",
        "crashes",
        "rollbacks to a snapshot",
        "messages refilled",
        "stragglers",
        "rollbacks during a rollback",
    ),
    "restore": ("completed", "aborted", "rollbacks to a snapshot", "messages refilled", "timers set again"),
}
EXPECTED["mixed"] = EXPECTED["storm"]


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_ends_complete_and_right(name: str) -> None:
    count = RESTORES if name.startswith("restore") else SEEDS
    seen = sum((run_storm(name, seed).seen for seed in range(count)), Counter())

    expected = EXPECTED[name.partition("-")[0]]
    assert {what: seen[what] for what in expected if seen[what] < count // 10} == {}
    if name == "restore-at-least-once-barrier":
        assert seen["messages repeated"] > count
    elif not name.endswith("at-least-once-barrier"):
        assert seen["messages repeated"] == 0
    if name.startswith("restore"):
        assert seen["creations carried out again"] > 0


def test_all_protocols_find_the_same_in_the_channels_when_the_cut_is_the_same() -> None:
    assert sum(check_agreement(seed) for seed in range(15)) > 150


@pytest.mark.nightly
@pytest.mark.parametrize("name", STORMS)
def test_thousands_of_storms_end_complete_and_right(name: str) -> None:
    for seed in range(SEEDS, SEEDS + NIGHTLY[name.partition("-")[0]]):
        run_storm(name, seed)


@pytest.mark.nightly
def test_all_protocols_agree_over_a_thousand_seeds() -> None:
    for seed in range(15, 1_000):
        check_agreement(seed)


@pytest.mark.parametrize("name", ["storm-observer", "flow-aligned-barrier", "restore-chandy-lamport", "agreement"])
def test_a_failure_prints_the_command_that_replays_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(storms, "check_all", fails)
    monkeypatch.setattr("ray_snapshot.simulation.following.check_all", fails)

    with pytest.raises(OracleError, match=f"replay: python -m ray_snapshot.simulation {name} 5"):
        check_agreement(5) if name == "agreement" else run_storm(name, 5)


def test_the_command_replays_a_storm_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    trace: list[str] = []
    seen = run_storm("flow-observer", 1, trace).seen
    assert seen["rollbacks"] > 0

    assert command.main(["flow-observer", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == trace
    assert sum(line.strip().startswith("generation") for line in trace) == seen["rollbacks"]
    assert command.main(["agreement", "1"]) == 0
    assert "all protocols agree" in capsys.readouterr().out
    assert command.main(["flow-nonsense", "1"]) == 2
