"""Programs that ask for ever, and healthy ones that only look like it. On Ray."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from app_runner import APPS, Runner
from until import until

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

BOUND_S = 300.0
HANGING = {
    "waiting": r"driver asks ray\.wait \(polls\.py:LINE\) [\d,]+ times in \d+ s, always nothing ready",
    "driver": r"driver asks Buffer\.sample \(polls\.py:LINE\) [\d,]+ times in \d+ s, always None",
    "actor": r"Trainer-0 asks Buffer\.sample \(polls\.py:LINE\) [\d,]+ times in \d+ s, always None",
    "awaiting": r"AsyncTrainer-0 asks Buffer\.sample \(polls\.py:LINE\) [\d,]+ times in \d+ s, always None",
    "naming": r"driver asks ray\.get_actor\('trainer'\) \(polls\.py:LINE\) [\d,]+ times in \d+ s, always ValueError",
    "refused": r"driver asks to call Worker\.take \(polls\.py:LINE\) [\d,]+ times in \d+ s, always PendingCallsLimitExceeded",
    "getting": r"driver asks ray\.get \(polls\.py:LINE\) [\d,]+ times in \d+ s, always GetTimeoutError",
    "timing_out": r"AsyncTrainer-0 asks await \(polls\.py:LINE\) [\d,]+ times in \d+ s, always given up",
    "pooled": r"driver asks Worker\.is_idle \(polls\.py:LINE\) [\d,]+ times in \d+ s, always False",
    "tasks": r"driver asks Worker\.is_idle \(polls\.py:LINE\) [\d,]+ times in \d+ s, always False",
}
SUSPECTED = ("driver", "actor", "awaiting")
HEALTHY = [
    "heartbeat",
    "monitor",
    "stepping",
    "bounded",
    "engine",
    "router",
    "filling",
    "loading",
    "progress",
    "giving_up",
]
SECONDS = "40"
"""Longer than it takes until equal answers are a poll."""


def _line(name: str) -> str:
    lines = (APPS / "polls.py").read_text().splitlines()
    return next(str(at) for at, line in enumerate(lines, 1) if line.endswith(f"  # {name}"))


@pytest.fixture(scope="module", autouse=True)
def healthy(
    runner: Runner, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Path]]:
    """Those whose tests run begin at once, and go on while others hang; gives the history of one, when it has ended."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    names = {item.callspec.params["name"] for item in items}
    folder = tmp_path_factory.mktemp("healthy")
    with ExitStack() as running:
        apps = {
            name: running.enter_context(
                runner.watching(f"asks-{name}", "--history", str(folder / name), "polls.py", name, SECONDS)
            )
            for name in HEALTHY
            if name in names
        }

        def history(name: str) -> Path:
            done = runner.finish(apps[name], longest=BOUND_S)
            assert done.exit_code == 0, done.errors
            assert "no deadlock" in done.errors
            return folder / name

        yield history


@pytest.mark.nightly
@pytest.mark.parametrize("name", HANGING)
def test_a_loop_that_asks_for_ever_is_named_and_is_never_no_deadlock(runner: Runner, name: str) -> None:
    with runner.watching(f"asks-{name}", "polls.py", name):
        grade = "suspected" if name in SUSPECTED else "(cannot be told|suspected)"
        asks = re.compile(f"Deadlock {grade}: .*" + HANGING[name].replace("LINE", _line(name)))
        command = ("diagnose", f"asks-{name}", "--address", runner.address, "--no-stacks")
        found = until(
            lambda: runner.command(*command),
            good=lambda one: asks.search(one.output),  # it takes two looks at who is asked
            seconds=BOUND_S,
        )
        assert found.exit_code == (3 if "suspected: " in found.output else 4), found.output
        rows = [json.loads(line) for line in runner.command(*command, "--json").output.splitlines()]
        poll, *_ = [row for row in rows if row.get("kind") == "poll"]
        if name in SUSPECTED:
            assert [(one["machine"], one["method"], one["answer"]) for one in poll["asked"]] == [
                ("Buffer-0", "sample", "None")
            ]


def test_a_suspicion_ends_the_program_if_that_is_wanted(runner: Runner) -> None:
    done = runner.command("run", "--exit-on", "suspected", "--patience", "1", "polls.py", "driver")
    assert done.exit_code == 3
    assert "ray-snapshot: Deadlock suspected: driver asks Buffer.sample" in done.errors
    assert "unless Buffer.sample depends on something outside, or on how often it is asked (asked)" in done.errors


@pytest.mark.by_day(1)
@pytest.mark.parametrize("name", HEALTHY)
def test_what_goes_on_by_itself_or_next_to_others_that_work_is_no_deadlock(
    healthy: Callable[[str], Path], name: str
) -> None:
    history = rs.History(healthy(name))
    verdicts = [row for row in history.verdicts() if row["detector"] == "deadlock"]
    assert len(verdicts) >= 20, "hardly looked at"
    assert {row["grade"] for row in verdicts} <= {"does not hold", "cannot be told"}
    asking = [row for row in verdicts if " asks " in row["sentence"]]
    gone = [" died while " in str(history.load(row["snapshot_id"]).coverage["uncovered"]) for row in asking]
    assert all(gone), "only where the program has ended before all had reported"
