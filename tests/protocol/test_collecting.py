"""The central point: which snapshots are open, what is missing of them, and how each report is answered."""

import gc
import weakref

import pytest

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.collector import Answer, HostReport, LateReport, PendingCounts
from ray_snapshot.protocol.coordinator import DRIVER_S, Coordinator, reachable
from ray_snapshot.protocol.host import HostCore

AB = ("a", "b", "mail")


def coordinator(*hosts: str, **options: int) -> Coordinator:
    found = Coordinator(**options)
    for host in hosts:
        found.register(host)
    return found


# ---- numbers -------------------------------------------------------------------------------------------------------------


def test_numbers_rise_by_one_and_are_never_used_again() -> None:
    found = coordinator("A")
    assert [found.start(0, 9) for _ in range(3)] == [1, 2, 3]
    found.abort(3, "no more wanted")
    found.report(1, HostReport("A"))
    found.completed(1)
    assert found.start(0, 9) == 4


def test_a_restarted_coordinator_begins_behind_what_hosts_have_recorded() -> None:
    assert coordinator("A", last=41).start(0, 9) == 42


def test_past_the_bound_of_open_snapshots_a_start_is_refused_and_uses_no_number() -> None:
    found = coordinator("A", most_open=2)
    assert [found.start(0, 9) for _ in range(4)] == [1, 2, None, None]
    found.abort(1, "room")
    assert found.start(0, 9) == 3


# ---- answers ------------------------------------------------------------------------------------------------------------


def test_reports_are_answered_by_what_their_snapshot_is() -> None:
    found = coordinator("A", "B")
    number = found.start(0, 9)
    assert number is not None
    assert found.report(number, HostReport("A")) is Answer.SUCCESS
    assert found.report(number, HostReport("A")) is Answer.DUPLICATE
    assert found.report(number + 1, HostReport("A")) is Answer.UNKNOWN
    assert found.completed(number) is None
    assert found.report(number, HostReport("B")) is Answer.SUCCESS
    assert found.completed(number) is not None
    assert found.report(number, HostReport("B")) is Answer.DISCARDED
    assert found.report(number, LateReport("B")) is Answer.DISCARDED
    aborted = found.start(0, 9)
    assert aborted is not None
    found.abort(aborted, "no more wanted")
    assert found.report(aborted, HostReport("A")) is Answer.DISCARDED


# ---- completeness --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_complete_when_all_have_reported_and_no_message_is_missing() -> None:
    pending = PendingCounts(1, ["A", "B"])
    pending.report(HostReport("A", sent={AB: 3}))
    assert pending.waits_for() == "the report of B"
    pending.report(HostReport("B", accepted={AB: 1}, in_flight={AB: 1}))
    assert not pending.is_complete
    assert pending.waits_for() == "1 messages in flight from a to b (mail)"
    pending.late(LateReport("B", {AB: 1}))
    assert pending.is_complete
    assert pending.waits_for() == "nothing"


def test_more_accepted_than_sent_is_no_reason_to_wait_but_is_told() -> None:
    found = coordinator("A", "B")
    number = found.start(0, 9)
    assert number is not None
    found.report(number, HostReport("A"))
    found.report(number, HostReport("B", accepted={AB: 1}))
    completed = found.completed(number)
    assert completed is not None
    assert completed.surplus == {AB: -1}


def test_a_surplus_on_one_channel_does_not_stand_for_what_is_missing_on_another() -> None:
    pending = PendingCounts(1, ["A"])
    pending.report(HostReport("A", sent={AB: 1}, accepted={("b", "a", "mail"): 1}))
    assert not pending.is_complete


# ---- giving up --------------------------------------------------------------------------------------------------------------


def test_past_its_deadline_a_snapshot_is_given_up_and_says_what_it_waited_for() -> None:
    found = coordinator("A", "B")
    number = found.start(now=10, timeout=5)
    assert number is not None
    found.report(number, HostReport("A"))
    assert found.next_deadline() == 15
    assert found.expire(14.9) == []
    (aborted,) = found.expire(15)
    assert aborted.number == number
    assert aborted.reason == "timed out waiting for the report of B"
    assert aborted.awaited == ("B",)
    assert found.pending == {}
    assert found.next_deadline() is None


def test_a_program_that_does_not_answer_has_longer() -> None:
    found = coordinator("A", "driver")
    number = found.start(now=10, timeout=5)
    assert number is not None
    found.report(number, HostReport("A"))
    assert found.next_deadline() == 15 + DRIVER_S
    assert found.expire(14.9 + DRIVER_S) == []
    found.report(number, HostReport("driver"))
    assert found.completed(number) is not None


def test_a_deadline_names_the_message_that_is_missing() -> None:
    found = coordinator("A", "B")
    number = found.start(0, 5)
    assert number is not None
    found.report(number, HostReport("A", sent={AB: 2}))
    found.report(number, HostReport("B", accepted={AB: 1}))
    assert found.expire(6)[0].reason == "timed out waiting for 1 messages in flight from a to b (mail)"


def test_a_snapshot_of_which_nothing_is_missing_is_not_given_up() -> None:
    found = coordinator("A")
    number = found.start(0, 5)
    assert number is not None
    found.report(number, HostReport("A"))
    assert found.expire(100) == []
    assert found.completed(number) is not None


def test_a_host_that_is_gone_ends_the_snapshots_that_still_need_it() -> None:
    found = coordinator("A", "B")
    first, second = found.start(0, 9), found.start(0, 9)
    assert first is not None
    found.report(first, HostReport("B"))
    (aborted,) = found.leave("B")
    assert aborted.number == second
    assert aborted.reason == "host B is gone"
    assert list(found.pending) == [first]


def test_what_is_not_pending_cannot_be_given_up() -> None:
    with pytest.raises(ProtocolError, match="7 is not pending"):
        coordinator("A").abort(7, "why not")


# ---- small things -----------------------------------------------------------------------------------------------------------


def test_markers_reach_what_edges_lead_to() -> None:
    edges = [("a", "b"), ("b", "c"), ("d", "a")]
    assert reachable(edges, ["a"]) == {"a", "b", "c"}
    assert reachable(edges, ["d", "c"]) == {"a", "b", "c", "d"}
    assert reachable([], ["x"]) == {"x"}


# ---- what is kept --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_complete_when_hosts_and_watched_processes_are() -> None:
    one = coordinator("A")
    one.join("watched")
    assert one.start(0, 9) == 1
    assert one.pending[1].lacking() == {"A", "watched"}
    assert one.report(1, HostReport("A")) is Answer.SUCCESS
    assert one.completed(1) is None
    assert one.pending[1].waits_for() == "the report of watched"
    ledger = CallLedger("watched")
    ledger.request(1)
    ledger.record(None)
    assert one.report_calls(ledger.report(1)) is Answer.SUCCESS
    found = one.completed(1)
    assert found is not None
    assert (found.hosts, set(found.calls.machines)) == ({"A"}, {"watched"})
    assert one.report_calls(ledger.report(1)) is Answer.DISCARDED


def test_a_snapshot_that_is_given_up_says_which_parties_were_missing() -> None:
    one = coordinator("A")
    one.join("watched")
    one.start(0, 9)
    (aborted,) = one.expire(9)
    assert (aborted.awaited, aborted.reason) == (("A", "watched"), "timed out waiting for the report of A")
    assert one.calls.pending == {}


def test_a_host_keeps_nothing_of_a_snapshot_that_is_closed() -> None:
    host = HostCore("A")
    host.born("a", object())
    host.request(1)
    host.boundary()
    recording = weakref.ref(host.open[1])
    while host.copy_next():
        pass
    host.close(1)
    gc.collect()
    assert recording() is None
