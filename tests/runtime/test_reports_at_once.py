"""A host at which nothing happens reports at once, by its report before; and a small report is the answer to who has asked."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from lone_host import LoneHost, lone_host
from resting import Flat, Volatile, resting_host
from until import until

from ray_snapshot.errors import RolledBackError
from ray_snapshot.protocol.commands import Abort, Close, Request, Stop
from ray_snapshot.protocol.rollback import RollbackHost
from ray_snapshot.runtime import report as reports
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.host import answers, reporter
from ray_snapshot.runtime.host.actor import Host
from ray_snapshot.runtime.host.one_thread import OneThread, done
from ray_snapshot.runtime.report import Facts, Packed, Standing

COUNT = 3
BEGUN, MAY_END = threading.Event(), threading.Event()


class Slow(Flat):
    """Stays inside its action."""

    def add(self, amount: int) -> int:
        BEGUN.set()
        assert MAY_END.wait(30)
        return super().add(amount)


@pytest.fixture(autouse=True)
def gates() -> None:
    BEGUN.clear()
    MAY_END.clear()


@contextmanager
def at_rest(**options: Any) -> Iterator[LoneHost]:
    """A host whose machines rest, and whose last report, of snapshot 2, shows nothing else."""
    with resting_host(**options) as host:
        for number in range(COUNT):
            host.create(f"m{number}", Flat, number)
        until(lambda: host.post.constructed() == COUNT)
        for number in (1, 2):
            host.obey(Request(number))
            host.report(number)
            host.obey(Close(number))
        until(lambda: host.post.reporter.pool.is_idle and host.post.floor.is_idle)
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


def _not_to_be_called(*_given: Any, **_options: Any) -> Any:
    raise AssertionError("the thread of reports was asked, or the one that acts")


def _shown(part: Any) -> dict[str, Any]:
    """What a part says, but for its moment."""
    return {
        "machines": part.machines.drop_columns(["recorded_at"]).to_pylist(),
        "ends": part.table_of_ends.to_pylist(),
        "messages": part.messages.to_pylist(),
        "shapes": sorted(part.shapes),
        "inputs": part.inputs,
        "markers": part.markers,
        "packed": part.packed and (part.packed.classes, part.packed.state_bytes, part.packed.rows),
    }


@pytest.mark.parametrize(
    ("least", "checkpoint"), [(COUNT + 1, False), (1, False), (COUNT + 1, True)], ids=["sent", "packed", "checkpoint"]
)
def test_what_a_host_at_rest_reports_is_what_it_reported_before_as_of_now(
    least: int, checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_snapshot.runtime.host.resting.LEAST_PACKED", least)
    with at_rest(checkpoint=checkpoint) as host:
        host.obey(Request(3))  # of which the rows are as they were
        host.report(3)
        host.obey(Close(3))
        until(lambda: host.post.reporter.pool.is_idle and host.post.floor.is_idle)
        with monkeypatch.context() as patch:
            if not checkpoint:  # those are made anew
                patch.setattr(host.post.reporter.pool, "submit", _not_to_be_called)
                patch.setattr(host.post.floor, "wake", _not_to_be_called)
            host.obey(Request(4))
            before, found = host.report(3), host.report(4)
        assert _shown(found) == _shown(before)
        machines: Any = found.machines
        assert (machines.num_rows, found.packed is None) == ((0, False) if least == 1 else (COUNT, True))
        moments = [_moments(part) for part in (before, found)]
        assert max(moments[0]) < min(moments[1])
        host.obey(Close(4))
        host.send("m0", "add", 5)
        until(lambda: host.post.core.machines["m0"].accepted == 1 and host.post.floor.is_idle)
        host.obey(Request(5))
        assert _shown(host.report(5)) != _shown(before)


def _moments(part: Any) -> list[Any]:
    told = part.machines["recorded_at"].cast(pa.int64()).to_pylist()
    return told if part.packed is None else [*told, part.packed.recorded_at]


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
    monkeypatch.setattr(reporter, "MARKERS_S", 0.3)
    with at_rest() as host:
        host.obey(Request(3))
        host.send("m0", "add", 1)
        part = host.report(3)
        (payload,) = _sent(host, 3)
        counts: Any = payload.counts
        assert [*counts.in_flight.values()] == [1]
        assert part.messages.num_rows == 1


def test_while_the_thread_of_reports_is_busy_a_report_waits_for_it() -> None:
    """It may be about to change the rows."""
    gate = threading.Event()
    with at_rest() as host:
        host.post.reporter.pool.submit(gate.wait, 30)
        host.obey(Request(3))
        for _ in range(20):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), host.loop).result(30)
        assert _sent(host, 3) == []
        assert not host.post.at_rest.shown[3].done()
        gate.set()
        host.report(3)
        given = reporter.host_payload, host.post.core.open[3], (), ()
        until(lambda: host.post.reporter.pool.is_idle)
        assert host.post.reporter._payload_at_once(*given) is not None
        gate.clear()
        host.post.reporter.pool.submit(gate.wait, 30)
        assert host.post.reporter._payload_at_once(*given) is None
        gate.set()


def test_processor_time_is_told_once_whoever_has_spent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        rows = host.post.at_rest.rows
        beside = rows.beside

        def slow(names: Any) -> Any:
            until_s = time.thread_time() + 0.1
            while time.thread_time() < until_s:
                pass
            return beside(names)

        monkeypatch.setattr(rows, "beside", slow)
        host.obey(Request(3))
        host.report(3)
        (payload,) = _sent(host, 3)
        assert 0.1 <= payload.cpu_s < 0.18


def test_a_fault_while_the_event_loop_turns_the_host_red_stops_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        monkeypatch.setattr(host.post.at_rest, "turned", lambda _: int("no number"))
        host.obey(Request(3))
        assert "no number" in str(host.failure())


def test_rows_that_have_changed_are_not_kept_for_a_report_that_stands_no_more() -> None:
    with at_rest() as host:
        host.create("volatile", Volatile)
        standing = host.post.reporter.standing
        before = standing.resting
        assert before is not None
        host.send("m0", "add", 5)
        until(lambda: host.post.core.machines["m0"].accepted == 1 and host.post.floor.is_idle)
        host.obey(Request(3))
        host.report(3)
        assert standing.resting is not before
        assert standing._part == b""


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


def test_a_part_that_is_large_does_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    resting: Any = object()
    facts = Facts(1.0, 2)
    for most, stands in ((3, True), (2, False)):
        monkeypatch.setattr(reports, "MOST_STANDING", most)
        found = Standing()
        found.note(resting, facts, None, b"abc")
        assert (found.again(resting, facts, None) is not None) == stands


def test_a_part_stands_for_the_same_machines_and_markers_alone() -> None:
    resting, other = (reports.Resting(None, None, None, {}, ()) for _ in range(2))  # type: ignore[arg-type]
    packed = Packed("host-0", {}, 0, 1, b"rows")
    found = Standing()
    found.note(resting, Facts(1.0, 2), packed, pickle.dumps(None))
    assert found.again(resting, Facts(9.0, 2), packed) is not None
    for one, facts, said in (
        (other, Facts(1.0, 2), packed),
        (None, Facts(1.0, 2), packed),
        (resting, Facts(1.0, 3), packed),
        (resting, Facts(1.0, 2, ["cannot be pickled"]), packed),
        (resting, Facts(1.0, 2), None),
    ):
        assert found.again(one, facts, said) is None


# ---- the report as an answer ------------------------------------------------------------------------------------------


def _asked(host: LoneHost, *numbers: int, generation: int = 0) -> Future[HostPayload | None]:
    """The service asks for snapshots: the actor itself, put around the host."""
    actor: Any = object.__new__(Host)
    actor.post, actor.rollback = host.post, RollbackHost()
    commands = [Request(number) for number in numbers]
    return asyncio.run_coroutine_threadsafe(Host.ask(actor, commands, generation), host.loop)


def _sent(host: LoneHost, number: int) -> list[HostPayload]:
    return [one for (one, *_) in host.service.of("report") if one.number == number]


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


def test_a_large_report_goes_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        monkeypatch.setattr(answers, "PIECE", 10)
        assert _asked(host, 3).result(30) is None
        assert until(lambda: _sent(host, 3))


def test_the_counts_of_many_links_make_a_report_large(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_rest() as host:
        host.send("m0", "add", 1)  # now there is a link
        monkeypatch.setattr(answers, "LINK_BYTES", answers.PIECE)
        assert _asked(host, 3).result(30) is None
        assert until(lambda: _sent(host, 3))


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


# ---- the thread of reports --------------------------------------------------------------------------------------------


def test_a_thread_is_idle_when_all_that_it_was_given_is_done() -> None:
    gate = threading.Event()
    with OneThread("test") as thread:
        assert thread.is_idle
        first = thread.submit(gate.wait, 30)
        second = thread.submit(lambda: 2)
        assert not thread.is_idle
        gate.set()
        assert (first.result(30), second.result(30)) == (True, 2)
        assert thread.is_idle


def test_what_is_done_at_once_says_what_came_of_it() -> None:
    assert done(int, "7").result(0) == 7
    assert isinstance(done(int, "seven").exception(0), ValueError)
