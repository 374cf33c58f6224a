"""Calls that wait for room on a node: plain tasks and constructors whose CPUs, memory or custom resources others hold.

A demand can be met if on some node that it allows enough is left by those that can never move again; so what is asked is a
fixpoint: what can move frees what it holds, and that lets more move (`deadlock`). Whatever is not known counts as free. What
holds, and until when:

- a plain task that can never move: all but its CPUs, which Ray takes back while it waits;
- an actor of which a call runs that can never end: all that it has;
- an actor at rest: all that it has, until a call can begin there, or somebody can move who could call it, or drop its handle;
- a placement group: its bundles, while who has made it is known and nothing can move, or while somebody is stuck inside it.

Here are no waits: read `room_rows` first, and `wait_graph` for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.detectors.common import Booleans, Integers, integers, positions
from ray_snapshot.detectors.room_rows import UNIT, Amounts, Demand, Group, Told, added
from ray_snapshot.snapshot import Snapshot

Left = Mapping[str, dict[str, int]]
"""By node, what is left there."""


@dataclass(frozen=True, slots=True)
class Help:
    """What may act beside the nodes of the graph."""

    is_unseen: bool = False
    """Something that was not observed."""
    is_doubted: bool = False
    """Whatever is not certain about room counts as good."""


ALONE = Help()


@dataclass(frozen=True, slots=True)
class Places:
    """Where a holder is in the graph."""

    at: int
    """The node of its machine; -1: none."""
    runs: tuple[int, ...]
    """The nodes of the calls that run there."""
    queued: tuple[int, ...]
    """Of those that are on their way there."""
    is_active: bool
    """Whether its machine acts, or is about to."""
    by: tuple[int, ...]
    """Those of `Holder.by`."""
    has_slot: bool
    """Whether it may take a call more."""
    is_known: bool
    """Whether all of `Holder.by` are in the graph."""


class Rooms:
    """The demands of one snapshot, over the nodes of its wait-for graph.

    `first`: the number of the node of the first demand; `acting`: how many nodes stand for something that acts, the rest for
    slots and demands; `owners`: by group, the nodes of who has made it.
    """

    def __init__(
        self, told: Told, first: int, acting: int, places: list[Places], owners: Mapping[str, list[int]]
    ) -> None:
        self.told = told
        self.first = first
        self.acting = acting
        self.places = places
        self.owners = owners

    def __bool__(self) -> bool:
        return bool(self.told.demands)

    @property
    def nodes(self) -> Integers:
        """Of all demands."""
        return self.first + np.arange(len(self.told.demands))

    def opened(self, moves: Booleans, help: Help = ALONE) -> Integers:
        """The nodes of the demands that can be met if `moves` do."""
        if not self:
            return self.nodes
        if help.is_doubted and self.told.unsure:
            return self.nodes
        state = State(self, moves, help)
        return self.nodes[[state.is_met(demand) for demand in self.told.demands]]

    def rests(self, holder: int) -> bool:
        """Whether a holder is an actor of which no call runs."""
        return not self.told.holders[holder].is_task and not self.places[holder].runs

    def doubtful(self, moves: Booleans) -> list[str]:
        """Holders at rest of which it is not certain who has a handle; for people."""
        stuck = State(self, moves).stuck if self else ()
        unchecked = [one for one in stuck if self.rests(one) and not self.told.holders[one].is_checked]
        return [
            f"whether a handle of {self.told.holders[one].machine} is in use elsewhere, or garbage" for one in unchecked
        ]


class State:
    """Who holds what, and what is left, if these nodes can move and no others."""

    def __init__(self, rooms: Rooms, moves: Booleans, help: Help = ALONE, *, is_of_now: bool = False) -> None:
        """`is_of_now`: nothing has moved yet, so whatever is held is held, by groups and actors of any kind."""
        self.is_of_now = is_of_now
        self.rooms = rooms
        self.told = rooms.told
        self.moves = moves
        self.help = help
        self.anything = help.is_unseen or bool(moves[: rooms.acting].any())
        self.stuck = [index for index in range(len(self.told.holders)) if not self._frees(index)]
        """The holders that keep what they have."""
        self.inside = self._inside()
        """By group: the holders that are stuck inside it."""
        self.kept = {
            key for key, one in self.told.groups.items() if one.is_created and (is_of_now or self._is_kept(key, one))
        }
        """Groups that nobody removes."""
        self.within = self._left(self.stuck, set())
        """What is left, as if groups had reserved nothing: it has what is left within them."""
        self.left = self._left(self.stuck, self.kept)

    def _frees(self, index: int) -> bool:
        if self.is_of_now:
            return False
        holder = self.told.holders[index]
        if holder.is_outside:
            return not self.told.outside_stays
        places, moves = self.rooms.places[index], self.moves
        runs = list(places.runs)
        if holder.is_task:
            return bool(places.at < 0 or moves[places.at] or moves[runs].any())
        if runs and (moves[runs].any() or moves[places.at]):
            return True
        if runs and not places.has_slot:
            return False
        if (
            places.is_active or moves[list(places.queued)].any()
        ):  # what is about to run there may end it, as what runs may
            return True
        if self.help.is_unseen or not places.is_known:
            return True
        if self.help.is_doubted and not holder.is_checked:
            return True
        return self.anything if holder.by is None else bool(moves[list(places.by)].any())

    def _inside(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for index in self.stuck:
            if self.is_of_now or not self.rooms.rests(index):
                names = (name for name in self.told.holders[index].amounts if "_group_" in name)
                for key in {name.rpartition("_")[2] for name in names}:
                    found.setdefault(key, []).append(index)
        return found

    def _is_kept(self, key: str, group: Group) -> bool:
        is_ours = bool(group.owners) and not group.is_public
        is_kept = self.told.outside_stays and not group.owners
        return key in self.inside or is_kept or (is_ours and not self.anything)

    def _left(self, held: Iterable[int], kept: set[str]) -> Left:
        left = {name: dict(amounts) for name, amounts in self.told.nodes.items()}
        taken = [(self.told.holders[index].node, self.told.holders[index].amounts) for index in held]
        for group in (self.told.groups[key] for key in kept):
            taken += zip(group.nodes, group.bundles, strict=True)
        for node, amounts in taken:
            for name, amount in amounts.items():
                if node in left and name in left[node]:
                    left[node][name] -= amount
        return left

    # ---- whether there is room ---------------------------------------------------------------------------------------

    def is_met(self, demand: Demand) -> bool:
        """Whether there is, or will be, room for a demand."""
        needs = dict(demand.needs)
        group = None if demand.group is None else self.told.groups.get(demand.group)
        if demand.group is None:
            return any(fits(needs, self.left[node]) and self._on_devices(needs, node) for node in self.allowed(demand))
        if group is None:  # it was removed: such a task ends in an error
            return True
        if not group.is_created:
            return self._can_be_made(group)
        return any(fits(self.named(demand, place), self.within[node]) for place, node in self._bundles(demand, group))

    def _on_devices(self, needs: Amounts, node: str) -> bool:
        """Whether what is needed of devices fits: a part on one of them, whole ones on free ones.

        Of devices in groups it is not known which they are: then the sum has to do.
        """
        reserved = {
            name
            for key in self.kept
            for at, bundle in zip(self.told.groups[key].nodes, self.told.groups[key].bundles, strict=True)
            if at == node
            for name in bundle
        }
        holders = [one for index in self.stuck if (one := self.told.holders[index]).node == node]
        for name in needs.keys() - reserved:
            taken = [part for one in holders for part in one.devices.get(name, ())]
            if taken and not _fits_devices(needs[name], self.told.nodes[node].get(name, 0), taken):
                return False
        return True

    def allowed(self, demand: Demand) -> list[str]:
        """The nodes on which a demand may be met."""
        return [name for name in self.told.nodes if demand.nodes is None or name in demand.nodes]

    def _bundles(self, demand: Demand, group: Group) -> list[tuple[int, str]]:
        places = range(len(group.bundles)) if demand.bundle < 0 else [demand.bundle]
        allowed = self.allowed(demand)
        return [(at, group.nodes[at]) for at in places if at < len(group.bundles) and group.nodes[at] in allowed]

    def named(self, demand: Demand, place: int) -> dict[str, int]:
        """What is needed of one bundle of a group, by Ray's names for that."""
        suffix = f"_group_{demand.group}" if demand.bundle < 0 else f"_group_{place}_{demand.group}"
        return {f"{name}{suffix}": amount for name, amount in demand.needs}

    def _can_be_made(self, group: Group) -> bool:
        """Whether each bundle fits somewhere, and all together on all nodes; a necessary condition, for packing is hard."""
        nodes = self.left.values()
        if not all(any(fits(bundle, one) for one in nodes) for bundle in group.bundles):
            return False
        if group.strategy == "STRICT_PACK":
            return any(fits(group.whole, one) for one in nodes)
        if group.strategy == "STRICT_SPREAD" and len(group.bundles) > len(nodes):
            return False
        return fits(group.whole, added(nodes))


def _fits_devices(amount: int, total: int, taken: Iterable[tuple[int, int]]) -> bool:
    """Whether one device has so much left, or so many are free."""
    left = dict.fromkeys(range(total // UNIT), UNIT)
    for number, part in taken:
        left[number] = left.get(number, UNIT) - part
    if amount < UNIT:
        return max(left.values(), default=0) >= amount
    return sum(part >= UNIT for part in left.values()) * UNIT >= amount


def held_now(told: Told) -> State:
    """What is left at this moment."""
    return State(Rooms(told, 0, 0, [], {}), np.zeros(0, np.bool_), is_of_now=True)


def fits(needs: Amounts, left: Amounts) -> bool:
    """Whether there is as much left of each."""
    return all(left.get(name, 0) >= amount for name, amount in needs.items())


def _acting(snapshot: Snapshot) -> Booleans:
    """Which machines are inside an action."""
    return snapshot.statuses.are("active")


def placed(snapshot: Snapshot, found: Told, names: Any, calls: Any, first_call: int) -> Rooms:
    """The demands over nodes: `names` of the recorded machines, and `calls` (`CallNodes`) behind `first_call`."""
    first_room, acting = first_call + calls.first_room, first_call + calls.call_count
    if not found.demands:
        return Rooms(found, first_room, acting, [], {})
    finder = _Finder(names, calls, first_call)
    at = finder.machines([one.machine for one in found.holders])
    bound = integers(snapshot.tables["machines"]["max_concurrency"], 2**62)
    acting_now = _acting(snapshot)
    places = []
    for machine, holder in zip(at, found.holders, strict=True):
        runs = finder.runs(machine)
        by, is_known = finder.whoever(holder.by or (), machine)
        is_active, has_slot = machine < 0 or bool(acting_now[machine]), machine < 0 or len(runs) < bound[machine]
        places.append(
            Places(machine, tuple(runs), tuple(finder.queued(machine)), is_active, tuple(by), has_slot, is_known)
        )
    owners = {}
    for key, group in found.groups.items():
        made = [one for one in finder.machines(group.owners) if one >= 0]
        owners[key] = [*(call for one in made for call in finder.runs(one)), *made]
    return Rooms(found, first_room, acting, places, owners)


class _Finder:
    """Nodes by names of machines and ids of calls."""

    def __init__(self, names: Any, calls: Any, first_call: int) -> None:
        self.names = names
        self.ids = calls.ids
        self.first_call = first_call
        self.of_machine: dict[int, list[int]] = {}
        self.running: dict[int, list[int]] = {}
        self.to_unborn: dict[str, list[int]] = {}
        """By machine that is not recorded: the calls on their way there."""
        count = calls.call_count
        owners = calls.machine[:count].tolist()
        for call, (machine, name) in enumerate(zip(owners, calls.machine_names[:count].to_pylist(), strict=True)):
            node = call + first_call
            if machine < 0:
                self.to_unborn.setdefault(name, []).append(node)
            else:
                self.of_machine.setdefault(machine, []).append(node)
                if call < calls.running_count:
                    self.running.setdefault(machine, []).append(node)

    def machines(self, wanted: Iterable[str]) -> list[int]:
        """The node of each; -1: not recorded."""
        found: list[int] = positions(pa.array(list(wanted), pa.string()), self.names).tolist()
        return found

    def runs(self, machine: int) -> list[int]:
        """The calls that run on a machine."""
        return self.running.get(machine, [])

    def queued(self, machine: int) -> list[int]:
        """The calls on their way to a machine."""
        runs = set(self.runs(machine))
        return [call for call in self.of_machine.get(machine, ()) if call not in runs]

    def whoever(self, wanted: Iterable[str], but: int) -> tuple[list[int], bool]:
        """The nodes of these machines and calls, without one machine's own; and whether all were found."""
        listed = list(wanted)
        as_call = positions(pa.array(listed, pa.string()), self.ids).tolist()
        found, is_known = [], True
        for name, machine, call in zip(listed, self.machines(listed), as_call, strict=True):
            if machine >= 0:
                found += [] if machine == but else [machine, *self.of_machine.get(machine, [])]
            elif call >= 0:
                found.append(call + self.first_call)
            elif name in self.to_unborn:
                found += self.to_unborn[name]
            else:
                is_known = False
        return found, is_known
