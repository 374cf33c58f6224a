"""A host without Ray: what its parts do together, between the driver's core and a service that only writes down."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from limited import limit
from lone_host import HOST, LoneHost, lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot.errors import MachineFailedError, MailboxFullError, RolledBackError, UnknownMethodError
from ray_snapshot.protocol.commands import Close, Overdue, Request, Stop
from ray_snapshot.runtime.waits import TrackedWait

SLOW = threading.Event()
INSIDE = threading.Event()


class Adder(rs.SnapshotMixin):
    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    def pass_on(self, name: str, amount: int) -> None:
        rs.runtime.context.context_of(self).machine(name).add.send(amount)  # type: ignore[attr-defined]

    def break_down(self) -> None:
        raise ValueError("no more")

    def linger(self) -> None:
        INSIDE.set()
        assert SLOW.wait(30)

    def ask(self, call_id: str) -> None:
        """As `ray.get` does it, for what somebody else owes."""
        from ray_snapshot.runtime.here import HERE

        post: Any = HERE.post
        token = post.begin_wait(TrackedWait(1, [("elsewhere", call_id)], False, None, "app.py:7"))
        INSIDE.set()
        assert SLOW.wait(30)
        post.end_wait(token)
        self.total += 1


@pytest.fixture(autouse=True)
def gates() -> None:
    SLOW.clear()
    INSIDE.clear()


def states(host: LoneHost, number: int) -> dict[str, Any]:
    machines = host.report(number).machines
    assert machines is not None
    return {row["machine"]: row for row in machines.to_pylist()}


def test_a_machine_is_born_acts_in_order_and_sends_to_its_neighbour() -> None:
    with lone_host() as host:
        host.create("a", Adder, 5)
        host.create("b", Adder)
        for amount in (1, 2, 3):
            host.send("a", "pass_on", "b", amount)
        until(lambda: host.body("b").total == 6)
        assert host.body("a").total == 5
        until(lambda: host.post.constructed() == 2)  # once what reports is loaded


def test_what_a_call_returns_its_caller_gets_with_the_colour_of_that_moment() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        assert host.call("a", "add", 7).result(30).value == 7
        host.obey(Request(1))
        host.report(1)
        answer = host.call("a", "add", 1).result(30)
        assert (answer.value, answer.colour) == (8, 1)


def test_a_snapshot_holds_the_states_between_two_actions_and_is_reported_once() -> None:
    with lone_host() as host:
        host.create("a", Adder, 2)
        host.call("a", "add", 1).result(30)
        host.obey(Request(1))
        assert states(host, 1)["a"]["state"] == '{"total":3}'
        host.obey(Close(1), Request(2))
        host.report(2)
        assert [payload.number for (payload,) in host.service.of("report")] == [1, 2]
        assert not host.post.reporter.recorded_at.keys() & {1}


def test_where_messages_go_round_a_report_waits_for_the_markers_and_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit(monkeypatch, markers_s=0.0)
    limit(monkeypatch, busy_markers_s=30.0)
    with lone_host(protocol="chandy-lamport") as host:
        for name in ("slow", "other"):
            host.create(name, Adder)
            host.body(name)
        host.send("slow", "linger")
        assert INSIDE.wait(30)
        host.send("slow", "add", 1)
        host.obey(Request(1))
        host.obey(Overdue(1))
        until(lambda: host.post.core.is_recorded(1) and not host.post.core.copying.uncopied)
        host.send("other", "add", 5)
        until(lambda: host.post.core.open[1].late)
        host.driver.request(1)
        host.driver.boundary()
        host._deliver()
        found = host.report(1).messages.to_pylist()
        assert [(row["target"], row["args"]) for row in found] == [("slow", "[1]"), ("other", "[5]")]
        assert len(host.service.of("report")) == 1
        SLOW.set()


def test_in_a_long_action_the_others_are_recorded_and_past_its_time_the_one_that_acts_too() -> None:
    with lone_host() as host:
        host.create("slow", Adder)
        host.create("other", Adder, 9)
        host.body("other")
        host.send("slow", "linger")
        assert INSIDE.wait(30)
        host.obey(Request(1))
        host.obey(Overdue(1))
        found = states(host, 1)
        assert found["other"]["state"] == '{"total":9}'
        assert (found["slow"]["status"], found["slow"]["state"]) == ("active", None)
        assert host.report(1).without_state == ["slow"]
        SLOW.set()


def test_a_machine_that_waits_inside_is_blocked_in_the_cut_and_others_act_meanwhile() -> None:
    with lone_host() as host:
        host.create("waits", Adder)
        host.create("other", Adder)
        host.send("waits", "ask", "elsewhere/3")
        assert INSIDE.wait(30)
        assert host.call("other", "add", 4).result(30).value == 4
        host.obey(Request(1))
        found = states(host, 1)
        assert (found["waits"]["status"], found["waits"]["waits_for"]) == ("blocked", ["elsewhere"])
        assert found["other"]["state"] == '{"total":4}'
        assert [row["on_call_id"] for row in host.report(1).waits] == ["elsewhere/3"]
        SLOW.set()
        until(lambda: host.body("waits").total == 1)
        assert host.post.stage.suspended == {}


def test_what_an_action_raises_stops_the_system_and_says_where() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.send("a", "break_down")
        error = host.failure()
        assert isinstance(error, MachineFailedError)
        assert "a.break_down raised ValueError: no more at " in str(error)
        assert "test_host_alone.py" in str(error)


def test_a_method_that_is_not_there_is_named() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.send("a", "subtract", 1)
        error = host.failure()
        assert isinstance(error, UnknownMethodError)
        assert "has no method 'subtract'; driver sent it" in str(error)


def test_a_machine_that_is_held_for_too_long_stops_the_system() -> None:
    with lone_host(mailbox_bound=2, send_timeout=0.5) as host:
        host.post.core.resolve("far", "host-1")  # which takes everything, and accepts nothing
        host.create("a", Adder)
        for amount in range(4):
            host.send("a", "pass_on", "far", amount)
        error = host.failure()
        assert isinstance(error, MailboxFullError)
        assert (error.machine, error.target) == ("a", "far")


def test_a_machine_that_is_stopped_finishes_what_was_sent_before_and_refuses_calls() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.send("a", "add", 1)
        host.send("a", "add", 1)
        host.obey(Stop("a", 0, 2))
        until(lambda: host.service.of("stopped") == [(["a"], 0, 0)])
        assert host.body("a").total == 2
        assert "has stopped" in str(host.call("a", "add", 1).result(30))


def test_what_belongs_to_the_past_sends_nothing_any_more() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.send("a", "linger")
        assert INSIDE.wait(30)
        reply = host.post.reply_to("driver/1", "a")
        host.post.retire(RolledBackError("gone back", snapshot_id=None))
        assert isinstance(reply.result(30), RolledBackError)
        SLOW.set()
        until(lambda: not host.post.runner.is_acting)
        host.post.carrier.flush()
        assert host.service.of("fail") == []


def test_its_trace_comes_with_the_report_and_the_rest_at_the_end() -> None:
    with lone_host(trace="__main__") as host:
        host.create("a", Adder)
        host.call("a", "add", 1).result(30)
        host.obey(Request(1))
        host.report(1)
        assert until(lambda: [p for (p,) in host.service.of("report")])[0].trace is not None
        host.call("a", "add", 1).result(30)
        assert host.post.trace.rest() is not None
        assert host.post.trace.under_way == 0


def test_no_machine_counts_as_there_before_its_host_can_report() -> None:
    is_warm = threading.Event()
    host = LoneHost()
    host.post.actions.construct_count = 3
    host.post.warming = threading.Thread(target=is_warm.wait)
    host.post.warming.start()
    assert host.post.constructed() == 0
    is_warm.set()
    host.post.warming.join()
    assert host.post.constructed() == 3
    assert host.post.member.host == HOST
    host.loop.close()
