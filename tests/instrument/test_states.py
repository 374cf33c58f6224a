"""What an actor of somebody else's is restored from, what is said of one that cannot be, and which states are shown."""

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from lone_app import snapshot_of
from ray.util.queue import _QueueActor

from ray_snapshot.instrument.process import states
from ray_snapshot.instrument.process.shown import ShownStates
from ray_snapshot.instrument.process.states import kept, opened, set_state, state_of
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator


class Plain:
    def __init__(self) -> None:
        self.balance = 5
        self.log = ["made"]


class Slotted:
    __slots__ = ("balance",)

    def __init__(self) -> None:
        self.balance = 5


class Connected:
    def __init__(self) -> None:
        self.balance = 5
        self.connection = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"balance": self.balance}


class Reconnecting(Connected):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.balance = state["balance"]
        self.connection = threading.Lock()
        self.log = ["again"]


class Asked:
    def __init__(self) -> None:
        self.balance = 5

    def snapshot_state(self) -> int:
        return self.balance

    def restore_state(self, state: int) -> None:
        self.balance = state


@dataclass
class Listed(dict[str, int]):
    balance: int = 5
    items_too: list[int] = field(default_factory=list)


def blob_of(body: Any) -> bytes:
    found, _ = kept(state_of(body), "its state", str)
    assert found.blob is not None, found.obstacle
    return found.blob


@pytest.mark.parametrize("kind", [Plain, Slotted, Connected, Reconnecting, Asked])
def test_a_body_takes_its_state_back_and_changes_later_do_not_matter(kind: Any) -> None:
    body = kind()
    blob = blob_of(body)
    body.balance = 99
    set_state(body, opened(blob, str))
    assert body.balance == 5


def test_attributes_that_came_since_are_gone_and_values_are_no_longer_shared() -> None:
    body = Plain()
    blob, before = blob_of(body), body.log
    body.log.append("changed")
    body.later = 1  # type: ignore[attr-defined]
    set_state(body, opened(blob, str))
    assert vars(body) == {"balance": 5, "log": ["made"]}
    assert before == ["made", "changed"]


def test_what_getstate_leaves_out_stays_unless_setstate_makes_it_anew() -> None:
    body, other = Connected(), Reconnecting()
    connection, second = body.connection, other.connection
    set_state(body, opened(blob_of(body), str))
    set_state(other, opened(blob_of(other), str))
    assert body.connection is connection
    assert (other.connection is second, other.log) == (False, ["again"])


def test_what_holds_more_than_attributes_is_refused() -> None:
    with pytest.raises(TypeError, match="it is a dict, whose items are no attributes: give it __getstate__"):
        state_of(Listed())


class Queue(deque[int]):
    """Says by its own `__reduce__` that it holds more."""


def test_what_says_itself_how_it_is_made_again_is_refused() -> None:
    with pytest.raises(TypeError, match="it is a deque, whose items are no attributes"):
        state_of(Queue([1, 2]))


def test_what_cannot_be_pickled_is_named_by_its_attribute() -> None:
    found, _ = kept({"balance": 5, "lock": threading.Lock()}, "its state", str)
    assert found.blob is None
    assert found.obstacle is not None
    assert found.obstacle.startswith(
        "something that cannot be pickled (TypeError: cannot pickle '_thread.lock' object)"
    )
    assert found.obstacle.endswith("in its state at 'lock'")


class Handle:
    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        raise TypeError("a handle was pickled as itself")


def test_a_handle_is_kept_as_a_name_and_comes_back_as_a_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "ActorHandle", Handle)
    ann = Handle("ann")
    found, handles = kept({"peers": [ann, ann], "tokens": 3}, "its state", lambda handle: handle.name)
    assert (found.names, handles) == (("ann",), {"ann": ann})
    assert found.blob is not None
    back = opened(found.blob, lambda name: f"a handle of {name}")
    assert back == {"peers": ["a handle of ann"] * 2, "tokens": 3}


class Users:
    """An actor of the app's, though its parent is Ray's."""

    def __init__(self) -> None:
        self.balance = 5


class OfRays(Users):
    __module__ = "ray.serve._private.controller"


class Mine(OfRays):
    """A user's class below one of Ray's."""


@pytest.mark.parametrize(("body", "is_shown"), [(Users(), True), (OfRays(), False), (Mine(), True)])
def test_states_of_rays_own_actors_are_left_out_unless_they_are_wanted(body: Users, is_shown: bool) -> None:
    found = ShownStates(library_states=False).of(body)
    assert (found is not None) == is_shown
    wanted = ShownStates(library_states=True).of(body)
    assert wanted is not None
    assert json.loads(wanted.text) == {"balance": 5}


@pytest.mark.contract
def test_the_actor_behind_a_queue_of_rays_is_one_of_them() -> None:
    assert _QueueActor.__module__.startswith("ray.")


def test_a_state_that_cannot_be_read_says_why() -> None:
    found = ShownStates(library_states=False).of(3)
    assert found is not None
    assert found.truncated
    assert "the state cannot be read: TypeError" in found.text


def test_whose_states_were_left_out_is_said_in_the_coverage() -> None:
    coordinator, states = Coordinator(), ShownStates(library_states=False)
    bodies = {"users": Users(), "rays": OfRays()}
    machines = (DRIVER, *bodies)
    ledgers = {name: CallLedger(name, colour=coordinator.join(name)) for name in machines}
    facts = {name: {"shown": name, "max_concurrency": 1} for name in machines}
    found = snapshot_of(
        coordinator, ledgers, facts, state_of=lambda name: states.of(bodies[name]) if name in bodies else None
    )
    assert found.coverage["library_states_off"] == ["rays"]
    assert found.machines["users"].state == {"balance": 5}
