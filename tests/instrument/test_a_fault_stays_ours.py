"""What goes wrong in the watching never reaches the app: first without Ray, and a watcher that always fails.

Then an app on Ray, of which each function of ours is broken once, in the driver and in the workers: a new hook without a guard
fails the test.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from app_runner import Runner

import ray_snapshot as rs
from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument.guard import ours, replaced
from ray_snapshot.instrument.here import here, settle_in
from ray_snapshot.instrument.process import process as processes
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.protocol.calls import CallLedger

BOUND_S = 10.0
AT_ONCE = 20
"""So many functions are broken, one after the other, in one run of the app."""
LONGEST_S = 90.0 * AT_ONCE
"""Each alone has 90 seconds, on a machine that does much else; it takes one or two."""


class Failing:
    """Whatever is asked of it raises, in the asking process."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> Any:
        raise ValueError("the watcher cannot be asked")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    found = Process("app:1", Failing(), CallLedger("A"), {})
    settle_in(found)
    yield found
    settle_in(None)


def test_a_watcher_that_cannot_be_asked_ends_the_watching_and_its_thread(process: Process, capsys: Any) -> None:
    process.control.thread.join(BOUND_S)
    assert not process.control.thread.is_alive()
    assert here() is None
    assert "A is not watched any more" in capsys.readouterr().err


def test_a_step_of_ours_that_fails_is_said_once_and_gives_nothing(process: Process, capsys: Any) -> None:
    process.control.thread.join(BOUND_S)
    capsys.readouterr()
    process.is_closed = False
    assert process.guarded(lambda: 1 // 0) is None
    assert process.guarded(lambda: 1 // 0) is None
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_a_step_that_fails_gives_its_default_and_one_that_refuses_is_heard(process: Process) -> None:
    def refuse() -> None:
        raise RolledBackError("given up", snapshot_id=None)

    assert ours(lambda: 1 // 0, default="the app's own") == "the app's own"
    with pytest.raises(RolledBackError):
        ours(refuse)


def test_a_step_that_fails_where_giving_up_fails_too_gives_nothing(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.control.thread.join(BOUND_S)
    process.is_closed = False
    monkeypatch.setattr(process, "give_up", lambda _: {}["ours"])
    assert ours(lambda: 1 // 0) is None


class Listening:
    """A watcher that hears who is not watched any more, and answers nothing else."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *args: Any) -> Any:
        self.heard.append(args)
        raise ValueError("no answer")


def test_the_watcher_hears_of_a_process_that_is_not_watched_any_more_also_where_that_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    watcher = Listening()
    process = Process("app:1", watcher, CallLedger("A"), {})
    process.control.thread.join(BOUND_S)
    watcher.heard.clear()
    monkeypatch.setattr(processes, "blamed", lambda _: 1 // 0)
    process.give_up(ValueError("x"))
    assert watcher.heard == [("A",)]


def test_nothing_is_said_of_a_cluster_that_has_ended(
    process: Process, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.control.thread.join(BOUND_S)
    capsys.readouterr()
    monkeypatch.setattr(processes.shape, "is_connected", lambda: False)
    process.is_closed = False
    assert process.guarded(lambda: 1 // 0) is None
    assert capsys.readouterr().err == ""


def test_a_function_of_rays_is_called_once_whatever_fails_around_it() -> None:
    calls: list[str] = []

    def own(name: str) -> str:
        calls.append(name)
        return name

    def before(own: Any, name: str) -> Any:
        raise KeyError("ours")

    def behind(own: Any, name: str) -> Any:
        own(name)
        raise KeyError("ours")

    assert (replaced(before, own, "first"), replaced(behind, own, "second")) == ("first", "second")
    assert calls == ["first", "second"]


def test_a_call_that_rays_function_has_no_parameters_for_is_the_apps_fault(process: Process, capsys: Any) -> None:
    process.control.thread.join(BOUND_S)
    capsys.readouterr()
    process.is_closed = False

    def own(refs: list[str]) -> list[str]:
        return refs

    def step(own: Any, refs: list[str]) -> Any:
        return own(refs)

    for args, kwargs in (((), {}), ((["a"], 1), {}), ((["a"],), {"unknown": 1})):
        with pytest.raises(TypeError, match=r"own\(\)"):
            replaced(step, own, *args, **kwargs)
    assert not process.is_closed
    assert capsys.readouterr().err == ""


def test_the_apps_own_error_and_one_that_is_meant_for_it_are_raised() -> None:
    def own() -> None:
        raise KeyError("the app's")

    def refusing(own: Any) -> None:
        raise RolledBackError("given up", snapshot_id=None)

    def swallowing(own: Any) -> None:
        try:
            own()
        finally:
            raise IndexError("ours")

    calls: list[str] = []

    def failing_once() -> None:
        calls.append("called")
        if len(calls) == 1:
            raise KeyError("the app's")

    with pytest.raises(KeyError, match="the app's"):
        replaced(swallowing, failing_once)
    assert len(calls) == 1
    with pytest.raises(KeyError, match="the app's"):
        replaced(lambda own: own(), own)
    with pytest.raises(KeyError, match="the app's"):
        replaced(swallowing, own)
    with pytest.raises(RolledBackError):
        replaced(refusing, own)


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.parametrize(
    "target",
    [
        "protocol.call_collector:_Join.completed",
        pytest.param("instrument.watcher.joined:Tables.tables", marks=pytest.mark.nightly),
        pytest.param("instrument.watcher.roster:Roster.reserve", marks=pytest.mark.nightly),
    ],
)
def test_a_fault_in_the_watcher_ends_the_watching_with_one_line_and_the_app_goes_on(
    runner: Runner, tmp_path: Path, target: str
) -> None:
    history = tmp_path / "history"
    done = runner.command(
        "run", "--quiet", "--every", "0.25", "--name", "faulty", "--history", str(history), FAULTY_WATCHER, target
    )
    assert (done.output, done.exit_code) == ("79800\n", 7), done.errors
    (told,) = (line for line in done.errors.splitlines() if line.startswith("ray-snapshot: ") or "Traceback" in line)
    reason = "by a fault of ours: ValueError: as the test wants it (faulty_watcher.py:"
    assert told.startswith(f"ray-snapshot: faulty is not watched any more, {reason}")
    snapshots = rs.History(history).snapshots()
    assert {row["status"] for row in snapshots} == {"aborted"}
    assert all("as the test wants it" in row["abort_reason"] for row in snapshots)


# ---- each function broken once ------------------------------------------------------------------------------------------

DRIVER = str(Path(__file__).parent / "breaking_driver.py")
FAULTY_WATCHER = str(Path(__file__).parent / "faulty_watcher.py")
SOME = {
    "driver": ["instrument.process.process:Process.submit", "instrument.hooks.headers:packed", "runtime.refs:tracked",
               "instrument.here:here", "protocol.calls:CallLedger.wake", "instrument.hooks.headers:_takes"],
    "worker": ["instrument.hooks.headers:unpacked", "instrument.process.process:Process.leave",
               "instrument.hooks.tracking:_follow"],
}  # fmt: skip


def _told(runner: Runner, side: str, when: str, names: list[str]) -> None:
    plain = json.loads(runner.plain(DRIVER, "plain").output)
    assert plain[-1] == "ValueError: as the app means it"
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        done = runner.finish(runner.start(sys.executable, DRIVER, side, when, *some), longest=LONGEST_S)
        told = [json.loads(line) for line in done.output.splitlines() if line.startswith("[")]
        assert [item for item in told if item[1] != plain] == []
        assert [name for name, _ in told] == some, done.errors
        assert "Traceback" not in done.errors, done.errors


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("side", SOME)
def test_an_app_goes_on_whichever_function_of_ours_fails(runner: Runner, side: str) -> None:
    _told(runner, side, "later", SOME[side])


@pytest.fixture(scope="module")
def targets(runner: Runner) -> Any:
    """By side and by when they run: the functions of ours."""
    done = runner.plain(DRIVER, "targets")
    return json.loads(done.output.splitlines()[-1])


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("when", ["born", "later"])
@pytest.mark.parametrize("side", SOME)
def test_an_app_goes_on_whichever_of_all_our_functions_fails(
    runner: Runner, targets: Any, side: str, when: str
) -> None:
    names = targets[side][when]
    assert len(names) > (3 if when == "born" else 40), "what runs is not found"
    _told(runner, side, when, names)
