"""`rs.System(on_alarm=...)`: a system's own alarms, told as they begin and end."""

from pathlib import Path

import pytest
from until import until

import ray_snapshot as rs
from ray_snapshot.errors import SettingError

pytestmark = pytest.mark.contract


class Purse(rs.SnapshotMixin):
    def __init__(self, coins: int) -> None:
        self.coins = coins

    def put(self, coins: int) -> None:
        self.coins += coins


@rs.detector(stable=False, alarm_when=False, name="ten")
def ten_coins(snapshot: rs.Snapshot) -> bool:
    return bool(snapshot.machines["purse"].state["coins"] == 10)


@rs.detector(stable=False, alarm_when=True, name="odd")
def odd(_: rs.Snapshot) -> tuple[bool, dict[str, object]]:
    return True, {"members": ["alice", "bob"], "cores": 7}


@pytest.mark.ray
def test_an_alarm_is_told_when_it_begins_and_when_it_ends_and_the_last_before_the_system_is_closed(
    ray_cluster: None, tmp_path: Path
) -> None:
    """And whatever a detector gives as evidence its alarm is told, and its snapshots are written."""
    out, history = tmp_path / "told", tmp_path / "h"
    command = f"echo $RAY_SNAPSHOT_EVENT $RAY_SNAPSHOT_DETECTOR $(head -n 1) >> {out}"
    with rs.System("purses", detectors=[ten_coins, odd], on_alarm=command, history=history) as system:
        purse = system.spawn(Purse, 10, name="purse")
        for coins in (0, 5, 0, -5, 1):
            purse.put.send(coins)
            system.wait_for("termination")
            taken = system.snapshot().snapshot_id
    assert "alarm of odd in purses (snapshot " in out.read_text()
    assert taken in [row["snapshot_id"] for row in rs.History(history).snapshots()]
    lines = [line for line in out.read_text().splitlines() if " odd " not in line]
    assert [line.split()[:2] for line in lines] == [["begins", "ten"], ["ends", "ten"], ["begins", "ten"]]
    assert "alarm of ten in purses (snapshot " in lines[0]
    assert "no more alarm of ten in purses (snapshot " in lines[1]


@pytest.mark.ray
@pytest.mark.nightly
def test_a_watched_app_has_a_clock_where_alarms_are_to_be_told(ray_cluster: None, tmp_path: Path) -> None:
    out = tmp_path / "told"
    never = rs.detector(stable=True, alarm_when=False, name="never")(lambda snapshot: False)
    with rs.watch("app", detectors=[never], on_alarm=f"cat > {out}"):
        until(lambda: out.exists() and "alarm of never in app" in out.read_text())


def test_what_is_neither_a_command_nor_an_address_is_refused() -> None:
    with pytest.raises(SettingError, match="on_alarm"):
        rs.System("purses", on_alarm="ftp://host")


@pytest.mark.ray
@pytest.mark.nightly
def test_an_alarm_of_the_next_system_in_a_watched_program_is_told_as_well(ray_cluster: None, tmp_path: Path) -> None:
    out = tmp_path / "told"
    with rs.watch("app", on_alarm=f"echo $RAY_SNAPSHOT_EVENT $RAY_SNAPSHOT_DETECTOR >> {out}"):
        for count in (1, 2):
            with rs.System("purses", detectors=[ten_coins]) as system:
                system.spawn(Purse, 9, name="purse")
                system.snapshot()
                until(lambda told=count: out.exists() and out.read_text().count("begins ten") == told)
