"""A host at which nothing happens turns red at once; what comes late, and what it took, is in its report."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from limited import limit
from lone_host import LoneHost, lone_host
from resting import Flat, Volatile, resting_host
from until import until

from ray_snapshot.errors import RolledBackError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Abort, Close, Request, Stop
from ray_snapshot.protocol.rollback import RollbackHost
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.host import reporter
from ray_snapshot.runtime.host.actor import Host

COUNT = 3
BEGUN, MAY_END = threading.Event(), threading.Event()


class Slow(Flat):
    def add(self, amount: int) -> int:
        BEGUN.set()
        assert MAY_END.wait(30)
        return super().add(amount)


@pytest.fixture(autouse=True)
def gates() -> None:
    BEGUN.clear()
    MAY_END.clear()


@contextmanager
def at_rest() -> Iterator[LoneHost]:
    with resting_host() as host:
        for number in range(COUNT):
            host.create(f"m{number}", Flat, number)
        until(lambda: host.post.constructed() == COUNT)
        for number in (1, 2):
            host.obey(Request(number))
            host.report(number)
            host.obey(Close(number))
        until(lambda: host.post.floor.is_idle)
        yield host


@contextmanager
def inside_an_action() -> Iterator[LoneHost]:
    """The same, and one more machine, which does not end its action."""
    with at_rest() as host:
        host.create("slow", Slow)
        host.body("slow")
        host.send("slow", "add", 7)
        assert BEGUN.wait(30)
        yield host


def test_a_host_that_is_one_system_with_actors_is_turned_by_the_thread_that_acts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its machines owe to actors is noted in that thread, too."""
    with at_rest() as host:
        recorder, core = host.post.recorder, host.post.core
        with host.post.member.lock:
            core.request(3)
            with monkeypatch.context() as patch:
                patch.setattr(recorder, "abroad", object())
                assert not recorder.record_if_idle()
                assert not core.is_recorded(3)
            assert recorder.record_if_idle()
            assert core.is_recorded(3)


def test_a_host_with_a_machine_inside_an_action_turns_red_behind_it() -> None:
    with inside_an_action() as host:
        host.obey(Request(3))
        with host.post.member.lock:
            assert not host.post.recorder.record_if_idle()
            assert not host.post.core.is_recorded(3)
        MAY_END.set()
        machines: Any = host.report(3).machines
        states = dict(zip(machines["machine"].to_pylist(), machines["state"].to_pylist(), strict=True))
        assert '"total":7' in states["slow"]


def test_what_comes_late_to_a_host_at_rest_is_in_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A white message that has arrived behind the instant: it goes with the report, which waits a moment for markers."""
    limit(monkeypatch, markers_s=0.3)
    with at_rest() as host:
        host.obey(Request(3))
        host.send("m0", "add", 1)
        part = host.report(3)
        (payload,) = _sent(host, 3)
        counts: Any = payload.counts
        assert [*counts.in_flight.values()] == [1]
        assert part.messages.num_rows == 1


def spend(seconds: float) -> None:
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def test_processor_time_is_told_once_whoever_has_spent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        rows = host.post.at_rest.rows
        beside = rows.beside
        monkeypatch.setattr(rows, "beside", lambda names: (spend(0.1), beside(names))[1])
        host.obey(Request(3))
        host.report(3)
        (payload,) = _sent(host, 3)
        assert 0.1 <= payload.cpu_s < 0.18


def test_a_machine_that_is_copied_in_front_of_its_action_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        host.create("account", Flat)
        until(lambda: host.post.constructed() == COUNT + 1)
        copied: Any = host.post.copier._copied
        monkeypatch.setattr(host.post.copier, "_copied", lambda machine: (spend(0.02), copied(machine))[1])
        with host.post.member.lock:
            core = host.post.core
            core.request(3)
            core.boundary()
            core._copy_if_due(core.machines["account"])  # as `next_action` does
            host.post.recorder.copy_slice()
        host.report(3)
        (payload,) = _sent(host, 3)
        assert payload.cpu_s >= 0.02


def test_a_fault_while_the_event_loop_turns_the_host_red_stops_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        monkeypatch.setattr(host.post.at_rest, "before_turning", lambda: int("no number"))
        host.obey(Request(3))
        assert "no number" in str(host.failure())


def test_what_is_told_with_a_request_is_done_all_the_same() -> None:
    with at_rest() as host:
        host.obey(Request(3), Stop("m0", 0, 0))
        until(lambda: host.post.core.machines["m0"].is_stopped)
        host.report(3)


def test_a_machine_that_changes_by_itself_is_shown_as_it_is_now_beside_those_at_rest() -> None:
    with at_rest() as host:
        host.create("volatile", Volatile)
        for number, total in ((3, 5), (4, 6)):
            host.body("volatile").total = total
            host.obey(Request(number))
            machines: Any = host.report(number).machines
            states = dict(zip(machines["machine"].to_pylist(), machines["state"].to_pylist(), strict=True))
            assert len(states) == COUNT + 1
            assert f'"total":{total}' in states["volatile"]
            host.obey(Close(number))


# ---- the report as an answer ------------------------------------------------------------------------------------------


def _asked(host: LoneHost, *numbers: int, generation: int = 0) -> Future[HostPayload | None]:
    """The service asks for snapshots: the actor itself, put around the host."""
    actor: Any = object.__new__(Host)
    actor.post, actor.rollback = host.post, RollbackHost()
    commands = [Request(number) for number in numbers]
    return asyncio.run_coroutine_threadsafe(Host.ask(actor, commands, generation), host.loop)


def _sent(host: LoneHost, number: int) -> list[HostPayload]:
    return [one for (one,) in host.service.of("report") if one.number == number]


def test_a_small_report_is_the_answer_and_no_call() -> None:
    with at_rest() as host:
        payload = _asked(host, 3).result(30)
        assert payload is not None
        assert payload.number == 3
        host.obey(Close(3))
        host.send("m0", "add", 5)
        payload = _asked(host, 4).result(30)
        assert payload is not None
        assert b"total" in payload.part
        assert _sent(host, 3) == _sent(host, 4) == []


def test_of_two_that_are_asked_for_at_once_the_first_is_answered() -> None:
    with at_rest() as host:
        payload = _asked(host, 3, 4).result(30)
        assert payload is not None
        assert payload.number == 3
        assert until(lambda: _sent(host, 4))


def test_a_request_of_a_past_generation_is_answered_with_nothing() -> None:
    with at_rest() as host:
        assert _asked(host, 3, generation=-1).result(30) is None
        assert host.post.reporter.answers.awaited == {}
        assert not host.post.core.is_recorded(3)


def test_who_asks_twice_is_answered_once() -> None:
    with inside_an_action() as host:
        first = _asked(host, 3)
        until(lambda: host.post.reporter.answers.awaited)
        second = _asked(host, 3)
        assert first.result(30) is None
        MAY_END.set()
        payload = second.result(30)
        assert payload is not None
        assert payload.number == 3


def test_a_large_report_and_one_of_many_links_go_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        with monkeypatch.context() as patch:
            limit(patch, piece_bytes=10)
            assert _asked(host, 3).result(30) is None
            assert until(lambda: _sent(host, 3))
        host.obey(Close(3))
        host.send("m0", "add", 1)  # now there is a link
        monkeypatch.setattr(reporter, "LINK_BYTES", LIMITS.piece_bytes)
        assert _asked(host, 4).result(30) is None
        assert until(lambda: _sent(host, 4))


def test_a_report_with_a_trace_goes_by_a_call() -> None:
    with lone_host(trace="__main__") as host:
        host.create("a", Flat)
        host.body("a")
        assert _asked(host, 1).result(30) is None
        (payload,) = until(lambda: _sent(host, 1))
        assert payload.trace is not None


def test_who_asks_for_what_was_reported_or_is_over_is_told_so() -> None:
    with at_rest() as host:
        host.obey(Request(3))
        until(lambda: _sent(host, 3))
        assert _asked(host, 3).result(30) is None
        host.obey(Close(3))
        assert _asked(host, 3).result(30) is None
        host.obey(Abort(4))
        assert _asked(host, 4).result(30) is None
        assert len(_sent(host, 3)) == 1


@pytest.mark.parametrize("ends", ["aborted", "retired", "closed"])
def test_nobody_waits_for_a_report_that_will_never_be(ends: str) -> None:
    with inside_an_action() as host:
        answer = _asked(host, 3)
        until(lambda: host.post.reporter.answers.awaited)
        if ends == "aborted":
            host.obey(Abort(3))
        elif ends == "closed":
            host.loop.call_soon_threadsafe(host.post.close)
        else:
            error = RolledBackError("gone back", snapshot_id=None)
            host.loop.call_soon_threadsafe(host.post.retire, error)
        assert answer.result(30) is None
        assert host.post.reporter.answers.awaited == {}
        if ends != "aborted":
            assert _asked(host, 4).result(30) is None, "nor is anybody answered later"
        MAY_END.set()


def test_a_report_that_cannot_be_made_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_given: Any, **_options: Any) -> Any:
        raise MemoryError("no room")

    with at_rest() as host:
        monkeypatch.setattr(reporter, "host_payload", no_room)
        assert _asked(host, 3).result(30) is None
        assert until(lambda: host.service.of("give_up"))
