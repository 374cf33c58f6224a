"""A host at which nothing happens turns red at once; what comes late, and what it took, is in its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lone_host import LoneHost
from resting import Flat, Volatile, resting_host
from until import until

from ray_snapshot.protocol.commands import Close, Request, Stop
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.host import reporter

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
def at_rest() -> Iterator[LoneHost]:
    """A host whose machines rest."""
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
    monkeypatch.setattr(reporter, "MARKERS_S", 0.3)
    with at_rest() as host:
        host.obey(Request(3))
        host.send("m0", "add", 1)
        part = host.report(3)
        (payload,) = _sent(host, 3)
        counts: Any = payload.counts
        assert [*counts.in_flight.values()] == [1]
        assert part.messages.num_rows == 1


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


def _sent(host: LoneHost, number: int) -> list[HostPayload]:
    return [one for (one,) in host.service.of("report") if one.number == number]
