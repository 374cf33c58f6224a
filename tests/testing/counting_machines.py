"""Machines without an end: what a constraint is for."""

from typing import Any

import ray_snapshot as rs


class Counter(rs.SnapshotMixin):
    """Counts for ever."""

    def __init__(self) -> None:
        self.count = 0
        self.handle.tick.send()

    def tick(self) -> None:
        self.count += 1
        self.handle.tick.send()


class Spinner(rs.SnapshotMixin):
    """Does nothing, for ever."""

    def spin(self) -> None:
        self.handle.spin.send()


class Jar(rs.SnapshotMixin):
    """Is filled once."""

    def __init__(self) -> None:
        self.is_full = False

    def fill(self) -> None:
        self.is_full = True


class Forgetful(rs.SnapshotMixin):
    """Records its sum, and not what it has seen."""

    def __init__(self) -> None:
        self.sum = 0
        self.seen: list[int] = []

    def note(self, amount: int) -> None:
        self.sum += amount
        self.seen.append(amount)

    def snapshot_state(self) -> Any:
        return self.sum

    def restore_state(self, state: Any) -> None:
        self.sum = state
        self.seen = []


def counters(system: Any) -> None:
    for name in ("a", "b"):
        system.spawn(Counter, name=name)


def spinner_and_jar(system: Any) -> None:
    system.spawn(Spinner, name="spinner").spin.send()
    system.spawn(Jar, name="jar").fill.send()


def small(states: Any) -> bool:
    return all(counter.count <= 3 for counter in states.values())


def large(states: Any) -> bool:
    return bool(states["a"].count >= 10)


def at_four(states: Any) -> bool:
    return bool(states["a"].count == 4)


def is_empty(states: Any) -> bool:
    return not states["jar"].is_full


def is_broken(states: Any) -> bool:
    return False


def is_lost(states: Any) -> bool:
    return "f" not in states
