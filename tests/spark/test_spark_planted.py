"""Every job on a made-up history: it finds exactly what was planted, and nothing in the system beside it."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_histories import rows

from ray_snapshot.cli import main
from ray_snapshot.history import History
from ray_snapshot.synth import ANOMALIES, Settings, synthesise

pytestmark = pytest.mark.spark

SEED = 20260301
MACHINES, SNAPSHOTS = 260, 30


@pytest.fixture(scope="module")
def told(made: tuple[History, dict[str, Any]]) -> dict[str, Any]:
    """What was planted, by anomaly."""
    return made[1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, dict[str, Any]]:
    """The systems `planted` (everything), `clean` and `calm` (nothing) in one history."""
    folder = tmp_path_factory.mktemp("planted") / "h"
    found = synthesise(folder, Settings(MACHINES, SNAPSHOTS, tuple(ANOMALIES), SEED, "planted"))
    for system in ("clean", "calm"):
        assert synthesise(folder, Settings(60, SNAPSHOTS, (), SEED + len(system), system)) == []
    return History(folder), {one["anomaly"]: one for one in found}


@pytest.fixture(scope="module")
def run(spark: Any, made: tuple[History, dict[str, Any]]) -> Any:
    """Run a job over all three systems."""
    from importlib import import_module

    return lambda job, **options: import_module(f"ray_snapshot.spark_jobs.{job}").run(spark, made[0], **options)


def of(frame: Any, *columns: str) -> set[Any]:
    """The values of some columns in all rows."""
    listed = frame.select(*columns).toArrow().to_pylist()
    return {tuple(row.values()) if len(columns) > 1 else row[columns[0]] for row in listed}


@pytest.mark.nightly
def test_changes_finds_who_came_who_went_and_the_field_that_never_changes(run: Any, told: dict[str, Any]) -> None:
    frames = run("changes")
    assert of(frames["machines"], "system", "machine", "event", "snapshot_id") == {
        ("planted", told["appear"]["details"]["machine"], "appeared", told["appear"]["snapshot_id"]),
        ("planted", told["vanish"]["details"]["machine"], "vanished", told["vanish"]["snapshot_id"]),
    }
    rare = frames["fields"].where("changes < 10")
    assert of(rare, "system", "field", "changes", "first_id") == {("planted", "limit", 1, told["field"]["snapshot_id"])}
    blamed = frames["changes"].where("field = 'limit'")
    details = told["field"]["details"]
    assert of(blamed, "machine", "before", "after") == {
        (details["machine"], str(details["before"]), str(details["after"]))
    }


def test_deadlocks_tells_the_one_deadlock_once_and_how_it_formed(run: Any, told: dict[str, Any]) -> None:
    frames = run("deadlocks")
    planted = told["deadlock"]
    (row,) = rows(frames["deadlocks"], "deadlock").values()
    members = planted["details"]["machines"]
    assert (row["system"], row["machines"], row["stuck_behind"]) == ("planted", members, 1)
    assert row["forming_seconds"] == 2.0
    assert 0 < row["seconds_to_report"] < 1
    assert row["reported_id"] == row["first_id"]
    edges = rows(frames["edges"], "step")
    assert [edges[step]["machine"] for step in (1, 2, 3)] == members
    assert [edges[step]["on_machine"] for step in (1, 2, 3)] == [*members[1:], members[0]]
    assert [edges[step]["call_site"] for step in (1, 2, 3)] == ["bank.py:41", "bank.py:58", "bank.py:58"]
    assert len(edges) == 3


@pytest.mark.nightly
def test_progress_tells_when_nothing_moved_any_more(run: Any, told: dict[str, Any]) -> None:
    frames = run("progress")
    found = rows(frames["runs"], "system")
    assert {system: row["stopped"] for system, row in found.items()} == {"planted": True, "clean": False, "calm": False}
    planted = found["planted"]
    assert (planted["ended"], planted["last_moved_id"]) == ("computing", told["stall"]["snapshot_id"])
    assert planted["still_seconds"] == told["stall"]["until_sequence"] - told["stall"]["from_sequence"]
    assert of(frames["phases"].where("system != 'planted'"), "phase", "snapshots") == {("busy", SNAPSHOTS)}
    assert of(frames["phases"].where("system = 'planted'"), "phase") == {"busy", "computing"}


@pytest.mark.nightly
def test_cost_names_the_host_that_was_late_and_the_machine_that_was_given_up_on(run: Any, told: dict[str, Any]) -> None:
    frames = run("cost")
    slow = told["slow"]
    assert of(frames["slow"], "system", "sequence", "host") == {
        ("planted", sequence, slow["details"]["host"])
        for sequence in range(slow["from_sequence"], slow["until_sequence"] + 1)
    }
    assert of(frames["hosts"].where("slow_last > 0"), "host") == {slow["details"]["host"]}
    assert of(frames["aborts"], "system", "abort_machine", "snapshots") == {
        ("planted", told["abort"]["details"]["machine"], 2)
    }
    assert of(frames["runs"], "system", "snapshots", "aborted") == {
        ("planted", SNAPSHOTS - 2, 2),
        ("clean", SNAPSHOTS, 0),
        ("calm", SNAPSHOTS, 0),
    }


@pytest.mark.nightly
def test_traffic_finds_what_stands_still_what_piles_up_and_who_is_hot(run: Any, told: dict[str, Any]) -> None:
    frames = run("traffic")
    deadlock, deaf = told["deadlock"]["details"], told["deaf"]["details"]["machine"]
    first, last = deadlock["machines"][0], deadlock["machines"][2]
    stuck = of(frames["stuck"], "system", "source", "target", "kind")
    before_deaf = next(source for _, source, target, _ in stuck if target == deaf)
    assert stuck == {
        ("planted", *told["stuck"]["details"]["channel"]),
        ("planted", before_deaf, deaf, "mail"),
        ("planted", last, first, "call"),
        ("planted", deadlock["stuck_behind"][0], first, "call"),
    }
    assert of(frames["deaf"], "system", "machine") == {("planted", deaf), ("planted", first)}
    assert of(frames["growing"], "system", "source", "target", "kind") == {
        ("planted", *told["backlog"]["details"]["channel"])
    }
    assert of(frames["machines"].where("hot"), "system", "machine") == {("planted", told["hot"]["details"]["machine"])}


@pytest.mark.nightly
def test_conservation_names_the_machine_that_lost_something(run: Any, told: dict[str, Any]) -> None:
    frames = run("conservation")
    leak = told["leak"]
    broken = rows(frames["breaks"], "system")
    assert {system: row["first_broken"] for system, row in broken.items()} == {
        "planted": leak["snapshot_id"],
        "clean": None,
        "calm": None,
    }
    assert broken["planted"]["difference"] == leak["details"]["difference"]
    unexplained = frames["changed_machines"].where("unexplained")
    assert of(unexplained, "system", "machine", "difference") == {
        ("planted", leak["details"]["machine"], leak["details"]["difference"])
    }
    assert frames["changed_machines"].count() > 1, "machines that paid each other are listed behind it"
    channels = rows(frames["changed_channels"], "source", "target", "kind")
    assert len(channels) > 1
    assert {row["missing"] for row in channels.values()} == {0}
    assert all(row["before"] != row["after"] for row in channels.values())


@pytest.mark.nightly
def test_detections_disagrees_with_the_lie_and_dates_the_deadlock(run: Any, told: dict[str, Any]) -> None:
    frames = run("detections")
    found = rows(frames["detectors"], "system", "detector")
    assert found["planted", "deadlock"]["disagreement_ids"] == [told["lie"]["snapshot_id"]]
    assert found["planted", "conservation"]["not_held"] > 0
    assert {key for key, row in found.items() if row["alarms"]} == {
        ("planted", "deadlock"),
        ("planted", "conservation"),
    }


@pytest.mark.nightly
def test_the_example_of_an_incident_arrives_at_what_was_planted(spark: Any, tmp_path: Path) -> None:
    from ray_snapshot.examples import incident

    history = incident.make_history(tmp_path / "bank")
    leak, deadlock = json.loads((tmp_path / "bank" / "planted.json").read_text(encoding="utf-8"))
    said: list[str] = []
    found = incident.investigate(spark, history, said.append)
    assert (found["account"], found["missing"]) == (leak["details"]["machine"], leak["details"]["difference"])
    assert found["first_broken"] == leak["snapshot_id"]
    assert found["fields"] == ["balance"]
    assert (found["members"], found["closed_by"]) == (
        deadlock["details"]["machines"],
        deadlock["details"]["machines"][-1],
    )
    assert set(found["alarms"]) == {"deadlock", "conservation"}
    assert (found["ended"], found["failed"]) == ("busy", 0)
    assert said[-1].startswith(f"Cause: between two snapshots {leak['details']['machine']} lost 10 ")


# The same by the command line


@pytest.mark.nightly
@pytest.mark.usefixtures("spark")
def test_blame_answers_with_one_line(
    made: tuple[History, dict[str, Any]], told: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    details = told["field"]["details"]
    line = ["analyze", str(made[0].path), "changes", "--system", "planted", "--out", str(tmp_path / "out")]
    line += ["--machine", details["machine"], "--field", "limit", "--value", "7"]
    assert main(line) == 0
    captured = capsys.readouterr()
    assert told["field"]["snapshot_id"] in captured.out
    assert main([*line[:7], "--machine", "nobody"]) == 2
    assert "no machine 'nobody' in these snapshots; they have driver" in capsys.readouterr().err
