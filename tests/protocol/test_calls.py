"""The ledger of one machine: each rule of the table in `protocol/calls.py`, and each trap, by hand."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import Acceptance, Numbers, is_in, numbers_in
from ray_snapshot.protocol.calls import Acks, CallLedger, Header, MachineReport, OutReport, call_id_of, frozen, parsed


def ledger(machine: str = "a", **options: Any) -> CallLedger:
    return CallLedger(machine, **options)


def recorded(one: CallLedger, number: int, state: Any = None) -> MachineReport:
    one.request(number)
    one.record(lambda: state)
    return one.report(number)


def output_of(report: MachineReport, target: str) -> OutReport:
    return next(out for out in report.outputs if out.target == target)


def deliver(source: CallLedger, target: CallLedger, method: str = "m", **options: Any) -> str:
    """One call from machine to machine."""
    return target.accept(source.submit(target.machine, method, None, 0.0, **options), method, 0.0)


# ---- numbers --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 40)), st.integers(0, 40), st.lists(st.integers(0, 40)))
def test_a_set_of_numbers_is_a_set(added: list[int], floor: int, later: list[int]) -> None:
    numbers, plain = Numbers(added), set(added)
    numbers.forget_below(floor)
    plain = {number for number in plain if number >= floor}
    assert [numbers.add(number) for number in later] == [
        number not in plain and not plain.add(number)  # type: ignore[func-returns-value]
        for number in later
    ]
    ranges = numbers.ranges()
    assert list(numbers_in(ranges)) == sorted(plain)
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(ranges))
    assert all((number in numbers) == (number in plain) == is_in(ranges, number) for number in range(-1, 43))
    assert bool(numbers) == bool(plain)


def test_the_receiver_forgets_what_lies_below_the_floor() -> None:
    channel = Acceptance()
    assert channel.accept(3, 1)
    assert channel.accept(7, 5)
    assert not channel.accept(7, 5)
    assert not channel.accept(4, 1)  # settled long ago, and comes after all
    assert channel.accepted.ranges() == ((7, 7),)
    assert (channel.floor, channel.count) == (5, 2)


# ---- sending ----------------------------------------------------------------------------------------------------------


def test_a_header_is_a_plain_tuple_with_the_number_the_colour_and_the_floor() -> None:
    a = ledger()
    headers = [a.submit("b", "m", None, 0.0) for _ in range(3)]
    assert headers[2] == ("a", 0, 3, 0, 1, False)
    assert Header(*tuple(headers[2])) == headers[2]
    assert Header("a", 0, 3, 0, 1) == headers[2]


def test_what_a_log_keeps_does_not_change_with_the_programs_objects() -> None:
    """Trap 8."""
    a = ledger()
    items = [1]
    a.submit("b", "m", ("x", 7, items, (items, b"y")), 0.0)
    report = recorded(a, 1)
    items.append(2)
    assert output_of(report, "b").log[1].about == ("x", 7, "<list of 1>", ("<list of 1>", b"y"))
    assert frozen(object()) == "<object>"
    assert frozen("x" * 300) == "<str of 300>"
    assert frozen((0,) * 300) == "<tuple of 300>"


def test_a_reply_that_its_caller_has_read_acknowledges_its_call() -> None:
    a = ledger()
    a.submit("b", "m", None, 0.0)
    a.answered("b", 1)
    a.answered("nobody", 1)
    out = output_of(recorded(a, 1), "b")
    assert (out.settled_count, out.log) == (0, {})


def test_a_constructor_is_call_0_and_a_machine_is_created_once() -> None:
    a = ledger()
    header = a.create("kid", "__init__", None, 0.0)
    assert (header.number, header.floor) == (0, 0)
    assert a.submit("kid", "m", None, 0.0)[2:5] == (1, 0, 0)
    with pytest.raises(ProtocolError, match="about to create kid, which it knows already"):
        a.create("kid", "__init__", None, 0.0)
    a.acknowledge(Acks("a", 0, "kid", 0, ((0, 0),)))
    out = output_of(recorded(a, 1), "kid")
    assert (out.sent_count, out.last, sorted(out.log)) == (2, 1, [1])


def test_a_machine_to_which_something_was_sent_is_not_created() -> None:
    a = ledger()
    a.submit("b", "m", None, 0.0)
    with pytest.raises(ProtocolError, match="about to create b, which it knows already"):
        a.create("b", "__init__", None, 0.0)


# ---- acknowledgements ---------------------------------------------------------------------------------------------------


def test_acknowledgements_for_another_incarnation_are_ignored_and_for_another_machine_an_error() -> None:
    a = ledger(incarnation=1)
    a.submit("b", "m", None, 0.0)
    a.acknowledge(Acks("a", 0, "b", 0, ((1, 1),)))
    a.acknowledge(Acks("a", 1, "nobody", 0, ((1, 1),)))
    assert sorted(a.outputs["b"].log) == [1]
    with pytest.raises(ProtocolError, match="a got an acknowledgement for c"):
        a.acknowledge(Acks("c", 0, "b", 0, ((1, 1),)))


def test_memory_is_flat_over_many_calls() -> None:
    a, b = ledger("a"), ledger("b")
    for index in range(3_000):
        b.finish(deliver(a, b))
        if index % 7 == 0:
            a.retract("b", a.submit("b", "m", None, 0.0).number)
        if index % 50 == 0:
            for acks in b.take_acks():
                a.acknowledge(acks)
    assert len(a.outputs["b"].log) < 60
    assert len(b.inputs["a", 0].accepted.ranges()) < 60
    assert not b.running


# ---- accepting ------------------------------------------------------------------------------------------------------------


def test_no_red_call_is_accepted_in_a_white_action() -> None:
    a, b = ledger("a"), ledger("b")
    recorded(a, 1)
    header = a.submit("b", "m", None, 0.0)
    with pytest.raises(ProtocolError, match="b was about to accept red call 1 of a in a white action"):
        b.accept(header, "m", 0.0)
    assert not b.inputs
    assert not b.running
    assert b.hear(header.colour)
    b.record(lambda: "before")
    b.accept(header, "m", 0.0)
    assert b.report(1).inputs == ()
    assert b.report(1).state == "before"


def test_no_red_reply_is_read_in_a_white_action() -> None:
    """Traps 4 and 6: what a ref carries counts, whoever reads it."""
    a, b = ledger("a"), ledger("b")
    outer = a.accept_unknown("outer", 0.0)
    header = a.submit("b", "m", None, 0.0)
    waiting = a.wait(outer, (call_id_of("a", 0, "b", header.number),), 1, 0.0)
    running = b.accept(header, "m", 0.0)
    recorded(b, 1)
    colour = b.finish(running)
    assert colour == 1
    with pytest.raises(ProtocolError, match="a was about to read a red reply in a white action"):
        a.wake(waiting, colour)
    assert a.hear(colour)
    a.record(lambda: "before")
    a.wake(waiting, colour)
    assert [wait.wait_id for wait in a.report(1).waits] == [waiting]
    assert a.waits == {}


def test_a_call_that_comes_again_is_accepted_once_and_runs_again() -> None:
    a, b = ledger("a"), ledger("b")
    header = a.submit("b", "m", None, 0.0)
    runs = [b.accept(header, "m", 0.0), b.accept(header, "m", 0.0)]
    assert runs == ["a/0/b/1", "a/0/b/1#2"]
    assert parsed(runs[1]) == ("a", 0, "b", 1)
    assert b.inputs["a", 0].count == 1
    b.finish(runs[0])
    with pytest.raises(ProtocolError, match="about to end a/0/b/1, which does not run"):
        b.finish(runs[0])


def test_a_call_of_a_process_without_us_runs_too() -> None:
    b = ledger("b")
    runs = [b.accept_unknown("m", 0.0, group="io", holds_slot=False) for _ in range(2)]
    assert runs == ["?/0/b/1", "?/0/b/2"]
    call = recorded(b, 1).calls[0]
    assert (call.caller, call.group, call.holds_slot) == (None, "io", False)
    with pytest.raises(ProtocolError, match="no call id"):
        parsed("nonsense")


# ---- turning red --------------------------------------------------------------------------------------------------------


def test_the_loop_of_an_async_machine_may_copy_between_two_steps() -> None:
    b = ledger("b")
    b.accept_unknown("m", 0.0)
    b.request(1)
    b.record(lambda: "state", between_steps=True)
    report = b.report(1)
    assert (report.state, report.has_state, report.was_inside, report.status) == ("state", True, False, "active")


def test_a_copy_that_raises_leaves_the_machine_white() -> None:
    """Trap 6."""
    b = ledger("b")
    b.request(1)
    with pytest.raises(ZeroDivisionError):
        b.record(lambda: 1 // 0)
    assert b.colour == 0
    assert b.must_record
    assert b.record(None) == (1,)


def test_a_wait_that_ends_by_itself_or_is_ready_leaves_its_machine_active() -> None:
    b = ledger("b")
    waiting = b.wait(b.accept_unknown("m", 0.0), (None,), 1, 0.0, timeout_at=3.0, may_act=True)
    assert recorded(b, 1).status == "active"
    b.wake(waiting)
    waiting = b.wait("?/0/b/1", (), 1, 0.0, is_local=True)
    assert recorded(b, 2).status == "blocked"
    b.ready(waiting)
    b.ready(99)
    assert recorded(b, 3).status == "active"
    assert recorded(ledger(), 1).status == "passive"


def test_a_call_that_does_not_run_cannot_wait_and_the_waits_of_one_that_ended_are_gone() -> None:
    b = ledger("b")
    running = b.accept_unknown("m", 0.0)
    waiting = b.wait(running, (None,), 1, 0.0)
    b.finish(running)
    b.wake(waiting)
    assert b.waits == {}
    with pytest.raises(ProtocolError, match="waits and does not run"):
        b.wait(running, (None,), 1, 0.0)


def test_a_machine_whose_own_task_waits_beside_its_calls_is_active_and_may_act_when_the_reply_comes() -> None:
    ledger = CallLedger("a")
    wait_id = ledger.wait(None, ("a/0/b/1",), 1, 0.0)
    assert ledger._report(0).status == "active"
    ledger.wake(wait_id)
    assert ledger._report(0).status == "passive"


def test_a_machine_that_becomes_known_late_is_told_what_is_wanted() -> None:
    kid = ledger("kid")
    kid.hear(2)
    kid.record(lambda: None)
    assert kid.welcome([2, 4], 4) == (4,)
    assert sorted(kid.open) == [2]
    kid.record(lambda: None)
    assert sorted(kid.open) == [2, 4]
