"""Which errors of calls and of tasks of asyncio count as read, and which the watcher still tells. No Ray runs."""

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from ray.exceptions import AsyncioActorExit

from ray_snapshot.detectors.happened import sentence
from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.deaths import Life, in_words, is_meant
from ray_snapshot.instrument.process import failures
from ray_snapshot.instrument.process.ended_children import EndedChild
from ray_snapshot.instrument.process.ended_threads import ENDED_THREADS, handled, note_failed_tasks
from ray_snapshot.instrument.process.failures import Failures, Raised
from ray_snapshot.instrument.process.reports import LongWait, ProcessReport
from ray_snapshot.instrument.watcher.incidents import Incidents, Restarts
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot, ResolvedWait
from ray_snapshot.protocol.calls import Awaited, CallWait, MachineReport, RunningCall

CALL = "driver/0/A:1/1"


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "is_connected", lambda: True)
    monkeypatch.setattr(task_shape, "current_task", lambda: SimpleNamespace(hex=lambda: "task"))


def fail() -> None:
    {}["gone"]


def error_of(work: Any) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError


@pytest.mark.usefixtures("task")
def test_the_line_is_the_users_innermost_one_and_a_run_that_ends_well_is_as_if_it_was_read() -> None:
    found = Failures()
    found.ended(CALL, "work", error_of(lambda: __import__("json").loads("{")), is_retried=True)
    assert found.raised[CALL].call_site.rpartition(":")[0] == __file__, "not a line of json"
    assert (found.raised[CALL].error, found.raised[CALL].method) == ("JSONDecodeError", "work")
    found.ended(f"{CALL}#2", "work", None, is_retried=True)
    assert (found.raised, [key for key, _ in found.read]) == ({}, ["task"])
    for error in (
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        AsyncioActorExit(),
        RolledBackError("", snapshot_id=None),
    ):
        found.ended(CALL, "work", error, is_retried=False)
    assert not found.raised


@pytest.mark.usefixtures("task")
def test_the_newest_are_kept_and_it_is_known_until_when_not_all() -> None:
    found, error = Failures(), error_of(fail)
    for number in range(LIMITS.raised_errors + 5):
        found.ended(f"driver/0/A:1/{number}", "work", error, is_retried=False)
    assert next(iter(found.raised)) == "driver/0/A:1/5"
    for number in range(LIMITS.read_errors + 1):
        found.was_read(str(number))
    assert 0 < found.forgotten <= found.read[0][1]
    found.told({str(number) for number in range(10)})
    assert found.read[0][0] == "10"


class _Ref:
    def __init__(self, name: str) -> None:
        self.name = name

    def is_nil(self) -> bool:
        return not self.name

    def task_id(self) -> Any:
        return SimpleNamespace(hex=lambda: self.name)


def test_an_error_is_read_by_its_ref_or_by_its_process_and_not_where_it_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Failures()
    monkeypatch.setattr(failures, "FAILURES", found)

    def _deserialize_object(object_ref: Any) -> Any:
        return failures.read(lambda _: SimpleNamespace(pid=17), b"")

    def raise_errors() -> Any:
        return _deserialize_object(_Ref("dropped"))

    _deserialize_object(_Ref("got"))
    _deserialize_object(_Ref(""))
    raise_errors()
    assert [key for key, _ in found.read] == ["got", "process 17"]


def raised(number: int, **more: Any) -> Raised:
    given = {"method": "work", "error": "KeyError", "at": float(number), "call_site": "a.py:1", "task": f"t{number}"}
    return Raised(call_id=f"driver/0/A:1/{number}", **{**given, "is_retried": False, "pid": number, **more})


def report(*those: Raised, **more: Any) -> ProcessReport:
    return ProcessReport(MachineReport("A:1", 0, 0, 0), 0.0, raised=those, **more)


def unread(happened: Incidents, *machines: str, now: float = 100.0) -> list[float]:
    return [one["at"] for one in happened.unread(cut_of(*machines), now)]


def cut_of(*machines: str) -> CompletedCallSnapshot:
    """A snapshot in which these machines are at rest."""
    return CompletedCallSnapshot(1, {name: MachineReport(name, 0, 0, 1) for name in machines}, (), (), (), (), ())


def test_what_is_read_later_by_any_process_is_told_no_more_and_the_rest_outlives_its_process() -> None:
    happened = Incidents()
    happened.note({"A:1": report(*map(raised, range(1, 5)))})
    assert unread(happened, "driver") == [1.0, 2.0, 3.0, 4.0]
    happened.note({"B:1": report(read=("t1", "process 3"))})
    assert unread(happened, "driver") == [2.0, 4.0]
    assert unread(happened, "B:1") == [], "who has called may have read it before it died"
    happened.note({"A:1": report(*map(raised, range(1, 5)))})
    assert unread(happened, "driver") == [2.0, 4.0], "it is known that it was read"
    happened.note({"B:1": report(read_forgotten=2.0)})
    happened.note({"A:1": report(*map(raised, range(1, 5)), raised(6, pid=3))})
    assert unread(happened, "driver") == [4.0, 6.0]
    happened.note({"B:1": report(read=("t7", "process 8"))})
    happened.note({"A:1": report(raised(7), raised(8), raised(9, pid=8))})
    assert unread(happened, "driver") == [4.0, 6.0], "they were read in the cut before, and raised behind it"
    happened.note({"A:1": report(*map(raised, range(10, 10 + 2 * LIMITS.happened_items)))})
    assert len(unread(happened, "driver")) == LIMITS.happened_items


def test_of_a_call_that_may_run_again_it_is_told_after_a_while() -> None:
    happened = Incidents()
    happened.note({"A:1": report(raised(95, is_retried=True))})
    assert unread(happened, "driver") == []
    assert unread(happened, "driver", now=106.0) == [95.0]
    happened.joined("A:1", {"incarnation": 0}, 106.0)
    assert unread(happened, "driver", now=106.0) == [], "its next process runs it"


def test_nothing_is_told_of_an_error_that_others_may_have_read_through_a_ref_that_was_passed_on() -> None:
    happened = Incidents()
    happened.note({"A:1": report(raised(1)), "driver": report(passed_on={"B:1"})})
    assert unread(happened, "driver") == [1.0]
    happened.note({"driver": report(passed_on={"A:1"})})
    assert unread(happened, "driver") == []
    happened.note({"driver": report(passed_on=None)})
    assert unread(happened, "driver") == []


def test_facts_of_one_kind_push_out_none_of_another() -> None:
    happened = Incidents()
    for at in (0.0, 1.0, 2.0):
        happened.joined("M:1", {"pid": 1}, at)
    children = tuple(EndedChild(pid, "grep", "exit code 1") for pid in range(20))
    reports = {name: replace(report(ended_children=children), recorded_at=9.0) for name in ("A:1", "B:1", "C:1")}
    told = happened.told(cut_of(), reports, {"m": Life(False, 3, 2.0)}, {"m": "M:1"}, 9.0, is_covered=True)
    assert Counter(one["kind"] for one in told) == {"child_ended": LIMITS.happened_items, "restarting": 1}


def test_a_child_that_is_gone_while_something_waits_that_waited_when_it_was_seen_is_told() -> None:
    gone = EndedChild(7, "python3", "", 5.0)
    for since, told in ((4.0, ["python3"]), (6.0, [])):
        about = replace(report(ended_children=(gone,)), long_waits=(LongWait(since, "a.py:7"),))
        found = Incidents().told(cut_of(), {"A:1": about}, {}, {}, 9.0, is_covered=True)
        assert [one["program"] for one in found] == told


def restarted(happened: Incidents, *running: str, waits: tuple[ResolvedWait, ...] = ()) -> Any:
    """What is told of an actor that Ray has started again; `running`: the calls that run there."""
    calls = tuple(RunningCall(call, "run", 1.0, "driver") for call in running)
    cut = CompletedCallSnapshot(1, {"M:1": MachineReport("M:1", 0, 0, 1, calls=calls)}, (), waits, (), (), ())
    told = happened.told(cut, {}, {"m": Life(False, 1, 2.0)}, {"m": "M:1"}, 9.0, is_covered=True)
    return next((one for one in told if one["kind"] == "restarted"), None)


def test_of_an_actor_that_died_once_it_is_told_why_and_which_call_nothing_waits_for() -> None:
    happened, call = Incidents(), "driver/0/M:1/1"
    assert restarted(happened, call) is None, "it has not died"
    assert happened.told(cut_of(), {}, {}, {}, 4.0, is_covered=True) == (), "it is not in a snapshot while it is gone"
    happened.joined("M:1", {"pid": 7}, 5.0)
    assert happened.unknown == {7}
    happened.causes[7] = "Worker exits with exit code 70"
    told = {"kind": "restarted", "machine": "M:1", "at": 5.0, "count": 1, "cause": "exit code 70"}
    assert restarted(happened) == told | {"lost": [{"method": "run", "machine": "driver"}]}
    assert restarted(happened, f"{call}#2") == told | {"lost": []}, "Ray runs it again"
    wait = ResolvedWait("driver", CallWait(1, None, (Awaited(call),), 1, 1.0), (None,), ("M:1",), None)
    assert restarted(happened, waits=(wait,)) == told | {"lost": []}, "who waits for it is told of its error"
    happened.told(cut_of("M:1"), {}, {"m": Life(True, 1, 2.0)}, {"m": "M:1"}, 9.0, is_covered=True)
    assert not happened.running | happened.died_in, "it is not started again"


def test_of_an_actor_that_was_meant_to_end_and_is_started_again_a_call_that_is_lost_is_told_alone() -> None:
    happened = Incidents()
    restarted(happened, "driver/0/M:1/1")
    happened.joined("M:1", {"pid": 7}, 5.0)
    happened.causes[7] = "INTENDED_USER_EXIT"
    assert restarted(happened)["lost"]
    happened.joined("M:1", {"pid": 7}, 6.0)
    assert restarted(happened) is None


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (["load", "load"], ("load", True, [2, 2])),
        (["load", "", "load"], ("load", False, [2, 3])),
        (["", "load", ""], ("load", False, [1, 3])),
        (["", ""], ("", False, [2, 2])),
    ],
)
def test_where_an_actor_died_is_told_also_if_once_it_was_seen_at_rest(ends: list[str], told: Any) -> None:
    happened = Incidents()
    for at, method in enumerate(["", *ends]):
        happened.joined("M:1", {"pid": 1}, float(at))
        happened.at["M:1"] = method, "a.py:7"
    happened.ended_at["M:1"] = [(method, "a.py:7") for method in ends]
    (one,) = happened.loops({"m": Life(False, 3, 2.0)}, {"m": "M:1"}, cut_of(), 9.0)
    assert (one["method"], one["is_each"] and one["is_seen"], one["of_ends"]) == told


@pytest.mark.usefixtures("task")
def test_what_the_apps_exceptions_call_a_cause_is_not_asked() -> None:
    class OwnError(Exception):
        @property
        def cause(self) -> None:
            raise AssertionError

    found = Failures()
    found.ended(CALL, "work", OwnError(), is_retried=False)
    assert found.raised[CALL].error == "OwnError"


def test_a_loop_of_restarts_is_told_until_one_life_is_longer_than_two_before() -> None:
    restarts = Restarts(0.0)
    for at in (0.0, 90.0, 180.0):
        restarts.add(at)
    assert restarts.go_on(180.0 + 2 * 90.0 + LIMITS.restarts_spare_s)
    assert not restarts.go_on(181.0 + 2 * 90.0 + LIMITS.restarts_spare_s)
    seldom = Restarts(0.0)
    for at in (0.0, 3_600.0, 7_200.0):
        seldom.add(at)
    assert not seldom.go_on(7_201.0), "three in ten hours are no loop"


TEXT = 'actor_died_error_context {{ error_message: "{}" reason: {} }}'


@pytest.mark.parametrize(
    ("cause", "words", "meant"),
    [
        (TEXT.format("killed", "RAY_KILL"), "killed by ray.kill", True),
        (TEXT.format("all references were removed", "OUT_OF_SCOPE"), "no handle of it was left", True),
        (TEXT.format("INTENDED_USER_EXIT exit code 0. exit_actor() is called.", "WORKER_DIED"), "by exit_actor", True),
        (TEXT.format("Worker exits with an exit code 3.", "WORKER_DIED"), "exit code 3", False),
        (
            TEXT.format("connection error code 2. (1) killed by the OOM killer", "WORKER_DIED"),
            "killed by a signal, or by os._exit: Ray records no exit code",
            False,
        ),
        ('oom_context { error_message: "exit code 1" }', "out of memory: Ray has killed it", False),
        (
            "creation_task_failure_context { formatted_exception_string: "
            '"Traceback:\\n  raise OwnError\\napp.errors.OwnError: a secret: 7\\n" }',
            "its constructor raised OwnError",
            False,
        ),
        ("", "Ray records no cause", False),
    ],
)
def test_causes_of_deaths_in_words(cause: str, words: str, meant: bool) -> None:
    assert (in_words(cause), is_meant(cause)) == (words, meant)


async def fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("is_looked_for", [True, False])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_task_that_failed_is_told_once_and_python_still_says_that_nothing_has_read_it(
    new_loop: Callable[[], asyncio.AbstractEventLoop], is_looked_for: bool
) -> None:
    said: list[str] = []
    ENDED_THREADS.clear()
    shape.replace_loop_errors(handled)

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
        unread = asyncio.create_task(fails(), name="pull-6")
        others = [asyncio.create_task(fails(), name="read"), asyncio.create_task(asyncio.sleep(60), name="cancelled")]
        others[1].cancel()
        await asyncio.wait([unread, *others])
        others[0].exception()
        for _ in range(2 * is_looked_for):
            note_failed_tasks()
        del unread
        gc.collect()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(program())
    shape.restore()
    (told,) = (one for one in ENDED_THREADS if one.is_task)
    assert (told.thread, told.error, told.call_site) == (
        "pull-6",
        "ValueError",
        f"{__file__}:{fails.__code__.co_firstlineno + 1}",
    )
    assert said == ["Task exception was never retrieved"]
    row = {"kind": "thread_ended", "machine": "Sandbox-0", "thread": told.thread, "error": told.error, "is_task": True}
    row |= {"at": "2026-03-01T10:01:00+00:00", "call_site": "sandbox.py:7"}
    text = sentence(row, datetime(2026, 3, 1, 10, 2, tzinfo=UTC))
    assert text == "Sandbox-0: task pull-6 was ended by ValueError at 10:01:00 (sandbox.py:7)"
