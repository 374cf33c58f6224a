"""No app is called deadlocked that can go on: what looks like a hang, seen by a snapshot every quarter of a second."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, Done, Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract, pytest.mark.nightly]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_slow_calls_timeouts_polling_and_outside_events_are_never_a_deadlock(
    runner: Runner, tmp_path: Path, loop: str
) -> None:
    history = tmp_path / "history"
    options = ["--every", "0.25", "--exit-on", "deadlock", "--history", str(history)]
    done = runner.command("run", *options, "healthy.py", loop)
    assert done.exit_code == 0, done.errors
    assert done.output.splitlines()[-1] == "a full queue [30, 435]"
    assert "no deadlock" in done.errors
    answers = [row["holds"] for row in rs.History(history).verdicts()]
    assert len(answers) >= 20, "hardly looked at"
    assert True not in answers


@pytest.fixture(scope="module")
def patient(
    runner: Runner, at_once: Any, scenarios: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Done, rs.History]]:
    """What a scenario has printed, and its history."""
    folder = tmp_path_factory.mktemp("patient")

    def run(name: str) -> Done:
        options = ("--quiet", "--every", "0.25", "--exit-on", "deadlock", "--history", str(folder / name))
        return runner.command("run", *options, "patience.py", name)

    runs = {name: at_once(run, name) for name in scenarios}
    return lambda name: (runs[name].result(), rs.History(folder / name))


@pytest.mark.parametrize(
    ("scenario", "output"),
    [
        ("called_back", "woken"),
        ("named", "('woken', None)"),
        ("threads", "['stepped', 'stepped']"),
        ("inherited", "left"),
        ("stored", "('woken', None)"),
        ("failing", "freed by an error"),
    ],
)
def test_a_wait_that_ends_in_a_way_that_no_handle_and_no_reply_shows_is_never_a_deadlock(
    patient: Callable[[str], tuple[Done, rs.History]], scenario: str, output: str
) -> None:
    done, history = patient(scenario)
    assert (done.output, done.exit_code) == (f"{output}\n", 0), done.errors
    answers = [row["holds"] for row in history.verdicts()]
    assert len(answers) >= 5, "hardly looked at"
    assert True not in answers


@pytest.mark.parametrize("scenario", ["gathered"])
def test_a_gather_over_generators_is_seen_whole_in_every_snapshot(
    patient: Callable[[str], tuple[Done, rs.History]], scenario: str
) -> None:
    done, history = patient(scenario)
    assert (done.output, done.exit_code) == ("[[0, 1, 2], [0, 1, 2]]\n", 0), done.errors
    assert re.search("^ray-snapshot: |Traceback", done.errors, re.MULTILINE) is None, done.errors
    snapshots = history.snapshots()
    assert len(snapshots) >= 5, "hardly looked at"
    assert {row["status"] for row in snapshots} == {"complete"}


def test_a_generator_that_stands_at_a_yield_until_its_items_are_taken_or_it_is_dropped_is_never_a_deadlock(
    runner: Runner, tmp_path: Path
) -> None:
    """The last of them lies in garbage: that is collected, for it may be what the program waits for."""
    options = ["--every", "0.25", "--exit-on", "deadlock", "--history", str(tmp_path / "history")]
    done = runner.command("run", *options, "patience.py", "generators")
    assert done.output.splitlines() == ["paused line 8", "[3, 'line 3', 'line 3', 'line 3'] [0, 1, 2, 3]", "paused"], (
        done.errors
    )
    assert done.exit_code == 0, done.errors
    verdicts = [row for row in rs.History(tmp_path / "history").verdicts() if row["detector"] == "deadlock"]
    assert len(verdicts) >= 10, "hardly looked at"
    assert all(row["holds"] is not True for row in verdicts)
    untold = [row["evidence"]["depends_on"] for row in verdicts if row["holds"] is None]
    assert untold, "what lies in garbage was taken for something that the program holds, or was never looked at"
    assert all("the items of the generator Lines-0.lines (" in " ".join(why) for why in untold)


def test_a_semaphore_is_told_to_be_full_when_its_slots_are_and_not_before(runner: Runner) -> None:
    """The thousand calls that wait for a place are all that an async actor runs at once: `release` is never begun."""
    folder = APPS.parents[1] / "examples"
    done = runner.command(
        "run", "--exit-on", "deadlock", "--name", "visitors", "full_semaphore.py", "20", folder=folder
    )
    assert (done.exit_code, done.output.strip()) == (0, "20 visitors have had their turn"), done.errors
    done = runner.command("run", "--exit-on", "deadlock", "--name", "crowd", "full_semaphore.py", folder=folder)
    assert done.exit_code == 3, done.errors
    assert "take_turn-0 in take_turn (full_semaphore.py:40) waits for Semaphore-0 (Semaphore.release)" in done.errors
    place = r"Semaphore-0 in Semaphore.acquire \(full_semaphore.py:30, in asyncio.Semaphore\)"
    assert re.search(rf"{place} waits for .* \(1,000 calls\)", done.errors)
    assert "Raise max_concurrency of Semaphore to 1001" in done.errors


def test_workers_that_ask_each_other_in_threads_are_told_to_be_stuck_when_both_do(runner: Runner) -> None:
    """Each waits for the future of its own thread, and the thread for the other."""
    example = Path(__file__).parents[2] / "examples" / "lock_step.py"
    asking = 1 + example.read_text().splitlines().index(
        "    return ray.get(neighbour.at.remote())  # type: ignore[no-any-return]"
    )
    options = ("run", "--exit-on", "deadlock", "--name")
    done = runner.command(*options, "one", example.name, "1", folder=example.parent)
    assert (done.exit_code, done.output) == (0, "the workers are at [1]\n"), done.errors
    done = runner.command(*options, "both", example.name, "2", folder=example.parent)
    assert (done.exit_code, done.output) == (3, ""), done.errors
    for here, there in ((0, 1), (1, 0)):
        where = f"Worker-{here} in Worker.step (lock_step.py:{asking}) waits for Worker-{there} (Worker.at)"
        assert where in done.errors
