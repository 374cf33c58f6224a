"""A wait that blocks is noted only when something is recorded: what is recorded is as if it had been noted before.

And what the end of a wait tells of its calls. No Ray in here.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import pytest
import ray
from lone_process import BOUND_S, Called, lone_process, wire
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ray_snapshot.instrument import task_shape
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.hooks import calls, envelopes, tracking
from ray_snapshot.instrument.process import waiting
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger, Header
from ray_snapshot.protocol.commands import Request
from ray_snapshot.runtime.refs import is_put, tracked

Read = Callable[[], Any]

REPLY = (["one", "two"], [])
"""Of a `ray.wait`, that is."""


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        yield found


def rays_get(arrives: threading.Event, read: Read, begun: threading.Event) -> Callable[..., Any]:
    """In place of Ray's own, whose frames are no place in an app: it reads when the reply has arrived."""
    space: dict[str, Any] = {"arrives": arrives, "read": read, "begun": begun}
    code = (
        "def get(refs, timeout=None, num_returns=1):\n    begun.set()\n    assert arrives.wait(10)\n    return read()"
    )
    exec(compile(code, ray.__file__, "exec"), space)
    found: Callable[..., Any] = space["get"]
    return found


class Asking:
    """An actor that asks others, and waits for the replies."""

    def __init__(self, process: Process, read: Read, kind: str = "get") -> None:
        self.process = process
        self.arrives, self.begun = threading.Event(), threading.Event()
        self.original = rays_get(self.arrives, read, self.begun)
        self.kind = kind
        self.outcome: Any = None

    def ask(self) -> None:
        refs = []
        for mark in (b"1", b"2"):
            header, _ = self.process.submit("B:1", "reply", (), False, ())
            refs.append(tracked(ray.ObjectRef(mark * 28), f"A/0/B:1/{header.number}"))
        try:
            self.outcome = KINDS[self.kind](self.original, refs)
        except Exception as error:
            self.outcome = error


PUT = ray.ObjectRef(b"3" * 28, "", "ray-snapshot put", True)
assert is_put(PUT)

KINDS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "get": lambda original, refs: tracking.get(original, refs[0]),
    "get of a list": tracking.get,
    "get with a bound": lambda original, refs: tracking.get(original, refs, timeout=9.0),
    "get of what nobody knows": lambda original, refs: tracking.get(original, [*refs, ray.ObjectRef(b"3" * 28)]),
    "get of what was put": lambda original, refs: tracking.get(original, [*refs, PUT]),
    "wait": tracking.wait,
    "wait for all": lambda original, refs: tracking.wait(original, refs, num_returns=2),
}
"""What takes two refs, in each way in which a program may wait."""


def asked(process: Process, read: Read = lambda: REPLY, kind: str = "get") -> tuple[Asking, threading.Thread]:
    body = Asking(process, read, kind)
    thread = threading.Thread(target=Called(body).ask, kwargs={"_ray_snapshot_header": wire(process, 1)}, daemon=True)
    thread.start()
    assert body.begun.wait(BOUND_S)
    return body, thread


def ended(body: Asking, thread: threading.Thread) -> Any:
    body.arrives.set()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    return body.outcome


def is_over(process: Process) -> bool:
    return not (process.ledger.waits or process.waiting.plain)


def recorded(process: Process, number: int = 1) -> Any:
    """The report of the machine, without what tells one wait from another of its kind, and without the object."""
    report = process.recording.reports[number].report
    waits = tuple(
        replace(wait, wait_id=0, waiting_since=0.0, timeout_at=wait.timeout_at and 9.0) for wait in report.waits
    )
    return replace(report, waits=waits, calls=(), outputs=(), state=None)


def _lists_while_recording(process: Process, patch: pytest.MonkeyPatch) -> list[int]:
    """How many refs each `ray.get` of a list is for that `StartedTasks` is asked about."""
    found: list[int] = []

    def outcomes() -> dict[str, bool]:
        found.extend(map(len, process.started_tasks.refs_of.values()))
        return {}

    patch.setattr(process.started_tasks, "outcomes", outcomes)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_recorded_meanwhile_is_what_a_wait_that_was_noted_at_once_is(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    monkeypatch.setattr(task_shape, "is_own", lambda _: False)
    for is_noted in (False, True):
        with lone_process() as process, monkeypatch.context() as patch:
            if is_noted:
                patch.setattr(waiting.Waiting, "begin_plain", lambda *_: None)
            body, thread = asked(process, kind=kind)
            assert (len(process.waiting.plain), len(process.ledger.waits)) == (not is_noted, is_noted)
            lists = _lists_while_recording(process, patch)
            process.obey(Request(1))
            found.append((process.ledger.colour, recorded(process), lists))
            assert len(process.ledger.waits) == is_noted
            assert ended(body, thread) == REPLY
            assert is_over(process)
            assert not process.ledger.running
            assert not process.started_tasks.refs_of
            found[-1] = (*found[-1], list(process.ledger.outputs["B:1"].log))
    assert found[0] == found[1]
    colour, report, lists, in_log = found[0]
    assert lists == ([{"get of what was put": 2, "get of what nobody knows": 3}.get(kind, 2)] if "get " in kind else [])
    assert colour == 1, "who waits is between two actions"
    (wait,) = report.waits
    assert (wait.call_id, wait.calls[0], wait.raises) == ("driver/0/A/1", "A/0/B:1/1", "get" in kind)
    assert wait.call_site.startswith(f"{__file__}:")
    is_certain = kind not in ("get with a bound", "get of what nobody knows")
    assert report.status == ("blocked" if is_certain else "active")
    assert in_log == {"get": [2], "wait": [1, 2], "wait for all": [1, 2]}.get(kind, [])


def test_it_waits_since_it_began_in_every_snapshot(process: Process) -> None:
    body, thread = asked(process, kind="get with a bound")
    for number in (1, 2):
        process.obey(Request(number))
    waits = [process.recording.reports[number].report.waits[0] for number in (1, 2)]
    assert waits[0].waiting_since == waits[1].waiting_since
    assert [wait.timeout_at for wait in waits] == [waits[0].waiting_since + 9.0] * 2
    ended(body, thread)


@pytest.mark.parametrize("is_heard_elsewhere", [False, True])
def test_a_redder_reply_is_recorded_for_while_that_still_counts_as_a_wait(
    process: Process, is_heard_elsewhere: bool
) -> None:
    def read() -> Any:
        if not is_heard_elsewhere:
            return envelopes.opened("red", 3)
        other = threading.Thread(target=envelopes.opened, args=("an argument", 3))
        other.start()
        other.join(BOUND_S)
        return "red"

    assert ended(*asked(process, read)) == "red"
    assert process.ledger.colour == 3
    report = recorded(process, 3)
    assert (report.status, [wait.calls for wait in report.waits]) == ("blocked", [("A/0/B:1/1",)])


@pytest.mark.parametrize(
    ("error", "in_log"),
    [
        (RayTaskError("reply", "trace", ValueError("the app's")), [2]),
        (RayActorError(), [2]),
        (GetTimeoutError(), [1, 2]),
        (MemoryError("the app's"), [1, 2]),
    ],
)
def test_an_error_ends_it_as_it_ends_one_that_was_noted_at_once(
    process: Process, error: Exception, in_log: list[int]
) -> None:
    def read() -> Any:
        raise error

    assert ended(*asked(process, read)) is error
    assert is_over(process)
    assert not process.waiting.hearing.is_waiting
    assert list(process.ledger.outputs["B:1"].log) == in_log
    assert process.ledger.outputs["B:1"].settled_count == isinstance(error, RayActorError)


def test_what_is_read_may_wait_itself(process: Process) -> None:
    """An object's `__setstate__` is code of the app, and may ask for another ref."""
    arrives, begun = threading.Event(), threading.Event()

    def read() -> Any:
        ref = tracked(ray.ObjectRef(b"2" * 28), "A/0/C:1/1")
        return tracking.get(rays_get(arrives, lambda: "inner", begun), ref)

    body, thread = asked(process, read)
    body.arrives.set()
    assert begun.wait(BOUND_S)
    process.obey(Request(1))
    assert {wait.calls for wait in recorded(process).waits} == {("A/0/B:1/1",), ("A/0/C:1/1",)}
    arrives.set()
    assert ended(body, thread) == "inner"
    assert is_over(process)


def test_what_came_with_one_reply_is_not_lost_where_the_next_one_waits_itself(process: Process) -> None:
    """Of a list, one reply is red, and to read the other one another ref is asked for."""
    arrives, begun = threading.Event(), threading.Event()

    def read() -> Any:
        red = envelopes.opened("red", 3)
        ref = tracked(ray.ObjectRef(b"4" * 28), "A/0/C:1/1")
        return red, tracking.get(rays_get(arrives, lambda: "inner", begun), ref)

    arrives.set()
    assert ended(*asked(process, read, "get of a list")) == ("red", "inner")
    assert process.ledger.colour == 3


def begun(process: Process) -> Any:
    """A wait of this thread for a call of its machine."""
    ref = tracked(ray.ObjectRef(b"1" * 28), f"{process.ledger.machine}/0/B:1/1")
    return process.waiting.begin_plain([ref], 1, None, True)


@contextmanager
def asking(process: Process) -> Iterator[None]:
    """What this thread does is a call's."""
    token = CURRENT.set(process.enter(Header("driver", 0, 1, 0, 1), "ask"))
    yield
    CURRENT.reset(token)


def _begun_by_another_thread(process: Process, run: Callable[..., Any] = lambda work: work()) -> list[Any]:
    found: list[Any] = []
    other = threading.Thread(target=run, args=(lambda: found.append(begun(process)),))
    other.start()
    other.join(BOUND_S)
    return found


def test_a_program_waits_so_in_its_main_thread_and_is_recorded_as_waiting() -> None:
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        plain = begun(process)
        assert plain is not None
        control = threading.Thread(target=process.obey, args=(Request(1),))  # as where a watcher asks for it
        control.start()
        control.join(BOUND_S)
        assert (recorded(process).status, recorded(process).waits[0].calls) == ("blocked", ("driver/0/B:1/1",))
        process.waiting.end_plain(plain, True)
        process.obey(Request(2))
        assert (recorded(process, 2).status, recorded(process, 2).waits) == ("active", ())
        assert _begun_by_another_thread(process) == [None], "another thread of it may act beside the main one"


@pytest.mark.parametrize("terms", [Terms(keeps=True), Terms(recovers=True), Terms(raises=True), Terms(generation=1)])
def test_what_may_be_ended_by_us_is_noted_at_once(terms: Terms) -> None:
    with lone_process(terms=terms) as process, asking(process):
        assert begun(process) is None


def _has_a_loop(process: Process) -> None:
    process.program_loop.waits[1] = True


def _is_asynchronous(process: Process) -> None:
    process.actor_loop.is_async = True


def _sends_to_machines(process: Process) -> None:
    process.mail = object()  # type: ignore[assignment]


def _has_heard(process: Process) -> None:
    process.heard_of.append(1)


def _must_record(process: Process) -> None:
    process.ledger.turning.hear(1)


@pytest.mark.parametrize("state", [_has_a_loop, _is_asynchronous, _sends_to_machines, _has_heard, _must_record])
def test_what_more_must_be_known_of_is_noted_at_once(process: Process, state: Callable[[Process], None]) -> None:
    with asking(process):
        plain = begun(process)
        assert plain is not None
        process.waiting.end_plain(plain, True)
        state(process)
        assert begun(process) is None


def test_a_thread_that_has_only_a_calls_context_waits_for_itself(process: Process) -> None:
    with asking(process):
        assert _begun_by_another_thread(process, copy_context().run) == [None]


def test_who_may_be_interrupted_by_a_timer_is_not_only_waiting(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, thread = asked(process)
    monkeypatch.setattr(waiting, "is_timer_set", lambda _: True)
    process.obey(Request(1))
    assert recorded(process).status == "active"
    ended(body, thread)


@pytest.mark.parametrize("is_error", [False, True])
def test_a_program_all_of_whose_threads_wait_is_blocked(is_error: bool) -> None:
    """Its main thread waits plainly, another one in a wait of its own; so it is while an error ends the first one."""
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        refs = [
            tracked(ray.ObjectRef(mark * 28), f"driver/0/B:1/{number}") for number, mark in enumerate((b"1", b"2"), 1)
        ]
        begun, ends = threading.Event(), threading.Event()

        def beside() -> None:
            wait_id, _ = process.waiting.begin([refs[1]], 1, None, "", is_blocking=True)
            begun.set()
            ends.wait(BOUND_S)
            process.waiting.end(wait_id, [])

        other = threading.Thread(target=beside)
        plain = process.waiting.begin_plain([refs[0]], 1, None, True)
        assert plain is not None
        other.start()
        assert begun.wait(BOUND_S)
        process.program_threads._all_wait = lambda: len(process.program_threads.thread_of) == 2  # type: ignore[method-assign]
        if is_error:
            process.waiting.note_plain(plain)
        process.obey(Request(1))
        assert recorded(process).status == "blocked"
        assert len(process.program_threads.thread_of) == 1 + is_error
        ends.set()
        other.join(BOUND_S)


def test_a_program_that_is_read_for_waits_no_second_time() -> None:
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        process.waiting.begin([tracked(ray.ObjectRef(b"1" * 28), "driver/0/B:1/1")], 1, None, "", is_blocking=True)
        assert begun(process) is None


@pytest.mark.parametrize("broken", ["begin_plain", "end_plain", "note_plain"])
@pytest.mark.parametrize("is_error", [False, True])
def test_a_fault_of_ours_changes_nothing_of_what_is_read(
    process: Process, monkeypatch: pytest.MonkeyPatch, broken: str, is_error: bool
) -> None:
    error = KeyError("the app's")

    def read() -> Any:
        if is_error:
            raise error
        return REPLY

    def fail(*_: Any) -> Any:
        raise LookupError("ours")

    monkeypatch.setattr(waiting.Waiting, broken, fail)
    outcome = ended(*asked(process, read))
    assert outcome is error if is_error else outcome == REPLY
    is_reached = broken == "begin_plain" or is_error == (broken == "note_plain")
    assert process.is_closed == is_reached, "where it fails, the process is watched no more"


def got_interrupted(read: Read) -> None:
    arrives = threading.Event()
    arrives.set()
    with pytest.raises(KeyboardInterrupt):
        tracking.get(rays_get(arrives, read, threading.Event()), tracked(ray.ObjectRef(b"1" * 28), "driver/0/B:1/1"))


def test_who_is_told_of_a_ctrl_c_finds_the_program_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, Any]] = []

    def interrupted() -> Any:
        raise KeyboardInterrupt

    def told(_: Any) -> None:
        process.obey(Request(1))
        seen.append((recorded(process).status, recorded(process).waits[0].calls))

    monkeypatch.setattr(tracking, "ON_INTERRUPT", [told])
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        got_interrupted(interrupted)
        assert seen == [("blocked", ("driver/0/B:1/1",))]
        assert is_over(process)


@pytest.mark.parametrize("step", ["begin_plain", "end_plain"])
def test_a_wait_that_an_interruption_ends_amid_our_step_is_over(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    own = getattr(waiting.Waiting, step)

    def interrupted(*given: Any) -> Any:
        if step == "begin_plain":
            own(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting.Waiting, step, interrupted)
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        got_interrupted(lambda: REPLY)
        assert is_over(process)
        assert not process.waiting.hearing.is_waiting


@pytest.mark.parametrize("machine", ["A", "*worker:0123.1"])
def test_a_wait_that_is_left_behind_ends_with_its_call(machine: str) -> None:
    with lone_process(CallLedger(machine)) as process:
        tasks = process.worker_tasks
        call = tasks.enter("f:task-01", "f", 0) if process.is_worker else process.enter(None, "f")
        token = CURRENT.set(call)
        assert begun(process) is not None
        _ = tasks.leave(call) if process.is_worker else process.leave(call)
        CURRENT.reset(token)
        assert is_over(process)
        process.obey(Request(1))
        assert process.ledger.colour == 1


def test_a_timer_that_may_run_out_at_once_is_looked_for_before(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its signal is there, the timer is set no more, and the handler has not run."""
    monkeypatch.setattr(waiting, "is_timer_set", lambda thread: thread == threading.get_ident())
    with asking(process):
        assert begun(process) is None


FAILED = RayTaskError("f", "", ValueError("no"))


def raising(error: Exception) -> Callable[..., Any]:
    def work(*_: Any, **__: Any) -> Any:
        raise error

    return work


def logged(wait: Callable[..., Any], original: Callable[..., Any], count: int, **options: Any) -> list[int]:
    """The calls that are in the log of a process that has waited for `count` of its calls."""
    with lone_process() as process:
        with calls._begun("f", wire(process, 1), (object(),)):
            refs = []
            for number in range(1, count + 1):
                process.submit("B", "g", (), False, ())
                refs.append(tracked(ray.ObjectRef.from_random(), f"A/0/B/{number}"))
            with suppress(RayTaskError, RayActorError, GetTimeoutError):
                wait(original, refs, **options)
        return [*process.ledger.outputs["B"].log]


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_a_wait_in_which_no_reply_was_read_says_nothing(ready: int) -> None:
    """Its target may have accepted it in red: to a machine that is white yet it must stay in flight."""

    def found(refs: Any, **_: Any) -> Any:
        return refs[:ready], refs[ready:]

    assert logged(tracking.wait, found, 2, num_returns=2, timeout=0.1) == [1, 2]


def test_a_get_that_returns_says_that_all_were_accepted() -> None:
    assert logged(tracking.get, lambda refs, **_: [None for _ in refs], 2) == []


@pytest.mark.parametrize("error", [FAILED, RayActorError(), GetTimeoutError()])
def test_of_a_list_an_error_does_not_say_whose_it_is(error: Exception) -> None:
    assert logged(tracking.get, raising(error), 2) == [1, 2]


@pytest.mark.parametrize(("error", "expected"), [(FAILED, []), (RayActorError(), []), (GetTimeoutError(), [1])])
def test_the_error_of_one_call_is_its_own(error: Exception, expected: list[int]) -> None:
    assert logged(tracking.get, raising(error), 1) == expected
