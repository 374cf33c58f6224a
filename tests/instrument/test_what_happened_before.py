"""What happened before a program hangs is told beside what waits: who died, who is started again and again, what raised."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from app_runner import Done, Runner
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.contract]

CLOCK = r"\d\d:\d\d:\d\d"
UNTOLD = "killed by a signal, or by os._exit: Ray records no exit code"
LOOPS = {
    which: re.compile(
        rf"deadlock: Deadlock cannot be told: {call.partition('.')[0]}-0 has been restarted \d+ times in \d+ s,"
        rf" each time inside {re.escape(call)} \(before.py:\d+\), {cause}"
    )
    for which, call, cause in (
        ("loop", "Model.load", UNTOLD),
        ("unborn", "Unborn.__init__", "exit code 3"),
        ("killed_unborn", "Killed.__init__", UNTOLD),
    )
}
"""By program: what is said of an actor that is started again and again."""


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


def _restarted(runner: Runner, which: str) -> Done:
    """What `diagnose` says as soon as it tells all of the actor that is started again and again."""
    app = runner.start_watched(f"before-{which}", "--every", "0.25", "before.py", which)
    _said(app, "ready")

    def diagnosed() -> Done:
        return runner.command("diagnose", f"before-{which}", "--address", runner.address)

    found = until(diagnosed, good=lambda one: LOOPS[which].search(one.output), seconds=100.0)
    app.send_signal(signal.SIGINT)
    runner.finish(app)
    return found


def _healthy(runner: Runner, which: str) -> tuple[Done, Done, Done]:
    """What `diagnose` says of a healthy program before and behind the reading of an error, and its end."""
    app = runner.start_watched(f"before-{which}", "--every", "0.25", "before.py", which)
    _said(app, "unread")
    early = runner.command("diagnose", f"before-{which}", "--address", runner.address)
    assert app.stdin is not None
    app.stdin.write("\n")
    app.stdin.flush()
    _said(app, "read")
    late = runner.command("diagnose", f"before-{which}", "--address", runner.address)
    return early, late, runner.finish(app, "\n")


PROGRAMS: dict[str, Callable[[Runner, str], Any]] = {
    **dict.fromkeys(("permit", "killed", "unread"), _reported),
    **dict.fromkeys(LOOPS, _restarted),
    "healthy": _healthy,
}


@pytest.fixture(scope="module")
def told(runner: Runner) -> Iterator[Callable[[str], Any]]:
    """What was said of each program; several run at once."""
    with runner.together({which: partial(say, runner, which) for which, say in PROGRAMS.items()}) as found:
        yield found


@pytest.mark.parametrize(("which", "cause"), [("permit", UNTOLD), ("killed", "killed by ray.kill")])
def test_who_held_a_permit_and_died_is_told_with_time_and_cause(
    told: Callable[[str], Any], which: str, cause: str
) -> None:
    report, found, as_json, done = told(which)
    said = (
        rf"  before that:\n    Embedder-0, which had got through Pool.acquire of Pool-0, died at {CLOCK} \({cause}\)\n"
    )
    for text in (report, found.output, done.errors):
        assert re.search(said, text), text
        assert "which was never made, or can never come: Embedder-0 has died, " in text
    assert found.exit_code == as_json.exit_code == 3
    died = [one for one in map(json.loads, as_json.output.splitlines()) if one.get("kind") == "died"]
    assert [(one["machine"], one["cause"]) for one in died] == [("Embedder-0", cause)]


def test_an_error_that_nobody_has_read_is_told_with_its_line(told: Callable[[str], Any]) -> None:
    report, found, as_json, _ = told("unread")
    said = rf"\n    painter-1.paint raised ZeroDivisionError at {CLOCK} \(before.py:\d+\); nobody has read it\n"
    assert re.search(said, report), report
    assert re.search(said, found.output), found.output
    raised = [one for one in map(json.loads, as_json.output.splitlines()) if one.get("kind") == "raised"]
    assert [(one["machine"], one["method"], one["error"]) for one in raised] == [
        ("painter-1", "paint", "ZeroDivisionError")
    ]


@pytest.mark.parametrize("which", LOOPS)
def test_an_actor_that_is_started_again_and_again_is_told_with_its_call(told: Callable[[str], Any], which: str) -> None:
    found = told(which)
    assert LOOPS[which].search(found.output), found.output
    assert found.exit_code == 4, found.output


def test_what_was_read_later_tried_again_or_meant_to_end_is_not_told(told: Callable[[str], Any]) -> None:
    early, late, done = told("healthy")
    assert early.output.count("; nobody has read it") == 1, early.output
    assert "before that" not in late.output, late.output
    assert early.exit_code == late.exit_code == done.exit_code == 0, done.errors
    assert "nobody has read it" not in done.errors
