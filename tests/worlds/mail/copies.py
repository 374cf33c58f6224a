"""Independent copies of a coordinator and of the central point around it, for worlds that try every order.

Imports the standard library and `ray_snapshot`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TypeVar

from ray_snapshot.protocol.coordinator import Coordinator, PendingSnapshot
from ray_snapshot.simulation.mail.central import Central

T = TypeVar("T")


def alone(one: T) -> T:
    """Another object with containers of its own; what is in these is shared."""
    found = copy(one)
    for name, value in vars(one).items():
        if isinstance(value, dict | list | set):
            setattr(found, name, value.copy())
    return found


def coordinator_like(one: Coordinator) -> Coordinator:
    """A coordinator in the same state."""
    found = alone(one)
    found.calls = alone(one.calls)
    found.calls.pending = {number: alone(pending) for number, pending in one.calls.pending.items()}
    for number, pending in one.pending.items():
        counts = alone(pending.counts)
        counts.closed = found.closed
        found.pending[number] = PendingSnapshot(counts, found.calls.pending[number], pending.deadline)
    return found


def central_like(one: Central) -> Central:
    """A central point that knows the same, of the same coordinator."""
    parts = {number: parts.copy() for number, parts in one.parts.items()}
    completed, surplus, aborted = one.completed.copy(), one.surplus.copy(), one.aborted.copy()
    return replace(one, parts=parts, completed=completed, surplus=surplus, aborted=aborted, answers=one.answers.copy())
