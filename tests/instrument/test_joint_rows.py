"""Machines of a host and actors in one snapshot: whose rows tell what, also of actors whose processes are gone."""

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot import Snapshot
from ray_snapshot.columns import LEAST_LEAN, inner
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.names import life_of, sender_name
from ray_snapshot.parts.reporting import report
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.runtime.collected import MachineCalls, SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.report import BodyCopy, Facts, HostPart, host_payload
from ray_snapshot.runtime.rows import MailPart
from ray_snapshot.schema import MACHINES, MESSAGES

UNBOUNDED = 1_000
VAULT = "Vault:1"


class App:
    """A host with machine `m`, and an actor that sends to it."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.coordinator.register("host-0")
        self.host = core_for("chandy-lamport", "host-0", copy_body=lambda _: BodyCopy("M", "passive", None))
        self.host.born("m", object())
        self.ledger: CallLedger | None = None
        self.life = -1
        self.threads = Threads()
        """Of the host."""
        self.kept: frozenset[str] = frozenset()
        """Actors of which a handle is in a machine's state."""
        self.begin()

    def begin(self) -> None:
        self.life += 1
        colour = self.coordinator.join(VAULT, self.life)
        self.ledger = CallLedger(VAULT, incarnation=self.life, colour=colour)
        name = sender_name(VAULT, self.life)
        self.core = core_for("chandy-lamport", name, turning=self.ledger.turning, bound=UNBOUNDED)
        self.core.born(name, object())
        self.core.acting = None
        self.core.addresses.places["m"] = "host-0"
        self.ledger.turn_with(self._turn)
        self.mail: dict[int, MailPart] = {}

    def die(self) -> None:
        self.coordinator.calls.died(VAULT)
        self.coordinator.close_links(VAULT, self.life + 1)
        self.ledger = None

    def _turn(self) -> tuple[int, ...]:
        numbers = self.core.boundary()
        while self.core.copy_next():
            pass
        for number in numbers:
            found = self.mail[number] = MailPart()
            found.counts = report(self.core.host, self.core.open[number], found)
        return numbers

    def send(self, count: int, arrives: bool = True) -> None:
        me = self.core.machines[self.core.host]
        for number in range(count):
            self.core.send(me, "m", "mail", "put", (number,), 0.0)
        batches = self.core.take_batches(10)
        for _, batch in batches if arrives else ():
            self.core.outputs["host-0"].in_flight -= 1
            self.host.arrive(batch)

    def accept(self, count: int) -> None:
        self.host.boundary()
        for _ in range(count):
            assert self.host.next_action() is not None

    def start(self) -> int:
        number = self.coordinator.start(0, 9)
        assert number is not None
        self.host.request(number)
        self.host.boundary()
        while self.host.copy_next():
            pass
        recording = self.host.open[number]
        late, recording.late = recording.late, []
        self.payload = host_payload("host-0", recording, Facts(0.0, 0), late)
        self.coordinator.report(number, self.payload.counts, self.host.ledgers.reports(number))
        self.recorded = {}
        if self.ledger is not None:
            self.ledger.request(number)
            self.ledger.record(lambda: None)
            mail = self.mail[number]
            assert mail.counts is not None
            self.coordinator.report(number, mail.counts, (self.ledger.report(number),))
            self.recorded[VAULT] = ProcessReport(self.ledger.report(number), 0.0, mail=mail)
        return number

    def completed(self, number: int) -> Snapshot | None:
        completed = self.coordinator.completed(number)
        if completed is None:
            return None
        facts: dict[str, dict[str, Any]] = {VAULT: {"shown": "Vault-0", "class": "Vault", "pid": 7}}
        header = SnapshotHeader(number, "app", "1", "chandy-lamport", [], 0.0, is_kept=True)
        hosted = (
            MachineCalls(
                host="host-0",
                threads=self.threads,
                loose=Loose(),
                reports=self.host.ledgers.reports(number),
                kept=self.kept,
            ),
        )
        parts = [self.payload.part]
        return CollectedCalls(header, completed.calls, self.recorded, facts, parts=parts, hosted=hosted).snapshot()

    def snapshot(self) -> Snapshot:
        found = self.completed(self.start())
        assert found is not None, "something is waited for"
        return found


def channel(snapshot: Snapshot) -> tuple[int, int, int, list[int]]:
    """(sent, accepted, in flight, numbers in flight) of what the actor has sent to the machine."""
    assert snapshot.problems() == []
    (row,) = snapshot.tables["channels"].to_pylist()
    assert (row["source"], row["target"], row["kind"]) == ("Vault-0", "m", "mail")
    numbers = [one.number for one in snapshot.messages]
    return row["sent_count"], row["accepted_count"], row["in_flight_count"], numbers


def test_each_is_told_of_once_the_machine_by_its_host_and_the_actor_by_its_ledger() -> None:
    app = App()
    app.send(3)
    app.accept(1)
    found = app.snapshot()
    assert {name: (one.class_name, one.host) for name, one in found.machines.items()} == {
        "m": ("M", "host-0"),
        "Vault-0": ("Vault", "pid-7"),
    }
    assert channel(found) == (3, 1, 2, [2, 3])


def test_of_an_actor_that_is_gone_what_has_come_is_all_it_has_sent() -> None:
    app = App()
    app.send(3)
    app.send(2, arrives=False)
    app.accept(1)
    app.die()
    assert channel(app.snapshot()) == (3, 1, 2, [2, 3])


def test_a_snapshot_that_was_pending_waits_no_more_for_mail_of_an_actor_that_is_gone() -> None:
    app = App()
    app.send(3)
    app.accept(1)
    app.send(2, arrives=False)
    number = app.start()
    assert app.completed(number) is None, "two messages are on their way"
    app.die()
    found = app.completed(number)
    assert found is not None
    assert channel(found) == (3, 1, 2, [2, 3])


def test_the_lives_of_an_actor_are_one_channel_whose_messages_are_numbered_on() -> None:
    app = App()
    app.send(3)
    app.accept(2)
    app.die()
    app.begin()
    app.send(2)
    found = app.snapshot()
    assert channel(found) == (5, 2, 3, [3, 4, 5])
    app.accept(3)
    assert channel(app.snapshot()) == (5, 5, 0, [])


def test_a_machine_that_calls_actors_is_one_machine_and_has_sent_its_calls_too() -> None:
    app = App()
    ledger = app.host.ledgers.of("m")
    run = ledger.accept_unknown("action", 0.0)
    ledger.submit(VAULT, "lend", (), 0.0)
    ledger.finish(run)
    found = app.snapshot()
    assert found.problems() == []
    assert [(name, one.status) for name, one in found.machines.items()] == [("Vault-0", "passive"), ("m", "passive")]
    sent = {row["machine"]: row["sent_count"] for row in found.tables["machines"].to_pylist()}
    assert sent == {"m": 1, "Vault-0": 0}
    assert [(one.source, one.target, one.kind) for one in found.messages] == [("m", "Vault-0", "call")]


def test_a_core_without_a_ledger_is_no_other_than_before() -> None:
    assert HostCore("h").turning is not HostCore("h").turning


@pytest.mark.parametrize("is_still", [True, False])
def test_a_parked_thread_of_a_host_may_act_unless_nothing_can_wake_it(is_still: bool) -> None:
    app = App()
    app.threads = Threads(("busy",), ("parked",))
    if not is_still:
        app.send(1)
    named = ["thread busy of host-0", *([] if is_still else ["thread parked of host-0"])]
    assert app.snapshot().coverage["uncovered"] == named


@pytest.mark.parametrize("actor", [VAULT, "A+b:00ff"])
@pytest.mark.parametrize("life", [0, 1, 12])
def test_an_actor_is_told_from_its_lives_whatever_its_class_is_called(actor: str, life: int) -> None:
    assert life_of(sender_name(actor, life)) == (actor, life)


# ---- what could not be sent, or made, again ---------------------------------------------------------------------------------

GONE = "Vault-0: it is gone, and mail of it is on its way"
UNKNOWN = "a machine of host-0: a handle of an actor that is not watched (Other) in its state"


def test_mail_of_an_actor_that_is_gone_or_has_started_again_is_an_obstacle() -> None:
    app = App()
    app.send(2)
    assert GONE not in app.snapshot().obstacles
    app.die()
    assert app.snapshot().obstacles.count(GONE) == 1
    app.begin()
    assert GONE in app.snapshot().obstacles, "its next life has not sent it"
    app.accept(2)
    app.send(1)
    assert GONE not in app.snapshot().obstacles


def test_what_waits_in_the_process_of_an_actor_is_an_obstacle() -> None:
    app = App()
    me = app.core.machines[app.core.host]
    app.core.set_timer(me, "m", "put", (9.0, (1,)), 0.0, 9.0)
    app.core.send(me, "nowhere", "mail", "put", (1,), 0.0)
    found = app.snapshot().obstacles
    assert "Vault-0: a timer, for m.put" in found
    assert "Vault-0: a message to a machine that is not there yet, for nowhere.put" in found


@pytest.mark.parametrize(("kept", "is_obstacle"), [("Other:9", True), (VAULT, False)])
def test_a_handle_of_an_actor_that_is_not_watched_is_an_obstacle_in_a_machines_state(
    kept: str, is_obstacle: bool
) -> None:
    app = App()
    app.kept = frozenset({kept})
    assert (UNKNOWN in app.snapshot().obstacles) is is_obstacle


# ---- rows that are told of as columns ---------------------------------------------------------------------------------------


def shown(machines: list[dict[str, Any]], messages: list[dict[str, Any]], ends: list[dict[str, Any]]) -> Snapshot:
    """The snapshot of one host with these rows, whose process has a parked thread, and of the actor."""
    app = App()
    app.threads = Threads((), ("parked",))
    app.start()

    def table(rows: list[dict[str, Any]], schema: pa.Schema, **common: Any) -> pa.Table:
        return pa.Table.from_pylist([{**common, **row} for row in rows], schema=schema)

    zeros = {"sent": 0, "accepted": 0, "in_flight": 0, "held": 0, "duplicates": 0}
    part = HostPart(
        table(messages, inner(MESSAGES), kind="mail", method="put", args="[]", sent_at=0),
        table(ends, ENDS, kind="mail", **zeros),
        table(machines, inner(MACHINES), class_name="M", host="host-0", recorded_at=0),
    )
    app.payload = replace(app.payload, part=pickle.dumps(part))
    found = app.completed(1)
    assert found is not None
    return found


def test_of_machines_that_wait_for_actors_the_names_are_those_for_people() -> None:
    rows = [
        {"machine": "m", "status": "active", "waits_for": [VAULT, "n"], "wait_mode": "all"},
        {"machine": "n", "status": "passive", "waits_for": []},
    ]
    assert shown(rows, [], []).machines["m"].waits_for == ("Vault-0", "n")


@pytest.mark.parametrize(("status", "may_act"), [("active", True), ("passive", False)])
def test_a_machine_that_acts_may_wake_a_parked_thread(status: str, may_act: bool) -> None:
    found = shown([{"machine": "m", "status": status, "waits_for": []}], [], [])
    assert ("thread parked of host-0" in found.coverage["uncovered"]) is may_act


def test_mail_between_machines_is_no_mail_of_the_gone() -> None:
    rows = [{"machine": name, "status": "passive", "waits_for": []} for name in "mn"]
    ends = [{"source": "n", "target": "m", "in_flight": 1}, {"source": "n", "target": "m", "sent": 1}]
    found = shown(rows, [{"source": "n", "target": "m", "number": 1}], ends)
    assert (found.problems(), found.in_flight_count) == ([], 1)
    assert not [text for text in found.obstacles if "it is gone" in text]


def test_the_lives_of_an_actor_are_one_channel_where_columns_of_one_value_have_one_row() -> None:
    machines = [{"machine": name, "status": "passive", "waits_for": []} for name in ("m", "n", "o")]
    others = [{"source": "n", "target": "o"}] * LEAST_LEAN
    ends = [{"source": sender_name(VAULT, life), "target": "m", "accepted": life} for life in (1, 2, 3)]
    found = shown(machines, [], [*ends, *others])
    rows = found.tables["channels"].to_pylist()
    assert [(one["source"], one["target"], one["sent_count"], one["accepted_count"]) for one in rows] == [
        ("Vault-0", "m", 6, 6),
        ("n", "o", 0, 0),
    ]
