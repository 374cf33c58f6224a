"""`ray.get` of a list ends at the first error: it is stuck only if none of its calls that are open can end. No Ray in here."""

from __future__ import annotations

import pytest
from lone_app import snapshot_of

from ray_snapshot import Verdict
from ray_snapshot.detectors import Deadlock
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator


class App:
    """Actor `a` waits for a list of calls; some call it back, and so are stuck until that wait ends."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.ledgers: dict[str, CallLedger] = {}
        for machine in ("driver", "a", "b", "c", "d"):
            self.ledgers[machine] = CallLedger(machine, colour=self.coordinator.join(machine))
        self.asks = self.running("driver", "a")

    def running(self, source: str, target: str) -> str:
        return self.ledgers[target].accept(self.ledgers[source].submit(target, "m", None, 0.0), "m", 0.0)

    def calling_back(self, target: str) -> str:
        """A call of `a` that waits for a call to `a`, which finds no slot."""
        found = self.running("a", target)
        header = self.ledgers[target].submit("a", "back", None, 0.0)
        self.ledgers[target].wait(found, (f"{target}/0/a/{header.number}",), 1, 0.0)
        return found

    def retried(self, target: str, *, is_error: bool) -> str:
        """A call of `a` that fails, and is run again."""
        header = self.ledgers["a"].submit(target, "m", None, 0.0, is_retried=True)
        for ends_in_error in (True, is_error):
            found = self.ledgers[target].accept(header, "m", 0.0)
            self.ledgers[target].finish(found, is_error=ends_in_error)
        return found

    def ended(self, target: str, *, is_error: bool) -> str:
        """A call of `a` that has ended; whether `a` has its reply is not recorded."""
        found = self.running("a", target)
        self.ledgers[target].finish(found, is_error=is_error)
        return found

    def waiting_for(self, *on: str, raises: bool = True) -> Verdict:
        """What is said of the deadlock, while `a` waits for all of these."""
        self.ledgers["a"].wait(self.asks, on, len(on), 0.0, raises=raises)
        facts = {name: {"shown": name, "max_concurrency": 1} for name in (*self.ledgers, "d")}
        return Deadlock().evaluate(snapshot_of(self.coordinator, self.ledgers, facts))


def test_calls_that_all_wait_for_the_waiter_are_a_deadlock_and_it_waits_for_all_of_them() -> None:
    app = App()
    verdict = app.waiting_for(app.calling_back("b"), app.calling_back("c"))
    assert verdict.holds is True
    (waiter,) = [record for record in verdict.evidence["members"] if record["machine"] == "a"]
    assert (waiter["waits_for"], waiter["mode"], "alternatives" in waiter) == (["b", "c"], "all", False)


def test_a_call_that_was_answered_well_frees_no_one() -> None:
    app = App()
    verdict = app.waiting_for(app.calling_back("b"), app.ended("c", is_error=False))
    assert verdict.holds is True
    (waiter,) = [record for record in verdict.evidence["members"] if record["machine"] == "a"]
    assert (waiter["waits_for"], waiter["mode"]) == (["b"], "all")


def test_a_call_that_runs_may_fail_and_so_end_the_wait() -> None:
    app = App()
    assert app.waiting_for(app.calling_back("b"), app.running("a", "c")).holds is False


def test_a_call_that_has_failed_ends_the_wait_when_its_reply_comes() -> None:
    app = App()
    assert app.waiting_for(app.calling_back("b"), app.ended("c", is_error=True)).holds is False


@pytest.mark.parametrize("is_error", [False, True])
def test_of_a_call_that_failed_and_was_run_again_it_is_not_known_whether_it_failed(is_error: bool) -> None:
    app = App()
    assert app.waiting_for(app.calling_back("b"), app.retried("c", is_error=is_error)).holds is None


def test_a_failure_stays_one_though_a_later_call_is_run_again() -> None:
    app = App()
    failed = app.ended("c", is_error=True)
    app.retried("c", is_error=False)
    assert app.waiting_for(app.calling_back("b"), failed).holds is False


def test_of_a_call_to_an_actor_that_has_died_it_is_not_known_whether_it_failed() -> None:
    app = App()
    gone = app.running("a", "d")
    app.coordinator.calls.died("d")
    del app.ledgers["d"]
    assert app.waiting_for(app.calling_back("b"), gone).holds is None


def test_ray_wait_for_all_does_not_end_at_an_error() -> None:
    app = App()
    assert app.waiting_for(app.calling_back("b"), app.running("a", "c"), raises=False).holds is True
