"""A host's results and declared inputs, each alone: no Ray, no host."""

from __future__ import annotations

from typing import Any

import ray_snapshot as rs
from ray_snapshot.errors import MachineStoppedError, RaySnapshotError, UnpicklableMessageError
from ray_snapshot.protocol.parts import Machine
from ray_snapshot.runtime.classes import ClassStore, packed
from ray_snapshot.runtime.host.ports import Ports
from ray_snapshot.runtime.host.replies import Replies
from ray_snapshot.runtime.reply import RaisedError


def test_a_result_waits_for_who_asks_and_who_asks_waits_for_it() -> None:
    replies = Replies("run")
    asked = replies.of("early", "a")
    replies.answering["a"] = ("early", "late")
    replies.give("a", ("early", "late"), replies.outcome("a", "get", 3, None))
    assert asked.result(0).value == replies.of("late", "a").result(0).value == 3
    assert replies.answering == {}
    replies.fetched("early")
    assert list(replies.pending) == ["late"]


def test_what_a_stopped_machine_has_accepted_is_answered_and_the_rest_is_refused() -> None:
    replies = Replies("run")
    accepted, waiting, other = replies.of("1", "a"), replies.of("2", "a"), replies.of("3", "b")
    replies.answering["a"] = ("1",)
    replies.refuse("a", 7)
    assert not accepted.done()
    assert not other.done()
    refused = waiting.result(0)
    assert (type(refused), refused.colour, type(refused.error)) == (RaisedError, 7, MachineStoppedError)


def test_the_first_outcome_of_a_call_counts() -> None:
    replies = Replies("run")
    replies.give("a", ("1",), replies.outcome("a", "get", "first", None))
    replies.fail(RaySnapshotError("the system has failed"))
    assert replies.of("1", "a").result(0).value == "first"


def test_a_result_that_cannot_be_pickled_is_an_error_that_names_the_method() -> None:
    found: Any = Replies("run").outcome("a", "get", (item for item in ()), None)
    assert isinstance(found.error, UnpicklableMessageError)
    assert str(found.error).startswith("a.get returned what cannot be pickled")


class Takes(rs.SnapshotMixin):
    def take(self, item: int) -> None: ...


def made() -> tuple[Ports, Machine]:
    """The ports of a host that carries one machine, `a`."""
    classes = ClassStore()
    key, blob = packed(Takes)
    classes.add(key, blob)
    machine = Machine("a", 0)
    machine.body = classes.get(key)()
    return Ports(classes), machine


def test_a_declared_port_that_a_machine_does_not_have_is_named_with_the_place_that_declared_it() -> None:
    ports, machine = made()
    ports.declare("a", "take", "b", "app.py:3")
    assert ports.wrong(machine) is None
    ports.declare("a", "tkae", "b", "app.py:4")
    assert "has no port and no method 'tkae' (declared at app.py:4)" in str(ports.wrong(machine))


def test_sources_of_a_port_are_kept_once_each_in_the_order_of_their_declaration() -> None:
    ports, machine = made()
    for source in ("c", "b", "c"):
        ports.declare("a", "take", source, None)
    found = ports.inputs_of(machine)
    assert found is not None
    assert found.sources == {"take": ("c", "b")}
