"""Streaming generators of a cut, by hand: which of them Ray holds at a `yield`, and whether an item has come."""

from dataclasses import replace
from typing import Any

import pytest

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot, PendingCallSnapshot, ResolvedWait
from ray_snapshot.protocol.call_messages import NO_BOUND, NOT_KNOWN, Awaited, MachineReport, Stream
from ray_snapshot.protocol.calls import CallLedger, call_id_of
from ray_snapshot.protocol.demands import Held
from ray_snapshot.protocol.tasks import call_of_task, task_name, worker_name

CLEAN = Held(is_clean=True)
TASK = task_name("numbers", "ab12")
WORKER, OTHERS = worker_name("1234", 0), worker_name("5678", 0)


class Pair:
    """A consumer and the actor whose generator's items it takes."""

    def __init__(self, consumer: str = "C") -> None:
        self.consumer = consumer
        self.of = {name: CallLedger(name, acts_unasked=name == DRIVER) for name in (consumer, "P")}
        header = self.of[consumer].submit("P", "lines", None, 0.0)
        self.call = call_id_of(consumer, 0, "P", header.number)
        self.of["P"].accept(header, "lines", 0.0)
        self.streams: dict[str, Stream] | None = {}
        self.held: Held | None = CLEAN

    def yields(self, count: int, *, is_long: bool = True) -> None:
        """The generator yields so many items, and stands at the last `yield`."""
        for _ in range(count):
            self.of["P"].yields(self.call)
        self.of["P"].wait(self.call, (), 1, 0.0, call_site="p.py:7", at_yield=True, is_long=is_long)

    def waits(self, item: int | None = None, *, on: str | None = None, **options: Any) -> None:
        """The consumer waits in a call that it runs."""
        own = self.of[self.consumer].accept_unknown("read", 0.0)
        self.of[self.consumer].wait(own, [Awaited(on or self.call, item)], 1, 0.0, **options)

    def completed(self, *more: MachineReport, without: str = "") -> CompletedCallSnapshot:
        names = [name for name in self.of if name != without]
        pending = PendingCallSnapshot(1, [*self.of, *(one.machine for one in more)])
        if without:
            pending.died(without)
        for name in names:
            ledger = self.of[name]
            ledger.streams = self.streams if name == self.consumer else {}
            ledger.request(1)
            ledger.record(None)
            pending.report(replace(ledger.report(1), held=self.held if name == self.consumer else None))
        for one in more:
            pending.report(one)
        return pending.completed()


def _at_yield(found: CompletedCallSnapshot) -> ResolvedWait | None:
    return next((one for one in found.waits if one.wait.at_yield), None)


@pytest.mark.parametrize("consumer", ["C", DRIVER])
def test_a_generator_with_as_many_untaken_items_as_may_be_waits_for_its_consumer_alone(consumer: str) -> None:
    pair = Pair(consumer)
    pair.yields(5)
    pair.streams = {pair.call: Stream(3, 2)}
    held = _at_yield(pair.completed())
    assert held is not None
    assert (held.on_machines, held.is_satisfied) == ((consumer,), False)


@pytest.mark.parametrize(
    "stream", [None, Stream(4, 2), Stream(0, NO_BOUND)], ids=["dropped", "fewer lie there", "without a bound"]
)
def test_one_that_nothing_holds_is_active(stream: Stream | None) -> None:
    pair = Pair()
    pair.yields(5)
    pair.streams = {} if stream is None else {pair.call: stream}
    found = pair.completed()
    assert _at_yield(found) is None
    assert found.machines["P"].status == "active"


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("untold", ["no streams", "another rule", "consumer gone"])
def test_where_it_cannot_be_counted_it_may_be_held_if_it_stands_there_for_long(untold: str, is_long: bool) -> None:
    pair = Pair()
    pair.yields(5, is_long=is_long)
    pair.streams = {"no streams": None, "another rule": {pair.call: Stream(0, NOT_KNOWN)}}.get(untold, {})
    found = pair.completed(without="C" if untold == "consumer gone" else "")
    assert found.machines["P"].status == ("blocked" if is_long else "active")
    held = _at_yield(found)
    assert (held is not None) == is_long
    assert held is None or held.is_satisfied is None


def test_a_consumer_whose_garbage_was_not_collected_may_have_dropped_it() -> None:
    pair = Pair()
    pair.yields(5)
    pair.waits()
    pair.streams, pair.held = {pair.call: Stream(0, 2)}, Held(is_clean=False)
    found = pair.completed()
    held = _at_yield(found)
    assert held is not None
    assert (held.on_machines, held.is_satisfied, found.unclean) == (("C",), None, {"C"})


def test_while_the_program_waits_for_a_verdict_it_is_not_known_what_it_will_do() -> None:
    pair = Pair()
    pair.yields(5)
    pair.streams = {pair.call: Stream(0, 2)}
    held = _at_yield(pair.completed(MachineReport(DRIVER, 0, 1, 0)))
    assert held is not None
    assert held.is_satisfied is None


def test_what_its_process_cannot_tell_for_certain_is_not_certain() -> None:
    pair = Pair()
    pair.of["P"].yields(pair.call)
    pair.of["P"].wait(pair.call, (), 1, 0.0, at_yield=True, is_long=True, is_unsure=True)
    pair.streams = {pair.call: Stream(0, 1)}
    held = _at_yield(pair.completed())
    assert held is not None
    assert (held.on_machines, held.is_satisfied) == (("C",), None)


@pytest.mark.parametrize(("status", "asked"), [("passive", {"C"}), ("active", set())])
def test_garbage_of_a_consumer_at_rest_is_asked_for_only_where_nothing_acts(status: str, asked: set[str]) -> None:
    pair = Pair()
    pair.yields(5)
    pair.streams, pair.held = {pair.call: Stream(0, 2)}, Held(is_clean=False)
    assert pair.completed(MachineReport("other", 0, 1, 0, status=status)).unclean == asked


def test_garbage_is_not_asked_for_where_the_consumer_acts() -> None:
    pair = Pair(DRIVER)
    pair.yields(5)
    pair.streams, pair.held = {pair.call: Stream(0, 2)}, Held(is_clean=False)
    assert pair.completed().unclean == set()


@pytest.mark.parametrize(("item", "answer"), [(1, True), (2, False), (None, False)])
def test_a_wait_for_an_item_is_over_when_that_was_yielded_inside_the_cut(item: int | None, answer: bool) -> None:
    pair = Pair()
    pair.yields(2)
    pair.waits(item)
    pair.streams = {pair.call: Stream(0, 2)}
    waiting = next(one for one in pair.completed().waits if one.machine == "C")
    assert (waiting.answers, waiting.on_machines) == ((answer,), ("P",))


def test_a_wait_for_an_item_of_a_generator_that_has_ended_is_over() -> None:
    pair = Pair()
    pair.of["P"].yields(pair.call)
    pair.of["P"].finish(pair.call)
    pair.waits(7)
    waiting = next(one for one in pair.completed().waits if one.machine == "C")
    assert waiting.answers == (True,)


def test_what_a_machine_that_was_started_again_had_yielded_before_is_not_known() -> None:
    pair = Pair()
    pair.of["P"].incarnation = 1
    pair.waits(0)
    pair.of["C"].outputs["P"].target_incarnation = 1
    waiting = next(one for one in pair.completed().waits if one.machine == "C")
    assert waiting.answers == (None,)


def _tasks(*running: str, yielded: int = 2) -> list[MachineReport]:
    """A worker whose task has started `TASK`, and the worker where that is held; `running`: what the first worker runs."""
    starting, held = CallLedger(WORKER), CallLedger(OTHERS)
    starting.start_task("numbers", TASK, None, 0.0)
    for task in running:
        own = starting.accept_task(task, "relay", 0.0)
        starting.wait(own, [call_of_task(TASK)], 1, 0.0)
    starting.streams = {call_of_task(TASK): Stream(0, 2)}
    call = held.accept_task(TASK, "numbers", 0.0)
    for _ in range(yielded):
        held.yields(call)
    held.wait(call, (), 1, 0.0, at_yield=True, is_long=True)
    found = []
    for ledger in (starting, held):
        ledger.request(1)
        ledger.record(None)
        found.append(replace(ledger.report(1), held=CLEAN))
    return found


def _of_tasks(reports: list[MachineReport]) -> CompletedCallSnapshot:
    pending = PendingCallSnapshot(1, [one.machine for one in reports])
    for one in reports:
        pending.report(one)
    return pending.completed()


def test_a_task_that_another_task_has_started_waits_for_that_one() -> None:
    relay = task_name("relay", "cd34")
    held = _at_yield(_of_tasks(_tasks(relay)))
    assert held is not None
    assert (held.machine, held.on_machines, held.is_satisfied) == (TASK, (relay,), False)


def test_whose_task_is_over_it_is_not_known_what_will_run_in_that_worker() -> None:
    held = _at_yield(_of_tasks(_tasks()))
    assert held is not None
    assert (held.on_machines, held.is_satisfied) == ((), None)


def test_a_task_that_may_yield_more_is_active() -> None:
    found = _of_tasks(_tasks(task_name("relay", "cd34"), yielded=1))
    assert _at_yield(found) is None
    assert found.machines[TASK].status == "active"
