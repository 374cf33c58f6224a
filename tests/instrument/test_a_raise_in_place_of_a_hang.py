"""`--on-deadlock`: a deadlock that stands ends in an error out of a wait of the program or of one call, or ends the program."""

import json
from pathlib import Path

import pytest
from app_runner import Done, Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

DEADLOCKED = 3
by_night = pytest.mark.nightly


def _run(runner: Runner, scenario: str, how: str, *more: str) -> Done:
    options = ("--every", "0.5", "--on-deadlock", how, "--deadlock-grace", "2", "--name", scenario, *more)
    done = runner.command("run", *options, "raising.py", scenario)
    assert "fault of ours" not in done.errors
    return done


def _said(done: Done) -> list[str]:
    return [line.removeprefix("app: ") for line in done.output.splitlines() if line.startswith("app: ")]


@pytest.mark.nightly
def test_every_kind_of_wait_ends_in_the_error_and_the_program_may_go_on(runner: Runner) -> None:
    done = _run(runner, "every_kind", "raise")
    kinds = ("get", "wait", "threads", "awaits", "next")
    expected = []
    for at, how in enumerate(kinds):
        expected += [f"{how} ended in DeadlockError on ['Account-{2 * at}', 'Account-{2 * at + 1}']"]
        expected += ["then RayTaskError(ActorDiedError)"]
    assert _said(done) == [*expected, "the end"], done.errors
    assert done.exit_code == 0


@pytest.mark.nightly
def test_an_error_that_nobody_catches_shows_the_programs_line_and_the_report(runner: Runner) -> None:
    done = _run(runner, "uncaught", "raise")
    assert done.exit_code == 1
    trace = done.errors[done.errors.index("Traceback") :]
    assert 'print("app:", ray.get([a.pay.remote(), b.pay.remote()]))' in trace
    assert "ray_snapshot/instrument" not in trace
    assert "DeadlockError: deadlock in uncaught (snapshot " in trace
    assert "Account-0 in Account.pay" in trace
    assert "to do: " in trace


def test_one_call_gets_the_error_and_its_caller_an_ordinary_one_and_the_alarm_has_its_report_and_the_end_another(
    runner: Runner, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = _run(runner, "one_call", "raise", "--victim", "youngest", "--report", str(out))
    assert sorted(_said(done)) == ["RayTaskError(DeadlockError) with 2 members", "got 2", "the end"], done.errors
    assert "ray-snapshot: to break the deadlock, DeadlockError is raised in Account-" in done.errors
    pages = sorted(path.read_text() for path in out.glob("*.html"))
    assert (len(pages), len(list(out.glob("one_call-*.md")))) == (2, 2), done.errors
    assert done.errors.count("ray-snapshot: report: ") == 2
    for text in ("<h1>one_call: deadlock</h1>", "What can never move again", "Account.pay (raising.py:"):
        assert text in pages[0]
    assert rs.History(out / "history").snapshots(system="one_call")


@by_night
@pytest.mark.parametrize("scenario", ["one_call_of_two_kinds", "a_task"])
def test_one_call_of_another_kind_gets_it(runner: Runner, scenario: str) -> None:
    done = _run(runner, scenario, "raise", "--victim", "youngest")
    assert _said(done)[-1] == "the end", done.errors
    assert "to break the deadlock, DeadlockError is raised in " in done.errors


@by_night
def test_what_ray_would_run_again_is_no_victim_and_the_program_gets_it(runner: Runner) -> None:
    done = _run(runner, "retried", "raise", "--victim", "youngest")
    assert _said(done) == ["DeadlockError", "the end"], done.errors
    assert done.errors.count("Ray would run it again (retry_exceptions, or max_task_retries)") == 2


@by_night
def test_nothing_is_raised_while_others_may_end_it_by_a_ref_a_group_or_a_thread(runner: Runner) -> None:
    done = _run(runner, "ended_by_others", "raise")
    said = ["by a ref TaskCancelledError", "by a group True", "by a thread True", "the end"]
    assert _said(done) == said, done.errors
    assert "nothing is raised: the deadlock may yet be broken by " in done.errors


@pytest.mark.nightly
def test_a_program_may_be_ended(runner: Runner) -> None:
    done = _run(runner, "uncaught", "exit")
    assert done.exit_code == DEADLOCKED
    assert done.errors.count("these can never move again") == 1
    assert "the deadlock stands: the program ends, with exit code 3" in done.errors
    assert "Traceback" not in done.errors


@pytest.mark.nightly
def test_a_program_has_its_deadlocks_broken_with_no_more_said_than_how(runner: Runner) -> None:
    done = runner.plain(str(Path(__file__).parent / "own_watch_driver.py"))
    assert done.exit_code == 0, done.errors
    of_a_call, of_the_program = json.loads(done.output)
    assert (of_a_call["how"], of_the_program["how"]) == ("of a call", "of the program"), done.errors
    assert len(of_a_call["members"]) == len(of_the_program["members"]) == 2
    assert done.errors.count("to break the deadlock, DeadlockError is raised in Account-1.pay()") == 1
