"""How processes of a watched app end: nothing of ours calls Ray when its core worker goes, and the app sees its own end."""

import json
import subprocess
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from app_runner import COMMAND
from clean import clean_environment, ran
from limited import limit
from lone_process import lone_process
from test_a_mute_watcher import BOUND_S, Slow
from until import until

from ray_snapshot.instrument.connection import Connection
from ray_snapshot.instrument.hooks import ends
from ray_snapshot.instrument.process.control import Control

FOLDER = Path(__file__).parent


# ---- the connection ------------------------------------------------------------------------------------------------------


def test_once_it_is_closed_no_step_is_taken() -> None:
    connection, taken = Connection(), []
    connection.use(taken.append, 1)
    connection.end()
    assert connection.use(taken.append, 2) is None
    connection.begin()
    connection.use(taken.append, 3)
    assert taken == [1, 3]


def test_the_end_waits_for_a_step_of_another_thread_and_takes_no_later_one() -> None:
    connection, may_go_on, has_begun = Connection(), threading.Event(), threading.Event()
    taken: list[str] = []

    def step() -> None:
        has_begun.set()
        may_go_on.wait(BOUND_S)
        taken.append("step")

    with ThreadPoolExecutor(2) as pool:
        pool.submit(connection.use, step)
        has_begun.wait(BOUND_S)
        ending = pool.submit(lambda: (connection.end(), taken.append("ended")))
        until(lambda: not connection.is_open, seconds=BOUND_S)
        connection.use(taken.append, "late")
        may_go_on.set()
        ending.result(BOUND_S)
    assert taken == ["step", "ended"]


def test_the_end_waits_for_no_finalizer_of_the_apps_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, may_go_on, has_begun = Connection(), threading.Event(), threading.Event()
    limit(monkeypatch, gate_end_s=threading.TIMEOUT_MAX)
    limit(monkeypatch, finalizers_s=0.0)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(connection.use, lambda: (has_begun.set(), may_go_on.wait()), collects=True)
        has_begun.wait(BOUND_S)
        try:
            pool.submit(connection.end).result(BOUND_S)
        finally:
            may_go_on.set()


def test_a_step_may_end_the_connection_itself() -> None:
    connection = Connection()
    connection.use(lambda: connection.use(connection.end))
    assert not connection.is_open


def test_what_has_to_be_done_before_is_done_while_it_is_open_once_and_whatever_of_it_fails() -> None:
    connection, taken = Connection(), []
    connection.before_end += [lambda: connection.use(taken.append, "mail"), lambda: 1 // 0]
    connection.end()
    connection.end()
    assert taken == ["mail"]


# ---- our thread ----------------------------------------------------------------------------------------------------------


class Idle:
    """A process that has nothing to do but to acknowledge."""

    machine, is_closed = "A", False

    def __init__(self) -> None:
        self.on_command: Callable[[], None] = lambda: None

    def take_acks(self) -> list[Any]:
        return ["an acknowledgement"]

    def obey(self, command: Any) -> None:
        self.on_command()

    def give_up(self, error: Exception) -> None:
        raise AssertionError(error)

    def unanswered(self, error: BaseException) -> None:
        """A poll that Ray has cut off."""


def test_behind_the_end_of_its_process_our_thread_sends_nothing_whatever_is_still_to_be_sent() -> None:
    connection, watcher = Connection(), Slow()
    control = Control(Idle(), watcher, connection)
    control.start()
    until(lambda: watcher.of("commands_for"), seconds=BOUND_S)
    connection.end()
    control.tell("built", "A")
    control.report("a report")
    control.outbox.put(("flush",))
    watcher.of("commands_for")[0].set_result((0, []))
    control.thread.join(BOUND_S)
    assert not control.thread.is_alive()
    assert [method for method, _ in watcher.asked] == ["commands_for"]


def test_the_ref_of_a_poll_is_held_until_the_next_one_for_ray_ends_a_worker_that_has_none() -> None:
    watcher, process = Slow(commands_for=[]), Idle()
    control, held = Control(process, watcher, Connection()), []
    process.on_command = lambda: held.append(control.polled)
    control.start()
    until(lambda: control.polled is not None, seconds=BOUND_S)
    watcher.of("commands_for")[0].set_result((1, ["a command"]))
    until(lambda: len(watcher.of("commands_for")) == 2, seconds=BOUND_S)
    control.end()
    control.thread.join(BOUND_S)
    assert held == watcher.of("commands_for")[:1]
    assert control.polled is None


class Body:
    """An actor's object."""


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_actor_that_ends_is_kept_alive_by_nothing_of_ours_watched_to_the_end_or_not(
    monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    monkeypatch.setattr(ends, "CONNECTION", Connection())
    with lone_process() as process:
        process.body = Body()
        body = weakref.ref(process.body)
        process.is_closed, process.control.polled = is_closed, object()
        ends.actor_ends(lambda: None)
        assert (body(), process.is_closed, ends.CONNECTION.is_open) == (None, True, False)
        assert process.control.polled is None, "its ref would be counted when Ray is no more there"


# ---- with Ray ------------------------------------------------------------------------------------------------------------


@pytest.mark.ray
def test_an_app_sees_the_ends_of_its_processes_whatever_is_still_to_be_sent(tmp_path: Path) -> None:
    """On a cluster of its own, with more patience."""
    with TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        own = clean_environment(RAY_TMPDIR=folder, RAY_LOG_TO_DRIVER="0")
        done = ran(COMMAND, "run", "--every", "0.2", FOLDER / "ending_driver.py", tmp_path, env=own, seconds=240.0)
    assert (done.returncode, done.stdout) == (0, "all are gone\n"), done.stderr
    seen = {path.name: path.read_text().split() for path in tmp_path.iterdir()}
    assert seen.pop("max-calls") == ["atexit"]
    assert sorted(seen) == ["dropped", "dropped-loop", "dropped-threads", "exited", "left"]
    assert {*map(tuple, seen.values())} == {("shutdown", "del", "atexit")}


def without_rays_own(lines: list[str]) -> list[str]:
    """Without those of a process with a corrupt mutex: when it ends, a thread of Ray starts before its own mutex is there."""
    prefixes = {line.partition("[mutex.cc")[0] for line in lines if "[mutex.cc" in line}
    return [line for line in lines if not line.startswith((*prefixes,))]


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
def test_a_storm_of_births_and_deaths_leaves_no_line_on_stderr(tmp_path: Path) -> None:
    """Four programs at once, each on a cluster of its own."""
    command = [COMMAND, "run", "--quiet", "--every", "0.2", str(FOLDER / "storm_driver.py"), "600"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    storms = [subprocess.Popen(command, cwd=tmp_path, env=clean_environment(), **pipes) for _ in range(4)]
    for one in storms:
        output, errors = one.communicate(timeout=900)
        lines = [line for line in errors.splitlines() if "INFO" not in line and "WARNING auth" not in line]
        assert without_rays_own(lines) == []
        assert (one.returncode, min(json.loads(output).values()) > 0) == (0, True)
