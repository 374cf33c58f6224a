"""`ray-snapshot diagnose` from another process, Ctrl-C, `rs.watch` in a program of one's own, and programs that are wrong."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, Done, Runner

import ray_snapshot as rs
from ray_snapshot.schema import TABLES

pytestmark = pytest.mark.ray

HEALTHY, DEADLOCKED, UNKNOWN = 0, 3, 4

FAILING_DETECTOR = """
import json
import ray_snapshot as rs

@rs.detector
def fails(snapshot):
    return json.loads('{}')['gone']

@rs.detector(alarm_when=True)
def seen(snapshot):
    return snapshot.sequence > 1, {}, "Seen twice."
"""


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.contract
@pytest.mark.nightly
def test_diagnose_says_healthy_of_a_program_that_only_waits_for_its_user(runner: Runner) -> None:
    app = runner.start_watched("at-its-desk", "standing.py", "idle")
    assert _said(app) == "hello\n"
    found = runner.command("diagnose", "at-its-desk", "--address", runner.address)
    systems = runner.command("systems", "--address", runner.address, "--json")
    done = runner.finish(app, "go on\n")
    assert found.exit_code == HEALTHY, found.output + found.errors
    assert "at-its-desk: 2 actors, 0 calls or messages in flight" in found.output
    assert "at-its-desk" in [json.loads(line)["system"] for line in systems.output.splitlines()]
    assert (done.output, done.exit_code) == ("hello\n", 0)


@pytest.mark.contract
@pytest.mark.nightly
def test_diagnose_cannot_tell_of_an_actor_that_waits_for_something_outside(runner: Runner, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # the app's thread opens its end at once, and reads until this one is closed
    try:
        app = runner.start_watched("outside", "standing.py", "outside", str(pipe))
        assert [_said(app), _said(app)] == ["hello\n", "listening\n"]
        found = runner.command("diagnose", "outside", "--address", runner.address)
    finally:
        os.close(writer)
    done = runner.finish(app)
    assert found.exit_code == UNKNOWN, found.output + found.errors
    assert "deadlock in" not in found.output
    assert re.search(r"thread listener \(.*standing\.py:\d+\) of Desk-0", found.output), "what is missing for an answer"
    assert (done.output, done.exit_code) == ("somebody came\n", 0)


@pytest.fixture(scope="module")
def parked(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program that hangs while others do, and its history."""
    history = tmp_path_factory.mktemp("parked") / "history"
    with runner.watching("parked", "--every", "0.25", "--history", str(history), "two_parked.py") as app:
        yield app, history


@pytest.mark.contract
def test_diagnose_draws_who_waits_for_whom_and_ctrl_c_does_it_once_more(runner: Runner, own_watch: object) -> None:
    app = runner.start_watched("hangs", "deadlocks.py", "constructor")
    assert _said(app) == "start\n"
    assert app.stderr is not None
    assert any("deadlock in hangs" in line for line in iter(app.stderr.readline, "")), "the report never came"
    found = runner.command("diagnose", "hangs", "--address", runner.address)
    as_json = runner.command("diagnose", "hangs", "--address", runner.address, "--json")
    app.send_signal(signal.SIGINT)
    done = runner.finish(app)
    assert found.exit_code == as_json.exit_code == DEADLOCKED, found.output + found.errors
    assert "waits for Helper-0 in Helper.report_to (deadlocks.py:" in found.output
    assert "a cycle: it waits for itself" in found.output
    assert re.search(
        r"\n    driver, \(the program\): \w+ \(deadlocks\.py:\d+\) < <module> \(deadlocks\.py", found.output
    )
    assert [json.loads(line)["holds"] for line in as_json.output.splitlines()] == [True, False, False, False]
    assert done.exit_code == 130
    diagnosed, _, trace = done.errors.partition("Traceback (most recent call last):")
    assert "driver in (the program)" in diagnosed, "the last diagnosis, of the moment of Ctrl-C"
    assert "deadlock: " not in diagnosed, "it is told once, by the report"
    assert "Parent-0 in Parent.__init__" in diagnosed
    assert re.search(r"\nKeyboardInterrupt\nray-snapshot: exit 130 after [^\n]*\n$", trace), "as Python prints it"
    assert "ray_snapshot" not in trace


@pytest.mark.contract
@pytest.mark.nightly
def test_all_that_is_said_of_two_calls_that_wait_in_one_actor_is_said_of_each(
    runner: Runner, parked: tuple[subprocess.Popen[str], Path]
) -> None:
    app, history = parked
    assert app.stderr is not None
    assert any("deadlock in parked" in line for line in iter(app.stderr.readline, "")), "the report never came"
    report = {re.sub(r"(waits|in \S+) \(two_parked.*?\)", r"\1", app.stderr.readline()).strip() for _ in range(5)}
    found = runner.command("diagnose", "parked", "--address", runner.address)
    app.send_signal(signal.SIGINT)
    runner.finish(app)
    lines = [re.sub(r" \(\S*two_parked.*?\)", "", line) for line in found.output.splitlines()]
    begin = lines.index("  who waits for whom:") + 1
    tree = [line[4:] for line in lines[begin : begin + 7]]
    assert tree[0] == "driver in (the program)"
    assert {"\n".join(tree[1:4]), "\n".join(tree[4:7])} == {
        f"  waits for {caller}\n    waits for Buffer-0 in Buffer.{method}\n      waits for a call of"
        " Consumer-0, Producer-0 or driver to wake it"
        for caller, method in (("Consumer-0 in Consumer.learn", "sample"), ("Producer-0 in Producer.play", "add"))
    }
    assert report >= {
        "nobody is left to call Buffer-0: Consumer-0, Producer-0, driver are stuck",
        "stuck behind them:",
        "Consumer-0 in Consumer.learn waits for Buffer-0 (Buffer.sample)",
        "Producer-0 in Producer.play waits for Buffer-0 (Buffer.add)",
    }
    assert any(
        re.match(r"Buffer-0: 1 call of Buffer\.\w+ .* and 1 of Buffer\.\w+ .* wait to be woken", line)
        for line in report
    )
    _agree(rs.History(history))


def _agree(history: rs.History) -> None:
    """Of each snapshot that shows both calls, the tables say the same, and so do those of all of them."""
    waits, calls = history.table("waits").to_pylist(), history.table("calls").to_pylist()
    methods = {row["call_id"]: row["method"] for row in calls if row["machine"] == "Buffer-0"}
    parked = [row for row in waits if row["machine"] == "Buffer-0"]
    both = {row["snapshot_id"] for row in parked if methods[row["call_id"]] == "add"}
    both &= {row["snapshot_id"] for row in parked if methods[row["call_id"]] == "sample"}
    assert len(both) >= 3, "hardly looked at"
    short = [row for row in history.table("machines").to_pylist() if row["snapshot_id"] in both]
    assert {row["wait_mode"] for row in short if row["machine"] == "Buffer-0"} == {"see waits"}
    since = {(row["machine"], row["call_id"], row["waiting_since"]) for row in waits if row["snapshot_id"] in both}
    assert len(since) == 5, "the driver, two callers, and two calls, each since one moment"
    asked = {
        row["machine"]: methods[row["on_call_id"]]
        for row in waits
        if row["on_machine"] == "Buffer-0" and row["on_call_id"]
    }
    assert asked == {"Consumer-0": "sample", "Producer-0": "add"}


@pytest.mark.contract
@pytest.mark.nightly
def test_a_second_run_on_one_cluster_gets_a_name_of_its_own(runner: Runner) -> None:
    apps = [runner.start_watched("twins", "standing.py", "idle") for _ in range(2)]
    assert [_said(app) for app in apps] == ["hello\n"] * 2
    systems = runner.command("systems", "--address", runner.address, "--json")
    assert {"twins", "twins-2"} <= {json.loads(line)["system"] for line in systems.output.splitlines()}, systems
    assert [runner.finish(app, "go on\n").exit_code for app in apps] == [0, 0]


@pytest.mark.contract
@pytest.mark.nightly
def test_calls_of_a_program_that_nobody_watches_are_seen_to_run_and_their_caller_is_missing(runner: Runner) -> None:
    app = runner.start_watched("called", "--every", "60", "standing.py", "named")
    assert _said(app) == "hello\n"
    raw = runner.start(sys.executable, "standing.py", "caller")
    assert _said(raw) == "calling\n"
    found = runner.command("diagnose", "called", "--address", runner.address)
    assert app.stdin is not None
    app.stdin.write("open\n")
    app.stdin.flush()
    assert _said(app) == "opened\n"
    assert runner.finish(raw).output == "called\n"
    assert runner.finish(app, "go on\n").exit_code == 0
    assert found.exit_code == HEALTHY, found.output + found.errors
    assert "the_desk in Desk.called (standing.py:" in found.output
    assert "who called the_desk without a header" in found.output


@pytest.mark.contract
def test_diagnose_of_a_system_that_nobody_runs_says_so_in_one_line(runner: Runner) -> None:
    found = runner.command("diagnose", "nobody", "--address", runner.address)
    assert (found.exit_code, found.output) == (2, "")
    assert found.errors.startswith("ray-snapshot: error: no system 'nobody' is running on this cluster")
    assert found.errors.count("\n") == 1


SECRETS = ("hunter2-first", "hunter2-second", "hunter2-third")


@pytest.fixture(scope="module")
def own_watch(
    at_once: Any, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Future[Done], Path, Path]:
    """A program that watches itself, and its histories."""
    folder, program = tmp_path_factory.mktemp("own-watch"), str(Path(__file__).parent / "own_watch_driver.py")
    done = at_once(runner.plain, program, str(folder / "bank"), str(folder / "doors"), *SECRETS)
    return done, folder / "bank", folder / "doors"


def test_a_program_can_watch_itself(own_watch: tuple[Future[Done], Path, Path]) -> None:
    done, history, _ = own_watch[0].result(), *own_watch[1:]
    assert done.exit_code == 0, done.errors
    seen = json.loads(done.output)
    assert (seen["moved"], seen["in_flight"], seen["terminated"]) == (30, 0, True)
    assert sorted(state["balance"] for state in seen["states"].values()) == [30, 70]
    assert [line.rpartition(" ")[0] for line in seen["uncovered"]] == ["actor Watcher"]
    assert "rs.install() comes before ray.init()" in seen["late"]
    assert "watched already" in seen["twice"]
    assert seen["can"] == []  # what is for machines of one's own is not there
    kept = rs.History(history)
    assert {row["detector"] for row in kept.verdicts()} == {"termination", "deadlock", "unwatched"}
    assert len(kept.snapshots()) >= 2


def test_no_secret_of_a_watched_program_reaches_its_history(own_watch: tuple[Future[Done], Path, Path]) -> None:
    done, _, history = own_watch[0].result(), *own_watch[1:]
    assert done.exit_code == 0, done.errors
    kept = rs.History(history)
    files = [file.read_bytes() for file in history.rglob("*") if file.is_file() and file.suffix != ".parquet"]
    rows = [json.dumps(kept.table(name).to_pylist(), default=str).encode() for name in TABLES]
    assert [secret for secret in SECRETS for content in (*files, *rows) if secret.encode() in content] == []
    states = [row.state for row in kept.machines(kept.resolve("latest")) if row.machine != "driver"]
    assert [state["password"] for state in states] == [{"$redacted": "password"}] * 2
    assert [state["vault"]["key"] for state in states] == [{"$redacted": "SecretStr"}] * 2
    (seen,) = [one for state in states for one in state["seen"]]
    assert seen == {"user": "bob", "password": {"$redacted": "password"}}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (["nowhere.py"], "nowhere.py cannot be run: No such file or directory"),
        (["."], ". cannot be run"),
        (["-m"], "name a module"),
        (["-m", "no_such_module"], "-m no_such_module cannot be run"),
        (["wrong.py"], "wrong.py, line 2: "),
        (["--exit-on", "nonsense", "fine.py"], "nonsense"),
        (["--name", "No Name", "fine.py"], "No Name"),
        (["--detect", "fails_to_load:it", "fine.py"], "RuntimeError: no (at {folder}/fails_to_load.py:2)"),
        (["--detect", "no_python:it", "fine.py"], "(at {folder}/no_python.py:1)"),
        (["--detect", "no_such_module:it", "fine.py"], "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
@pytest.mark.by_day(3)
def test_what_cannot_be_run_is_told_in_one_line(program: list[str], words: str, runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import ray\ndef f(:\n")
    (tmp_path / "fine.py").write_text("print('ran')\n")
    (tmp_path / "fails_to_load.py").write_text("\nraise RuntimeError('no')\n")
    (tmp_path / "no_python.py").write_text("def f(:\n")
    done = runner.command("run", *program, folder=tmp_path)
    assert (done.exit_code, done.output) == (2, ""), done.errors
    assert done.errors.startswith("ray-snapshot: error: ")
    assert words.format(folder=tmp_path) in done.errors
    assert done.errors.count("\n") == 1, done.errors


@pytest.mark.contract
@pytest.mark.nightly
def test_a_detector_that_raises_is_told_once_with_the_place_in_the_users_code(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAILING_DETECTOR)
    (tmp_path / "app.py").write_text((APPS / "standing.py").read_text())
    options = ["--every", "0.25", "--detect", "mine:fails,mine:seen"]
    app = runner.start_watched("mine", *options, str(tmp_path / "app.py"), "idle")
    assert app.stderr is not None
    assert _said(app) == "hello\n"
    lines = list(iter(app.stderr.readline, "ray-snapshot: Seen twice.\n"))
    failed = f"ray-snapshot: Detector fails failed: KeyError: 'gone' (at {tmp_path}/mine.py:7).\n"
    told = f"ray-snapshot: watching; from another terminal: ray-snapshot diagnose mine --address {runner.address}\n"
    assert [line for line in lines if line.startswith("ray-snapshot: ")] == [told, failed]
    assert runner.finish(app, "go on\n").exit_code == 0


@pytest.mark.contract
def test_run_finds_the_modules_next_to_the_program_and_no_others_first(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "detectors.py").write_text("MINE = 'the app has a module of this name'\n")
    (tmp_path / "app.py").write_text("import sys, detectors\nprint(detectors.MINE, sys.argv)\n")
    done = runner.command("run", str(tmp_path / "app.py"), "--exit-on", "mine")
    plain = runner.finish(runner.start(sys.executable, str(tmp_path / "app.py"), "--exit-on", "mine"))
    assert (done.output, done.exit_code) == (plain.output, plain.exit_code)
    assert "--exit-on" in done.output
