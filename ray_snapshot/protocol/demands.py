"""What Ray must find free on a node before a task, or an actor, can begin; and what a process holds of a node.

A demand travels in its sender's log, what is held in each process's report: so both are of the cut. Nodes and placement groups
are asked of Ray before and behind it (`instrument.capacity`). Imports the standard library only; `detectors.rooms` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Demand(NamedTuple):
    """What one task, or one actor, needs on one node."""

    needs: tuple[tuple[str, float], ...]
    """Amount by resource, sorted; nothing of which 0 is needed."""
    group: str | None = None
    """The placement group in which it is to run, by Ray's id."""
    bundle: int = -1
    """Which bundle of it; -1: any."""
    node: str | None = None
    """The only node on which it may run; None: any."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the node's labels must be."""


IMPLICIT = "node:__internal_implicit_resource_"
"""Before the name of a resource of which each node has 1 without listing it, as Ray calls it."""

NOTHING = Demand(())
"""Of one that finds room on every node."""


def demand(
    needs: Mapping[str, float],
    group: str | None = None,
    bundle: int = -1,
    node: str | None = None,
    labels: Iterable[tuple[str, str]] = (),
) -> Demand:
    """The demand for these amounts."""
    found = sorted((name, float(amount)) for name, amount in needs.items() if amount)
    return Demand(tuple(found), group, bundle, node, tuple(sorted(labels)))


NEARLY = 0.8
"""A store of which more than this is in use is short of room: from here on Ray spills what it can."""


@dataclass(frozen=True, slots=True)
class Store:
    """A node's object store, as Ray told a while before; in bytes."""

    capacity: int
    in_use: int
    """What Ray cannot drop: primary copies, what processes read, arguments of running tasks, what arrives."""
    spilled: int
    """On disk, and not in the store."""
    arguments: int
    """Of `in_use`: arguments of plain tasks that run."""
    waiting: int
    """Plain tasks that have a node's resources, and wait until their arguments find room."""
    told_at: float

    @property
    def is_short(self) -> bool:
        """Whether something may be waiting for room in it."""
        return self.waiting > 0 or self.in_use > NEARLY * self.capacity


class Owned(NamedTuple):
    """Objects that one process owns on one node; in bytes."""

    objects: int = 0
    size: int = 0
    spilled_objects: int = 0
    spilled_size: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """What a process knows of object stores: a hint for people, not of the cut."""

    store: Store | None = None
    """That of its node; None: not known."""
    owned: Mapping[str, Owned] = field(default_factory=dict)
    """By node; looked for only where a store is short of room."""
    not_looked_at: int = 0
    """Objects that this process refers to, and of which it is not known whether they are in a store."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process had of its node at its instant."""

    node: str = ""
    amounts: Mapping[str, float] = field(default_factory=dict)
    """By resource, those of bundles (`CPU_group_0_...`) under their own names."""
    is_clean: bool = False
    """Whether all garbage was collected since anything of the app's acted there: handles in cycles are dropped then."""
    groups: frozenset[str] = frozenset()
    """Placement groups that were made there."""
    stored: Stored = field(default_factory=Stored)
    devices: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """By resource that comes in whole devices (GPUs): which ones, and how much of each."""


def in_group(name: str, group: str, bundle: int = -1) -> str:
    """What Ray calls a resource of a placement group, or of one of its bundles."""
    return f"{name}_group_{group}" if bundle < 0 else f"{name}_group_{bundle}_{group}"
