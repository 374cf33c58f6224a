"""A call that is parked on its actor's own loop is in no deadlock while a reply may wake it: no Ray in here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lone_app import snapshot_of

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.watcher import joined
from ray_snapshot.protocol.calls import CallLedger, CallWait, awaited, call_id_of, parsed
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.tasks import task_name, worker_name


class App:
    """A driver that waits for a call of actor `a`, which is parked; beside it actors `b` and `c` that have no handle of `a`."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.ledgers: dict[str, CallLedger] = {}
        for machine in ("driver", "a", "b", "c"):
            colour = self.coordinator.join(machine)
            self.ledgers[machine] = CallLedger(machine, colour=colour, acts_unasked=machine == "driver")
        get = self.call("driver", "a")
        self.ledgers["driver"].wait(None, (get,), 1, 0.0)
        self.ledgers["a"].wait(get, (), 1, 0.0, is_local=True)
        self.known: dict[str, dict[str, Any]] = {machine: {} for machine in self.ledgers}
        """What each process knows besides its report."""
        self.facts: dict[str, dict[str, Any]] = {
            machine: {"shown": machine, "max_concurrency": 1_000} for machine in self.ledgers
        }

    def call(self, source: str, target: str, *, is_accepted: bool = True) -> str:
        """The id of a call that was made, and runs from now on if it is accepted."""
        header = self.ledgers[source].submit(target, "m", None, 0.0)
        if is_accepted:
            return self.ledgers[target].accept(header, "m", 0.0)
        return call_id_of(source, header.incarnation, target, header.number)

    def verdict(self) -> bool | None:
        """Whether it is a deadlock, at one consistent moment."""
        return Deadlock().evaluate(self._snapshot()).holds

    def status_of(self, machine: str) -> str:
        """As its row has it."""
        return str(self._snapshot().machines[machine].status)

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self.coordinator, self.ledgers, self.facts, known=self.known)


def test_a_machine_says_in_short_what_its_rows_of_waits_say_or_to_see_them() -> None:
    app = App()
    driver, parked = (app._snapshot().machines[name] for name in ("driver", "a"))
    assert (driver.wait_mode, driver.wait_k, driver.waits_for) == ("all", 1, ("a",))
    assert (parked.wait_mode, parked.wait_k, parked.waits_for) == ("any", 1, ("a", "driver"))
    app.ledgers["a"].wait(app.call("b", "a"), (), 1, 0.0, is_local=True)
    both = app._snapshot().machines["a"]
    assert (both.wait_mode, both.wait_k, set(both.waits_for)) == ("see waits", None, {"a", "b", "driver"})


def test_a_parked_call_that_nothing_can_wake_is_a_deadlock_with_its_caller() -> None:
    assert App().verdict() is True


def test_a_call_that_its_actor_has_made_and_that_runs_may_wake_it_by_its_reply() -> None:
    app = App()
    app.call("a", "b")
    assert app.verdict() is False


def _callback_of(app: App, machine: str, call_id: str) -> None:
    app.ledgers[machine].waits[99] = CallWait(99, None, awaited([call_id]), 1, 0.0, is_callback=True)


def test_a_callback_of_who_has_a_handle_may_wake_it_when_its_reply_comes() -> None:
    app = App()
    _callback_of(app, "driver", app.call("driver", "b"))
    assert app.verdict() is False


def test_a_callback_on_the_reply_of_the_parked_call_itself_wakes_nothing() -> None:
    app = App()
    _callback_of(app, "driver", call_id_of("driver", 0, "a", 1))
    assert app.verdict() is True


def test_who_does_nothing_acts_while_its_callback_has_a_reply_to_come_that_is_sent() -> None:
    app = App()
    call_id = app.call("c", "b")
    _callback_of(app, "c", call_id)
    assert app.status_of("c") == "passive"
    app.ledgers["b"].finish(call_id)
    assert app.status_of("c") == "active"


def test_a_call_that_its_actor_has_made_and_that_is_on_its_way_may_wake_it_by_its_reply() -> None:
    app = App()
    app.call("a", "b", is_accepted=False)
    assert app.verdict() is False


def test_a_call_that_its_actor_has_made_and_that_is_stuck_itself_wakes_nothing() -> None:
    app = App()
    back = app.call("b", "a")
    app.ledgers["a"].wait(back, (), 1, 0.0, is_local=True)
    app.ledgers["b"].wait(app.call("a", "b"), (back,), 1, 0.0)
    assert app.verdict() is True


def test_a_call_that_another_has_made_and_that_runs_wakes_no_one_but_its_caller() -> None:
    app = App()
    app.ledgers["b"].wait(app.call("driver", "b"), (), 1, 0.0, is_local=True)
    assert app.verdict() is True


def test_a_call_whose_ref_has_come_from_another_may_wake_it_by_its_reply() -> None:
    app = App()
    app.known["a"]["passed"] = (app.call("driver", "b"),)
    assert app.verdict() is False


def test_the_open_calls_are_looked_through_once_however_many_calls_are_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counted(call_id: str) -> Any:
        nonlocal looked
        looked += 1
        return parsed(call_id)

    monkeypatch.setattr(joined, "parsed", counted)
    app = App()
    for _ in range(50):
        app.ledgers["a"].wait(app.call("driver", "a"), (), 1, 0.0, is_local=True)
    for _ in range(50):
        app.call("driver", "b")
    assert app.verdict() is True
    assert looked < 1_000


def test_of_refs_that_came_long_ago_it_is_only_known_who_answers_them() -> None:
    app = App()
    app.known["a"]["passed_before"] = ("b",)
    assert app.verdict() is True, "b does nothing"
    app.call("driver", "b")
    assert app.verdict() is False


def test_a_plain_task_of_its_actor_that_has_not_ended_may_wake_it_by_its_reply() -> None:
    app = App()
    app.known["a"]["loose"] = Loose(started=1, pending=1)
    assert app.verdict() is None
    app.known["a"]["loose"] = Loose(started=1)
    assert app.verdict() is True


def test_an_actor_with_a_name_is_called_by_tasks_that_run_or_are_to_begin_and_by_no_worker_that_idles() -> None:
    """Any machine may find it by its name. A worker is none, beside its tasks."""
    app = App()
    app.facts["a"] |= {"name": "a", "is_private": True}
    worker, task = worker_name("1", 1), task_name("f", "1")
    app.ledgers[worker] = CallLedger(worker, colour=app.coordinator.join(worker))
    app.facts[worker] = {"shown": "ray-worker-1", "class": "ray-worker"}
    assert app.verdict() is True

    app.ledgers["driver"].start_task("f", task, (), 0.0)
    assert app.verdict() is False, "it is about to begin"
    call = app.ledgers[worker].accept_task(task, "f", 0.0)
    assert app.verdict() is False, "it runs"
    app.ledgers[worker].finish_task(call, 0.0)
    assert app.verdict() is True


def test_an_actor_that_is_to_be_made_wakes_it_no_sooner_than_its_constructor_begins() -> None:
    """Which may wait for room on a node."""
    app = App()
    app.ledgers["driver"].create("d", "__init__", None, 0.0)
    rows = app._snapshot().waits
    assert {row["on_call_id"] for row in rows if row["machine"] == "a" and row["on_machine"] == "d"} == {"driver/0/d/0"}
    assert app.verdict() is False, "it is about to begin"


# ---- what was not observed, and what can act no more ------------------------------------------------------------------


def test_plain_tasks_of_another_that_were_given_nothing_wake_no_one() -> None:
    app = App()
    app.known["b"]["loose"] = Loose(started=3, pending=1)
    assert app.verdict() is True


@pytest.mark.parametrize("loose", [Loose(started=1, given=1), Loose(scattered=1)])
@pytest.mark.parametrize("machine", ["driver", "b"])
def test_a_handle_that_went_to_a_task_or_to_the_store_may_wake_it(loose: Loose, machine: str) -> None:
    app = App()
    app.known[machine]["loose"] = loose
    assert app.verdict() is None


def test_an_actor_with_a_name_of_this_job_may_be_called_by_every_machine_and_by_tasks() -> None:
    app = App()
    app.facts["a"] |= {"name": "the one", "is_private": True}
    assert app.verdict() is True
    app.known["b"]["loose"] = Loose(started=1)
    assert app.verdict() is None, "a plain task may look it up"
    app.call("driver", "b")
    assert app.verdict() is False, "b may, though it has no handle"


def test_an_actor_whose_name_other_programs_know_may_be_called_by_them() -> None:
    app = App()
    app.facts["a"] |= {"name": "the one", "is_private": False}
    assert app.verdict() is None


def test_what_acts_on_a_loop_and_threads_that_act_may_wake_it() -> None:
    for about in ({"threads": Threads(acting=("t",))}, {"background": "timers on the loop"}):
        app = App()
        app.known["b"] |= about
        assert app.verdict() is None, about


def test_a_thread_that_is_parked_wakes_no_one_while_nothing_else_can_go_on() -> None:
    app = App()
    app.known["b"]["threads"] = Threads(parked=("t",))
    assert app.verdict() is True


def _runs(app: App) -> None:
    app.call("c", "b")


def _is_on_its_way(app: App) -> None:
    app.call("c", "b", is_accepted=False)


def _has_been_answered(app: App) -> None:
    call = app.call("b", "c")
    app.ledgers["c"].finish(call)
    app.ledgers["b"].wait(app.call("c", "b"), (call,), 1, 0.0)


def _has_a_task(app: App) -> None:
    app.known["driver"]["loose"] = Loose(started=1, pending=1)


@pytest.mark.parametrize("goes_on", [_runs, _is_on_its_way, _has_been_answered, _has_a_task])
def test_a_thread_that_is_parked_may_be_woken_by_whatever_goes_on(goes_on: Callable[[App], None]) -> None:
    app = App()
    app.known["b"]["threads"] = Threads(parked=("t",))
    goes_on(app)
    assert app.verdict() is None


def test_a_thread_that_is_parked_may_be_woken_by_a_parked_call_whose_event_has_come() -> None:
    app = App()
    app.known["b"]["threads"] = Threads(parked=("t",))
    wait_id = app.ledgers["b"].wait(app.call("driver", "b"), (), 1, 0.0, is_local=True)
    assert app.verdict() is True
    app.ledgers["b"].ready(wait_id)
    assert app.verdict() is None


def test_a_thread_that_is_parked_is_not_woken_by_a_call_that_finds_no_slot() -> None:
    app = App()
    app.known["b"]["threads"] = Threads(parked=("t",))
    app.facts["b"]["max_concurrency"] = 1
    app.ledgers["b"].wait(app.call("driver", "b"), (), 1, 0.0, is_local=True)
    app.call("driver", "b", is_accepted=False)
    assert app.verdict() is True


@pytest.mark.parametrize(("timeout_at", "holds"), [(5.0, False), (None, None)])
def test_a_loop_that_a_task_of_an_ended_call_blocks_goes_on_if_its_wait_is_bounded(
    timeout_at: float | None, holds: bool | None
) -> None:
    """As in Serve's controller, whose constructor leaves a task that calls `ray.wait(..., timeout=0)`."""
    app = App()
    app.known["a"]["blocking_call"] = call_id_of("driver", 0, "a", 0)
    into_b = app.call("a", "b")
    app.ledgers["b"].wait(into_b, (app.call("b", "a", is_accepted=False),), 1, 0.0)
    app.ledgers["a"].wait(None, (into_b,), 1, 0.0, timeout_at=timeout_at, may_act=timeout_at is not None)
    assert app.verdict() is holds
