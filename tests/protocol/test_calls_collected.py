"""When a snapshot of calls is complete, the join of its reports, and who may end what is blocked, by hand."""

from typing import Any

import pytest

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import MOST_RANGES
from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot, PendingCallSnapshot, ResolvedWait
from ray_snapshot.protocol.calls import CallLedger, Header, call_id_of
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.tasks import task_name, worker_name


class System:
    """Ledgers and their coordinator, without any transport."""

    def __init__(self, *machines: str) -> None:
        self.coordinator = Coordinator()
        self.ledgers: dict[str, CallLedger] = {}
        for machine in machines:
            self.born(machine)

    def born(self, machine: str, incarnation: int = 0, colour: int = 0, **options: Any) -> CallLedger:
        colour = self.coordinator.join(machine, incarnation, colour)
        self.ledgers[machine] = CallLedger(machine, incarnation=incarnation, colour=colour, **options)
        return self.ledgers[machine]

    def call(self, source: str, target: str, *, accepted: bool = True, **options: Any) -> str:
        header = self.ledgers[source].submit(target, "m", None, 0.0, **options)
        call_id = call_id_of(source, header.incarnation, target, header.number)
        if accepted:
            if self.ledgers[target].hear(header.colour):
                self.ledgers[target].record(None)
            assert self.ledgers[target].accept(header, "m", 0.0) == call_id
        return call_id

    def start(self) -> int:
        number = self.coordinator.start(0, 9)
        assert number is not None
        return number

    def report(self, number: int, *machines: str) -> None:
        for machine in machines or list(self.ledgers):
            self.ledgers[machine].request(number)
            self.ledgers[machine].record(lambda: "state")
            self.coordinator.report_calls(self.ledgers[machine].report(number))

    def completed(self, number: int) -> CompletedCallSnapshot:
        found = self.coordinator.completed(number)
        assert found is not None, self.coordinator.pending[number].waits_for()
        return found.calls

    def snapshot(self) -> CompletedCallSnapshot:
        number = self.start()
        self.report(number)
        return self.completed(number)


def channel_of(found: CompletedCallSnapshot, source: str, target: str) -> CallsOf:
    return next(one for one in found.channels if (one.source, one.target) == (source, target))


def wait_of(found: CompletedCallSnapshot, machine: str) -> ResolvedWait:
    return next(one for one in found.waits if one.machine == machine)


# ---- counting -------------------------------------------------------------------------------------------------------


def test_a_snapshot_says_itself_when_its_cut_is_not_consistent() -> None:
    system = System("a", "b")
    number = system.start()
    system.report(number, "a")
    header = system.ledgers["a"].submit("b", "m", None, 0.0)
    system.ledgers["b"].accept(header._replace(colour=0), "m", 0.0)
    system.report(number, "b")
    assert system.completed(number).problems == ("call 1 from a to b was accepted inside the cut and sent outside it",)


def test_a_state_that_could_not_be_copied_is_an_obstacle() -> None:
    system = System("a", "b")
    system.call("a", "b")
    found = system.snapshot()
    assert found.obstacles == ("b was inside an action when it had to record: its state is unknown",)
    assert found.machines["a"].state == "state"


# ---- completeness ---------------------------------------------------------------------------------------------------


def test_reports_are_answered_by_rule() -> None:
    system = System("a", "b")
    number = system.start()
    system.report(number, "a")
    report = system.ledgers["a"].report(number)
    assert system.coordinator.report_calls(report) is Answer.DUPLICATE
    assert system.coordinator.completed(number) is None
    assert system.coordinator.pending[number].waits_for() == "the report of b"
    with pytest.raises(ProtocolError, match="snapshot 1 waits for the report of b"):
        system.coordinator.pending[number].calls.completed()
    aborted = system.coordinator.abort(number, "enough")
    assert (aborted.reason, aborted.awaited) == ("enough", ("b",))
    assert system.coordinator.report_calls(report) is Answer.DISCARDED
    with pytest.raises(ProtocolError, match="snapshot 1 is not pending"):
        system.coordinator.abort(number, "again")
    assert PendingCallSnapshot(7, ()).waits_for() == "nothing"


def test_a_machine_that_is_not_born_is_in_flight_with_its_constructor() -> None:
    """Trap 3."""
    system = System("a")
    system.ledgers["a"].create("kid", "__init__", None, 0.0)
    system.ledgers["a"].submit("kid", "m", None, 0.0)
    found = system.snapshot()
    assert sorted(channel_of(found, "a", "kid").in_flight) == [0, 1]
    assert list(found.machines) == ["a"]


def test_a_machine_that_was_born_meanwhile_is_waited_for() -> None:
    """Trap 3."""
    system = System("a")
    number = system.start()
    header = system.ledgers["a"].create("kid", "__init__", None, 0.0)
    kid = system.born("kid", colour=header.colour, is_starting=True)
    kid.accept(header, "__init__", 0.0)
    system.report(number, "a")
    assert system.coordinator.pending[number].waits_for() == "the report of kid"
    system.report(number, "kid")
    found = system.completed(number)
    assert sorted(found.machines) == ["a", "kid"]
    assert found.machines["kid"].status == "active"
    assert channel_of(found, "a", "kid").in_flight == {}


def test_a_machine_that_is_named_inside_the_cut_is_waited_for_though_nobody_has_registered_it() -> None:
    """Trap 3."""
    system = System("a", "b")
    system.ledgers["a"].submit("stranger", "m", None, 0.0)
    number = system.start()
    system.report(number)
    assert system.coordinator.pending[number].waits_for() == "the report of stranger"
    system.coordinator.calls.died("stranger", "is not covered")
    found = system.completed(number)
    assert found.obstacles == ("stranger is not covered while the snapshot was open",)
    assert channel_of(found, "a", "stranger").settled_count == 1


# ---- deaths -----------------------------------------------------------------------------------------------------------


def test_a_machine_that_dies_while_a_snapshot_is_open_is_named_and_its_calls_are_settled() -> None:
    """Trap 5."""
    system = System("a", "b")
    call = system.call("a", "b", accepted=False)
    waiting = system.ledgers["a"].accept_unknown("outer", 0.0)
    system.ledgers["a"].wait(waiting, (call,), 1, 0.0)
    number = system.start()
    system.report(number, "a")
    system.coordinator.calls.died("b")
    found = system.completed(number)
    assert found.obstacles == ("b died while the snapshot was open",)
    assert channel_of(found, "a", "b").settled_count == 1
    assert wait_of(found, "a").is_satisfied is None


def test_what_an_earlier_incarnation_may_have_answered_is_unknown_until_the_sender_has_heard() -> None:
    """Trap 5."""
    system = System("a", "b")
    old = system.call("a", "b", accepted=False, is_retried=True)
    system.born("b", incarnation=1)
    waiting = system.ledgers["a"].accept_unknown("outer", 0.0)
    first = system.ledgers["a"].wait(waiting, (old,), 1, 0.0)
    assert wait_of(system.snapshot(), "a").is_satisfied is None
    system.ledgers["a"].target_restarted("b", 1)
    assert wait_of(system.snapshot(), "a").is_satisfied is None
    system.ledgers["a"].wake(first)
    new = system.call("a", "b", accepted=False)
    system.ledgers["a"].wait(waiting, (new,), 1, 0.0)
    assert wait_of(system.snapshot(), "a").is_satisfied is False


def test_what_an_earlier_run_of_a_call_may_have_answered_is_unknown_while_it_runs_again() -> None:
    """The caller has been told that it was cancelled, or has the reply; a repetition, accepted later, runs all the same."""
    system = System("a", "b")
    call = system.call("a", "b", is_retried=True)
    header = Header("a", 0, 1, 0, 1, is_retried=True)
    waiting = system.ledgers["a"].accept_unknown("outer", 0.0)
    system.ledgers["a"].wait(waiting, (call,), 1, 0.0)
    assert wait_of(system.snapshot(), "a").is_satisfied is False
    second = system.ledgers["b"].accept(header._replace(colour=1), "m", 0.0)
    assert wait_of(system.snapshot(), "a").is_satisfied is None
    system.ledgers["b"].finish(call)
    assert wait_of(system.snapshot(), "a").is_satisfied is None
    system.ledgers["b"].finish(second)
    assert wait_of(system.snapshot(), "a").is_satisfied is True
    assert not system.ledgers["b"].repeated


# ---- the driver leaves --------------------------------------------------------------------------------------------------


def test_the_final_counts_of_who_has_left_stand_in_every_later_snapshot() -> None:
    """Trap 11."""
    system = System("driver", "a")
    system.call("driver", "a")
    system.call("driver", "a", accepted=False)
    number = system.start()
    system.report(number, "a")
    system.coordinator.calls.left(system.ledgers.pop("driver").leave())
    for found in (system.completed(number), system.snapshot(), system.snapshot()):
        assert found.machines["driver"].status == "stopped"
        assert list(channel_of(found, "driver", "a").in_flight) == [2]
        assert found.problems == ()


# ---- waits --------------------------------------------------------------------------------------------------------------


def waiting_for(system: System, *calls: str | None, k: int = 0) -> bool | None:
    """What the next snapshot says of a wait of machine `a` for these calls."""
    outer = system.ledgers["a"].accept_unknown("outer", 0.0)
    waiting = system.ledgers["a"].wait(outer, calls, k or len(calls), 0.0)
    found = system.snapshot()
    system.ledgers["a"].wake(waiting)
    return next(one for one in found.waits if one.wait.wait_id == waiting).is_satisfied


def test_a_wait_is_satisfied_when_its_calls_have_ended_inside_the_cut() -> None:
    system = System("a", "b")
    running, flying, ended, settled = (system.call("a", "b", accepted=index % 2 == 0) for index in range(4))
    system.ledgers["b"].finish(ended)
    system.ledgers["a"].settle("b", 4)
    assert waiting_for(system, running) is False
    assert waiting_for(system, flying) is False
    assert waiting_for(system, ended, settled) is True
    assert waiting_for(system, running, ended) is False
    assert waiting_for(system, running, flying, ended, k=1) is True
    assert waiting_for(system, None) is None
    assert waiting_for(system, None, ended, k=1) is True
    assert waiting_for(system, "stranger/0/b/1") is None
    assert waiting_for(system, call_id_of("a", 0, "stranger", 1)) is None


class List:
    """A call of `a` waits for a list of two calls to `b`, as `ray.get` does; both run."""

    def __init__(self) -> None:
        self.system = System("a", "b")
        self.a, self.b = self.system.ledgers["a"], self.system.ledgers["b"]
        self.first, self.second = self.system.call("a", "b"), self.system.call("a", "b")
        self.a.wait(self.a.accept_unknown("outer", 0.0), (self.first, self.second), 2, 0.0, raises=True)

    def wait(self) -> ResolvedWait:
        return wait_of(self.system.snapshot(), "a")


def test_any_call_of_a_list_that_has_not_ended_may_end_the_wait_by_an_error() -> None:
    found = List()
    resolved = found.wait()
    assert resolved.errors == ((found.first, False), (found.second, False))
    assert resolved.is_satisfied is False


def test_a_call_of_a_list_that_was_answered_well_ends_no_wait() -> None:
    found = List()
    found.b.finish(found.first)
    resolved = found.wait()
    assert resolved.errors == ((found.second, False),)
    assert resolved.is_satisfied is False


def test_a_call_of_a_list_that_has_ended_in_an_error_ends_the_wait_though_another_one_runs() -> None:
    found = List()
    found.b.finish(found.first, is_error=True)
    resolved = found.wait()
    assert resolved.errors == ((found.first, True), (found.second, False))
    assert resolved.is_satisfied is True


def test_a_call_that_its_sender_knows_to_have_failed_ends_the_wait_for_its_list() -> None:
    found = List()
    lost = found.system.call("a", "b", accepted=False)
    found.a.wait(found.a.accept_unknown("other", 0.0), (found.first, lost), 2, 0.0, raises=True)
    found.a.settle("b", 3)
    waits = found.system.snapshot().waits
    assert waits[1].errors == ((found.first, False), (lost, True))


def test_whether_a_call_to_a_machine_that_has_died_ended_in_an_error_is_not_known() -> None:
    found = List()
    found.system.born("c")
    lost = found.system.call("a", "c")
    found.a.wait(found.a.accept_unknown("other", 0.0), (found.first, lost), 2, 0.0, raises=True)
    found.system.coordinator.calls.died("c")
    del found.system.ledgers["c"]
    resolved = found.system.snapshot().waits[1]
    assert resolved.errors == ((found.first, False), (None, False))
    assert resolved.is_satisfied is None


def test_whether_a_call_failed_is_not_known_once_too_many_others_have_failed() -> None:
    found = List()
    found.b.finish(found.first)
    for index in range(2 * MOST_RANGES + 2):
        found.b.finish(found.system.call("a", "b"), is_error=index % 2 == 0)
    resolved = found.wait()
    assert resolved.errors == ((None, False), (found.second, False))
    (channel,) = found.b._report(0).inputs
    assert len(channel.errors) <= MOST_RANGES


def test_a_wait_for_one_call_or_by_ray_wait_ends_by_its_count_alone() -> None:
    found = List()
    found.b.finish(found.first, is_error=True)
    found.a.wait(found.a.accept_unknown("other", 0.0), (found.first, found.second), 2, 0.0)
    found.a.wait(found.a.accept_unknown("third", 0.0), (found.second,), 1, 0.0, raises=True)
    waits = found.system.snapshot().waits
    assert [(one.errors, one.is_satisfied) for one in waits[1:]] == [((), False), ((), False)]


def test_a_call_in_flight_waits_for_the_replies_that_are_its_arguments() -> None:
    system = System("a", "b", "c")
    running, ended = system.call("a", "b"), system.call("a", "b")
    system.ledgers["b"].finish(ended)
    queued = system.call("a", "c", accepted=False, needs=(running, ended))
    system.call("a", "c", needs=(ended,))
    (found,) = system.snapshot().argument_waits
    assert (found.machine, found.wait.call_id, found.answers) == ("c", queued, (False, True))
    assert (found.on_machines, found.is_satisfied) == (("b",), False)


def parked(system: System) -> tuple[str, ...]:
    """Who may end a local wait of machine `a`."""
    system.ledgers["a"].wait(system.ledgers["a"].accept_unknown("put", 0.0), (), 1, 0.0, is_local=True)
    return wait_of(system.snapshot(), "a").on_machines


def test_a_local_wait_is_for_its_own_machine_and_any_that_holds_its_handle() -> None:
    """Trap 10: a call that runs here, or is on its way, may end it; so may one that somebody has yet to make."""
    system = System("a", "b", "c")
    system.ledgers["b"].hold("a")
    assert parked(system) == ("a", "b")


def test_whoever_may_yet_get_the_handle_counts_too() -> None:
    """Trap 10: a handle travels in calls in flight, and in replies that are not read."""
    system = System("a", "b", "c", "d", "e")
    system.call("b", "a")
    system.call("b", "c", accepted=False)
    system.ledgers["d"].may_read("c")
    assert parked(system) == ("a", "b", "c", "d")


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
