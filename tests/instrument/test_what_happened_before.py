"""What happened before a program hangs is told beside what waits: who died, who is started again and again, what raised."""

from __future__ import annotations

import json
import re
import signal
import subprocess

import pytest
from app_runner import Done, Runner
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.contract]

CLOCK = r"\d\d:\d\d:\d\d"
UNTOLD = "killed by a signal, or by os._exit: Ray records no exit code"


def _said(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert any(found.strip() == line for found in iter(process.stdout.readline, "")), f"it never said {line}"


def _reported(runner: Runner, which: str) -> tuple[str, Done, Done, Done]:
    """What the program's report says, what `diagnose` says from another terminal, the same as JSON, and its last words."""
    name = f"before-{which}"
    app = runner.start_watched(name, "--every", "0.25", "before.py", which)
    assert app.stderr is not None
    assert any("deadlock in " in line for line in iter(app.stderr.readline, "")), "the report never came"
    lines = []
    for line in iter(app.stderr.readline, ""):
        lines.append(line)
        if "to do: " in line:
            break
    found = runner.command("diagnose", name, "--address", runner.address)
    as_json = runner.command("diagnose", name, "--address", runner.address, "--json")
    app.send_signal(signal.SIGINT)
    return "".join(lines), found, as_json, runner.finish(app)


@pytest.mark.parametrize(("which", "cause"), [("permit", UNTOLD), ("killed", "killed by ray.kill")])
def test_who_held_a_permit_and_died_is_told_with_time_and_cause(runner: Runner, which: str, cause: str) -> None:
    report, found, as_json, done = _reported(runner, which)
    said = (
        rf"  before that:\n    Embedder-0, which had got through Pool.acquire of Pool-0, died at {CLOCK} \({cause}\)\n"
    )
    for text in (report, found.output, done.errors):
        assert re.search(said, text), text
        assert "which was never made, or can never come: Embedder-0 has died, " in text
    assert found.exit_code == as_json.exit_code == 3
    died = [one for one in map(json.loads, as_json.output.splitlines()) if one.get("kind") == "died"]
    assert [(one["machine"], one["cause"]) for one in died] == [("Embedder-0", cause)]


def test_an_error_that_nobody_has_read_a_failed_thread_and_a_failed_child_are_told(runner: Runner) -> None:
    report, found, as_json, _ = _reported(runner, "unread")
    for said in (
        rf"\n    painter-1.paint raised ZeroDivisionError at {CLOCK} \(before.py:\d+\); nobody has read it\n",
        rf"\n    painter-1: thread brush was ended by ZeroDivisionError at {CLOCK} \(before.py:\d+\)\n",
        r"\n    painter-1: child process \d+ \(python\S*\) has ended with exit code 3; nobody has asked how\n",
        rf"\n    Retried-0.tries raised KeyError \d+ times, the last time at {CLOCK} \(before.py:\d+\); Ray runs it again\n",
    ):
        assert re.search(said, report), report
        assert re.search(said, found.output), found.output
    told = [one for one in map(json.loads, as_json.output.splitlines()) if "kind" in one]
    assert {(one["kind"], one.get("error") or one["how"]) for one in told} == {
        ("raised", "ZeroDivisionError"),
        ("raised", "KeyError"),
        ("thread_ended", "ZeroDivisionError"),
        ("child_ended", "exit code 3"),
    }


@pytest.mark.parametrize(
    ("which", "call", "cause"),
    [
        ("loop", "Model.load", UNTOLD),
        ("unborn", "Unborn.__init__", "exit code 3"),
        ("killed_unborn", "Killed.__init__", UNTOLD),
    ],
)
def test_an_actor_that_is_started_again_and_again_is_told_with_its_call(
    runner: Runner, which: str, call: str, cause: str
) -> None:
    app = runner.start_watched(f"before-{which}", "--every", "0.25", "before.py", which)
    said = re.compile(
        rf"deadlock: Deadlock cannot be told: {call.partition('.')[0]}-0 has been restarted \d+ times in \d+ s,"
        rf" each time inside {re.escape(call)} \(before.py:\d+\), {cause}"
    )
    _said(app, "ready")

    def diagnosed() -> Done:
        return runner.command("diagnose", f"before-{which}", "--address", runner.address)

    found = until(diagnosed, good=lambda one: said.search(one.output) is not None, seconds=100.0)
    app.send_signal(signal.SIGINT)
    errors = runner.finish(app).errors
    assert f"ray-snapshot: Restarting: {call.partition('.')[0]}-0 has been restarted " in errors
    assert found.exit_code == 4, found.output


def test_what_was_read_later_tried_again_or_meant_to_end_is_not_told(runner: Runner) -> None:
    app = runner.start_watched("before-healthy", "--every", "0.25", "before.py", "healthy")
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
