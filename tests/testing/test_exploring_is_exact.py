"""What a search must not leave out, invent or forget: each of these was once answered wrongly, without a word."""

from __future__ import annotations

from typing import Any

import explored_machines as machines
import ray

import ray_snapshot as rs
from ray_snapshot import detectors, testing


def seen(build: Any, look: Any, **options: Any) -> tuple[set[str], testing.Exploration]:
    """What a look at the machines showed in any state, and the search."""
    shown = set()

    def note(states: Any) -> bool:
        shown.add(repr(look(states)))
        return True

    return shown, testing.explore(build, always=[note], **options)


class Collector(rs.SnapshotMixin):
    """Calls in two actions, and waits for both in a third."""

    def __init__(self) -> None:
        self.refs: list[Any] = []
        self.got: Any = None

    def ask(self, other: rs.MachineHandle) -> None:
        self.refs.append(other.read.remote())

    def collect(self) -> None:
        self.got = ray.get(self.refs)
        self.refs = []


def collecting(system: Any) -> None:
    a = system.spawn(Collector, name="a")
    for number in (1, 2):
        a.ask.send(system.spawn(machines.Account, number, name=f"m{number}"))
    a.collect.send()


def test_two_calls_that_are_not_answered_yet_are_two() -> None:
    shown, found = seen(collecting, lambda states: states["a"].got)
    assert found.complete
    assert shown == {"None", "[1, 2]"}
    assert testing.explore(collecting, eventually=[lambda states: states["a"].got == [1, 2]]).ok
