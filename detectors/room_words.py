"""Demands that cannot be met, for people: what is missing, who holds it, and what to change."""

from __future__ import annotations

from collections.abc import Iterable, Sized

import numpy as np

from ray_snapshot.detectors.common import Integers, at_most, held_texts
from ray_snapshot.detectors.room_rows import UNIT, Amounts, Demand, Group, shown
from ray_snapshot.detectors.rooms import State, fits
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed, name_ranges


class Lack:
    """What one demand lacks, if these nodes can move and no others."""

    def __init__(self, state: State, demand: Demand) -> None:
        self.state = state
        self.demand = demand
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
        reserved = (
            []
            if self.is_within
            else [key for key, one in state.told.groups.items() if key in state.kept and self._is_here(one)]
        )
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
        return not self.is_within and bool(self._nowhere())

    @property
    def is_never(self) -> bool:
        """Whether the cluster, were it empty, had no room for it either."""
        return self.is_nowhere or bool(self._spread)

    def _nowhere(self) -> Amounts:
        """What no node has, of the demand or of a bundle of the group that is to be made; empty if there is such a node."""
        parts = [self.needs] if self.group is None or self.group.strategy == "STRICT_PACK" else self.group.bundles
        nodes = [self.state.told.nodes[node] for node in self.nodes]
        part = next((part for part in parts if not any(fits(part, node) for node in nodes)), {})
        alone = {name: amount for name, amount in part.items() if amount > self._most(name)}
        return alone or part

    def _most(self, name: str) -> int:
        """What the largest node has."""
        return max((self.state.told.nodes[node].get(name, 0) for node in self.nodes), default=0)

    @property
    def _spread(self) -> str:
        """Why there are too few nodes for a group: "2 nodes for its bundles (STRICT_SPREAD), and there is 1"; "" if not."""
        if self.group is None or self.is_within or self.group.strategy != "STRICT_SPREAD":
            return ""
        count, there = len(self.group.bundles), len(self.nodes)
        return f"{count:,} nodes for its bundles (STRICT_SPREAD), and {_there(there)}" if count > there else ""

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
        return self.text + self.held()

    @property
    def text(self) -> str:
        """What is needed: "CPU 1", "placement group 5bed1956 of Owner-1, which needs CPU 1"."""
        if self.group is None:
            return self.demand.text
        if not self.is_within:
            return f"{self.group.text}, which needs {shown(self.needs)}"
        return f"{shown(self.needs)} in {self.group.text}" if self.needs else self.group.text

    def held(self) -> str:
        """Who has it: ", and Trainer-0 holds CPU 4 of 4"; "" if that is not known."""
        if not self.nodes:
            return ", and no node that it may run on is there"
        if self.is_nowhere:
            return f", and no node has more than {shown({name: self._most(name) for name in self._nowhere()})}"
        if self._spread:
            return f", on {self._spread}"
        holding: dict[str, list[str]] = {}
        for one in self.holders:
            holding.setdefault(self._of_total(self._part_of(one)), []).append(self.state.told.holders[one].machine)
        shares = held_texts(holding) + [self._reservation(key) for key in self.groups]
        if not shares and self.group is not None and not self.is_within:
            shares = [f"all nodes together have {shown(self.total)}"]
        return f", and {'; '.join(at_most(shares, LIMITS.named_shares, ''))}" if shares else ""

    def _of_total(self, part: dict[str, int]) -> str:
        return ", ".join(f"{name} {amount / UNIT:g} of {self.total[name] / UNIT:g}" for name, amount in part.items())

    def _reservation(self, key: str) -> str:
        group = self.state.told.groups[key]
        mine = {name: amount for name, amount in group.whole.items() if name in self.scarce}
        inside = [self.state.told.holders[one].machine for one in self.state.inside.get(key, [])]
        who = inside or list(group.owners) or ["its owner"]
        name = group.text if inside and inside != list(group.owners) else f"placement group {group.name}"
        return f"{name_ranges(who)} {_verb(who)} {self._of_total(mine)} by {name}"

    def _kind(self, machine: str) -> str:
        """The class or function: "Trainer" of Trainer-0, or of `left`."""
        return self.state.told.classes.get(machine) or machine.rpartition("-")[0] or machine

    # ---- what to change --------------------------------------------------------------------------------------------

    def remedy(self) -> str:
        """What to change: first what helps however much room there is."""
        if self.is_nowhere:
            return f"Ask for less than {shown(self._nowhere())}, or give the cluster a node that has it."
        if self._spread and self.group is not None:
            return f"Add nodes: placement group {self.group.name} needs {self._spread}; or make it with SPREAD or PACK."
        where = f"placement group {self.group.name}" if self.is_within and self.group is not None else "a node"
        more = f"give {where} {shown(self._missing())} more"
        holders = [self.state.told.holders[one] for one in self.holders]
        tasks = list(dict.fromkeys(self._kind(one.machine) for one in holders if one.is_task))
        actors = [one for one in self.holders if not self.state.told.holders[one].is_task]
        steps = ([self._without_holding(tasks)] if tasks else []) + ([self._of_actors(actors)] if actors else [])
        if not steps and self.groups:
            steps = [self._of_groups()]
        if tasks and self._is_wanted(tasks):
            more += " for each level of calls"
        text = ("; " if tasks else ", ").join([*steps, f"or {more}" if steps else more])
        return f"{text[0].upper()}{text[1:]}."

    def _without_holding(self, tasks: list[str]) -> str:
        """Of plain tasks: they give back their CPUs while they wait, and nothing else."""
        what, who = listed(self.scarce), listed(tasks)
        split = f"split {who}, so that the part with {what} ends before the other part waits"
        return f"Do not hold {what} while waiting: give {who} no {what}, or {split}"

    def _is_wanted(self, functions: list[str]) -> bool:
        """Whether one of these functions is what needs the room: then it calls itself."""
        told = self.state.told
        wanted = {one.target for one in told.asked if told.demands[one.demand] == self.demand}
        return any(f"{name}()" in wanted for name in functions)

    def _unborn(self) -> list[str]:
        """The actors that need this to be born, and keep it from then on."""
        if self.group is not None and not self.is_within:
            return []
        told = self.state.told
        asked = (one for one in told.asked if one.source is None and told.demands[one.demand] == self.demand)
        return list(dict.fromkeys(one.target for one in asked))

    def _missing(self) -> dict[str, int]:
        """What is short for all of them together, or for one that gives it back."""
        is_kept = self.group is not None and not self.is_within  # a group keeps its room until it is removed
        groups = [one for one in self.state.told.groups.values() if not one.is_created and one.whole == self.needs]
        others = max(0, len(groups if is_kept else self._unborn()) - 1)
        return {name: amount + others * self.needs[name] for name, amount in (self.short or self.needs).items()}

    def _of_actors(self, actors: list[int]) -> str:
        names = [self.state.told.holders[one].machine for one in actors]
        less = "num_cpus=0" if self.scarce == ["CPU"] else "less of it"
        kinds, holding = list(dict.fromkeys(map(self._kind, names))), f"({name_ranges(names)} {_verb(names)} it)"
        unborn = self._unborn()
        if any(len(unborn) * self.needs[name] > self.total[name] for name in self.scarce):  # with nothing held, too
            every = listed(list(dict.fromkeys([*kinds, *map(self._kind, unborn)])))
            return f"give {every} {less} {holding}"
        is_idle = self.state.rooms.rests(actors[0])
        those = "it when it is done" if len(names) == 1 else "those that are done"
        rest = f"end {those}" if is_idle else f"let {listed(kinds)} wait for nothing that needs room"
        return f"give {listed(kinds)} {less} {holding}, {rest}"

    def _of_groups(self) -> str:
        """Where others have reserved what is needed."""
        groups = self.state.told.groups
        waiting = {name for one in groups.values() if not one.is_created for name in one.owners}
        both = list(dict.fromkeys(name for key in self.groups for name in groups[key].owners if name in waiting))
        if self.group is not None and both:
            verbs = "has one and waits for another" if len(both) == 1 else "each have one and wait for another"
            at_once = f"reserve all that is needed at once, in one placement group ({listed(both)} {verbs})"
            return f"{at_once}, remove the first one before the second is asked for"
        key = self.groups[0]
        return f"{groups[key].text} holds what is needed: {self._of_group(key)}"

    def _of_group(self, key: str) -> str:
        if self.group is not None and not self.is_within and self.state.inside.get(key):
            return "make it with these bundles, too, in place of another group"
        if self.state.inside.get(key):
            return "run it in that group, with a bundle for it"
        if self.group is None and any(fits(self.needs, bundle) for bundle in self.state.told.groups[key].bundles):
            run = "run it in that group (scheduling_strategy=PlacementGroupSchedulingStrategy(...))"
            return f"{run}, or remove the group first"
        return "remove that group first"


def _there(count: int) -> str:
    return f"there is {count}" if count == 1 else f"there are {count:,}"


def _verb(names: Sized) -> str:
    return "holds" if len(names) == 1 else "hold"
