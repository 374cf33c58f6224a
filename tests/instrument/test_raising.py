"""Which waits end in `DeadlockError`, when, and how often. No Ray but its refs."""

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import ray
from lone_process import BOUND_S, lone_process

import ray_snapshot as rs
from ray_snapshot import Verdict
from ray_snapshot.instrument import raising
from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.raising import Told
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.instrument.raising import Raiser
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.runtime.settings import settings_of
from ray_snapshot.verdicts import ReadyMade

ERROR = rs.DeadlockError("deadlock in app", snapshot_id="s", evidence={"cores": [["A"]]})


def a_ref() -> Any:
    return ray.ObjectRef.from_random()


def driver() -> Any:
    return lone_process(CallLedger(DRIVER, acts_unasked=True), Terms(raises=True))


def recorded(process: Process, number: int) -> None:
    """The snapshot is recorded while everything is as it is now."""
    process.ledger.request(number)
    process.recording.record(is_forced=True)


def begun(process: Process, ref: Any, timeout: float | None = None) -> int:
    wait_id, _ = process.waiting.begin([ref], 1, timeout, "app.py:7", is_blocking=False)
    return wait_id


def test_a_wait_that_a_snapshot_has_seen_ends_once_and_another_one_does_not() -> None:
    with driver() as process:
        seen, bounded = begun(process, a_ref()), begun(process, a_ref(), timeout=5.0)
        recorded(process, 1)
        later = begun(process, a_ref())
        process.condemn(1, None, ERROR)
        assert set(process.raising.errors) == {seen}, "not one with a timeout, nor one that began behind the snapshot"
        with pytest.raises(rs.DeadlockError, match="deadlock in app") as caught:
            process.raising.check(seen)
        assert caught.value is not ERROR
        assert caught.value.evidence == ERROR.evidence
        process.condemn(1, None, ERROR)
        assert not process.raising.errors, "it is told already"
        process.raising.check(seen)
        for wait_id in (seen, bounded, later):
            process.waiting.end(wait_id, [])
        kept = process.raising.open, process.raising.futures, process.raising.errors, process.raising.told
        assert not any(kept), "nothing is kept of a wait that is over"


def test_another_snapshot_or_another_call_is_no_reason() -> None:
    with driver() as process:
        begun(process, a_ref())
        recorded(process, 1)
        process.condemn(2, None, ERROR)
        process.condemn(1, "driver/0/A/1", ERROR)
        assert not process.raising.errors


def test_waits_for_one_ref_end_so_three_times_and_then_no_more() -> None:
    ref, ends = a_ref(), 0
    with driver() as process:
        for number in range(1, LIMITS.raised_waits + 3):
            wait_id = begun(process, ref)
            recorded(process, number)
            told = process.condemn(number, None, ERROR)
            ends += wait_id in process.raising.errors
            assert told == ((1, 0) if wait_id in process.raising.errors else (0, 1))
            process.waiting.end(wait_id, [])
    assert ends == LIMITS.raised_waits


def test_however_many_wait_for_one_ref_each_gets_it() -> None:
    ref = a_ref()
    with driver() as process:
        waits = [begun(process, ref) for _ in range(LIMITS.raised_waits + 2)]
        recorded(process, 1)
        assert process.condemn(1, None, ERROR) == (len(waits), 0)
        assert set(process.raising.errors) == set(waits)


def test_where_nothing_raises_no_ref_is_kept() -> None:
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        begun(process, a_ref())
        recorded(process, 1)
        assert process.condemn(1, None, ERROR) == (0, 0)
        assert not process.raising.open
        assert not process.raising.last_wait


def test_a_wait_for_some_of_a_list_goes_on_until_they_are_there_and_what_is_not_a_plain_ref_is_waited_for_in_one_piece() -> (
    None
):
    asked: list[float | None] = []
    first, second = a_ref(), a_ref()

    def original(refs: list[Any], *, num_returns: int, timeout: float | None, **_: Any) -> tuple[list[Any], list[Any]]:
        asked.append(timeout)
        ready = refs[: min(len(asked), num_returns)]
        return ready, refs[len(ready) :]

    with driver(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "_exist", lambda *_: False)
        assert tracking.wait(original, [first, second], num_returns=2) == ([first, second], [])
        assert asked == [LIMITS.wait_look_s] * 2
        asked.clear()
        assert tracking.wait(original, [first, second], num_returns=1, timeout=-1.0)[0] == [first]
        assert asked == [-1.0], "Ray says itself what it thinks of that"
        asked.clear()
        assert tracking.wait(original, [first, object()], num_returns=1)[0] == [first]
        assert asked == [None]


def test_what_exists_is_fetched_in_one_piece_with_what_is_left_of_the_time() -> None:
    asked: list[float | None] = []

    def original(_: Any, timeout: float | None = None) -> str:
        asked.append(timeout)
        if len(asked) == 1:
            raise ray.exceptions.GetTimeoutError
        return "a large object"

    with driver(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracking, "_exist", lambda *_: True)
        assert tracking.get(original, a_ref(), timeout=60.0) == "a large object"
        assert asked[0] == LIMITS.wait_look_s
        assert 50.0 < float(asked[1] or 0.0) <= 60.0
        asked.clear()
        assert tracking.get(original, a_ref()) == "a large object"
        assert asked == [LIMITS.wait_look_s, None]


def test_an_error_of_a_signal_handler_comes_as_it_is_where_ray_makes_a_system_error_of_it() -> None:
    class TimeIsUp(Exception):
        pass

    def handler(*_: object) -> None:
        raise TimeIsUp

    def original(_: Any, timeout: float | None = None) -> None:
        try:
            signal.raise_signal(signal.SIGALRM)
        except TimeIsUp as error:
            raise SystemError("returned a result with an exception set") from error

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with driver(), pytest.raises(TimeIsUp):
            tracking.get(original, a_ref())
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_blocked_get_ends_and_a_reply_that_comes_first_wins() -> None:
    """As `ray.get` is called in an app, but for Ray."""
    for comes in (False, True):
        with driver() as process, pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracking, "_exist", lambda *_: False)
            asked, outcome = threading.Event(), list[Any]()
            is_there = threading.Event()

            def original(_: Any, timeout: float | None = None, *, asked=asked, is_there=is_there) -> str:  # type: ignore[no-untyped-def]
                asked.set()
                assert timeout is not None, "it waits in slices"
                if is_there.wait(timeout):
                    return "the reply"
                raise ray.exceptions.GetTimeoutError

            def program(original=original, outcome=outcome) -> None:  # type: ignore[no-untyped-def]
                try:
                    outcome.append(tracking.get(original, a_ref()))
                except rs.DeadlockError as error:
                    outcome.append(error)

            thread = threading.Thread(target=program)
            thread.start()
            assert asked.wait(BOUND_S)
            recorded(process, 1)
            with process.lock:
                if comes:
                    is_there.set()
                process.condemn(1, None, ERROR)
            thread.join(BOUND_S)
            assert [str(one) for one in outcome] == (["the reply"] if comes else ["deadlock in app"])


def test_an_await_ends_and_what_comes_later_is_not_in_the_way() -> None:
    ref, future = a_ref(), concurrent.futures.Future[str]()
    future.object_ref = ref  # type: ignore[attr-defined]
    noise = list[Any]()

    async def program(process: Process) -> str:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tracking, "_is_known", lambda _: True)
            awaited = tracking.future_of(asyncio.wrap_future, future)
        recorded(process, 1)
        await asyncio.to_thread(process.condemn, 1, None, ERROR)
        try:
            await awaited
        except rs.DeadlockError as error:
            return str(error)
        return "nothing was raised"

    with driver() as process:
        assert asyncio.run(program(process)) == "deadlock in app"
        assert not process.raising.futures
    assert not noise
    assert future.done(), "Ray gives its result to no future that has one"


# ---- when ---------------------------------------------------------------------------------------------------------------


class Watched:
    """A watch, as far as it is told what to do; `refusals`: what its watcher answers, one after the other."""

    name = "app"
    is_asked_for = True
    is_closed = False

    def __init__(self, refusals: list[Any] | None = None, **settings: Any) -> None:
        self.settings = settings_of({"on_deadlock": "raise", "deadlock_grace": 10.0, **settings})
        self.detectors = [ReadyMade("termination"), ReadyMade("deadlock")]
        self.process = self._service = self
        self.refusals = refusals or []
        self.outcome = Told(1, 0)
        self.told: list[Any] = []
        self.begin_snapshot = self

    def remote(self) -> None:
        self.told.append("a snapshot")

    @property
    def condemn(self) -> Any:
        return _Condemn(self)


class _Condemn:
    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def __call__(self, number: int, call_id: str | None, error: rs.DeadlockError) -> Told:
        self.watched.told.append((number, call_id, str(error).partition(" (")[0]))
        return self.watched.outcome

    def remote(self, number: int, call_id: str, _: rs.DeadlockError) -> Any:
        self.watched.told.append((number, call_id))
        found: concurrent.futures.Future[Any] = concurrent.futures.Future()
        found.set_result(self.watched.refusals.pop(0))
        found.future = lambda: found  # type: ignore[attr-defined]
        return found


def a_raiser(watched: Watched, *, has_reporter: bool = True, end: Callable[[], object] = lambda: None) -> Raiser:
    return Raiser(watched, has_reporter=has_reporter, end=end)  # type: ignore[arg-type]


def member(machine: str, since: int) -> dict[str, Any]:
    began = f"2026-11-25T10:00:0{since}+00:00"
    waits = {"waits_for": ["B"], "mode": "all"}
    site = {"method": "ask", "call_site": "app.py:7"}
    return {"machine": machine, "class": machine, **site, "call": f"driver/0/{machine}/1", "since": began, **waits}


def deadlock(*cores: tuple[str, ...], by: tuple[str, ...] = (), behind: tuple[str, ...] = (DRIVER,)) -> Verdict:
    evidence = {
        "members": [member(name, at) for core in cores for at, name in enumerate(core)],
        "stuck_behind": [{**member(name, 0), "class": None} for name in behind],
        "cores": [list(core) for core in cores],
        "may_be_broken_by": list(by),
    }
    return Verdict(detector="deadlock", holds=True, evidence=evidence, snapshot_id="s", alarm=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `time.monotonic` says: the last item."""
    now = [0.0]
    monkeypatch.setattr(raising.time, "monotonic", lambda: now[-1])
    monkeypatch.setattr(raising.threading.Timer, "start", lambda self: self.function())
    return now


RAISED = (2, None, "deadlock in app")


def test_nothing_is_raised_before_a_core_has_outlasted_the_grace(clock: list[float]) -> None:
    watched = Watched()
    raiser = a_raiser(watched)
    raiser.hear(1, deadlock(("A", "B")))
    assert watched.told == ["a snapshot"], "one is asked for when the grace is over"
    clock.append(10.0)
    raiser.hear(2, deadlock(("A", "B", "C")))
    assert watched.told[1:] == [RAISED], "a core that has grown is the same"


def test_nothing_is_raised_where_something_that_acts_may_break_it(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(deadlock_grace=0.0)
    raiser = a_raiser(watched)
    for number in (1, 2):
        raiser.hear(number, deadlock(("A", "B"), by=("Watchdog-0",)))
    assert not watched.told
    said = "ray-snapshot: nothing is raised: the deadlock may yet be broken by Watchdog-0\n"
    assert capsys.readouterr().err == said, "once"


@pytest.mark.parametrize(
    ("how", "behind", "said"),
    [
        ({"on_deadlock": "exit"}, (), "the program is not ended: the deadlock may yet be broken by driver"),
        ({"victim": "youngest"}, (), "nothing is raised: the deadlock may yet be broken by driver"),
        ({}, (DRIVER,), "nothing is raised: the deadlock may yet be broken by driver"),
        ({}, (), ""),
    ],
    ids=["the program would end", "a call would get an error", "the program would get one", "nobody would"],
)
def test_why_nothing_is_done_is_said_where_something_would_be(
    clock: list[float], capsys: pytest.CaptureFixture[str], how: dict[str, Any], behind: tuple[str, ...], said: str
) -> None:
    watched = Watched(deadlock_grace=0.0, **how)
    found = deadlock(("A", "B"), by=("driver",), behind=behind)
    a_raiser(watched).hear(1, found)
    assert not watched.told
    assert capsys.readouterr().err.strip() == (said and f"ray-snapshot: {said}")


def test_who_is_told_of_a_raise_hears_of_none_that_came_too_late(clock: list[float]) -> None:
    watched, heard = Watched(deadlock_grace=0.0), list[rs.DeadlockError]()
    raiser = a_raiser(watched)
    raiser.on_raise = heard.append
    for number, outcome in ((1, Told(0, 0)), (2, Told(0, 1)), (3, Told(1, 0))):
        watched.outcome = outcome
        raiser.hear(number, deadlock(("A", "B")))
    assert len(heard) == 1


# ---- in whom ------------------------------------------------------------------------------------------------------------


def test_the_youngest_call_gets_it_and_the_next_one_only_if_that_does_not_help(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched([(None, 4), ("Ray would run it again", 7)], deadlock_grace=0.0, victim="youngest")
    raiser = a_raiser(watched)
    raiser.hear(3, deadlock(("A", "B")))
    raiser.hear(4, deadlock(("A", "B")))
    assert watched.told == [(3, "driver/0/B/1"), "a snapshot"], "snapshot 4 may have seen it as it was"
    clock.append(LIMITS.unwind_s - 0.1)
    raiser.hear(5, deadlock(("A", "B")))
    assert watched.told[2:] == [], "it may be on its way out, on a busy machine"
    clock.append(LIMITS.unwind_s)
    raiser.hear(6, deadlock(("A", "B")))
    assert watched.told[2:] == [(6, "driver/0/A/1"), (6, None, "deadlock in app")], "and at last the program"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "ray-snapshot: to break the deadlock, DeadlockError is raised in B.ask() (app.py:7)",
        "ray-snapshot: not raised in A.ask(): Ray would run it again",
    ]


AT_ONCE, YOUNGEST = {"deadlock_grace": 0.0}, {"deadlock_grace": 0.0, "victim": "youngest"}
NONE, ONE = Verdict(detector="deadlock", holds=False), deadlock(("A", "B"))
TWO, OWN = deadlock(("A", "B"), ("C", "D")), deadlock((DRIVER, "A"), behind=())
OWN_AND_YOUNG = deadlock((DRIVER, "A"), ("C", "D"), behind=())

HEARD: dict[str, tuple[dict[str, Any], list[Any], list[tuple[float, int, Verdict]], list[Any]]] = {
    "a core that was gone begins anew, and a young one delays who may be behind it": (
        {}, [], [(0, 1, ONE), (9, 1, NONE), (9.5, 1, ONE), (12, 1, TWO), (21, 1, TWO), (22, 2, TWO)], [RAISED],
    ),
    "a program that is not stuck gets no error": (AT_ONCE, [], [(0, 1, deadlock(("A", "B"), behind=()))], []),
    "the core of the program counts, and not how young another is": (
        {}, [], [(0, 1, OWN), (10, 2, OWN_AND_YOUNG)], [RAISED],
    ),
    "other detectors are not its affair": (AT_ONCE, [], [(0, 1, ONE.model_copy(update={"detector": "money"}))], []),
    "another core is broken while one still ends": (
        YOUNGEST, [(None, 4), (None, 5)], [(0, 3, ONE), (0, 5, TWO)], [(3, "driver/0/B/1"), (5, "driver/0/D/1")],
    ),
    "a deadlock that comes again finds its calls untried": (
        YOUNGEST, [(None, 1), (None, 5)], [(0, 1, ONE), (0, 2, NONE), (0, 5, ONE)],
        [(1, "driver/0/B/1"), (5, "driver/0/B/1")],
    ),
    "who comes too late tries with the next verdict": (
        YOUNGEST, [None, (None, 5)], [(0, 1, ONE), (0, 4, ONE)], [(1, "driver/0/B/1"), (4, "driver/0/B/1")],
    ),
}  # fmt: skip
"""The settings, what the watcher answers, what is heard when of which snapshot, and what is told in whom."""


@pytest.mark.parametrize(("settings", "refusals", "heard", "told"), HEARD.values(), ids=HEARD)
def test_what_is_raised(clock: list[float], settings: Any, refusals: list[Any], heard: Any, told: list[Any]) -> None:
    watched = Watched([*refusals], **settings)
    raiser = a_raiser(watched)
    for now, number, verdict in heard:
        clock.append(now)
        raiser.hear(number, verdict)
    assert [one for one in watched.told if one != "a snapshot"] == told


# ---- the end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_reporter", [False, True])
def test_a_program_is_ended_once_and_its_report_was_told(
    clock: list[float], capsys: pytest.CaptureFixture[str], has_reporter: bool
) -> None:
    ends: list[str] = []
    raiser = a_raiser(
        Watched(deadlock_grace=0.0, on_deadlock="exit"), has_reporter=has_reporter, end=lambda: ends.append("it ends")
    )
    raiser.hear(1, deadlock(("A", "B")))
    raiser.hear(2, deadlock(("A", "B")))
    assert ends == ["it ends"]
    said = capsys.readouterr().err
    assert said.count("deadlock in app (snapshot s)") == (not has_reporter), "once, by whoever does"
    assert said.count("the program ends, with exit code 3") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on_deadlock": "explode"}, "on_deadlock"),
        ({"on_deadlock": "raise", "victim": "oldest"}, "youngest"),
        ({"victim": "youngest"}, 'belongs to on_deadlock="raise"'),
        ({"on_deadlock": "raise", "deadlock_grace": -1}, "deadlock_grace"),
    ],
)
def test_settings_that_mean_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(rs.SettingError, match=said):
        settings_of(given)


@pytest.mark.contract
def test_machines_of_ones_own_are_told_that_it_is_for_watched_apps() -> None:
    with pytest.raises(rs.SettingError, match=r"on_deadlock.*an app that is watched"):
        rs.System("bank", on_deadlock="raise")  # type: ignore[call-arg]
