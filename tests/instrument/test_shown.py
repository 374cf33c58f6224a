"""Which states of a watched app are shown. No cluster in here."""

from __future__ import annotations

import json

import pytest
from lone_app import snapshot_of
from ray.util.queue import _QueueActor

from ray_snapshot.instrument.process.shown import ShownStates
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator


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
