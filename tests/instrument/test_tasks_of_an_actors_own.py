"""A task of an actor's own waits for a reply, and a call beside it waits for what the task would bring. No Ray."""

from __future__ import annotations

from typing import Any

import pytest
from lone_app import snapshot_of

from ray_snapshot.detectors import Deadlock
from ray_snapshot.names import DRIVER, LONG_S
from ray_snapshot.protocol.calls import CallLedger, awaited
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.snapshot import Snapshot

SITE = "app.py:8"


def taken(source: str = "is stuck", since: float = -2 * LONG_S) -> Snapshot:
    """The driver waits for `pump`, in which a call is parked beside a task that waits for `source`; taken at 0."""
    coordinator, ledgers = Coordinator(), dict[str, CallLedger]()
    for machine in (DRIVER, "pump", "source", "third"):
        ledgers[machine] = CallLedger(machine, colour=coordinator.join(machine), acts_unasked=machine == DRIVER)

    def call(caller: str, target: str) -> str:
        return ledgers[target].accept(ledgers[caller].submit(target, "m", None, 0.0), "m", 0.0)

    take = call(DRIVER, "pump")
    ledgers[DRIVER].wait(None, awaited([take]), 1, since)
    ledgers["pump"].wait(take, (), 1, since, is_local=True, what="asyncio.Queue.get")
    given = call("pump", "source")
    ledgers["pump"].wait(None, awaited([given]), 1, since, call_site=SITE)
    if source == "is stuck":
        ledgers["source"].wait(given, (), 1, since, is_local=True, what="asyncio.Event")
    elif source == "waits for one that acts":
        ledgers["source"].wait(given, awaited([call("source", "third")]), 1, since)
    elif source == "has answered":
        ledgers["source"].finish(given)
    return snapshot_of(coordinator, ledgers, {name: {"shown": name, "max_concurrency": 9} for name in ledgers})


def test_it_makes_no_all_clear_where_it_waits_for_who_is_stuck() -> None:
    snapshot = taken()
    ((one,),) = [snapshot.coverage["unexplained"]]
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
    snapshot = taken(**given)
    assert "unexplained" not in snapshot.coverage
    assert Deadlock().evaluate(snapshot).holds is False
