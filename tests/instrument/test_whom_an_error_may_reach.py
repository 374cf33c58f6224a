"""Which process runs a call of a deadlock, whether an error may end its wait, and who may end it: from ledgers by hand."""

from typing import Any

import pytest
from test_resources_of_a_cut import Cut

from ray_snapshot.instrument.watcher.condemned import Found, condemned
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.demands import Held
from ray_snapshot.protocol.tasks import call_of_task, worker_name

WORKER = worker_name("w", 1)
ON = "driver/0/Z-0/1"


def asked(cut: Cut, *, is_retried: bool = False) -> str:
    """A call that runs on Account-0; what it waits for, the test says."""
    header = cut.ledgers[DRIVER].submit("Account-0", "pay", (), 0.0, is_retried=is_retried)
    return cut.ledgers["Account-0"].accept(header, "pay", 0.0)


def for_a_reply(ledger: CallLedger, call: str) -> None:
    ledger.wait(call, [ON], 1, 0.0)


def test_a_call_that_waits_for_a_reply_is_found_by_its_id_in_the_snapshot() -> None:
    cut = Cut(("Account-0",))
    call = asked(cut)
    for_a_reply(cut.ledgers["Account-0"], call)
    assert condemned(cut.collected(), "driver/0/Account-0/1") == Found("Account-0", call)


def test_of_a_task_it_is_its_worker() -> None:
    cut = Cut((WORKER,))
    task = cut.starts(DRIVER, "7", wanted=None)
    call = cut.ledgers[WORKER].accept_task(task, "f", 0.0)
    for_a_reply(cut.ledgers[WORKER], call)
    (shown,) = [row["call_id"] for row in cut.snapshot().calls if row["call_id"]]
    assert condemned(cut.collected(), shown) == Found(WORKER, call_of_task(task))


@pytest.mark.parametrize(
    ("on", "how"), [((), {"is_local": True}), ((ON,), {"timeout_at": 9.0, "may_act": True}), ((), {"at_yield": True})]
)
def test_what_no_reply_ends_or_what_ends_by_itself_gets_no_error(on: tuple[str, ...], how: dict[str, Any]) -> None:
    cut = Cut(("Account-0",))
    cut.ledgers["Account-0"].wait(asked(cut), on, 1, 0.0, **how)
    assert "something else than a reply" in condemned(cut.collected(), "driver/0/Account-0/1")


def test_what_ray_would_run_again_gets_no_error() -> None:
    cut = Cut(("Account-0",))
    for_a_reply(cut.ledgers["Account-0"], asked(cut, is_retried=True))
    assert "Ray would run it again" in condemned(cut.collected(), "driver/0/Account-0/1")
    cut = Cut((WORKER,))
    task = cut.starts(DRIVER, "7", wanted=None, is_retried=True)
    for_a_reply(cut.ledgers[WORKER], cut.ledgers[WORKER].accept_task(task, "f", 0.0))
    (shown,) = [row["call_id"] for row in cut.snapshot().calls if row["call_id"]]
    assert "Ray would run it again" in condemned(cut.collected(), shown)


def test_what_has_not_begun_gets_no_error() -> None:
    cut = Cut(("Account-0",))
    cut.ledgers[DRIVER].submit("Account-0", "pay", (), 0.0)
    assert condemned(cut.collected(), "driver/0/Account-0/1") == "it has not begun"


# ---- who may end it -----------------------------------------------------------------------------------------------------


def stuck(**facts: object) -> Cut:
    """Account-0 waits, and the driver for it; Dog-0 has a handle of it."""
    cut = Cut(("Account-0", "Dog-0"), tells_callers=True)
    call = asked(cut)
    for_a_reply(cut.ledgers["Account-0"], call)
    cut.waits(DRIVER, call)
    cut.ledgers["Dog-0"].hold("Account-0")
    cut.facts["Account-0"] |= facts
    return cut


def test_who_has_its_handle_may_end_what_is_blocked_and_of_the_program_nothing_is_told() -> None:
    assert stuck().snapshot().coverage["ended_by"] == {"Account-0": ["Dog-0", DRIVER]}


def test_by_a_name_or_a_placement_group_anything_that_acts_may() -> None:
    assert stuck(name="account").snapshot().coverage["ended_by"] == {"Account-0": None}
    cut = stuck()
    cut.held["Account-0"] = Held("n", {"CPU_group_0_ab": 1.0, "CPU_group_ab": 1.0})
    assert cut.snapshot().coverage["ended_by"] == {"Account-0": None}


def test_it_is_told_only_where_deadlocks_are_to_be_broken() -> None:
    cut = stuck()
    cut.tells_callers = False
    assert "ended_by" not in cut.snapshot().coverage
