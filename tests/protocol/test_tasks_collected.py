"""What a snapshot says of plain tasks, by hand: who runs them, what is on its way, what is kept of workers that have left."""

import pytest
from test_calls_collected import System

from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import MachineReport
from ray_snapshot.protocol.tasks import ENDED_WORKERS, TaskEnds, call_of_task, task_name, worker_name

ONE, TWO = worker_name("1", 1), worker_name("2", 1)
F, G = task_name("f", "1"), task_name("f", "2")


def _with_worker(*machines: str) -> System:
    system = System("driver", *machines)
    system.born(ONE)
    return system


def _leave(system: System, worker: str) -> None:
    system.coordinator.calls.left(system.ledgers.pop(worker).leave())


def _on_the_way(found: CompletedCallSnapshot) -> list[str]:
    return [name for channel in found.channels for name in channel.tasks.values()]


def test_a_task_that_raised_and_is_retried_is_on_its_way_and_whether_it_was_its_last_try_is_not_known() -> None:
    system = _with_worker()
    for task, is_retried in ((F, True), (G, False)):
        system.ledgers["driver"].start_task("f", task, (), 0.0, is_retried=is_retried)
        system.ledgers[ONE].finish_task(system.ledgers[ONE].accept_task(task, "f", 0.0), 0.0, is_error=True)
    system.ledgers["driver"].wait(None, [call_of_task(F)], 1, 0.0)
    system.ledgers["driver"].wait(None, [call_of_task(G)], 1, 0.0)
    found = system.snapshot()
    assert _on_the_way(found) == [F]
    assert [one.answers for one in found.waits] == [(None,), (True,)]


@pytest.mark.parametrize("leaves", [False, True], ids=["its worker stays", "its worker has left"])
def test_a_last_try_that_raised_stays_in_doubt_as_long_as_it_is_in_a_log(leaves: bool) -> None:
    """Forgotten, it would look as if no worker had begun it, and who waits for it as if stuck for good."""
    system = _with_worker()
    system.ledgers["driver"].start_task("f", F, (), 0.0, is_retried=True)
    system.ledgers[ONE].finish_task(system.ledgers[ONE].accept_task(F, "f", 0.0), 0.0, is_error=True)
    if leaves:
        _leave(system, ONE)
    system.ledgers["driver"].wait(None, [call_of_task(F)], 1, 0.0)
    for number in (1, 2, 3):
        found = system.snapshot()
        assert [one.answers for one in found.waits] == [(None,)], number
        assert (found.held, found.unsettled) == (frozenset(), {F})
        system.coordinator.calls.fold(found)
        for ledger in system.ledgers.values():
            ledger.complete(number, found.held, found.unsettled)


def test_what_a_worker_has_handles_of_any_task_to_come_may_use_also_when_it_has_left() -> None:
    system = _with_worker("a", "b")
    system.ledgers["a"].wait(system.ledgers["a"].accept_unknown("park", 0.0), (), 1, 0.0, is_local=True)
    system.ledgers[ONE].hold("a")
    for _ in range(2):
        assert "b" in system.snapshot().waits[0].on_machines, "it may start a task"
        if ONE in system.ledgers:
            _leave(system, ONE)


def test_of_a_worker_that_has_crashed_nobody_knows_what_it_had() -> None:
    system = _with_worker("a", "b")
    system.ledgers["a"].wait(system.ledgers["a"].accept_unknown("park", 0.0), (), 1, 0.0, is_local=True)
    assert "b" not in system.snapshot().waits[0].on_machines
    del system.ledgers[ONE]
    system.coordinator.calls.died(ONE)
    assert "b" in system.snapshot().waits[0].on_machines


def test_an_actor_that_is_being_made_may_act_too_whoever_has_crashed() -> None:
    system = _with_worker("a")
    system.ledgers["a"].wait(system.ledgers["a"].accept_unknown("park", 0.0), (), 1, 0.0, is_local=True)
    system.ledgers["driver"].hold("a")
    system.ledgers["driver"].create("kid", "__init__", None, 0.0)
    assert "kid" in system.snapshot().waits[0].on_machines
    del system.ledgers[ONE]
    system.coordinator.calls.died(ONE)
    assert "kid" in system.snapshot().waits[0].on_machines


def test_a_worker_that_was_never_heard_of_again_after_it_joined_can_be_told_to_have_left() -> None:
    """Its process has given up waiting for the answer."""
    system = _with_worker()
    number = system.start()
    system.report(number, "driver")
    del system.ledgers[ONE]
    system.coordinator.calls.left(MachineReport(ONE, 0, 0, 0, has_left=True, status="stopped"))
    system.completed(number)


def test_without_snapshots_workers_that_left_long_ago_are_forgotten_too() -> None:
    calls = System("driver").coordinator.calls
    for session, at in enumerate((0.0, 100.0, 100.5)):
        ends = TaskEnds()
        ends.add(F, at, is_error=False)
        calls.left(MachineReport(worker_name("1", session), 0, 0, 0, has_left=True, ended=ends.report()))
    assert calls.known_workers() == {worker_name("1", 1), worker_name("1", 2)}
    assert calls.ended_workers == {worker_name("1", 0)}


def test_a_worker_keeps_the_ends_of_a_minute() -> None:
    ends = TaskEnds()
    ends.add(F, 0.0, is_error=False)
    ends.add(G, 100.0, is_error=False)
    assert [*ends.report()] == [G]


def test_a_call_that_a_worker_has_made_may_raise_when_that_worker_has_ended() -> None:
    system = _with_worker("a")
    call = system.call(ONE, "a")
    system.ledgers["a"].forget_workers({ONE})
    system.ledgers["a"].finish(call, is_error=True)
    assert not system.ledgers["a"].running


def test_a_worker_that_has_left_is_awaited_no_more_and_what_it_had_sent_is_one_sum() -> None:
    system = _with_worker("a")
    system.born(TWO)
    for worker in (ONE, TWO):
        system.call(worker, "a")
        system.ledgers[worker].answered("a", 1)
        _leave(system, worker)
    system.snapshot()
    assert system.coordinator.calls.known_workers() == set()
    system.ledgers["a"].forget_workers(system.coordinator.calls.ended_workers)
    (channel,) = [one for one in system.snapshot().channels if one.target == "a"]
    assert (channel.source, channel.sent_count, channel.accepted_count) == (ENDED_WORKERS, 2, 2)


def test_what_a_complete_snapshot_says_is_over_its_sender_drops_and_then_its_worker_forgets() -> None:
    system = _with_worker()
    system.ledgers["driver"].start_task("f", F, (1,), 0.0)
    system.ledgers[ONE].finish_task(system.ledgers[ONE].accept_task(F, "f", 0.0), 0.0)
    for number, is_kept in ((1, True), (2, False)):
        found = system.snapshot()
        for ledger in system.ledgers.values():
            ledger.complete(number, found.held)
        assert bool(system.ledgers[ONE].ends.report()) is is_kept
        assert not system.ledgers["driver"].tasks
