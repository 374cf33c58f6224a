"""What an actor of somebody else's is restored from, and what is said of one that cannot be."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from ray_snapshot.instrument.process import states
from ray_snapshot.instrument.process.states import kept, opened, set_state, state_of


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
