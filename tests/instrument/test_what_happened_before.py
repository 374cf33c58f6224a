"""What happened before a program hangs is told beside what waits: who died, who is started again and again, what raised."""

import json
import re
import signal
import subprocess
from collections.abc import Iterable, Iterator

import pytest
from app_runner import Done, Runner
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.contract]

CLOCK = r"\d\d:\d\d:\d\d"
UNTOLD = "killed by a signal, or by os._exit: Ray records no exit code"
LOOPS = (
    ("loop", "Model.load", UNTOLD),
    ("unborn", "Unborn.__init__", "exit code 3"),
    ("killed_unborn", "Killed.__init__", UNTOLD),
)
"""In the program, the call, and how its process ends."""


def _said(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(found.strip() == line for found in iter(process.stdout.readline, "")), f"it never said {line}"


@pytest.fixture(scope="module")
def loops(runner: Runner) -> Iterator[subprocess.Popen[str]]:
    """It loops while another one hangs."""
    with runner.watching("before-loops", "before.py", *(name for name, _, _ in LOOPS)) as app:
        yield app


@pytest.fixture(scope="module")
def reported(runner: Runner) -> tuple[str, Done, Done, Done]:
    """What a program's report says, what `diagnose` says from another terminal, the same as JSON, and its last words."""
    with runner.watching("before-hangs", "before.py", "permit", "killed", "unread") as app:
        assert app.stderr is not None
        assert any("deadlock in " in line for line in iter(app.stderr.readline, "")), "the report never came"
        report = _with_all(
            app.stderr, "Embedder-0, which", "Embedder-2, which", "painter-1.p", "painter-1: t", "Retried-0."
        )
        found = until(
            lambda: runner.command("diagnose", "before-hangs", "--address", runner.address),
            good=lambda one: "child process" in one.output,  # children are looked at every few seconds
            seconds=60.0,
        )
        as_json = runner.command("diagnose", "before-hangs", "--address", runner.address, "--json")
        app.send_signal(signal.SIGINT)
        return report, found, as_json, runner.finish(app)


def _with_all(lines: Iterable[str], *words: str) -> str:
    """The lines up to that with the last of these words."""
    read: list[str] = []
    missing = {*words}
    while missing and (line := next(iter(lines), "")):
        read.append(line)
        missing -= {word for word in missing if word in line}
    return "".join(read)


@pytest.mark.parametrize(("number", "cause"), [(0, UNTOLD), (1, "killed by ray.kill")])
def test_who_held_a_permit_and_died_is_told_with_time_and_cause(
    reported: tuple[str, Done, Done, Done], number: int, cause: str
) -> None:
    report, found, as_json, done = reported
    embedder = f"Embedder-{2 * number}"
    how = f"which had got through Pool.acquire of Pool-{number}, died at {CLOCK}"
    for text in (report, found.output, done.errors):
        before = text[text.index("  before that:\n") :]
        assert re.search(rf"\n    {embedder}, {how} \({cause}\)\n", before), text
        assert re.search(f"nobody is left to call [^:]*: {embedder} has died; (?!{embedder})", text), text
    assert found.exit_code == as_json.exit_code == 3
    died = [one for one in map(json.loads, as_json.output.splitlines()) if one.get("kind") == "died"]
    assert (embedder, cause) in [(one["machine"], one["cause"]) for one in died]
    assert len(died) == 2


def test_an_error_that_nobody_has_read_a_failed_thread_and_a_failed_child_are_told(
    reported: tuple[str, Done, Done, Done],
) -> None:
    report, found, as_json, _ = reported
    for said in (
        rf"\n    painter-1.paint raised ZeroDivisionError at {CLOCK} \(before.py:\d+\); nobody has read it\n",
        rf"\n    painter-1: thread brush was ended by ZeroDivisionError at {CLOCK} \(before.py:\d+\)\n",
        rf"\n    Retried-0.tries raised KeyError \d+ times, the last time at {CLOCK} \(before.py:\d+\); Ray runs it again\n",
    ):
        assert re.search(said, report), report
        assert re.search(said, found.output), found.output
    child = r"\n    painter-1: child process \d+ \(python\S*\) ended with exit code 3 and was not waited for\n"
    assert re.search(child, found.output), found.output
    told = [one for one in map(json.loads, as_json.output.splitlines()) if one.get("kind", "died") != "died"]
    assert {(one["kind"], one.get("error") or one["how"]) for one in told} == {
        ("raised", "ZeroDivisionError"),
        ("raised", "KeyError"),
        ("thread_ended", "ZeroDivisionError"),
        ("child_ended", "exit code 3"),
    }


def test_the_last_line_says_how_the_program_ended(reported: tuple[str, Done, Done, Done]) -> None:
    unread = r"1 error that nobody has read \(painter-1.paint raised ZeroDivisionError\)"
    last = rf"ray-snapshot: exit 130 after \d+ s, \d+ snapshots, alarm of deadlock, {unread}"
    assert re.fullmatch(last, reported[-1].errors.splitlines()[-1]), reported[-1].errors


@pytest.mark.nightly
def test_actors_that_are_started_again_and_again_are_told_with_their_calls(
    runner: Runner, loops: subprocess.Popen[str]
) -> None:
    said = [
        rf"{call.partition('.')[0]}-0 has been restarted \d+ times in \d+ s,"
        rf" (?:each time|the last time|\d of the last \d times) inside {re.escape(call)} \(before.py:\d+\), {cause}"
        for _, call, cause in LOOPS
    ]

    def diagnosed() -> Done:
        return runner.command("diagnose", "before-loops", "--address", runner.address)

    def is_told(done: Done) -> bool:
        return done.exit_code == 4 and all(re.search(text, done.output) for text in said)

    found = until(diagnosed, good=is_told, seconds=100.0)
    loops.send_signal(signal.SIGINT)
    errors = runner.finish(loops).errors
    assert [call for _, call, _ in LOOPS if f"{call.partition('.')[0]}-0 has been restarted " not in errors] == []
    assert "ray-snapshot: Restarting: " in errors
    assert re.search(r", alarm of restarting, \d+ restarts$", errors.rstrip()), errors[-500:]
    assert "deadlock: Deadlock cannot be told: " in found.output


@pytest.mark.nightly
def test_what_was_read_later_tried_again_or_meant_to_end_is_not_told(runner: Runner) -> None:
    with runner.watching("before-healthy", "--every", "0.25", "before.py", "healthy") as app:
        _said(app, "unread")
        early = runner.command("diagnose", "before-healthy", "--address", runner.address)
        assert app.stdin is not None
        app.stdin.write("\n")
        app.stdin.flush()
        _said(app, "read")
        late = runner.command("diagnose", "before-healthy", "--address", runner.address)
        done = runner.finish(app, "\n")
    assert early.output.count("; nobody has read it") == 1, early.output
    assert "before that" not in late.output, late.output
    assert early.exit_code == late.exit_code == done.exit_code == 0, done.errors
    assert "nobody has read it" not in done.errors
