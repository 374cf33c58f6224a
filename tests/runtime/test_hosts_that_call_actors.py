"""A host whose machines call watched actors, without Ray: what its ledgers and it record together."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from limited import limit
from lone_host import LoneHost, lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot.instrument.crossing import hosted
from ray_snapshot.instrument.crossing.hosted import Hosted
from ray_snapshot.instrument.here import NotActingError
from ray_snapshot.instrument.process.states import opened
from ray_snapshot.protocol.calls import CONSTRUCTOR, Acks, MachineReport
from ray_snapshot.protocol.commands import Acknowledged, Close, Died, Overdue, Request, Restarted
from ray_snapshot.runtime.collected import MachineCalls
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.planning import Again
from ray_snapshot.runtime.waits import TrackedWait

GO_ON = threading.Event()
INSIDE = threading.Event()
VAULT = "Vault:1"


def abroad() -> Hosted:
    post: Any = HERE.post
    found: Hosted = post.runner.abroad
    return found


class Caller(rs.SnapshotMixin):
    """Calls an actor as Ray's functions, replaced, do it."""

    def __init__(self) -> None:
        self.colours: list[int] = []

    def fail(self) -> None:
        """As a call does that an actor refuses, which goes back already."""
        raise rs.RolledBackError("the app was rolled back", snapshot_id=None)

    def call(self, is_retried: bool = False) -> None:
        header, _ = abroad().submit(VAULT, "lend", (1,), is_retried, ())
        self.colours.append(header.colour)

    def ask(self, heard: int) -> None:
        header, _ = abroad().submit(VAULT, "lend", (1,), False, ())
        call = f"{header.source}/{header.incarnation}/{VAULT}/{header.number}"
        wait = TrackedWait(1, [], False, None, "app.py:7", [call])
        post: Any = HERE.post
        token = post.begin_wait(wait)
        INSIDE.set()
        assert GO_ON.wait(30)
        HERE.heard, wait.is_over = heard, True
        post.end_wait(token)
        self.colours.append(post.core.colour)

    def make(self) -> None:
        begun = abroad().begin_creation()
        assert begun is not None
        INSIDE.set()
        assert GO_ON.wait(30)
        birth = {"is_retried": False, "name": None, "kind": "Vault", "ordinal": None, "key": "1"}
        abroad().end_creation(VAULT, (), birth)
        self.colours.append(begun[2])


@pytest.fixture(autouse=True)
def gates() -> None:
    GO_ON.clear()
    INSIDE.clear()


@pytest.fixture
def host() -> Any:
    with lone_host(stamp="app:1", life=1) as found:
        found.post.join(Hosted(found.post, "app:1", None))
        found.create("a", Caller)
        yield found


def calls_of(host: LoneHost, number: int) -> MachineCalls:
    host.report(number)
    (payload,) = [one for (one,) in host.service.of("report") if one.number == number]
    assert payload.calls is not None
    found: MachineCalls = payload.calls
    return found


def of_a(host: LoneHost, number: int) -> MachineReport:
    (report,) = calls_of(host, number).reports
    assert (report.machine, report.incarnation) == ("a", 1)
    return report


def row(host: LoneHost, number: int) -> dict[str, Any]:
    machines = host.report(number).machines
    assert machines is not None
    (found,) = machines.to_pylist()
    return dict(found)


def test_a_machine_that_waits_for_an_actor_is_blocked_and_its_ledger_says_on_what(host: LoneHost) -> None:
    host.send("a", "ask", 0)
    assert INSIDE.wait(30)
    host.obey(Request(1))
    report = of_a(host, 1)
    assert (row(host, 1)["status"], report.status) == ("blocked", "blocked")
    (wait,) = report.waits
    assert (wait.calls, wait.k, wait.call_site, wait.may_act) == (("a/1/Vault:1/1",), 1, "app.py:7", False)
    assert host.report(1).waits == [], "the ledger tells of it, and nothing else"
    assert row(host, 1)["waits_for"] == [VAULT]
    GO_ON.set()
    until(lambda: host.body("a").colours)
    host.obey(Close(1), Request(2))
    (out,) = of_a(host, 2).outputs
    assert (out.sent_count, [*out.log], of_a(host, 2).waits) == (1, [], ()), "who has read the reply knows it accepted"


def test_a_red_reply_is_recorded_before_its_machine_goes_on(host: LoneHost) -> None:
    host.send("a", "ask", 3)
    assert INSIDE.wait(30)
    GO_ON.set()
    until(lambda: host.body("a").colours == [3])
    host.obey(Request(3))
    (wait,) = of_a(host, 3).waits
    assert wait.calls == ("a/1/Vault:1/1",), "it was recorded inside the wait"


def test_what_the_actor_has_accepted_leaves_the_log_and_what_died_with_it_is_settled(host: LoneHost) -> None:
    host.send("a", "call")
    host.send("a", "call")
    host.send("a", "call", True)
    until(lambda: len(host.body("a").colours) == 3)
    host.obey(Acknowledged(Acks("a", 1, VAULT, 0, ((1, 1),))), Acknowledged(Acks("nobody", 1, VAULT, 0, ((1, 1),))))
    host.obey(Restarted(VAULT, 1), Request(1))
    (out,) = of_a(host, 1).outputs
    assert (out.sent_count, out.settled_count, [*out.log]) == (3, 1, [3]), "a call that is retried stays"
    host.send("a", "call")
    until(lambda: host.body("a").colours == [0, 0, 0, 1])
    host.obey(Close(1), Died(VAULT), Request(2))
    (out,) = of_a(host, 2).outputs
    assert (out.sent_count, out.settled_count, [*out.log]) == (4, 3, [])


def test_a_red_acknowledgement_makes_the_host_record(host: LoneHost) -> None:
    host.send("a", "call")
    until(lambda: host.body("a").colours)
    host.obey(Acknowledged(Acks("a", 1, VAULT, 1, ((1, 1),))))
    until(lambda: host.post.core.colour == 1)
    host.obey(Request(1))
    (out,) = of_a(host, 1).outputs
    assert [*out.log] == [1], "the call was accepted outside the cut: it is in flight"


def test_no_boundary_lies_between_the_number_of_a_constructor_and_its_log(host: LoneHost, monkeypatch: Any) -> None:
    looks = []
    limit(monkeypatch, guard_look_s=0.001)
    is_overdue = host.post.recorder._is_overdue
    monkeypatch.setattr(host.post.recorder, "_is_overdue", lambda: looks.append(1) or is_overdue())
    host.send("a", "make")
    assert INSIDE.wait(30)
    host.obey(Request(1), Overdue(1))
    until(lambda: len(looks) > 3)
    assert host.post.core.colour == 0
    GO_ON.set()
    until(lambda: host.body("a").colours == [0])
    (out,) = of_a(host, 1).outputs
    assert CONSTRUCTOR in out.log
    assert calls_of(host, 1).births == {VAULT: {"class": "Vault", "name": None, "ordinal": None, "key": "1"}}


def test_a_thread_that_is_in_no_action_calls_for_nobody(host: LoneHost) -> None:
    found: Any = host.post.runner.abroad
    host.obey(Request(1))
    assert calls_of(host, 1).has_strays is False
    with pytest.raises(NotActingError):
        found.submit(VAULT, "lend", (), False, ())
    assert found.begin_creation() is None
    assert found.strays == 2
    found.hold("Vault:2")
    found.may_read("driver/0/Vault:3/1")
    host.obey(Close(1), Request(2))
    assert calls_of(host, 2).handles == {"Vault:2", "Vault:3"}
    assert calls_of(host, 2).has_strays is True


def test_a_thread_that_a_machine_has_started_is_named(host: LoneHost) -> None:
    worker = threading.Thread(target=GO_ON.wait, name="of-the-app", daemon=True)
    worker.start()
    host.send("a", "call")
    until(lambda: host.body("a").colours)
    host.obey(Request(1))
    first = calls_of(host, 1).threads
    busy = threading.Thread(target=_spin, name="busy-one", daemon=True)
    busy.start()
    host.obey(Close(1), Request(2))
    assert [text for text in first.parked if text.startswith("of-the-app")], "another thread may wake it"
    assert [text for text in (*first.acting, *first.parked) if "actions" in text or "warm-up" in text] == []
    assert [text.split(" (")[0] for text in calls_of(host, 2).threads.acting if "-one" in text] == ["busy-one"]
    GO_ON.set()


def _spin() -> None:
    while not GO_ON.is_set():
        sum(range(1000))


def test_a_machine_that_calls_an_actor_which_had_started_again_before_waits_for_that_life_of_it(host: LoneHost) -> None:
    """Else it could never be said that the call is unanswered."""
    host.obey(Restarted(VAULT, 2))
    host.send("a", "call")
    until(lambda: host.body("a").colours)
    host.obey(Request(1))
    (out,) = of_a(host, 1).outputs
    assert out.target_incarnation == 2


# ---- going back -------------------------------------------------------------------------------------------------------------


class Actor:
    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.group: str | None = None
        self.lend = self

    def options(self, concurrency_group: str) -> Actor:
        self.group = concurrency_group
        return self

    def remote(self, *args: Any) -> None:
        header, _ = abroad().submit(VAULT, "lend", args, False, ())
        self.called.append((*header[:3], self.group, *args))


@pytest.fixture
def keeping_host() -> Any:
    with lone_host(stamp="app:1", life=1, checkpoint=True, generation=3) as found:
        found.post.join(Hosted(found.post, "app:1:3", None))
        yield found


def test_calls_in_flight_are_made_again_by_their_machines_as_others_than_before(keeping_host: LoneHost) -> None:
    keeping_host.create("a", Caller)
    keeping_host.body("a")
    actor, kept = Actor(), [pickle.dumps(((number,), {})) for number in (5, 6)]
    post: Any = keeping_host.post
    calls = [("a", VAULT, "lend", None, kept[0]), ("a", VAULT, "lend", "io", kept[1])]
    post.abroad.load(Again(calls, {VAULT: (VAULT, [actor])}, {VAULT: 7}))
    post.abroad.call_again()
    assert actor.called == [("a", 4, 1, None, 5), ("a", 4, 2, "io", 6)], "the fourth caller of that name"
    assert HERE.machine is None
    keeping_host.obey(Request(1))
    (report,) = calls_of(keeping_host, 1).reports
    (out,) = report.outputs
    assert (report.status, report.calls, out.target_incarnation, [*out.log]) == ("passive", (), 7, [1, 2])
    saved = [opened(sent.kept.blob, str) for sent in out.log.values()]
    assert saved == [((5,), {}), ((6,), {})], "and so again, if it must go back once more"
    post.abroad.call_again()
    assert len(actor.called) == 2


def test_an_actor_in_a_machines_state_is_kept_by_its_name(keeping_host: LoneHost) -> None:
    post: Any = keeping_host.post
    post.abroad.load(Again(actors={VAULT: (VAULT, ["the handle"])}))
    assert post.abroad.handles == {VAULT}, "what is loaded may wake it"
    machine = post.core.machine("a")
    blob, obstacle = post.abroad.keep(machine, {"tokens": 3})
    assert (post.abroad.opened(blob), obstacle) == ({"tokens": 3}, None)
    post.abroad.kept["a"] = (VAULT,)
    assert post.abroad.part(1).kept == {VAULT}


def test_an_action_of_the_past_calls_nobody(keeping_host: LoneHost) -> None:
    post: Any = keeping_host.post
    post.retire(rs.RolledBackError("rolled back", snapshot_id=None))
    HERE.post = post
    try:
        with pytest.raises(rs.RolledBackError):
            post.abroad.check_sending()
    finally:
        HERE.post = None
    post.abroad.check_sending()


def test_an_action_that_an_actor_cuts_short_by_going_back_first_is_no_failure(host: LoneHost) -> None:
    host.send("a", "fail")
    until(lambda: host.post.stage.is_broken)
    assert host.service.of("fail") == []


def test_what_a_host_says_of_the_watch_names_the_generation(
    keeping_host: LoneHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted.attaching, "replace_ray", lambda: None)
    monkeypatch.setattr(hosted, "call_for", lambda caller: None)
    hosted.join(keeping_host.post, "app:1:2", None)  # what the program's said when it made the host
    found: Any = keeping_host.post.abroad
    assert found.stamp == "app:1:3"
