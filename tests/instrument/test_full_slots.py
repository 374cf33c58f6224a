"""A call that waits inside its actor: a later call may end that only where a slot is free. No Ray."""

from __future__ import annotations

import pytest
from lone_app import snapshot_of

from ray_snapshot.detectors import Deadlock
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger, awaited
from ray_snapshot.protocol.coordinator import Coordinator

EVENT = "threading.Event.wait"


def judged(slots: int, *, what: str = "queue.Queue.get", caller: str = DRIVER, queued: int = 0) -> bool | None:
    """Actor `a` waits inside; the driver has its handle, and acts. `queued`: so many calls of it wait for a slot."""
    coordinator, ledgers = Coordinator(), dict[str, CallLedger]()
    for machine in (DRIVER, "a", "b"):
        ledgers[machine] = CallLedger(machine, colour=coordinator.join(machine), acts_unasked=machine == DRIVER)
    if caller != DRIVER:
        run = ledgers[caller].accept(ledgers[DRIVER].submit(caller, "m", None, 0.0), "m", 0.0)
    header = ledgers[caller].submit("a", "get", None, 0.0)
    get = ledgers["a"].accept(header, "get", 0.0)
    if caller != DRIVER:
        ledgers[caller].wait(run, awaited([get]), 1, 0.0)
    for _ in range(queued):
        ledgers[DRIVER].submit("a", "put", None, 0.0)
    ledgers["a"].wait(get, (), 1, 0.0, is_local=True, what=what)
    facts = {machine: {"shown": machine, "max_concurrency": slots} for machine in ledgers}
    return Deadlock().evaluate(snapshot_of(coordinator, ledgers, facts)).holds


def test_where_a_slot_is_free_who_acts_and_has_a_handle_may_end_it() -> None:
    assert judged(slots=2) is False


@pytest.mark.parametrize("queued", [0, 1])
def test_where_every_slot_is_taken_no_later_call_ends_a_local_wait(queued: int) -> None:
    assert judged(slots=1, caller="b", queued=queued) is True


def test_a_call_of_which_nothing_waits_for_the_reply_may_be_a_parked_service() -> None:
    assert judged(slots=1) is None
    assert judged(slots=1, what=EVENT) is None
    assert judged(slots=1, what=EVENT, queued=1) is True
    assert judged(slots=1, what=EVENT, caller="b") is True
