"""Worlds that share what they have in common: what a search of every order copies, for it makes a world for each step.

A step changes one host, and what comes of it depends on nothing but that host and what reaches it. Many worlds have the same
host, which does the same in each of them. Hence:

- A host that is kept (`FrozenHost`) never changes any more. What comes of a step is another one, and a world is a handful of
  references to them: so a copy of a world costs as much as its network.
- What comes of a step (`Change`) is worked out once: on a copy of the host, made for the purpose, and by the very `World`.
  Every other world with that host, where the same reaches it, looks it up.

Two hosts are the same here if their pickles are. To make that more often true, hosts do not count what a link has carried: a
link is never full, and the batches of a FIFO link have no numbers, but their order in `Network.batches`. Which steps there
may be: see `SharedWorld.perform`, which refuses others. Machines are `Script`s: what they have done is part of their state.
Imports the standard library and `ray_snapshot`; read `orders` next.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.simulation.mail.fingerprints import host_fingerprint
from ray_snapshot.simulation.mail.hosts import SimHost, Step
from ray_snapshot.simulation.mail.network import Carried
from worlds.mail.actions import ActingHost, Waits
from worlds.mail.behaviours import Script
from worlds.mail.network import LossyNetwork
from worlds.mail.theorem import WorldLog
from worlds.mail.world import World

T = TypeVar("T")

OF_A_HOST = ("accept", "act", "record", "copy", "flush", "report", "late", "halt")
"""Steps that change the host they name, and what depends on that host alone."""

TO_A_HOST = ("request", "close", "abort")
"""Control messages that change the host they go to."""

CENTRAL = ("snapshot", "abort", "notice")
"""Steps of the central point, which change no host."""

NEVER_FULL = 100
"""A window that no link of a search fills."""

CHANGING = ("hosts", "kept", "network", "control", "waits")
"""What the steps of a search change, beside the log and the central point, and what is only counted."""


def alone(one: T) -> T:
    """Another object with containers of its own; what is in these is shared."""
    found = copy(one)
    for name in getattr(one, "__slots__", None) or vars(one):
        value = getattr(one, name)
        if isinstance(value, dict | list | set):
            setattr(found, name, value.copy())
    return found


def coordinator_like(one: Coordinator) -> Coordinator:
    """An independent copy."""
    found = alone(one)
    found.calls = alone(one.calls)
    found.calls.pending = {number: alone(pending) for number, pending in one.calls.pending.items()}
    found.pending = {number: alone(pending) for number, pending in one.pending.items()}
    for number, pending in found.pending.items():
        pending.counts, pending.calls = alone(pending.counts), found.calls.pending[number]
        pending.counts.closed = found.closed
    return found


@dataclass(slots=True, eq=False)
class FrozenHost:
    """A host that never changes any more, and what has come of the steps it has taken so far."""

    host: SimHost
    """To be read only."""
    pickled: bytes
    mark: int
    """Equal for hosts whose futures are alike (`fingerprints`)."""
    steps: list[Step] | None = None
    changes: dict[Hashable, Any] = field(default_factory=dict)
    """By the step, with all that reached the host in it: its `Change`."""


class Keeper:
    """The hosts that the worlds of one search are made of, each kept once."""

    def __init__(self) -> None:
        self.hosts: dict[bytes, FrozenHost] = {}
        self.marks: dict[Hashable, int] = {}

    def kept(self, host: SimHost) -> FrozenHost:
        """The host as it is now; its holder must not change it any more."""
        if isinstance(host.core, BarrierCore):
            host.core.on_record, host.core.clock = _too_late, _no_time
        pickled = pickle.dumps(host, pickle.HIGHEST_PROTOCOL)
        found = self.hosts.get(pickled)
        if found is None:
            mark = self.marks.setdefault(host_fingerprint(host), len(self.marks))
            found = self.hosts[pickled] = FrozenHost(host, pickled, mark)
        return found


def _too_late(*_: Any) -> None:
    raise AssertionError("a host that is kept, for other worlds have it too, was about to record")


def _no_time() -> float:
    return 0.0


@dataclass(slots=True)
class OnItsWay(Carried):
    """A batch on its way; nothing of it changes any more, for many worlds carry it."""

    text: str = ""
    """What it says, without its number on the link."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Equal for batches that are the same."""
        return self.source, self.target, self.batch[1], self.text


@dataclass(slots=True)
class Change:
    """What has come of a step."""

    host: FrozenHost
    network: list[OnItsWay]
    control: list[Step]
    log: WorldLog
    """Actions and cuts of this step only."""


class SharedWorld(World):
    """A world of kept hosts; `shared` makes one."""

    keeper: Keeper
    kept: dict[str, FrozenHost]

    @classmethod
    def shared(cls, world: World) -> Self:
        """The same world once more; its machines must be `Script`s that act in one step, and `world` not be rolled back."""
        assert world.rules.is_atomic, "machines must act in one step (`is_atomic`)"
        has_scripts = all(isinstance(behaviour, Script) for behaviour in world.programs.values())
        assert has_scripts, "how often a machine has acted must be part of its state (`Script`)"
        assert world.rules.window >= NEVER_FULL, (
            "what a link holds back depends on what has arrived elsewhere (`window`)"
        )
        assert not world.lineage.generations, "a world that is rolled back shares its hosts with other generations"
        found = cls.__new__(cls)
        vars(found).update(vars(pickle.loads(pickle.dumps(world, pickle.HIGHEST_PROTOCOL))))
        found.trace = None
        found.keeper = Keeper()
        in_order = sorted(found.network.batches, key=lambda carried: carried.batch[1])
        found.network.batches = [found._on_its_way(carried) for carried in in_order]
        found.kept = {name: found._kept(host) for name, host in found.hosts.items()}
        return found

    def copy(self) -> Self:
        """Another world in the same state."""
        found = self.__new__(type(self))
        vars(found).update(vars(self))
        for name in CHANGING:
            setattr(found, name, vars(self)[name].copy())
        found.central = alone(self.central)
        found.central.parts = {number: parts.copy() for number, parts in self.central.parts.items()}
        log = self.log
        cuts = {number: cut.copy() for number, cut in log.cuts.items()}
        found.log = WorldLog(log.start, log.actions.copy(), log.lengths.copy(), cuts, log.is_fifo, log.channels)
        return found

    def enabled_on(self, name: str) -> list[Step]:
        """The steps of one host."""
        kept = self.kept[name]
        if kept.steps is None:
            kept.steps = super().enabled_on(name)
        return kept.steps.copy()

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step: of `OF_A_HOST` or `CENTRAL`, a delivery, or the arrival of a control message."""
        kind, *where = step
        if kind == "deliver":
            self._delivered(where[0])
        elif kind == "control":
            self._arrives(where[0])
        elif kind in OF_A_HOST:
            name = self.places[where[0]] if kind == "act" else where[0]
            self.change(name, (step, choice), lambda _: super(SharedWorld, self).perform(step, choice))
        else:
            assert kind in CENTRAL, f"{kind} is no step of a search"
            self._centrally(lambda: super(SharedWorld, self).perform(step, choice))

    def change(self, name: str, key: Hashable, change: Callable[[SimHost], object]) -> None:
        """Let something happen to a host; `key` must tell what that is, and all that it depends on beside the host."""
        before = self.kept[name]
        found = before.changes.get(key)
        if found is None:
            found = before.changes[key] = self._worked_out(name, change)
        self.kept[name] = found.host
        self.hosts[name] = found.host.host  # type: ignore[assignment]
        self.network.batches += found.network
        self.control += found.control
        for action in found.log.actions:
            self.log.actions.append(action)
            self.log.lengths[action.machine] = action.index
        for number, cut in found.log.cuts.items():
            self.log.cuts[number] = cut | self.log.cuts.get(number, {})
            self.waits.record(number, ())

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _worked_out(self, name: str, change: Callable[[SimHost], object]) -> Change:
        """Take the step on a copy of the host, with everything empty that it adds to."""
        host: ActingHost = pickle.loads(self.kept[name].pickled)
        if isinstance(host.core, BarrierCore):
            host.core.on_record = self._recorded
        before = self.network, self.control, self.log, self.waits
        log = WorldLog(self.log.start, lengths=self.log.lengths.copy(), is_fifo=self.log.is_fifo)
        self.network, self.control, self.log, self.waits = LossyNetwork(), [], log, Waits()
        self.hosts[name] = host
        change(host)
        network = [self._on_its_way(carried) for carried in self.network.batches]
        does_more = host.asked or host.timers or host.core.births or self.waits.replies
        assert not does_more, "a host of a search only sends"
        found = Change(self._kept(host), network, self.control, log)
        self.network, self.control, self.log, self.waits = before
        return found

    def _delivered(self, index: int) -> None:
        carried = self.network.batches.pop(index)
        assert isinstance(carried, OnItsWay)
        link = carried.source, carried.target
        overtakes = self.rules.is_fifo and any((one.source, one.target) == link for one in self.network.batches[:index])
        assert not overtakes, f"a batch from {carried.source} to {carried.target} overtakes another"
        self.change(carried.target, carried.key, lambda host: host.is_down or host.core.arrive(carried.batch))

    def _arrives(self, index: int) -> None:
        message = self.control.pop(index)
        if message[0] in TO_A_HOST:
            self.change(message[1], message, lambda _: self.hear(message))
        else:
            assert message[0] == "part", f"{message[0]} is no control message of a search"
            self._centrally(lambda: self.hear(message))

    def _centrally(self, change: Callable[[], object]) -> None:
        self.central.coordinator = coordinator_like(self.central.coordinator)
        change()

    def _kept(self, host: SimHost) -> FrozenHost:
        """The host, to be kept; its links forget how much they have carried."""
        for link in host.core.outputs.values():
            link.in_flight = 0
            link.sequence = 0 if self.rules.is_fifo else link.sequence
        for end in host.core.inputs.values() if self.rules.is_fifo else ():
            assert not end.early
            end.next = 0
        return self.keeper.kept(host)

    def _on_its_way(self, carried: Carried) -> OnItsWay:
        name, sequence, declared, segments, acknowledgements = carried.batch
        batch = name, 0 if self.rules.is_fifo else sequence, declared, segments, acknowledgements
        return OnItsWay(carried.source, carried.target, batch, text=repr((declared, segments, acknowledgements)))
