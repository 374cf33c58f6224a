"""What is said of a deadlock, and what is told beside it, of apps whose ledgers are written by hand. No Ray in here."""

from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from lone_app import Ledgers, snapshot_of

from ray_snapshot.detectors import Deadlock
from ray_snapshot.instrument.hooks import calls
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.polls import Poll, PolledMethod
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.watcher import joined
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, LONG_S, NO_CALL
from ray_snapshot.protocol.calls import CallLedger, CallWait, awaited, call_id_of, parsed
from ray_snapshot.protocol.tasks import call_of_task, task_name, worker_name
from ray_snapshot.runtime.refs import put_ref

# ---- a call that is parked on its actor's own loop ----------------------------------------------------------------------


class Parked(Ledgers):
    """A driver that waits for a call of actor `a`, which is parked; beside it actors `b` and `c` that have no handle of `a`."""

    def __init__(self) -> None:
        super().__init__("a", "b", "c", slots=1_000)
        self.get = self.call(DRIVER, "a")
        self.wait(DRIVER, None, self.get)
        self.park("a", self.get)

    def callback(self, machine: str, call_id: str) -> None:
        self.ledgers[machine].waits[99] = CallWait(99, None, awaited([call_id]), 1, 0.0, is_callback=True)

    def status_of(self, machine: str) -> str:
        return str(self.snapshot().machines[machine].status)


def _is_stuck_itself(app: Parked) -> None:
    back = app.call("b", "a")
    app.park("a", back)
    app.wait("b", app.call("a", "b"), back)


def _a_thread_and_no_slot(app: Parked) -> None:
    app.known["b"]["threads"] = Threads(parked=("t",))
    app.facts["b"]["max_concurrency"] = 1
    app.park("b", app.call(DRIVER, "b"))
    app.call(DRIVER, "b", is_accepted=False)


def _its_event_has_come(app: Parked) -> None:
    wait_id = app.park("b", app.call(DRIVER, "b"))
    assert app.verdict().holds is True
    app.ledgers["b"].ready(wait_id)


def _has_been_answered(app: Parked) -> None:
    call = app.call("b", "c")
    app.ledgers["c"].finish(call)
    app.wait("b", app.call("c", "b"), call)


def _knows(machine: str, **about: Any) -> Callable[[Parked], None]:
    return lambda app: app.known[machine].update(about)


WOKEN: dict[str, tuple[Callable[[Parked], Any], bool | None]] = {
    "nothing": (lambda app: None, True),
    "a call that its actor has made, and that runs": (lambda app: app.call("a", "b"), False),
    "one that is on its way": (lambda app: app.call("a", "b", is_accepted=False), False),
    "one that is stuck itself": (_is_stuck_itself, True),
    "a call that another has made": (lambda app: app.park("b", app.call(DRIVER, "b")), True),
    "a callback of who has a handle": (lambda app: app.callback(DRIVER, app.call(DRIVER, "b")), False),
    "a callback on the reply of the parked call": (lambda app: app.callback(DRIVER, app.get), True),
    "a ref that has come": (lambda app: app.known["a"].update(passed=(app.call(DRIVER, "b"),)), False),
    "a plain task of its actor": (_knows("a", loose=Loose(started=1, pending=1)), None),
    "one that has ended": (_knows("a", loose=Loose(started=1)), True),
    "plain tasks of another that were given nothing": (_knows("b", loose=Loose(started=3, pending=1)), True),
    **{
        f"a handle of {machine}'s that went to {place}": (_knows(machine, loose=loose), None)
        for machine in (DRIVER, "b")
        for place, loose in {"a task": Loose(started=1, given=1), "the store": Loose(scattered=1)}.items()
    },
    "a name that other programs know": (lambda app: app.facts["a"].update(name="the one", is_private=False), None),
    "a thread that acts": (_knows("b", threads=Threads(acting=("t",))), None),
    "what acts on a loop": (_knows("b", background="timers on the loop"), None),
    "a parked thread while nothing goes on": (_knows("b", threads=Threads(parked=("t",))), True),
    "one, and a call that finds no slot": (_a_thread_and_no_slot, True),
}


@pytest.mark.parametrize(("may_wake", "holds"), WOKEN.values(), ids=WOKEN)
def test_a_parked_call_is_in_a_deadlock_unless_something_may_wake_it(may_wake: Any, holds: bool | None) -> None:
    app = Parked()
    may_wake(app)
    assert app.verdict().holds is holds


def test_threads_in_the_apps_own_code_that_wait_as_the_parked_call_does_are_told_beside_it() -> None:
    app = Parked()
    own, idle = "plan_0 (/srv/app.py:21, in queue.Queue.get)", f"pool_0 ({futures.thread.__file__}:81)"
    for name in ("a", "b"):
        app.known[name]["threads"] = Threads(parked=(own, idle))
    assert app.snapshot().coverage["parked_threads"] == {"a": [own]}
    assert app.verdict().evidence["callers"][0] == f"thread {own} of a waits, too"


@pytest.mark.parametrize(
    "goes_on",
    [
        lambda app: app.call("c", "b"),
        lambda app: app.call("c", "b", is_accepted=False),
        _has_been_answered,
        _knows(DRIVER, loose=Loose(started=1, pending=1)),
        _its_event_has_come,
    ],
    ids=["runs", "is on its way", "has been answered", "has a task", "was parked"],
)
def test_a_thread_that_is_parked_may_be_woken_by_whatever_goes_on(goes_on: Callable[[Parked], None]) -> None:
    app = Parked()
    app.known["b"]["threads"] = Threads(parked=("t",))
    goes_on(app)
    assert app.verdict().holds is None


def test_a_machine_says_in_short_what_its_rows_of_waits_say_or_to_see_them() -> None:
    app = Parked()
    driver, parked = (app.snapshot().machines[name] for name in (DRIVER, "a"))
    assert (driver.wait_mode, driver.wait_k, driver.waits_for) == ("all", 1, ("a",))
    assert (parked.wait_mode, parked.wait_k, parked.waits_for) == ("any", 1, ("a", DRIVER))
    app.park("a", app.call("b", "a"))
    both = app.snapshot().machines["a"]
    assert (both.wait_mode, both.wait_k, set(both.waits_for)) == ("see waits", None, {"a", "b", DRIVER})


def test_who_does_nothing_acts_while_its_callback_has_a_reply_to_come_that_is_sent() -> None:
    app = Parked()
    call_id = app.call("c", "b")
    app.callback("c", call_id)
    assert app.status_of("c") == "passive"
    app.ledgers["b"].finish(call_id)
    assert app.status_of("c") == "active"


def test_the_open_calls_are_looked_through_once_however_many_calls_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(joined, "parsed", lambda call_id: (looked.append(call_id), parsed(call_id))[1])
    app = Parked()
    for _ in range(50):
        app.park("a", app.call(DRIVER, "a"))
        app.call(DRIVER, "b")
    assert app.verdict().holds is True
    assert len(looked) < 1_000


def test_of_refs_that_came_long_ago_it_is_only_known_who_answers_them() -> None:
    app = Parked()
    app.known["a"]["passed_before"] = ("b",)
    assert app.verdict().holds is True, "b does nothing"
    app.call(DRIVER, "b")
    assert app.verdict().holds is False


def test_an_actor_with_a_name_is_called_by_tasks_that_run_or_are_to_begin_and_by_no_worker_that_idles() -> None:
    """Any machine may find it by its name. A worker is none, beside its tasks."""
    app = Parked()
    app.facts["a"] |= {"name": "a", "is_private": True}
    worker, task = worker_name("1", 1), task_name("f", "1")
    _joins(app, worker)
    assert app.verdict().holds is True
    app.ledgers[DRIVER].start_task("f", task, (), 0.0)
    assert app.verdict().holds is False, "it is about to begin"
    call = app.ledgers[worker].accept_task(task, "f", 0.0)
    assert app.verdict().holds is False, "it runs"
    app.ledgers[worker].finish_task(call, 0.0)
    assert app.verdict().holds is True
    app.ledgers[worker].accept_task(task, "f", 0.0)
    app.call(worker, "b")
    assert "f()" in app.snapshot().tables["channels"]["source"].to_pylist(), "its calls are those of no ended task"


def test_an_actor_with_a_name_of_this_job_may_be_called_by_every_machine_and_by_tasks() -> None:
    app = Parked()
    app.facts["a"] |= {"name": "the one", "is_private": True}
    assert app.verdict().holds is True
    app.known["b"]["loose"] = Loose(started=1)
    assert app.verdict().holds is None, "a plain task may look it up"
    app.call(DRIVER, "b")
    assert app.verdict().holds is False, "b may, though it has no handle"


def _joins(app: Ledgers, worker: str) -> None:
    app.ledgers[worker] = CallLedger(worker, colour=app.coordinator.join(worker))
    app.facts[worker] = {"shown": "ray-worker-1", "class": "ray-worker"}


@pytest.mark.parametrize(("timeout_at", "holds"), [(5.0, False), (None, None)])
def test_a_loop_that_a_task_of_an_ended_call_blocks_goes_on_if_its_wait_is_bounded(
    timeout_at: float | None, holds: bool | None
) -> None:
    """As in Serve's controller, whose constructor leaves a task that calls `ray.wait(..., timeout=0)`."""
    app = Parked()
    app.known["a"]["blocking_call"] = call_id_of(DRIVER, 0, "a", 0)
    into_b = app.call("a", "b")
    app.wait("b", into_b, app.call("b", "a", is_accepted=False))
    app.wait("a", None, into_b, timeout_at=timeout_at, may_act=timeout_at is not None)
    assert app.verdict().holds is holds


# ---- slots --------------------------------------------------------------------------------------------------------------

EVENT = "threading.Event.wait"


@pytest.mark.parametrize(
    ("slots", "caller", "queued", "what", "holds"),
    [
        (2, DRIVER, 0, "queue.Queue.get", False),
        (1, "b", 0, "queue.Queue.get", True),
        (1, "b", 1, "queue.Queue.get", True),
        (1, DRIVER, 0, "queue.Queue.get", None),
        (1, DRIVER, 0, EVENT, None),
        (1, DRIVER, 1, EVENT, True),
        (1, "b", 0, EVENT, True),
    ],
)
def test_a_later_call_ends_a_local_wait_only_where_a_slot_is_free_and_one_of_no_caller_may_be_a_parked_service(
    slots: int, caller: str, queued: int, what: str, holds: bool | None
) -> None:
    """Actor `a` waits inside; the driver has its handle, and acts. `queued`: so many calls of it wait for a slot."""
    app = Ledgers("a", "b", slots=slots)
    run = None if caller == DRIVER else app.call(DRIVER, caller)
    get = app.call(caller, "a")
    if run is not None:
        app.wait(caller, run, get)
    for _ in range(queued):
        app.call(DRIVER, "a", is_accepted=False)
    app.park("a", get, what=what)
    assert app.verdict().holds is holds


# ---- a wait with a timeout that is begun again and again ------------------------------------------------------------------


class Again(Ledgers):
    """A driver that waits for a call of actor `a`, which waits so; beside it actor `b`."""

    def __init__(self, slots: int = 1) -> None:
        super().__init__("a", "b", slots=slots)
        self.get = self.call(DRIVER, "a")
        self.needs = self.wait(DRIVER, None, self.get)
        self.again(self.get)

    def again(self, call: str, *on: str, use: str = "open", what: str = "queue.Queue.get") -> None:
        told = {"may_act": True, "is_local": not on, "what": what, "call_site": "a.py:7"}
        wait = self.ledgers["a"].waits[self.wait("a", call, *on, **told)]
        poll = Poll(call, "", 0.0, (PolledMethod("", what, "a.py:7", 9, "", on),), use, (), wait=wait)
        self.known["a"].setdefault("polls", []).append(poll)


def _knows_a(app: Again) -> None:
    app.ledgers["b"].holds.add("a")
    app.call(DRIVER, "b")


def _waits_for_b(app: Again, runs: bool) -> None:
    app.known["a"].clear()
    call = app.call("a", "b")
    app.again(app.get, call)
    None if runs else app.wait("b", call, app.call("b", "a", is_accepted=False))


AGAIN: dict[str, tuple[int, Callable[[Again], Any], bool | None]] = {
    "no slot is free": (1, lambda app: None, None),
    "nobody goes on who would call it": (2, lambda app: None, None),
    "another goes on that has no handle of it": (1, lambda app: app.call(DRIVER, "b"), None),
    "one that has a handle, and finds a slot": (2, _knows_a, False),
    "and finds none": (1, _knows_a, None),
    "another call runs there": (2, lambda app: app.call(DRIVER, "a"), False),
    "another waits there alike": (2, lambda app: app.again(app.call(DRIVER, "a")), None),
    "a timer of its loop": (1, lambda app: app.known["a"].update(background="timers on the loop"), False),
    "the loop ends by itself": (1, lambda app: app.known["a"].clear() or app.again(app.get, use="bounded"), False),
    "it is for a reply that comes": (1, lambda app: _waits_for_b(app, runs=True), False),
    "and for one that does not": (1, lambda app: _waits_for_b(app, runs=False), None),
    "nobody waits for its end": (1, lambda app: app.ledgers[DRIVER].wake(app.needs), False),
}


@pytest.mark.parametrize(("slots", "beside", "holds"), AGAIN.values(), ids=AGAIN)
def test_a_wait_that_is_begun_again_and_again_is_judged_as_one_without_a_timeout_and_never_proven(
    slots: int, beside: Callable[[Again], Any], holds: bool | None
) -> None:
    app = Again(slots)
    beside(app)
    found = app.verdict(30.0)
    assert found.holds is holds
    of = ", 2 calls" if beside is AGAIN["another waits there alike"][1] else ""
    if holds is None:
        assert found.grade == "cannot be told"
        text = f"a (a.py:7{of}) has waited for 30 s in queue.Queue.get, again and again. Nothing else that "
        text += f"{'was observed' if of else 'runs'} can end this."
        assert found.sentence == f"Deadlock cannot be told: {text}"


# ---- `ray.get` of a list ends at the first error ------------------------------------------------------------------------


class OfAList(Ledgers):
    """Actor `a` waits for a list of calls; some call it back, and so are stuck until that wait ends."""

    def __init__(self) -> None:
        super().__init__("a", "b", "c", "d", driver_acts=False)
        self.asks = self.call(DRIVER, "a")

    def calling_back(self, target: str) -> str:
        found = self.call("a", target)
        self.wait(target, found, self.call(target, "a", is_accepted=False))
        return found

    def ended(self, target: str, *, is_error: bool) -> str:
        """Whether `a` has its reply is not recorded."""
        found = self.call("a", target)
        self.ledgers[target].finish(found, is_error=is_error)
        return found

    def retried(self, target: str, *, is_error: bool) -> str:
        header = self.ledgers["a"].submit(target, "m", None, 0.0, is_retried=True)
        for ends_in_error in (True, is_error):
            found = self.ledgers[target].accept(header, "m", 0.0)
            self.ledgers[target].finish(found, is_error=ends_in_error)
        return found

    def retried_behind_a_failure(self) -> str:
        failed = self.ended("c", is_error=True)
        self.retried("c", is_error=False)
        return failed

    def gone(self) -> str:
        found = self.call("a", "d")
        self.coordinator.calls.died("d")
        del self.ledgers["d"]
        return found


@pytest.mark.parametrize(
    ("other", "raises", "holds"),
    [
        (lambda app: app.call("a", "c"), True, False),
        (lambda app: app.call("a", "c"), False, True),
        (lambda app: app.ended("c", is_error=True), True, False),
        (lambda app: app.retried("c", is_error=False), True, None),
        (lambda app: app.retried("c", is_error=True), True, None),
        (OfAList.retried_behind_a_failure, True, False),
        (OfAList.gone, True, None),
    ],
    ids=["may fail", "ray.wait", "has failed", "ran again", "failed again", "another ran again", "died"],
)
def test_a_get_of_a_list_is_stuck_only_if_none_of_its_calls_that_are_open_can_end(
    other: Any, raises: bool, holds: bool | None
) -> None:
    app = OfAList()
    app.wait("a", app.asks, app.calling_back("b"), other(app), raises=raises)
    assert app.verdict().holds is holds


@pytest.mark.parametrize("is_answered", [False, True])
def test_it_waits_for_all_that_have_not_been_answered_well(is_answered: bool) -> None:
    app = OfAList()
    other = app.ended("c", is_error=False) if is_answered else app.calling_back("c")
    app.wait("a", app.asks, app.calling_back("b"), other, raises=True)
    verdict = app.verdict()
    assert verdict.holds is True
    (waiter,) = [record for record in verdict.evidence["members"] if record["machine"] == "a"]
    told = (waiter["waits_for"], waiter["mode"], "alternatives" in waiter)
    assert told == (["b"] if is_answered else ["b", "c"], "all", False)


# ---- what was put into the store ----------------------------------------------------------------------------------------


def of_two(*, is_stuck: bool = True, may_raise: bool = False) -> Ledgers:
    """Actor `a` waits for a call to `b`, whose call back waits for `a`."""
    app = Ledgers("a", "b", driver_acts=False)
    asks, runs = app.call(DRIVER, "a"), app.call("a", "b")
    if is_stuck:
        app.wait("b", runs, app.call("b", "a", is_accepted=False))
    app.wait("a", asks, runs, raises=True, may_raise=may_raise)
    return app


@pytest.mark.parametrize(
    ("is_stuck", "may_raise", "holds"), [(True, False, True), (True, True, None), (False, True, False)]
)
def test_an_error_that_may_be_there_already_makes_a_deadlock_unknown(
    is_stuck: bool, may_raise: bool, holds: bool | None
) -> None:
    assert of_two(is_stuck=is_stuck, may_raise=may_raise).verdict().holds is holds


@pytest.mark.parametrize(
    ("argument", "holds"), [(ray.ObjectRef(b"2" * 28), None), (put_ref(ray.ObjectRef(b"0" * 28)), False)]
)
def test_a_task_whose_argument_was_put_can_begin(argument: Any, holds: bool | None) -> None:
    app, task = of_two(is_stuck=False), task_name("part", "1")
    app.ledgers[DRIVER].start_task("part", task, None, 0.0, needs=calls.needs((argument,), None))
    app.wait(DRIVER, None, call_of_task(task))
    assert app.verdict().holds is holds


# ---- what a snapshot tells of waits that last ---------------------------------------------------------------------------

SITE = "app.py:8"


def with_a_task(source: str = "is stuck", since: float = -2 * LONG_S) -> Ledgers:
    """The driver waits for `pump`, in which a call is parked beside a task that waits for `source`; taken at 0."""
    app = Ledgers("pump", "source", "third", slots=9)
    take, given = app.call(DRIVER, "pump"), app.call("pump", "source")
    app.wait(DRIVER, None, take, since=since)
    app.park("pump", take, since, what="asyncio.Queue.get")
    app.wait("pump", None, given, since=since, call_site=SITE)
    if source == "is stuck":
        app.park("source", given, since, what="asyncio.Event")
    elif source == "waits for one that acts":
        app.wait("source", given, app.call("source", "third"), since=since)
    elif source == "has answered":
        app.ledgers["source"].finish(given)
    return app


def test_a_task_of_an_actors_own_makes_no_all_clear_where_it_waits_for_who_is_stuck() -> None:
    snapshot = with_a_task().snapshot()
    (one,) = snapshot.coverage["unexplained"]
    assert (one["machine"], one["call_site"]) == ("pump", SITE)
    assert one["what"] == "in a task of its own for replies of source"
    verdict = Deadlock().evaluate(snapshot)
    assert (verdict.holds, SITE in verdict.sentence) == (None, True)


@pytest.mark.parametrize(
    "given",
    [{"source": "acts"}, {"source": "waits for one that acts"}, {"source": "has answered"}, {"since": -LONG_S / 2}],
    ids=str,
)
def test_it_is_not_told_where_it_may_go_on(given: Any) -> None:
    snapshot = with_a_task(**given).snapshot()
    assert "unexplained" not in snapshot.coverage
    assert Deadlock().evaluate(snapshot).holds is False


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({"since": -2 * LONG_S}, True),
        ({"since": -LONG_S / 2}, False),
        ({"since": -2 * LONG_S, "beside": "a call"}, False),
        ({"since": -2 * LONG_S, "beside": "a call that is answered"}, True),
        ({"since": -2 * LONG_S, "owed": [("m", "driver/0/m/1")]}, False),
    ],
    ids=str,
)
def test_a_snapshot_tells_of_a_wait_for_an_object_that_has_lasted(given: Any, is_told: bool) -> None:
    beside = given.pop("beside", "")
    app = Ledgers("A")
    call = app.call(DRIVER, "A")
    if beside.endswith("answered"):
        app.ledgers["A"].finish(call)
    app.wait(DRIVER, None, call if beside else None, call_site="app.py:1", may_act=not beside, objects=1, **given)
    one = {"machine": DRIVER, "call_site": "app.py:1", "since": "1969-12-31T23:59:40+00:00", "what": NO_CALL}
    assert app.snapshot().coverage.get("unexplained") == ([one] if is_told else None)


def test_and_of_what_a_process_has_seen_awaited() -> None:
    app = Ledgers("A")
    app.known["A"]["long_waits"] = (LongWait(-42.0, "app.py:9"),)
    one = {"machine": "A", "call_site": "app.py:9", "since": "1969-12-31T23:59:18+00:00", "what": NO_CALL}
    assert app.snapshot().coverage["unexplained"] == [one]


@pytest.mark.parametrize("acts", ["nobody", "who runs it", "whom that needs"])
def test_and_of_a_thread_that_waits_for_a_reply_unless_one_acts_whom_that_needs(acts: str) -> None:
    app = Ledgers("A", "B", "C")
    call = app.call("A", "B")
    needed = app.call("B", "C")
    if acts != "who runs it":
        app.wait("B", call, needed)
    if acts != "whom that needs":
        app.wait("C", needed, call)
    app.known["A"]["long_waits"] = (LongWait(-42.0, "app.py:9", "in ray.get", (call,)),)
    assert bool(app.snapshot().coverage.get("unexplained")) is (acts == "nobody")


@pytest.mark.parametrize("is_one_running", [True, False])
def test_and_for_a_task_that_has_not_begun_unless_another_runs_behind_which_there_may_be_room(
    is_one_running: bool,
) -> None:
    app, worker, task = Ledgers("A"), worker_name("1", 1), task_name("f", "1")
    _joins(app, worker)
    app.ledgers["A"].start_task("f", task, (), 0.0)
    if is_one_running:
        app.ledgers["A"].start_task("f", other := task_name("f", "2"), (), 0.0)
        app.ledgers[worker].accept_task(other, "f", 0.0)
    app.known["A"]["long_waits"] = (LongWait(-42.0, "app.py:9", "in ray.get", (call_of_task(task),)),)
    assert bool(app.snapshot().coverage.get("unexplained")) is not is_one_running


# ---- one order of rows --------------------------------------------------------------------------------------------------

SHOWN = {DRIVER: DRIVER, "z": "Cook-0", "y": "Waiter-0", "x": "Waiter-1"}
"""Names for people, in another order than Ray's ids."""


def told(order: list[str]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """All rows, and the evidence of the deadlock, of an app whose processes report in this order.

    Each waiter asks the cook, which asks the one back that it serves; the other's order waits in line.
    """
    app = Ledgers("z", "y", "x", driver_acts=False)
    for waiter in ("x", "y"):
        call = app.call(DRIVER, waiter)
        wanted = app.call(waiter, "z", is_accepted=waiter == "y")
        app.wait(waiter, call, wanted)
        app.wait(DRIVER, None, call)
        if waiter == "y":
            app.wait("z", wanted, app.call("z", "y", is_accepted=False))
    facts = {name: {"shown": shown, "max_concurrency": 1} for name, shown in SHOWN.items()}
    found = snapshot_of(app.coordinator, {name: app.ledgers[name] for name in order}, facts)
    rows = {name: found.tables[name].to_pylist() for name in ("machines", "channels", "messages", "calls", "waits")}
    for one in (row for table in rows.values() for row in table):
        for name in ("recorded_at", "record_delay_ms", "snapshot_id", "run_id"):
            one.pop(name, None)
    return rows, Deadlock().evaluate(found).evidence


@given(st.permutations(sorted(SHOWN)))
def test_rows_and_evidence_are_the_same_whichever_process_reports_first(order: list[str]) -> None:
    rows, evidence = told(order)
    assert (rows, evidence) == told(sorted(SHOWN))
    assert [row["machine"] for row in rows["machines"]] == ["Cook-0", "Waiter-0", "Waiter-1", DRIVER]
    assert [record["machine"] for record in evidence["members"]] == ["Cook-0", "Waiter-0"]


# ---- what ought to have gone on since the snapshots before --------------------------------------------------------------


def test_a_reply_that_has_not_come_long_after_its_call_has_ended_may_never_come() -> None:
    app = Ledgers("A")
    call = app.call(DRIVER, "A")
    app.ledgers["A"].finish(call)
    wait_id = app.wait(DRIVER, None, call, call_site="app.py:1")
    assert app.verdict(0, LONG_S - 1).holds is False
    found = app.verdict(LONG_S)
    assert found.holds is None
    assert "driver (app.py:1) has waited for 10 s for the reply of A, which" in found.sentence
    app.ledgers[DRIVER].wake(wait_id)
    app.wait(DRIVER, None, call, since=LONG_S)
    assert app.verdict(LONG_S + 1).holds is False, "another wait"


def test_a_reply_that_nobody_is_seen_to_read_may_still_run_what_was_put_on_it() -> None:
    app = Ledgers("A", "B")
    get = app.call(DRIVER, "A")
    app.wait(DRIVER, None, get)
    asked = app.call("A", "B")
    app.park("A", get, what="concurrent.futures.Future.result")
    assert app.verdict(0.0).holds is False
    app.ledgers["B"].finish(asked)
    app.call(DRIVER, "B", is_accepted=False)
    assert app.verdict(1.0, LONG_S).holds is not True
    assert app.verdict(LONG_S + 1).holds is True


def test_a_call_that_nothing_keeps_from_beginning_may_never_begin() -> None:
    app = Ledgers("A", "B")
    app.wait(DRIVER, None, app.call(DRIVER, "A", is_accepted=False))
    assert app.verdict(0, LIMITS.delayed_call_s - 1).holds is False
    found = app.verdict(LIMITS.delayed_call_s)
    assert found.holds is None
    assert found.sentence.endswith("m of A has not begun for 20 s, though nothing that is seen keeps it from that.")
    app.wait("A", app.call("B", "A"), app.call("A", "B"))
    assert app.verdict(LIMITS.delayed_call_s + 1).holds is False, "the slot is taken"


def test_nobody_asks_for_a_call_that_nothing_waits_for() -> None:
    app = Ledgers("A")
    app.call(DRIVER, "A", is_accepted=False)
    assert app.verdict(0, LIMITS.delayed_call_s).holds is False


@pytest.mark.parametrize("in_order", [True, False])
def test_a_call_to_an_actor_in_order_waits_for_the_one_before_it_that_lacks_an_argument(in_order: bool) -> None:
    app = Ledgers("A", "B")
    app.facts["A"]["in_order"] = in_order
    argument = app.call(DRIVER, "B")
    app.call(DRIVER, "A", is_accepted=False, needs=(argument,))
    behind = app.call(DRIVER, "A", is_accepted=False)
    app.wait(DRIVER, None, behind)
    app.wait("B", argument, behind)
    assert app.verdict(0, 2 * LIMITS.delayed_call_s).holds is (True if in_order else None)


def test_an_actor_that_is_to_be_made_wakes_a_parked_call_no_sooner_than_its_constructor_begins() -> None:
    """Which may wait for room on a node."""
    app = Parked()
    app.ledgers[DRIVER].create("d", "__init__", None, 0.0)
    rows = app.snapshot().waits
    assert {row["on_call_id"] for row in rows if row["machine"] == "a" and row["on_machine"] == "d"} == {"driver/0/d/0"}
    assert app.verdict().holds is False, "it is about to begin"
