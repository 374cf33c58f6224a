"""Demands that cannot be met, for people: what is missing, who holds it, and what to change."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ray_snapshot.detectors.common import Integers, listed
from ray_snapshot.detectors.room_rows import UNIT, Demand, Group, shown
from ray_snapshot.detectors.rooms import State, fits

MOST_SHARES = 3


class Lack:
    """What one demand lacks, if these nodes can move and no others."""

    def __init__(self, state: State, index: int) -> None:
        self.state = state
        self.demand: Demand = state.told.demands[index]
        found = None if self.demand.group is None else state.told.groups.get(self.demand.group)
        self.group: Group | None = found
        self.is_within = found is not None and found.is_created
        """Whether it is room in a group that is missing."""
        self.suffix = f"_group_{self.demand.group}" if self.is_within else ""
        needs = found.whole if found is not None and not found.is_created else dict(self.demand.needs)
        self.needs = needs
        left = state.within if self.is_within else state.left
        self.nodes = state.allowed(self.demand)
        self.total = {
            name: sum(state.told.nodes[node].get(self._name(name), 0) for node in self.nodes) for name in needs
        }
        self.short = min(
            (self._short(left[node]) for node in self.nodes), key=lambda one: sum(one.values()), default=needs
        )
        """By how much the node that lacks least lacks it; what several nodes must give counts as on one."""
        holders = [one for one in state.stuck if state.told.holders[one].node in self.nodes]
        self.holders = [one for one in holders if self._part_of(one)]
        reserved = [] if self.is_within else [key for key in state.kept if self._is_here(state.told.groups[key])]
        self.groups = reserved

    def _name(self, name: str) -> str:
        return name + self.suffix

    def _short(self, left: dict[str, int]) -> dict[str, int]:
        lacks = {name: amount - max(0, left.get(self._name(name), 0)) for name, amount in self.needs.items()}
        return {name: amount for name, amount in lacks.items() if amount > 0}

    def _part_of(self, holder: int) -> dict[str, int]:
        amounts = self.state.told.holders[holder].amounts
        return {name: amounts[self._name(name)] for name in self.scarce if amounts.get(self._name(name))}

    def _is_here(self, group: Group) -> bool:
        return bool(group.whole.keys() & self.scarce) and any(node in self.nodes for node in group.nodes)

    @property
    def scarce(self) -> list[str]:
        """The resources that are short, or all that are needed if none is by itself."""
        return list(self.short or self.needs)

    @property
    def is_nowhere(self) -> bool:
        """Whether no node has as much, held or free."""
        if self.group is not None:
            return False
        return not any(fits(self.needs, self.state.told.nodes[node]) for node in self.nodes)

    def keepers(self) -> Integers:
        """The nodes that would have to move, and cannot."""
        rooms, moves = self.state.rooms, self.state.moves
        found = [node for one in self.holders for node in rooms.places[one].runs or self._at_rest(one)]
        for key in self.groups:
            inside = self.state.inside.get(key, [])
            found += [node for one in inside for node in rooms.places[one].runs] or rooms.owners[key]
        return np.array([node for node in dict.fromkeys(found) if node >= 0 and not moves[node]], np.int64)

    def _at_rest(self, holder: int) -> Iterable[int]:
        places = self.state.rooms.places[holder]
        return places.by or (places.at,)

    def why(self) -> str:
        """ "CPU 1, and Trainer-0 holds CPU 4 of 4"."""
        text = self.demand.text
        if self.group is not None and not self.group.is_created:
            text = f"placement group {self.group.name}, which needs {shown(self.needs)}"
        if self.is_nowhere:
            most = {
                name: max((self.state.told.nodes[node].get(name, 0) for node in self.nodes), default=0)
                for name in self.needs
            }
            return f"{text}, and no node has more than {shown({name: most[name] for name in self._beyond(most)})}"
        shares = [
            f"{self.state.told.holders[one].machine} holds {self._of_total(self._part_of(one))}" for one in self.holders
        ]
        shares += [self._reservation(key) for key in self.groups]
        more = " and so on" if len(shares) > MOST_SHARES else ""
        return text + (f", and {'; '.join(shares[:MOST_SHARES])}{more}" if shares else "")

    def _beyond(self, most: dict[str, int]) -> list[str]:
        return [name for name in self.needs if most[name] < self.needs[name]] or list(self.needs)

    def _of_total(self, part: dict[str, int]) -> str:
        return ", ".join(f"{name} {amount / UNIT:g} of {self.total[name] / UNIT:g}" for name, amount in part.items())

    def _reservation(self, key: str) -> str:
        group = self.state.told.groups[key]
        mine = {name: amount for name, amount in group.whole.items() if name in self.scarce}
        inside = [self.state.told.holders[one].machine for one in self.state.inside.get(key, [])]
        who = listed(inside) or ", ".join(group.owners) or "its owner"
        return f"{who} holds {self._of_total(mine)} by placement group {group.name}"

    def remedy(self) -> str:
        """What to change."""
        if self.is_nowhere:
            return f"Ask for less than {self.demand.text}, or give the cluster a node that has it."
        where = f"placement group {self.group.name}" if self.is_within and self.group is not None else "a node"
        more = f"give {where} {shown(self.short or self.needs)} more."
        actors = [one for one in self.holders if not self.state.told.holders[one].is_task]
        if actors:
            names = [self.state.told.holders[one].machine for one in actors]
            less = "num_cpus=0" if self.scarce == ["CPU"] else "less of it"
            kind, verb = names[0].rpartition("-")[0] or names[0], "holds" if len(names) == 1 else "hold"
            is_idle = self.state.rooms.rests(actors[0])
            rest = "end it when it is done" if is_idle else f"let {kind} wait for nothing that needs room"
            return f"Give {kind} {less} ({listed(names)} {verb} it), {rest}, or {more}"
        if self.groups:
            key = self.groups[0]
            first = (
                "run it in that group, with a bundle for it"
                if self.state.inside.get(key)
                else "remove that group first"
            )
            return f"Placement group {self.state.told.groups[key].name} holds what is needed: {first}, or {more}"
        return more[0].upper() + more[1:]
