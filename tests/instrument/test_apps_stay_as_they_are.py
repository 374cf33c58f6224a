"""An app prints the same and ends in the same way, whether it is watched or not.

The apps know nothing of us. What they print says which thread ran what, in which order, what was raised, how long actors
lived and what lay in the store.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from app_runner import COMMAND, Runner

import ray_snapshot as rs

pytestmark = pytest.mark.ray

SEEN = {"the signature of __ray_ready__", "frames on the stack", "ref.call_site()", "asyncio.wrap_future"}
"""What differs for a program that looks; `docs/reference/watched.md` has a line on each."""
APPS = ("methods", "introspection", "names")


@pytest.mark.contract
@pytest.mark.nightly  # by day `questions.py` is
@pytest.mark.parametrize("app", APPS)
def test_a_watched_app_prints_what_it_prints_unwatched(runner: Runner, app: str) -> None:
    plain, watched = runner.both(app, f"{app}.py")
    assert plain.exit_code == 0, plain.errors
    assert plain.output, "an app that prints nothing shows nothing"
    assert (watched.output, watched.exit_code) == (plain.output, 0), watched.errors


@pytest.fixture(scope="module")
def asked(runner: Runner) -> list[dict[str, dict[str, Any]]]:
    """What a program finds that looks, plainly and watched."""
    return [dict(map(json.loads, done.output.splitlines())) for done in runner.both("asked", "questions.py")]


@pytest.mark.contract
@pytest.mark.nightly
def test_what_a_program_can_see_of_us_is_what_the_page_lists(asked: list[dict[str, dict[str, Any]]]) -> None:
    plain, watched = (found["seen"] for found in asked)
    assert {name for name in plain if plain[name] != watched[name]} == SEEN
    page = (Path(__file__).parents[2] / "docs" / "reference" / "watched.md").read_text()
    assert [name for name in SEEN if f"**{name}**" not in page.replace("`", "")] == []


@pytest.mark.nightly
def test_what_asks_a_method_or_a_task_about_itself_gets_the_answers_of_the_apps_own(
    asked: list[dict[str, dict[str, Any]]],
) -> None:
    plain, watched = asked
    kinds = {name.partition(" of ")[0] for name in plain if " of " in name}
    assert {"plain", "generator", "coroutine", "stream", "static", "of_class", "value", "__init__"} <= kinds
    assert plain.keys() == watched.keys()
    questions = [(kind, question) for kind in plain if kind != "seen" for question in plain[kind]]
    different = [(kind, about) for kind, about in questions if plain[kind][about] != watched[kind].get(about)]
    assert different == [], f"{len(questions)} were asked"


@pytest.mark.contract
@pytest.mark.nightly
def test_a_decorator_of_calls_sees_the_apps_arguments_and_what_it_makes_of_them_arrives(runner: Runner) -> None:
    watched = runner.start(COMMAND, "run", "--every", "0.1", "--name", "decorated", "decorators.py")
    plain, done = runner.plain("decorators.py"), runner.finish(watched)
    assert plain.exit_code == 0, plain.errors
    assert (done.output, done.exit_code) == (plain.output, 0), done.errors


@pytest.mark.contract
@pytest.mark.nightly
def test_the_names_of_an_apps_classes_and_actors_leave_every_cut_consistent(runner: Runner, tmp_path: Path) -> None:
    history = tmp_path / "history"
    done = runner.command("run", "--every", "0.1", "--history", str(history), "names.py")
    assert done.exit_code == 0, done.errors
    kept = rs.History(history)
    snapshots = kept.snapshots()
    assert len(snapshots) >= 2
    assert [row["snapshot_id"] for row in snapshots if not row["consistent"]] == []


@pytest.mark.contract
@pytest.mark.nightly
def test_a_programs_own_hook_and_variables_reach_its_workers_as_well_as_ours(runner: Runner) -> None:
    plain, watched = runner.both("of-its-own", "program.py", "ray")
    assert "['yes', 'set before the actor']" in plain.output, plain.errors
    assert (watched.output, watched.exit_code) == (plain.output, 0), watched.errors


@pytest.mark.contract
@pytest.mark.nightly
def test_a_module_runs_as_python_would_run_it(runner: Runner) -> None:
    plain, watched = runner.both("as-module", "-m", "program", "ray")
    assert "program.py program.py" in plain.output, plain.errors
    assert (watched.output, watched.exit_code) == (plain.output, 0), watched.errors


@pytest.mark.contract
@pytest.mark.by_day(1)
@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("end", 0), ("message", 1)])
def test_a_program_ends_with_its_own_exit_code_and_last_words(runner: Runner, how: str, code: int) -> None:
    plain, watched = runner.both("ends", "program.py", how)
    assert plain.exit_code == code
    assert watched == plain


@pytest.mark.contract
def test_the_traceback_of_a_program_is_the_one_that_python_prints(runner: Runner) -> None:
    plain, watched = runner.both("raises", "program.py", "raise")
    assert plain.errors.endswith("ValueError: no way\n")
    assert watched == plain
    assert watched.exit_code == 1


@pytest.mark.contract
def test_rays_log_lines_come_as_they_are_with_their_colours(runner: Runner, tmp_path: Path) -> None:
    script = tmp_path / "logs.py"
    script.write_text("import logging, ray\nlogging.getLogger('ray').warning('\\x1b[31mred\\x1b[0m')\n")
    plain, watched = runner.both("logs", str(script))
    assert plain.errors.endswith("\x1b[31mred\x1b[0m\n")
    assert watched.errors.endswith("\x1b[31mred\x1b[0m\n")


@pytest.mark.contract
@pytest.mark.nightly
def test_a_program_that_fails_with_actors_alive_ends_as_it_does_unwatched(runner: Runner) -> None:
    plain, watched = runner.both("fails", "program.py", "ray-raise")
    assert (watched.output, watched.exit_code) == (plain.output, 1)
    assert _traceback(watched.errors) == _traceback(plain.errors)


def _traceback(errors: str) -> str:
    """From the beginning of the traceback on: Ray's own lines in front of it have times in them."""
    found = errors.find("Traceback (most recent call last)")
    assert found >= 0, errors
    return errors[found:]
