"""A host without Ray: what its parts do together, between the driver's core and a service that only writes down."""

import threading

import pytest
from limited import limit
from lone_host import HOST, LoneHost, lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot.errors import MailboxFullError, RaySnapshotError, UnknownMethodError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Close, DeclarePort, Overdue, Request
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime.host.runner import Stops

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

    def linger(self) -> None:
        INSIDE.set()
        assert SLOW.wait(30)


@pytest.fixture(autouse=True)
def gates() -> None:
    SLOW.clear()
    INSIDE.clear()


def test_a_snapshot_holds_the_states_between_two_actions_and_is_reported_once() -> None:
    with lone_host() as host:
        host.create("a", Adder, 2)
        host.call("a", "add", 1).result(30)
        host.obey(Request(1))
        machines = host.report(1).machines
        assert machines is not None
        assert machines["state"].to_pylist() == ['{"total":3}']
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


def test_the_first_outcome_of_a_call_counts() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        answer = host.call("a", "add", 7)
        assert answer.result(30).value == 7
        host.post.actions.replies.fail(RaySnapshotError("the system has failed"))
        assert answer.result(0).value == 7


def test_sources_of_a_port_are_kept_once_each_in_the_order_of_their_declaration() -> None:
    with lone_host() as host:
        host.create("a", Adder)
        host.body("a")
        host.obey(*(DeclarePort("a", "add", source, None) for source in ("c", "b", "c")), Request(1))
        assert host.report(1).inputs["a"].sources == {"add": ("c", "b")}


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


def due(core: HostCore, count: int) -> str | None:
    stops = Stops()
    stops.ask("a", count)
    found = stops.take(core)
    assert len(stops.asked) == (found is None)
    return found


def receive(core: HostCore, method: str) -> None:
    inbox = core.machine("a").inbox
    mail = inbox.mailbox(DRIVER, MAIL, DRIVER, 1)
    inbox.put(mail, (1, mail.arrived + 1, method, (), 0.0, 0))


def test_a_machine_stops_once_it_has_accepted_what_comes_before() -> None:
    core = HostCore("host-0")
    core.born("a", object())
    assert due(core, 0) == "a"
    assert due(core, 1) is None
    receive(core, "take")
    assert due(core, 1) is None
    assert core.machine("a").inbox.take() is not None
    assert due(core, 1) == "a"
    assert due(core, 2) is None


def test_a_machine_stops_if_what_comes_before_waits_for_the_rest_of_a_join() -> None:
    core = HostCore("host-0")
    core.born("a", object(), [("left", "right")])
    receive(core, "left")
    assert due(core, 1) is None
    assert core.machine("a").inbox.take() is None
    assert due(core, 2) is None
    assert due(core, 1) == "a"
