"""A call that is parked on its actor's own loop is in no deadlock while a reply may wake it: no Ray in here."""

from __future__ import annotations

from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.instrument.collected import CollectedCalls
from ray_snapshot.instrument.process import Recorded
from ray_snapshot.instrument.unfollowed import Loose
from ray_snapshot.protocol.call_collector import CallCollector
from ray_snapshot.protocol.calls import CallLedger, call_id_of
from ray_snapshot.runtime.collected import SnapshotHeader


class App:
    """A driver that waits for a call of actor `a`, which is parked; beside it an actor `b` that has no handle of `a`."""

    def __init__(self) -> None:
        self.collector = CallCollector()
        self.ledgers: dict[str, CallLedger] = {}
        for machine in ("driver", "a", "b"):
            colour = self.collector.register(machine, 0)
            self.ledgers[machine] = CallLedger(machine, colour=colour, acts_unasked=machine == "driver")
        get = self.call("driver", "a")
        self.ledgers["driver"].wait(None, (get,), 1, 0.0)
        self.ledgers["a"].wait(get, (), 1, 0.0, is_local=True)
        self.loose = Loose()
        """The plain tasks of `a`."""

    def call(self, source: str, target: str, *, is_accepted: bool = True) -> str:
        """The id of a call that was made, and runs from now on if it is accepted."""
        header = self.ledgers[source].submit(target, "m", None, 0.0)
        if is_accepted:
            return self.ledgers[target].accept(header, "m", 0.0)
        return call_id_of(source, header.incarnation, target, header.number)

    def verdict(self) -> bool | None:
        """Whether it is a deadlock, at one consistent moment."""
        number = self.collector.start()
        assert number is not None
        for ledger in self.ledgers.values():
            ledger.request(number)
            ledger.record(lambda: None)
            self.collector.report(ledger.report(number))
        completed = self.collector.completed(number)
        assert completed is not None
        recorded = {name: Recorded(ledger.report(number), 0.0) for name, ledger in self.ledgers.items()}
        recorded["a"] = Recorded(self.ledgers["a"].report(number), 0.0, loose=self.loose)
        facts = {name: {"shown": name, "max_concurrency": 1_000} for name in self.ledgers}
        header = SnapshotHeader(number, "app", "1", "calls", [], 0.0)
        return Deadlock().evaluate(CollectedCalls(header, completed, recorded, facts).snapshot()).holds


def test_a_parked_call_that_nothing_can_wake_is_a_deadlock_with_its_caller() -> None:
    assert App().verdict() is True


def test_a_call_that_its_actor_has_made_and_that_runs_may_wake_it_by_its_reply() -> None:
    app = App()
    app.call("a", "b")
    assert app.verdict() is False


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


def test_a_plain_task_of_its_actor_that_has_not_ended_may_wake_it_by_its_reply() -> None:
    app = App()
    app.loose = Loose(started=1, pending=1)
    assert app.verdict() is None
    app.loose = Loose(started=1)
    assert app.verdict() is True
