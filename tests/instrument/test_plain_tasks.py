"""Plain tasks of an app are machines: deadlocks through them are found, their ends are known, and they run as without us."""

from pathlib import Path

import pytest
from app_runner import APPS, Done, Runner
from until import until

import ray_snapshot as rs

pytestmark = pytest.mark.ray

DEADLOCKED = 3
RUN = ("run", "--every", "0.5", "--detect", "deadlock,termination")


def _watched(runner: Runner, scenario: str, history: Path, *more: str) -> Done:
    return runner.command(*RUN, "--name", scenario, "--history", str(history), *more, "tasks.py", scenario)


def _stuck(runner: Runner, scenario: str, history: Path) -> set[tuple[str, str, str]]:
    """(method, source line where it waits, what it waits for) of each that the report names."""
    done = _watched(runner, scenario, history, "--exit-on", "deadlock")
    assert done.exit_code == DEADLOCKED, done.errors
    assert "fault of ours" not in done.errors
    return _told(history)


def _told(history: Path) -> set[tuple[str, str, str]]:
    """The same, as the last verdict of a deadlock has it."""
    found = [one for one in rs.History(history).verdicts() if one.detector == "deadlock" and one.holds][-1].evidence
    source = (APPS / "tasks.py").read_text().splitlines()
    return {
        (
            record["method"],
            source[int(record["call_site"].rpartition(":")[2]) - 1].strip() if record["call_site"] else "",
            ", ".join(record["waits_for_calls"]),
        )
        for record in (*found["members"], *found["stuck_behind"])
    }


PREPARE = ("prepare", "return ray.get(trainer.finish.remote())", "Trainer.finish")


def test_a_deadlock_of_a_task_and_an_actor_is_found_with_its_call_sites(runner: Runner, tmp_path: Path) -> None:
    assert _stuck(runner, "a_task_and_an_actor", tmp_path / "h") == {
        PREPARE,
        ("go", "return ray.get(prepare.remote(me))", "prepare"),
        ("(the program)", "ray.get(trainer.go.remote(trainer))", "Trainer.go"),
    }


@pytest.mark.nightly
def test_a_deadlock_through_a_task_of_a_task_is_found(runner: Runner, tmp_path: Path) -> None:
    found = _stuck(runner, "a_task_in_a_task", tmp_path / "h")
    assert {
        ("prepare", "return ray.get(trainer.finish.remote())", "Starter.finish"),
        ("outer", "return ray.get(prepare.remote(trainer))", "prepare"),
        ("go", "return ray.get(outer.remote(me))", "outer"),
    } < found


@pytest.mark.nightly
def test_a_task_whose_argument_never_comes_is_stuck_behind_the_deadlock(runner: Runner, tmp_path: Path) -> None:
    found = _stuck(runner, "a_task_that_waits_for_its_argument", tmp_path / "h")
    assert PREPARE in found
    assert ("(the program)", "ray.get(after.remote(stuck))", "after") in found


@pytest.mark.nightly
def test_results_that_are_there_do_not_hide_the_one_that_never_comes(runner: Runner, tmp_path: Path) -> None:
    history = tmp_path / "h"
    program = ("--every", "0.5", "--history", str(history), "--detect", "deadlock", "tasks.py", "one_of_a_list")
    waits = ("(the program)", "ray.get([*done, trainer.go.remote(trainer)])", "Trainer.go")
    with runner.watching("one_of_a_list", *program):
        found = until(lambda: _told(history), good=lambda told: waits in told, again=(IndexError, rs.RaySnapshotError))
    assert PREPARE in found


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "output"),
    [
        ("opened_by_a_handle_in_a_reply", "through None\n"),
        ("opened_by_a_coroutine_of_the_task", "through\n"),
        ("opened_by_a_task", "through\n"),
        ("held_by_no_poll", ""),
    ],
)
def test_what_a_task_may_yet_do_is_never_taken_for_a_deadlock_and_a_worker_that_ends_is_not_kept_by_its_poll(
    runner: Runner, tmp_path: Path, scenario: str, output: str
) -> None:
    done = _watched(runner, scenario, tmp_path / "h")
    assert (done.output, done.exit_code) == (f"{output}the end\n", 0), done.errors
    assert "no deadlock" in done.errors


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "output"),
    [
        ("done_when_all_are", "1 1\n3 3\n"),
        ("done_without_a_ref", "told with 1\n"),
        ("done_unread", "termination True 20\n"),
    ],
)
def test_all_is_done_when_every_task_is_and_all_items_are_given_though_nobody_reads_them(
    runner: Runner, scenario: str, output: str
) -> None:
    done = runner.plain("tasks.py", scenario, "done")
    assert (done.output, done.exit_code) == (f"{output}the end\n", 0), done.errors


@pytest.mark.nightly
def test_a_task_without_a_ref_is_known_to_be_stuck(runner: Runner, tmp_path: Path) -> None:
    found = _stuck(runner, "a_task_without_a_ref", tmp_path / "h")
    assert ("waits_for_good", "ray.get(trainer.go.remote(trainer))", "Trainer.go") in found


@pytest.mark.nightly
def test_a_program_that_waits_among_what_was_put_is_told_to_be_healthy(runner: Runner, tmp_path: Path) -> None:
    done = _watched(runner, "healthy_with_puts", tmp_path / "h", "--every", "0.25", "--detect", "deadlock")
    assert done.output == "[1, 1] 1\n['mine', \"the keeper's\", 1] 3\n[3, 3]\nthe end\n", done.errors
    assert "fault of ours" not in done.errors
    assert runner.command("verify", str(tmp_path / "h")).exit_code == 0
    found = rs.History(tmp_path / "h").verdicts()
    assert len(found) >= 5, "hardly looked at"
    assert [one.sentence for one in found if one.holds is not False] == []


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", ["deadlock_with_puts", "deadlock_behind_anothers_put"])
def test_a_deadlock_is_found_though_each_has_something_that_was_put(
    runner: Runner, tmp_path: Path, scenario: str
) -> None:
    methods = {one[0] for one in _stuck(runner, scenario, tmp_path / "h")}
    assert methods >= {"prepare_with_puts", "go"}
    assert ("slowly" in str(_told(tmp_path / "h"))) is scenario.endswith("put")
