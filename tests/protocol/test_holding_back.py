"""Senders at full mailboxes: who is held, and by what they are let go."""

from __future__ import annotations

import pytest

from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.protocol.host import HostCore, Machine

BOUND = 4


def pair() -> tuple[HostCore, HostCore, Machine, Machine]:
    """Machine a on host A, machine b on host B, each knowing where the other lives."""
    left, right = HostCore("A", bound=BOUND), HostCore("B", bound=BOUND)
    left.resolve("b", "B")
    right.resolve("a", "A")
    return left, right, left.born("a", object()), right.born("b", object())


def carry(source: HostCore, target: HostCore) -> None:
    for _, batch in source.take_batches():
        source.outputs[target.host].in_flight -= 1
        target.arrive(batch)


def overfill(core: HostCore, sender: Machine, target: str) -> None:
    for number in range(BOUND + 1):
        core.send(sender, target, "mail", "note", (number,), 0.0)
    core.end_action(sender)


def test_who_waits_inside_an_action_first_tells_its_senders_what_it_has_accepted() -> None:
    left, right, a, b = pair()
    right.acknowledge_every = BOUND  # as with a large bound: one acceptance alone is not told
    overfill(left, a, "b")
    assert a.is_held
    carry(left, right)
    assert right.next_action() is not None
    right.suspend(b)
    carry(right, left)
    assert not a.is_held


def test_a_machine_is_not_held_at_its_own_mailbox() -> None:
    left, _, a, _ = pair()
    overfill(left, a, "a")
    assert not a.is_held
    assert left.next_action() is not None


def test_nobody_is_held_at_the_mailbox_of_a_machine_that_has_stopped() -> None:
    left, _, a, _ = pair()
    overfill(left, a, "b")
    left.learn_stopped(["b"])
    assert not a.is_held
    with pytest.raises(MachineStoppedError):
        left.send(a, "b", "mail", "note", (), 0.0)
