"""Of machines that are blocked a snapshot tells who may kill one, or cancel what it runs, if that is asked for."""

import pytest
from test_calls_collected import System

from ray_snapshot.protocol.tasks import task_name, worker_name


def stuck() -> System:
    """`a` and `b` each wait for the other; `dog` has a handle of `b`, and `far` may get it from `dog`."""
    system = System("a", "b", "dog", "far")
    system.coordinator.calls.tells_callers = True
    into_a, into_b = system.call("dog", "a"), system.call("a", "b")
    system.ledgers["a"].wait(into_a, [into_b], 1, 0.0)
    system.ledgers["b"].wait(into_b, [system.call("b", "a", accepted=False)], 1, 0.0)
    system.ledgers["dog"].hold("b")
    return system


def test_who_has_a_handle_of_it_or_may_get_one_may_end_it() -> None:
    system = stuck()
    assert dict(system.snapshot().callers) == {"a": ("b", "dog"), "b": ("a", "dog")}
    system.call("dog", "far", accepted=False)  # it may bring the handle
    assert dict(system.snapshot().callers) == {"a": ("b", "dog", "far"), "b": ("a", "dog", "far")}


def test_who_may_read_its_reply_may_cancel_it() -> None:
    system = stuck()
    system.ledgers["far"].may_read("b")
    assert dict(system.snapshot().callers)["b"] == ("a", "dog", "far")


@pytest.mark.parametrize("machine", ["dog", "far"])
def test_of_others_nothing_is_told(machine: str) -> None:
    assert machine not in stuck().snapshot().callers


def test_nothing_is_told_unless_it_is_asked_for() -> None:
    system = stuck()
    system.coordinator.calls.tells_callers = False
    assert not system.snapshot().callers


def test_who_has_started_a_task_may_cancel_it() -> None:
    system = stuck()
    worker = system.born(worker_name("one", 1))
    task = task_name("f", "11")
    system.ledgers["far"].start_task("f", task, (), 0.0)
    worker.wait(worker.accept_task(task, "f", 0.0), [system.call("dog", "a", accepted=False)], 1, 0.0)
    assert dict(system.snapshot().callers)[task] == ("far",)
