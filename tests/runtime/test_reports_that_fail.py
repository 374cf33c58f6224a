"""A report that cannot be made, or that nobody needs any more once it is made: its snapshot is given up, and nothing else."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lone_host import HOST, lone_host
from resting import Listener, resting_host
from until import until

import ray_snapshot as rs
from ray_snapshot.errors import SnapshotAbortedError
from ray_snapshot.protocol.commands import Abort, Close, Request
from ray_snapshot.runtime.driver import recorder as of_the_driver
from ray_snapshot.runtime.host import recorder


class Adder(rs.SnapshotMixin):
    """Adds up."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total


def _no_room(*_given: Any, **_options: Any) -> Any:
    raise MemoryError("malloc of size 4000000000 failed")


def test_a_host_that_cannot_report_gives_the_snapshot_up_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.body("a")
        with monkeypatch.context() as patch:
            patch.setattr(recorder, "host_payload", _no_room)
            host.obey(Request(1))
            (told,) = until(lambda: host.service.of("give_up"))
            assert told == (1, HOST, "MemoryError: malloc of size 4000000000 failed")
        host.obey(Abort(1))
        host.call("a", "add", 2).result(30)
        assert host.body("a").total == 2
        host.obey(Request(2))
        machines: Any = host.report(2).machines
        assert machines.num_rows == 1
        assert host.service.of("fail") == []
        assert not host.post.core.open.keys() & {1}


def test_what_is_noted_for_a_snapshot_that_was_given_up_while_its_report_was_made_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, may_end = threading.Event(), threading.Event()
    payload = recorder.Recorder._timed_payload

    def slow(self: recorder.Recorder, *given: Any) -> Any:
        is_second = given[1].number == 2
        assert not is_second or may_end.wait(30)
        found = payload(self, *given)
        if is_second:
            made.set()
        return found

    monkeypatch.setattr(recorder.Recorder, "_timed_payload", slow)
    with resting_host(checkpoint=True, own_from=1) as host:
        host.create("a", Listener, 1)
        host.create("b", Adder)
        until(lambda: host.post.constructed() == 2)
        host.obey(Request(1))
        host.report(1)
        host.obey(Close(1), Request(2))
        until(lambda: host.post.core.is_recorded(2) and 2 in host.post.recorder.reported)
        host.obey(Abort(2))
        may_end.set()
        assert made.wait(30)
        host.obey(Request(3))
        host.report(3)
        notices, own = host.post.notices, host.post.recorder.at_rest.kept.own
        assert {*notices.recorded} == {1, 3}, "the first is to be kept yet"
        assert {*own._owed} == {1, 3}
        assert not any(one.number == 2 for (one,) in host.service.of("report"))


def _send_and_ask(system: rs.System, adder: Any) -> None:
    """Until a snapshot cannot be had: the driver reports for itself only where it has something on its way."""
    for _ in range(100):
        adder.add.send(1)
        system.snapshot()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_driver_that_cannot_report_learns_so_and_may_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with rs.System("large-report", detectors=[]) as system:
        adder = system.spawn(Adder, name="a")
        adder.add.send(1)
        with monkeypatch.context() as patch:
            patch.setattr(of_the_driver, "host_payload", _no_room)
            told = "driver could not report: MemoryError: malloc of size 4000000000"
            with pytest.raises(SnapshotAbortedError, match=told):
                _send_and_ask(system, adder)
        assert system.snapshot().status == "complete"
