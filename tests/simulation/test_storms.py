"""Random systems, every fault, crashes and rollbacks, then quiet: then everything must be complete and right.

Each run is a seed; a failure prints the command that replays it.
"""

from collections import Counter

import pytest
from replaying import check_replay
from worlds import following
from worlds.following import check_agreement
from worlds.rollback import storms
from worlds.rollback.storms import STORMS, run_storm

from ray_snapshot.simulation.mail.oracle import OracleError

SEEDS = 40
RESTORES = 20
NIGHTLY = {"storm": 1_500, "flow": 1_500, "restore": 300, "mixed": 1_500}
"""Per protocol; five protocols make 100,000."""

STORM = (
    *("completed", "aborted", "crashes", "rollbacks to a snapshot"),
    *("messages refilled", "stragglers", "rollbacks during a rollback"),
)
RESTORE = ("completed", "aborted", "rollbacks to a snapshot", "messages refilled", "timers set again")
EXPECTED = {"storm": STORM, "flow": STORM, "mixed": STORM, "restore": RESTORE}


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
    assert sum(check_agreement(seed) for seed in range(6)) > 60


@pytest.mark.nightly
@pytest.mark.parametrize("name", STORMS)
def test_thousands_of_storms_end_complete_and_right(name: str) -> None:
    for seed in range(SEEDS, SEEDS + NIGHTLY[name.partition("-")[0]]):
        run_storm(name, seed)


@pytest.mark.nightly
def test_all_protocols_agree_over_a_thousand_seeds() -> None:
    for seed in range(6, 1_000):
        check_agreement(seed)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", ["storm-observer", "flow-aligned-barrier", "restore-chandy-lamport", "agreement"])
def test_a_failure_prints_the_command_that_replays_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace: list[str] = []

    def fails(*_: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(storms, "check_all", fails)
    monkeypatch.setattr(following, "check_all", fails)
    with pytest.raises(OracleError, match=f"seed 5 of {name}") as caught:
        check_agreement(5, trace) if name == "agreement" else run_storm(name, 5, trace)
    check_replay(caught.value, trace)
