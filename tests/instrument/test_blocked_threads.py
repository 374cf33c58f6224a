"""What a thread waits for outside of Ray's calls, since when, and whether only its own process could end that. No Ray."""

import asyncio
import fcntl
import itertools
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clean import clean_environment
from lone_process import lone_process
from ray.air._internal.util import RunnerThread
from started import started
from until import until

from ray_snapshot.instrument.process import blocked_calls, blocked_threads, signals
from ray_snapshot.instrument.process.blocked_threads import BlockedThread, BlockedThreads, timed_function
from ray_snapshot.instrument.process.ended_children import ended_children
from ray_snapshot.instrument.process.handed import ThreadWait
from ray_snapshot.instrument.process.lock_holders import LockHolders
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.names import LONG_S
from ray_snapshot.protocol.calls import awaited
from ray_snapshot.protocol.commands import Request
from ray_snapshot.runtime.here import frames_of_threads

BOUND_S = 600.0
LOOKS = 300_000


class Waits:
    """Ways to wait, and how each is ended, so that no thread is left behind."""

    def __init__(self) -> None:
        self.lock, self.rlock = threading.Lock(), threading.RLock()
        self.condition, self.event = threading.Condition(), threading.Event()
        self.semaphore, self.barrier = threading.Semaphore(0), threading.Barrier(2)
        self.queue, self.full, self.simple = queue.Queue[int](), queue.Queue[int](1), queue.SimpleQueue[int]()
        self.future: Future[int] = Future()
        self.thread = threading.Thread(target=lambda: self.event.wait(BOUND_S), daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.here = socket.create_connection(self.server.getsockname())
        self.there, _ = self.server.accept()
        self.read, self.write = os.pipe()
        self.processes = multiprocessing.get_context("spawn").Queue()
        self.holder = SimpleNamespace(lock=self.lock)
        self.fifo = Path(tempfile.mkdtemp()) / "fifo"
        os.mkfifo(self.fifo)

    def begin(self) -> None:
        """The locks are held, the queue is full, the thread runs: by the test's own thread."""
        self.lock.acquire()
        self.rlock.acquire()
        self.full.put(1)
        self.thread.start()

    def end(self) -> None:
        self.lock.release()
        self.rlock.release()
        with self.condition:
            self.condition.notify_all()
        self.event.set()
        self.semaphore.release()
        self.barrier.abort()
        self.queue.put(1)
        self.full.get()
        self.full.task_done()
        self.simple.put(1)
        self.future.set_result(1)
        self.there.send(b"x")
        socket.create_connection(self.server.getsockname()).close()
        os.write(self.write, b"x")
        self.processes.put(1)
        os.close(os.open(self.fifo, os.O_RDWR))


def _acquires(waits: Waits) -> None:
    waits.lock.acquire()
    waits.lock.release()


def _acquires_each(waits: Waits, blocking: bool = True, timeout: float = -1) -> None:
    assert [one.acquire(blocking, timeout) for one in (waits.lock,)]
    waits.lock.release()


def _enters(waits: Waits) -> None:
    with waits.holder.lock:
        pass


def _enters_again(waits: Waits) -> None:
    with waits.rlock:
        pass


def _waits(waits: Waits) -> None:
    with waits.condition:
        waits.condition.wait()


def _meets(waits: Waits) -> None:
    with pytest.raises(threading.BrokenBarrierError):
        waits.barrier.wait()


def _runs_a_child(waits: Waits, timeout: float | None = None) -> None:
    code = "import sys; sys.stdin.read(1)"
    subprocess.Popen([sys.executable, "-c", code], stdin=waits.read, env=clean_environment()).wait(timeout)


def _sleeps(waits: Waits) -> None:
    while not waits.event.is_set():
        time.sleep(0.05)


def _bounded(waits: Waits) -> None:
    waits.lock.acquire(timeout=BOUND_S)
    waits.lock.release()


LOCAL: dict[str, Callable[[Waits], Any]] = {
    "waits.lock.acquire": _acquires,
    "one.acquire": _acquires_each,
    "waits.holder.lock.acquire": _enters,
    "waits.rlock.acquire": _enters_again,
    "waits.simple.get": lambda waits: waits.simple.get(),
    "threading.Condition.wait": _waits,
    "threading.Event.wait": lambda waits: waits.event.wait(),
    "threading.Semaphore.acquire": lambda waits: waits.semaphore.acquire(),
    "threading.Barrier.wait": _meets,
    "threading.Thread.join": lambda waits: waits.thread.join(),
    "queue.Queue.get": lambda waits: waits.queue.get(),
    "queue.Queue.put": lambda waits: waits.full.put(2),
    "queue.Queue.join": lambda waits: waits.full.join(),
    "concurrent.futures.Future.result": lambda waits: waits.future.result(),
    "concurrent.futures.wait": lambda waits: wait([waits.future]),
}
OUTSIDE: dict[str, tuple[Callable[[Waits], Any], str]] = {
    "waits.here.recv": (lambda waits: waits.here.recv(1), "a socket connected to 127.0.0.1:"),
    "socket.socket.accept": (lambda waits: waits.server.accept(), "a socket that listens on 127.0.0.1:"),
    "os.read": (lambda waits: os.read(waits.read, 1), "a pipe"),
    "pathlib.Path.open": (lambda waits: waits.fifo.read_text(), "the opening of /"),
    "subprocess.Popen.wait": (_runs_a_child, "child process "),
    "multiprocessing.queues.Queue.get": (lambda waits: waits.processes.get(), "a pipe"),
}
GOES_ON: dict[str, Callable[[Waits], Any]] = {
    "a lock for a time": _bounded,
    "an event for a time": lambda waits: waits.event.wait(BOUND_S),
    "a queue for a time": lambda waits: waits.queue.get(timeout=BOUND_S),
    "a future for a time": lambda waits: waits.future.result(BOUND_S),
}


@pytest.fixture
def waits() -> Iterator[Waits]:
    found = Waits()
    found.begin()
    yield found
    found.end()


class Worker:
    def __init__(self, way: Callable[[Waits], Any], waits: Waits) -> None:
        self.thread = threading.Thread(target=way, args=(waits,), daemon=True)
        self.thread.start()
        self.looks = BlockedThreads()

    def look(self, now: float = 0.0) -> BlockedThread | None:
        frame = frames_of_threads().get(self.thread.ident or 0)
        return None if frame is None else self.looks.look(self.thread.native_id or 0, frame, now)

    def blocked(self, function: str) -> BlockedThread:
        """What it waits in, as soon as it waits there: it has a step or two to go."""
        for _ in range(LOOKS):
            one = self.look()
            if one is not None and one.function == function:
                return one
        raise AssertionError(f"it does not wait in {function}: {self.look()}")


@pytest.mark.parametrize("function", LOCAL)
def test_only_its_own_process_can_end_what_a_thread_waits_for(waits: Waits, function: str) -> None:
    one = (worker := Worker(LOCAL[function], waits)).blocked(function)
    assert one.is_local
    assert (one.what, _timed(worker)) == (f"in {function}", None)
    assert __file__ in one.call_site


@pytest.mark.parametrize("function", OUTSIDE)
def test_what_is_outside_of_a_process_may_end_a_wait_at_any_time(waits: Waits, function: str) -> None:
    way, about = OUTSIDE[function]
    one = Worker(way, waits).blocked(function)
    assert not one.is_local
    assert one.about.startswith(about)


def test_a_socket_is_told_with_the_process_at_its_other_end(waits: Waits) -> None:
    code = "import socket, sys; one = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); input()"
    command = [sys.executable, "-c", code, str(waits.server.getsockname()[1])]
    with started(command, env=clean_environment(), takes_input=True) as child:
        from_there, _ = waits.server.accept()
        one = Worker(lambda _: from_there.recv(1), waits).blocked("from_there.recv")
        child.communicate("\n")
        from_there.close()
    assert one.about.endswith(f" of process {child.pid}")


@pytest.mark.parametrize("way", GOES_ON.values(), ids=GOES_ON)
def test_a_wait_with_a_bound_of_time_is_none(waits: Waits, way: Callable[[Waits], Any]) -> None:
    begun = threading.Event()
    worker = Worker(lambda waits: (begun.set(), way(waits)), waits)
    assert begun.wait(BOUND_S)
    assert [worker.look() for _ in range(1_000)] == [None] * 1_000
    assert worker.thread.is_alive(), "it never waited"


def _timed(one: Any) -> str | None:
    return timed_function(one.thread.native_id or 0, frames_of_threads()[one.thread.ident or 0])


NAMES = ("waits.lock.acquire", "threading.Event.wait", "queue.Queue.get", "concurrent.futures.Future.result")
TIMED = [*zip(NAMES, GOES_ON.values(), strict=True), ("time.sleep", _sleeps)]
TIMED.append(("subprocess.Popen.wait", lambda waits: _runs_a_child(waits, BOUND_S)))


@pytest.mark.parametrize(("function", "way"), TIMED)
def test_a_wait_with_a_timeout_is_told_to_who_asks_for_it(waits: Waits, function: str, way: Any) -> None:
    worker = Worker(way, waits)
    assert until(lambda: _timed(worker)) == function


def test_a_wait_began_when_it_was_seen_first_as_long_as_its_thread_has_not_run(waits: Waits) -> None:
    worker = Worker(lambda _: [waits.queue.get() for _ in range(2)], waits)
    worker.blocked("queue.Queue.get")
    assert {worker.look(now).since for now in (1.0, 2.0, 3.0)} == {0.0}  # type: ignore[union-attr]
    waits.queue.put(1)
    assert any((one := worker.look(4.0)) is not None and one.since == 4.0 for _ in range(LOOKS))


def test_a_child_that_has_ended_is_told_as_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], env=clean_environment())
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert "which has ended" in blocked_threads.described_child(child.pid)
    child.wait()


def test_compiled_code_of_others_may_call_from_a_thread_that_python_does_not_show() -> None:
    code = "from ray_snapshot.instrument.process.blocked_threads import calls_from_outside as asked; "
    for more, answer in (
        ("", False),
        ("import ctypes; c = ctypes.CFUNCTYPE(None)(print)", True),
        ("import gc, ctypes; c = ctypes.CFUNCTYPE(None)(print); gc.freeze()", True),
        ("import duckdb", True),
    ):
        command = [sys.executable, "-c", f"{more}\n{code}\nprint(asked())"]
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, timeout=BOUND_S, check=True
        )
        assert done.stdout == f"{answer}\n"


def test_a_handler_of_the_apps_for_any_signal_may_end_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
    monkeypatch.setattr(signals.signal, "getsignal", handlers.get)
    assert signals.handled_signals() == []
    handlers[signal.SIGHUP] = lambda *_: None
    assert signals.handled_signals() == ["SIGHUP"]


# ---- threads of the app's own -------------------------------------------------------------------------------------------


def _told(looks: BlockedThreads, thread: threading.Thread, now: float = 0.0) -> str:
    """What a report says of it: a thread that waits in Python without a bound is parked, any other may act."""
    found = looks.report([thread], now)
    told = {"acts": found.acting, "parked": found.parked}
    return " ".join(what for what, those in told.items() for one in those if one.startswith(thread.name))


@pytest.mark.parametrize("function", ["queue.Queue.get", "threading.Condition.wait"])
def test_a_thread_that_waits_in_python_without_a_bound_is_parked_until_it_is_notified(
    waits: Waits, function: str
) -> None:
    worker = Worker(LOCAL[function], waits)
    worker.blocked(function)
    until(lambda: _told(BlockedThreads(), worker.thread) == "parked")
    if function == "threading.Condition.wait":
        with waits.condition:
            waits.condition.notify()
            assert _told(BlockedThreads(), worker.thread) == "acts"


def test_a_thread_that_waits_with_a_bound_may_act(waits: Waits) -> None:
    worker = Worker(GOES_ON["an event for a time"], waits)
    assert _told(BlockedThreads(), worker.thread) == "acts"


def test_a_thread_that_waits_for_a_lock_may_act_unless_it_has_not_run_since_the_look_before(waits: Waits) -> None:
    worker, looks = Worker(_enters, waits), BlockedThreads()
    assert _told(looks, worker.thread) == "acts"
    now = itertools.count(1.0)
    until(lambda: _told(looks, worker.thread, next(now)) == "parked")


# ---- what is recorded of a call ----------------------------------------------------------------------------------------


class Body:
    def __init__(self) -> None:
        self.number = 7


def _stands(thread: threading.Thread, function: str) -> None:
    """Once it returns, the thread has let go of what it has to, and stands in this, or in C called by what is named so."""
    looks, one = BlockedThreads(), None
    for now in range(LOOKS):
        frame = frames_of_threads().get(thread.ident or 0)
        one = frame and looks.look(thread.native_id or 0, frame, now)
        if frame and one and function in (one.function, frame.f_code.co_name) and one.since < now - 100:
            return
    raise AssertionError(one)


class Actor:
    """A watched process, of which another thread runs a call that waits."""

    def __init__(self, process: Process, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
        self.process, self.waits, self.patch = process, waits, monkeypatch
        process.body = Body()
        self.collected_at = 0.0
        monkeypatch.setattr(blocked_calls.capacity, "COLLECTIONS", self)
        self.beside: list[threading.Thread] = []
        monkeypatch.setattr(blocked_calls, "own_threads", lambda: self.beside)
        self.handled: list[str] = []
        monkeypatch.setattr(blocked_calls, "handled_signals", lambda: self.handled)
        self.may_be_called = False
        self.number = 0

    def collect(self) -> None:
        self.collected_at = blocked_calls.time.time()

    def are_since(self, since: float) -> bool:
        return self.collected_at > since

    def run(self, way: Callable[[Waits], Any], function: str, *, on_loops: int = 0) -> None:
        """`on_loops`: as a method that is not async, on the last of so many loops of an async actor."""

        def wait() -> None:
            self.call_id = self.process.enter(None, "m")
            way(self.waits)

        async def on_loop(step: Callable[[], None]) -> None:
            step()

        def call() -> None:
            for _ in range(1, on_loops):
                asyncio.run(on_loop(lambda: self.process.leave(self.process.enter(None, "before"))))
            asyncio.run(on_loop(wait)) if on_loops else wait()

        self.process.actor_loop.is_async = on_loops > 0
        self.thread = threading.Thread(target=call, daemon=True)
        self.thread.start()
        if function:
            _stands(self.thread, function)
        else:
            until(lambda: _timed(self))

    def recorded(self, after: float, *, is_forced: bool = False) -> Any:
        self.number += 1
        now = REAL_TIME() + after
        with self.patch.context() as patch:
            patch.setattr(blocked_calls.time, "time", lambda: now)
            self.process.obey(Request(self.number))
            with self.process.lock if is_forced else nullcontext():
                self.process.recording.record(is_forced=True) if is_forced else None
        return self.process.recording.reports.get(self.number)


REAL_TIME = blocked_calls.time.time


@pytest.fixture
def actor(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actor]:
    with lone_process() as process:
        yield Actor(process, waits, monkeypatch)


def test_a_call_that_waits_is_recorded_at_its_second_look_with_its_state(actor: Actor) -> None:
    actor.run(LOCAL["queue.Queue.get"], "queue.Queue.get")
    assert actor.recorded(0.0) is None
    told = actor.recorded(1.0)
    assert (told.report.state.text, told.report.status) == ('{"number":7}', "active")
    assert told.long_waits == ()
    about = [(one.is_young, one.asked[0].method) for one in told.polls]
    assert about == [(True, "queue.Queue.get")], "too early to tell"


def test_a_long_wait_that_only_the_process_can_end_is_a_local_one(actor: Actor) -> None:
    actor.run(LOCAL["queue.Queue.get"], "queue.Queue.get")
    assert [actor.recorded(after) is None for after in (0.0, LONG_S / 2, LONG_S - 1)] == [True, False, False]
    told = actor.recorded(LONG_S + 1)
    (wait_,) = told.report.waits
    assert (wait_.is_local, wait_.may_act) == (True, False)
    assert (wait_.what, told.report.status) == ("queue.Queue.get", "blocked")
    assert told.long_waits == ()


def test_a_method_on_the_loop_of_an_async_actor_waits_as_any_other_and_keeps_the_loop(actor: Actor) -> None:
    actor.run(LOCAL["waits.lock.acquire"], "waits.lock.acquire", on_loops=1)
    actor.process.enter(None, "goes_on_behind_it")
    for after in (0.0, 1.0, LONG_S - 1, LONG_S + 1):
        actor.recorded(after)
    told = actor.recorded(2 * LONG_S + 1)
    (wait_,) = told.report.waits
    assert (wait_.call_id, wait_.is_local, told.report.status) == (actor.call_id, True, "blocked")
    assert (wait_.what, told.blocking_call, told.long_waits) == ("waits.lock.acquire", actor.call_id, ())


def test_one_on_the_loop_of_a_concurrency_group_keeps_no_other_loop_and_may_be_released_there(actor: Actor) -> None:
    actor.run(LOCAL["waits.lock.acquire"], "waits.lock.acquire", on_loops=2)
    actor.recorded(0.0)
    told = actor.recorded(LONG_S + 1)
    assert (told.report.status, told.blocking_call) == ("active", None)
    (wait_,) = told.long_waits
    assert wait_.what == "in waits.lock.acquire, for what its other concurrency groups may do"


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("garbage", ""),
        ("compiled code", ", for what compiled code may do, which can call the app"),
        ("a signal", ", for what the app's handler of SIGTERM may do"),
        ("outside", ", for a socket connected to"),
    ],
)
def test_a_long_wait_that_anything_else_may_end_is_told_with_what_that_may_be(
    actor: Actor, why: str, reason: str
) -> None:
    function = "waits.here.recv" if why == "outside" else "queue.Queue.get"
    actor.run(OUTSIDE[function][0] if why == "outside" else LOCAL[function], function)
    if why == "garbage":
        actor.patch.setattr(actor, "are_since", lambda _: False)
    if why == "compiled code":
        actor.may_be_called = True
    if why == "a signal":
        actor.handled = ["SIGTERM"]
    actor.recorded(0.0)
    actor.recorded(LONG_S - 1)
    told = actor.recorded(LONG_S + 1)
    assert told.report.status == "active"
    (wait_,) = told.long_waits
    assert wait_.what.startswith(f"in {function}{reason}")
    assert reason or wait_.what == f"in {function}"


def test_a_wait_for_a_pipe_is_told_with_a_child_that_has_ended(actor: Actor) -> None:
    actor.run(OUTSIDE["os.read"][0], "os.read")
    with started(["true"], env={}) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        actor.process.recording.meter.ended = ended_children([child.pid])
    actor.recorded(0.0)
    told = actor.recorded(LONG_S + 1)
    assert (
        told.long_waits[0].what
        == f"in os.read, for a pipe, and child process {child.pid} (true) has ended with exit code 0"
    )
    assert told.ended_children == (), "it has ended well"


class Holds:
    def __init__(self) -> None:
        self.lock, self.other, self.is_over = threading.RLock(), threading.Lock(), threading.Event()
        self.freed = threading.Condition(self.other)

    def transfer(self) -> None:
        with self.other, self.lock:
            for _ in range(2):
                try:
                    self._within()
                finally:
                    self.is_over.wait()

    def _within(self) -> None:
        with open(os.devnull):
            self.is_over.wait()

    def left(self) -> None:
        with self.lock, self.other:
            pass
        self.is_over.wait()

    def releases(self) -> None:
        with self.other:
            self.freed.wait()

    def deposit(self) -> None:
        with self.lock:
            pass

    def look_up(self) -> None:
        self.other.acquire()
        self.other.release()


def test_a_lock_is_told_with_the_calls_that_are_inside_it() -> None:
    holds, threads = Holds(), dict[str, threading.Thread]()
    for name in ("releases", "left", "transfer", "deposit", "look_up"):
        threads[name] = threading.Thread(target=getattr(holds, name), daemon=True)
        threads[name].start()
        _stands(threads[name], name if name in ("deposit", "look_up") else "wait")
    frames = frames_of_threads()
    innermost = {name: frames[one.ident or 0] for name, one in threads.items()}
    holders = LockHolders({one.ident or 0: name for name, one in threads.items()}, frames)
    assert holders.of(innermost["deposit"]) == "threading.RLock held by Holds.transfer"
    assert holders.of(innermost["look_up"]) == "threading.Lock held by Holds.transfer"
    assert LockHolders({threads["left"].ident or 0: "left"}, frames).of(innermost["deposit"]) == ""
    of_no_call = LockHolders({threads["transfer"].ident or 0: ""}, frames)
    assert of_no_call.of(innermost["deposit"]) == "threading.RLock held by Holds.transfer"
    holds.freed.notify_all()
    holds.is_over.set()


def test_a_call_that_waits_for_a_lock_is_told_with_the_call_that_holds_it(actor: Actor) -> None:
    holds = Holds()

    def call() -> None:
        actor.process.enter(None, "transfer")
        holds.transfer()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    _stands(thread, "wait")
    actor.run(lambda _: holds.other.acquire(), "holds.other.acquire")
    actor.recorded(0.0)
    told = {one.call_id: one.what for one in actor.recorded(1.0).report.waits}
    assert told[actor.call_id] == "threading.Lock held by Holds.transfer"
    holds.is_over.set()


def _again(waits: Waits) -> None:
    while not waits.event.wait(BOUND_S):
        pass


def _and_puts(waits: Waits) -> None:
    while not waits.event.wait(BOUND_S):
        waits.queue.put(1)


@pytest.mark.parametrize(("beside", "is_told"), [(None, True), (_again, True), (_and_puts, False)])
def test_a_wait_with_a_timeout_that_is_begun_again_is_told_unless_a_thread_acts_beside(
    actor: Actor, beside: Any, is_told: bool
) -> None:
    actor.beside = [] if beside is None else [Worker(beside, actor.waits).thread]
    actor.run(_again, "")
    found = [actor.recorded(after, is_forced=True).polls for after in (0, 9, 20, 31, 42, 53)]
    assert list(map(len, found)) == [0, 0, *[int(is_told)] * 4], "it takes three snapshots, and ten seconds"
    told = [(one.is_young, one.call_id, one.asked[0].method) for one in itertools.chain(*found)]
    about = actor.call_id, "threading.Event.wait"
    assert told == ([*[(True, *about)] * 3, (False, *about)] if is_told else [])


def _a_heartbeat(waits: Waits) -> threading.Thread:
    """Neither a deadlock, nor an all-clear."""
    return Worker(GOES_ON["an event for a time"], waits).thread


def _waits_outside(waits: Waits) -> threading.Thread:
    worker = Worker(OUTSIDE["waits.here.recv"][0], waits)
    worker.blocked("waits.here.recv")
    return worker.thread


@pytest.mark.parametrize(
    ("function", "beside", "told"),
    [
        ("queue.Queue.get", _a_heartbeat, ["in queue.Queue.get"]),
        ("queue.Queue.get", _waits_outside, ["in queue.Queue.get", "in waits.here.recv"]),
        ("threading.Thread.join", lambda waits: waits.thread, ["in threading.Thread.join, for the end of thread "]),
    ],
)
def test_a_long_wait_beside_a_thread_of_the_apps_is_told_with_where_that_one_is(
    actor: Actor, function: str, beside: Callable[[Waits], threading.Thread], told: list[str]
) -> None:
    actor.run(LOCAL[function], function)
    thread = beside(actor.waits)
    actor.beside = [thread]
    actor.recorded(0.0)
    found = actor.recorded(LONG_S + 1)
    assert found.report.status == "active"
    assert len(found.long_waits) == len(told)
    assert all(one.what.startswith(text) for one, text in zip(found.long_waits, told, strict=True))
    assert (f"{thread.name}, which is in " in found.long_waits[0].what) is (function == "threading.Thread.join")


@pytest.mark.parametrize(("kind", "told"), [(RunnerThread, ["in queue.Queue.get"]), (threading.Thread, [])])
def test_the_apps_code_on_a_thread_of_rays_libraries_is_told_as_a_call_would_be(
    actor: Actor, kind: Any, told: list[str]
) -> None:
    about = {"error_queue": queue.Queue()} if kind is RunnerThread else {}
    thread = kind(target=LOCAL["queue.Queue.get"], args=(actor.waits,), daemon=True, **about)
    thread.start()
    _stands(thread, "queue.Queue.get")
    actor.beside = [thread]
    assert actor.recorded(0.0).long_waits == ()
    assert [one.what for one in actor.recorded(LONG_S + 1).long_waits] == told
    waits_for = ThreadWait((), awaited(["A/0/B/1"]), 1, REAL_TIME(), "app.py:7", raises=True)
    actor.process.handed.waits[thread.ident or 0] = waits_for
    calls = [one.calls for one in actor.recorded(LONG_S + 2).long_waits]
    assert calls == [("A/0/B/1",)] * len(told)


def test_a_state_that_was_copied_while_the_thread_went_on_is_not_recorded(actor: Actor) -> None:
    actor.run(LOCAL["queue.Queue.get"], "queue.Queue.get")
    actor.recorded(0.0)
    copy = actor.process.recording.shown_states.of

    def slowly(body: Any) -> Any:
        actor.waits.queue.put(1)
        actor.thread.join(BOUND_S)
        return copy(body)

    actor.patch.setattr(actor.process.recording.shown_states, "of", slowly)
    assert actor.recorded(1.0) is None
    assert not actor.process.ledger.waits


def test_what_a_call_that_has_ended_since_may_have_left_is_looked_for_anew(actor: Actor) -> None:
    actor.run(LOCAL["queue.Queue.get"], "queue.Queue.get")
    actor.recorded(0.0)
    actor.recorded(LONG_S - 1)
    assert actor.recorded(LONG_S + 1).report.status == "blocked"
    actor.process.leave(actor.process.enter(None, "m"))
    assert actor.recorded(LONG_S + 2).report.status == "active"
    actor.may_be_called = True
    assert actor.recorded(LONG_S + 3).report.status == "active"


def test_a_look_leaves_a_socket_and_the_variables_of_a_frame_as_they_are(waits: Waits) -> None:
    class Large:
        pass

    large = [weakref.ref(Large())]

    def holds(waits: Waits) -> None:
        item = Large()
        large[0] = weakref.ref(item)
        waits.lock.acquire()
        waits.lock.release()
        del item
        waits.event.wait()

    worker = Worker(holds, waits)
    worker.blocked("waits.lock.acquire")
    waits.lock.release()
    worker.blocked("threading.Event.wait")
    waits.lock.acquire()
    assert large[0]() is None
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(10.0)
    try:
        Worker(OUTSIDE["waits.here.recv"][0], waits).blocked("waits.here.recv")
    finally:
        socket.setdefaulttimeout(before)
    assert not fcntl.fcntl(waits.here, fcntl.F_GETFL) & os.O_NONBLOCK
