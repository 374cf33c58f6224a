"""The tracer of one process, without Ray: what is shipped when, and what its rows say."""

from __future__ import annotations

import json
from typing import Any

from ray_snapshot.columns import unpacked
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.tracing import Entry, Tracer


class Stand:
    """A host with two machines and its tracer, as `HostPost` drives them."""

    def __init__(self) -> None:
        self.core = HostCore("host-0")
        self.tracer = Tracer("run", "host-0", "bank")
        for name in ("a", "b"):
            self.core.born(name, object())
            self.core.resolve(name, "host-0")

    def send(self, source: str, target: str, *args: Any, colour: int = 0) -> None:
        payload = isolate(source, target, "take", args, {})
        channel = self.core.send(self.core.machine(source), target, "mail", "take", payload, 0.0)
        self.tracer.sent(channel, "take", payload, colour)

    def accept(self, colour: int = 0) -> Machine:
        found = self.core.next_action()
        assert found is not None
        self.tracer.accepted(found[0].name, found[1], colour)
        return found[0]

    def rows(self, entries: list[Entry]) -> list[dict[str, Any]]:
        shipped = self.tracer.shipped(entries)
        return [] if shipped is None else unpacked(shipped).to_pylist()


def test_each_send_of_the_driver_is_an_action_and_over() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.send("a", "b", 2)

    rows = stand.rows(stand.tracer.take())

    assert [(row["machine"], row["number"], row["accepted"]) for row in rows] == [("a", 1, "[]"), ("a", 2, "[]")]
    assert [json.loads(row["sent"])[0]["number"] for row in rows] == [1, 2]


def test_an_action_is_shipped_once_and_not_before_it_is_over() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.tracer.take()
    machine = stand.accept()
    stand.send("b", "a", 2)

    assert stand.tracer.take() == []
    stand.send("b", "a", 3)
    stand.tracer.end(machine.name)
    (row,) = stand.rows(stand.tracer.take())
    assert stand.tracer.take() == []
    assert [sent["args"] for sent in json.loads(row["sent"])] == [[2], [3]]
    (accepted,) = json.loads(row["accepted"])
    assert accepted == {"source": "a", "kind": "mail", "number": 1, "method": "take", "args": [1]}


def test_at_the_end_everything_is_shipped_what_is_not_over_too() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.accept()

    rows = stand.rows(stand.tracer.take(everything=True))

    assert [(row["machine"], row["is_over"]) for row in rows] == [("a", True), ("b", False)]


def test_what_is_sent_behind_a_recording_in_the_middle_of_an_action_says_so() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    machine = stand.accept(colour=3)
    stand.send("b", "a", 1, colour=3)
    stand.send("b", "a", 2, colour=4)
    stand.tracer.end(machine.name)

    row = stand.rows(stand.tracer.take())[-1]

    assert row["colour"] == 3
    assert [sent.get("colour") for sent in json.loads(row["sent"])] == [None, 4]


def test_a_second_form_of_the_arguments_is_kept_only_where_json_loses_something() -> None:
    stand = Stand()
    stand.send("a", "b", [1, "x"])
    stand.send("a", "b", {"k": (1, 2)}, {3: 4})

    plain, lossy = [json.loads(row["sent"])[0] for row in stand.rows(stand.tracer.take())]

    assert "exact" not in plain
    assert lossy["args"] == [{"k": [1, 2]}, {"3": 4}]
    assert lossy["exact"] == [{"k": {"$tuple": [1, 2]}}, {"$dict": [[3, 4]]}]
