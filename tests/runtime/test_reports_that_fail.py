"""A report that cannot be made, or that nobody needs any more once it is made: its snapshot is given up, and nothing else."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from lone_host import HOST, Actor, lone_host
from ray.exceptions import ObjectStoreFullError
from resting import Listener, resting_host
from until import until

import ray_snapshot as rs
from ray_snapshot.columns import unpacked
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Abort, Close, Request
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.driver import recorder as of_the_driver
from ray_snapshot.runtime.host import reporter
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.notices import Notices
from ray_snapshot.runtime.tracing import Entry, Tracer
from ray_snapshot.runtime.transport import trace_shipping
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping


class Adder(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total


def _no_room(*_given: Any, **_options: Any) -> Any:
    raise MemoryError("malloc of size 4000000000 failed")


def _full(*_given: Any, **_named: Any) -> Any:
    raise ObjectStoreFullError("no room")


def test_a_host_that_cannot_report_gives_the_snapshot_up_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.body("a")
        with monkeypatch.context() as patch:
            patch.setattr(reporter, "host_payload", _no_room)
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


def test_a_report_that_ray_cannot_take_gives_the_snapshot_up_and_its_trace_goes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lone_host(trace="__main__") as host:
        host.create("a", Adder)
        host.body("a")
        host.call("a", "add", 1).result(30)
        with monkeypatch.context() as patch:
            patch.setattr(trace_shipping, "replace", _full)
            host.obey(Request(1))
            (told,) = until(lambda: host.service.of("give_up"))
            assert told == (1, HOST, "ObjectStoreFullError: no room")
        host.obey(Abort(1), Request(2))
        host.report(2)
        (payload,) = [one for (one,) in host.service.of("report") if one.number == 2]
        assert unpacked(pa.py_buffer(payload.trace))["method"].to_pylist() == ["__init__", "add"]
        assert host.service.of("fail") == []


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_noted_for_a_snapshot_that_was_given_up_while_its_report_was_made_is_let_go(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    of, note = AtRest.of, Notices.note

    def slow(self: AtRest, number: int) -> Any:
        found = of(self, number)
        if number == 2:
            begun.set()
            assert may_end.wait(30)
        return found

    def noted(self: Notices, recording: Any, machines: Any) -> bool:
        found = note(self, recording, machines)
        return _no_room() if fails and recording.number == 2 else found

    monkeypatch.setattr(AtRest, "of", slow)
    monkeypatch.setattr(Notices, "note", noted)
    with resting_host(checkpoint=True) as host:
        host.create("a", Listener, 1)
        host.create("b", Adder)
        until(lambda: host.post.constructed() == 2)
        host.obey(Request(1))
        host.report(1)
        host.obey(Close(1), Request(2))
        assert begun.wait(30)
        host.obey(Abort(2))
        may_end.set()
        host.obey(Request(3))
        host.report(3)
        notices = host.post.notices
        until(lambda: 2 not in notices.recorded)
        assert {*notices.recorded} == {1, 3}, "the first is to be kept yet"
        assert not any(one.number == 2 for (one,) in host.service.of("report"))
        assert len(host.service.of("give_up")) == fails


def test_what_a_driver_has_traced_goes_with_the_next_report_if_one_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tracer = Tracer("run", DRIVER, "__main__")
    tracer.entries = [Entry(DRIVER, 1, "main", 1, 0.0, is_over=True)]
    service = Actor(report=None, give_up=None)
    member: Any = SimpleNamespace(service=service)
    monkeypatch.setattr(of_the_driver, "replace", _full)
    found = of_the_driver.DriverRecorder(member, cast("Any", None), TraceShipping(member, tracer), checkpoint=False)
    with found._if_it_can_be(1):
        found._report(HostPayload(1, cast("Any", None), b""))
    assert service.of("give_up") == [(1, DRIVER, "ObjectStoreFullError: no room")]
    assert len(tracer.take()) == 1
