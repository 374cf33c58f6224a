"""The tracer of one process, without Ray: what is shipped when, and what its rows say."""

import json
from typing import Any

import numpy as np
from ray.exceptions import RayTaskError

from ray_snapshot import redaction
from ray_snapshot.columns import unpacked
from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.tracing import Entry, Tracer, came_of
from ray_snapshot.runtime.waits import TrackedWait


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


def test_a_wait_parts_an_action_and_what_is_sent_behind_it_has_the_colour_of_that_step() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.tracer.take()
    stand.accept()
    stand.send("b", "a", 2)
    result: list[Any] = [{"coins": 3}]
    wait = TrackedWait(1, [("a", "host-0/7")], False, None, "bank.py:9", raises=True, refs=["ref"], result=result)
    stand.tracer.waits("b", wait)
    came = came_of(wait)
    stand.tracer.waited("b", came, 5)
    result[0]["coins"] = 4
    stand.send("b", "a", 3, colour=5)
    stand.send("b", "a", 4, colour=6)
    stand.tracer.end("b")
    (row,) = stand.rows(stand.tracer.take())
    (logged,) = json.loads(row["waits"])
    assert (logged["place"], logged["calls"], logged["colour"], logged["site"]) == (1, ["host-0/7"], 5, "bank.py:9")
    assert logged["came"] == {"values": [{"coins": 3}]}, "as it was when it came"
    assert [message.get("colour") for message in json.loads(row["sent"])] == [None, None, 6]
    assert row["waited_at"] == "bank.py:9"
    assert (wait.refs, wait.result) == ([], None), "nothing is kept alive"


def test_an_action_that_waits_when_the_system_ends_says_for_what() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.tracer.take()
    stand.accept()
    stand.tracer.waits("b", TrackedWait(1, [("a", "host-0/7")], False, None, "bank.py:9", raises=True))
    assert stand.tracer.take() == []
    (row,) = stand.rows(stand.tracer.take(everything=True))
    assert json.loads(row["waits"]) == [
        {"place": 0, "function": "get", "k": 1, "calls": ["host-0/7"], "site": "bank.py:9"}
    ]


def test_a_wait_may_be_asked_for_with_numbers_of_any_kind() -> None:
    stand = Stand()
    stand.send("a", "b", 1)
    stand.tracer.take()
    stand.accept()
    k, timeout = np.int64(1), np.float32(0.5)
    stand.tracer.waits("b", TrackedWait(k, [("a", "host-0/7")], False, timeout, "bank.py:9", function="wait"))  # type: ignore[arg-type]
    (row,) = stand.rows(stand.tracer.take(everything=True))
    (logged,) = json.loads(row["waits"])
    assert (logged["k"], logged["timeout"]) == (1, 0.5)


def test_what_came_of_a_wait_is_told_of_each_kind_and_kept_secret_where_anything_is() -> None:
    def wait(**more: Any) -> TrackedWait:
        return TrackedWait(1, [("a", "h/1")], False, None, None, **more)

    one, other = object(), object()
    error = RayTaskError("draw", "Traceback: no", ValueError("no coins"), "ray", 1, "127.0.0.1").as_instanceof_cause()
    places = wait(function="wait", refs=[one, other], result=([other], [one]))
    raised = wait(raises=True, raised=error)
    stopped = wait(raises=True, raised=MachineStoppedError("a has stopped", machine="a"))
    assert json.loads(came_of(places)) == {"places": [1]}
    assert json.loads(came_of(raised))["error"] | {"told": ""} == {
        "type": "ValueError", "own": False, "text": "no coins", "told": ""
    }  # fmt: skip
    assert json.loads(came_of(stopped)) == {
        "error": {"type": "MachineStoppedError", "own": True, "text": "a has stopped"}
    }
    assert json.loads(came_of(wait(raises=True))) == {"unknown": True}
    redaction.redact("password")
    assert json.loads(came_of(wait(raises=True, result=["a secret"]))) == {"values": None}
    assert json.loads(came_of(raised)) == {"error": {"type": "ValueError", "own": False}}
