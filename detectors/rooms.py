"""Calls that wait for room on a node: plain tasks and constructors whose CPUs, memory or custom resources others hold.

A demand can be met if on some node that it allows enough is left by those that can never move again; so what is asked is a
fixpoint: what can move frees what it holds, and that lets more move (`deadlock`). Whatever is not known counts as free. What
holds, and until when:

- a plain task that can never move: all but its CPUs, which Ray takes back while it waits;
- an actor of which a call runs that can never end: all that it has;
- an actor at rest: all that it has, until somebody can move who could call it, or drop its handle;
- a placement group: its bundles, unless something can move and nothing in it is stuck.

Reads `resources` of the coverage (`instrument.watcher.resources` writes it). Here are no waits: read `wait_graph` for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ray_snapshot.detectors.common import Booleans, Integers, integers, is_any_of, listed, positions, texts
from ray_snapshot.errors import DetectorError
from ray_snapshot.snapshot import Snapshot

_UNIT = 10_000
"""Ray counts resources in ten-thousandths."""

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Demand:
    """What some calls need on one node."""

    needs: Amounts
    since: float
    """When the first of them was sent."""
    group: str | None
    bundle: int
    nodes: frozenset[str] | None
    """Where it may be met; None: anywhere."""
    text: str
    """ "CPU 1", for people."""
    source: str | None
    target: str


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group."""

    name: str
    is_created: bool
    bundles: tuple[Amounts, ...]
    nodes: tuple[str, ...]
    is_on_one_node: bool
    owners: tuple[str, ...]
    """Machines that have made it."""

    @property
    def text(self) -> str:
        """ "CPU 4", for people."""
        return _shown(_sum(self.bundles))


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine that has a part of its node."""

    machine: str
    node: str
    amounts: Amounts
    is_task: bool
    by: tuple[str, ...] | None
    """Machines, and calls that have not begun, that may call it or drop its handle; None: anything may."""
    checked_at: float
    """Since when it is known that those have a handle of it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a snapshot tells of resources."""

    demands: tuple[Demand, ...] = ()
    nodes: Mapping[str, Amounts] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
    unsure: tuple[str, ...] = ()
    """Why room may come all the same."""


_Amounts = dict[str, Annotated[float, Field(ge=0, le=1e14, allow_inf_nan=False)]]
_Number = Annotated[int, Field(ge=0, lt=2**62)]


class _DemandRow(TypedDict):
    source: str | None
    """None: of all that is sent to `target`, for it is not born yet."""
    target: str
    numbers: list[tuple[_Number, _Number]] | None
    needs: _Amounts
    group: str | None
    bundle: int
    nodes: list[str] | None
    since: float


class _GroupRow(TypedDict):
    group: str
    name: str
    created: bool
    bundles: list[_Amounts]
    nodes: list[str]
    strategy: str
    owners: list[str]


class _HolderRow(TypedDict):
    machine: str
    node: str
    amounts: _Amounts
    task: bool
    by: list[str] | None
    checked_at: float


class _Rows(TypedDict):
    demands: list[_DemandRow]
    nodes: dict[str, _Amounts]
    groups: list[_GroupRow]
    holders: list[_HolderRow]
    unsure: list[str]


_SHAPE = TypeAdapter(_Rows)


def _rows(snapshot: Snapshot) -> _Rows:
    """What the coverage tells; raises `DetectorError` if its form is not known."""
    found = snapshot.coverage.get("resources")
    if not found:
        return {"demands": [], "nodes": {}, "groups": [], "holders": [], "unsure": []}
    try:
        rows = _SHAPE.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("coverage", "resources", *first["loc"])))
        text = f"snapshot {snapshot.snapshot_id}: {place}: {first['msg']}: not written by this ray-snapshot"
        raise DetectorError(text, detector="deadlock") from None
    if any(len(one["nodes"]) != len(one["bundles"]) for one in rows["groups"]):
        text = f"snapshot {snapshot.snapshot_id}: coverage.resources.groups: a group has a node for each of its bundles"
        raise DetectorError(text, detector="deadlock")
    return rows


def told(snapshot: Snapshot, *, is_of_now: bool = False) -> Told:
    """Read the coverage; `is_of_now`: the CPUs of plain tasks that compute count, too, though they will give them back."""
    computing = set[str]()
    if is_of_now:
        machines = snapshot.tables["machines"]
        computing = set(
            texts(machines["machine"]).filter(pa.array(is_any_of(machines["status"], "active"))).to_pylist()
        )
    found = _rows(snapshot)
    return Told(
        tuple(_demand(row) for row in found["demands"]),
        {name: _units(amounts) for name, amounts in found["nodes"].items()},
        {row["group"]: _group(row) for row in found["groups"]},
        tuple(_holder(row, computes=row["machine"] in computing) for row in found["holders"]),
        tuple(found["unsure"]),
    )


def _units(amounts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(amount * _UNIT) for name, amount in amounts.items()}


def _demand(row: _DemandRow) -> Demand:
    nodes, group = row["nodes"], row["group"]
    text = ", ".join(f"{name} {amount:g}" for name, amount in row["needs"].items())
    place = "" if group is None else f" in placement group {group[:8]}"
    allowed = None if nodes is None else frozenset(nodes)
    shown = f"{text}{place}" if text else f"placement group {str(group)[:8]}"
    return Demand(
        _units(row["needs"]), row["since"], group, row["bundle"], allowed, shown, row["source"], row["target"]
    )


def _group(row: _GroupRow) -> Group:
    return Group(
        row["name"] or row["group"][:8],
        row["created"],
        tuple(_units(one) for one in row["bundles"]),
        tuple(row["nodes"]),
        row["strategy"] == "STRICT_PACK",
        tuple(row["owners"]),
    )


def _holder(row: _HolderRow, *, computes: bool) -> Holder:
    by = row["by"]
    amounts = _units(row["amounts"])
    if row["task"] and not computes:
        amounts = {
            name: amount for name, amount in amounts.items() if not (name == "CPU" or name.startswith("CPU_group_"))
        }
    return Holder(
        row["machine"], row["node"], amounts, row["task"], None if by is None else tuple(by), row["checked_at"]
    )


def demand_of_rows(snapshot: Snapshot, rows: Any) -> Integers:
    """Which demand each of `rows` (of `messages`) has; -1: none."""
    found = np.full(rows.num_rows, -1, np.int64)
    wanted = _rows(snapshot)["demands"]
    if not wanted or not rows.num_rows:
        return found
    source, target, number = texts(rows["source"]), texts(rows["target"]), integers(rows["number"], -1)
    for index, row in enumerate(wanted):
        mine: Booleans = pc.fill_null(pc.equal(target, row["target"]), False).to_numpy(zero_copy_only=False)
        if row["source"] is not None:
            mine &= pc.fill_null(pc.equal(source, row["source"]), False).to_numpy(zero_copy_only=False)
        if row["numbers"] is not None:
            ranges = [(number >= first) & (number <= last) for first, last in row["numbers"]]
            mine &= np.logical_or.reduce(ranges) if ranges else False
        found[mine] = index
    return found


_Left = Mapping[str, dict[str, int]]
"""By node, what is left there."""

MOST_EXPLAINED = 100
"""Of so many demands that cannot be met it is said why."""


class Rooms:
    """The demands of one snapshot, over the nodes of its wait-for graph.

    `first`: the number of the node of the first demand; `runs`: per holder, the nodes of the calls that run there; `at`: the
    node of its machine (-1: none); `by`: those of `Holder.by`; `has_slot`: whether it may take a call more; `owners`: by group,
    the nodes of who has made it.
    """

    def __init__(
        self,
        told: Told,
        first: int,
        at: Integers,
        runs: list[list[int]],
        by: list[list[int]],
        has_slot: list[bool],
        owners: Mapping[str, list[int]],
    ) -> None:
        self.told = told
        self.first = first
        self.at = at
        self.runs = runs
        self.by = by
        self.has_slot = has_slot
        self.owners = owners
        self._known: tuple[Booleans, bool, list[int]] | None = None
        """What was found for the last `moves`, which nobody changes."""
        self.whys: dict[int, str] = {}
        """By node of a demand that cannot be met: what is missing, and who holds it."""
        self.remedies: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self.told.demands)

    def opened(self, moves: Booleans, *, helped: bool = False) -> Integers:
        """The nodes of the demands that can be met if `moves` do; `helped`: something that is no node may act as well."""
        if helped and self.told.unsure:
            return self.first + np.arange(len(self.told.demands))
        stuck = self._stuck(moves, helped=helped)
        kept = self._kept_groups(moves, stuck, helped=helped)
        unchecked = [one for one in stuck if helped and self._rests(one)]
        left, alone, free = self._left(stuck, kept), self._left(stuck, set()), []
        for index, demand in enumerate(self.told.demands):
            loose = {one for one in unchecked if self._is_unchecked(one, demand)}
            if loose:
                held = [one for one in stuck if one not in loose]
                is_met = self._is_met(demand, self._left(held, kept), self._left(held, set()))
            else:
                is_met = self._is_met(demand, left, alone)
            if is_met:
                free.append(self.first + index)
        return np.array(free, np.int64)

    def _is_unchecked(self, holder: int, demand: Demand) -> bool:
        """Whether a handle of an actor at rest may lie in garbage: it was not collected since this is demanded."""
        return self._rests(holder) and self.told.holders[holder].checked_at <= demand.since

    def _rests(self, holder: int) -> bool:
        return not self.told.holders[holder].is_task and not self.runs[holder]

    def unchecked(self, moves: Booleans) -> list[str]:
        """Holders at rest of which it is not known that their handles are in use; for people."""
        closed = self._closed(moves)
        found = [
            holder
            for holder in self._stuck(moves, helped=False)
            if any(self._is_unchecked(holder, self.told.demands[index]) for index in closed)
        ]
        return [f"whether a handle of {self.told.holders[one].machine} is in use or garbage" for one in found]

    def _closed(self, moves: Booleans) -> list[int]:
        return [index for index in range(len(self.told.demands)) if not moves[self.first + index]]

    # ---- who keeps what it has -------------------------------------------------------------------------------------

    def _stuck(self, moves: Booleans, *, helped: bool) -> list[int]:
        """The holders that keep what they have if `moves` do."""
        if self._known is not None and self._known[0] is moves and self._known[1] == helped:
            return self._known[2]
        anything = helped or bool(moves.any())
        found = [index for index in range(len(self.told.holders)) if not self._frees(index, moves, anything)]
        self._known = moves, helped, found
        return found

    def _frees(self, index: int, moves: Booleans, anything: bool) -> bool:
        holder, runs = self.told.holders[index], self.runs[index]
        if holder.is_task:
            return bool(self.at[index] < 0 or moves[self.at[index]] or moves[runs].any())
        if runs and (moves[runs].any() or moves[self.at[index]]):
            return True
        if runs and not self.has_slot[index]:
            return False
        return anything if holder.by is None else bool(moves[self.by[index]].any())

    def _kept_groups(self, moves: Booleans, stuck: list[int], *, helped: bool) -> set[str]:
        """Groups that nobody removes: nothing can move, or who is inside is stuck."""
        anything = helped or bool(moves.any())
        busy = [self.told.holders[index] for index in stuck if not self._rests(index)]
        inside = {name.rpartition("_")[2] for one in busy for name in one.amounts if "_group_" in name}
        created = {key for key, one in self.told.groups.items() if one.is_created}
        return created if not anything else created & inside

    # ---- whether there is room ---------------------------------------------------------------------------------------

    def _is_met(self, demand: Demand, left: _Left, alone: _Left) -> bool:
        """`alone`: what is left of nodes on which there were no groups: it has what is left within them."""
        if demand.group is None:
            return any(_fits(demand.needs, one) for one in _on(left, demand.nodes).values())
        group = self.told.groups.get(demand.group)
        if group is None:  # it was removed: such a task ends in an error
            return True
        if not group.is_created:
            return self._can_be_made(group, left)
        places = range(len(group.bundles)) if demand.bundle < 0 else [demand.bundle]
        return any(self._fits_in(demand, group, place, alone) for place in places if place < len(group.bundles))

    def _fits_in(self, demand: Demand, group: Group, place: int, left: _Left) -> bool:
        node = group.nodes[place]
        if node not in left or (demand.nodes is not None and node not in demand.nodes):
            return False
        suffix = f"_group_{demand.group}" if demand.bundle < 0 else f"_group_{demand.bundle}_{demand.group}"
        return all(left[node].get(f"{name}{suffix}", 0) >= amount for name, amount in demand.needs.items())

    def _can_be_made(self, group: Group, left: _Left) -> bool:
        """Whether each bundle fits somewhere, and all together on all nodes (on one, if they must be)."""
        if not all(any(_fits(bundle, one) for one in left.values()) for bundle in group.bundles):
            return False
        whole = _sum(group.bundles)
        return (
            any(_fits(whole, one) for one in left.values())
            if group.is_on_one_node
            else _fits(whole, _sum(left.values()))
        )

    def _left(self, held: Iterable[int], kept: set[str]) -> _Left:
        """What there is on each node, without what these hold."""
        left = {name: dict(amounts) for name, amounts in self.told.nodes.items()}
        for index in held:
            holder = self.told.holders[index]
            for name, amount in holder.amounts.items():
                if holder.node in left and name in left[holder.node]:
                    left[holder.node][name] -= amount
        for node, name, amount in self._reserved(kept):
            if node in left and name in left[node]:
                left[node][name] -= amount
        return left

    def _reserved(self, kept: set[str]) -> Iterator[tuple[str, str, int]]:
        for group in (self.told.groups[key] for key in kept):
            for node, bundle in zip(group.nodes, group.bundles, strict=True):
                yield from ((node, name, amount) for name, amount in bundle.items())

    # ---- why there is none -------------------------------------------------------------------------------------------

    def blockers(self, index: int, moves: Booleans) -> tuple[list[int], list[str]]:
        """Who keeps what the demand of this number lacks: holders, by their places, and groups."""
        demand = self.told.demands[index]
        stuck = self._stuck(moves, helped=False)
        group = None if demand.group is None else self.told.groups.get(demand.group)
        if group is not None and group.is_created:
            suffix = f"_group_{demand.group}"
            names = {f"{name}{suffix}" for name in demand.needs}
            return [one for one in stuck if names & self.told.holders[one].amounts.keys()], []
        names = set(_sum(group.bundles)) if group is not None else set(demand.needs)
        kept = self._kept_groups(moves, stuck, helped=False)
        holders = [one for one in stuck if names & self.told.holders[one].amounts.keys()]
        groups = [key for key in kept if names & _sum(self.told.groups[key].bundles).keys()]
        return holders, groups

    def keepers(self, index: int, moves: Booleans) -> Integers:
        """The nodes that would have to move for this demand to be met, and cannot."""
        holders, groups = self.blockers(index, moves)
        found = [node for one in holders for node in self.runs[one] or self.by[one] or [int(self.at[one])]]
        for key in groups:
            inside = self._inside(key, moves)
            found += [node for one in inside for node in self.runs[one]] or self.owners[key]
        return np.array([node for node in dict.fromkeys(found) if node >= 0 and not moves[node]], np.int64)

    def judged(self, moves: Booleans) -> Rooms:
        """The same, with what to tell of the demands that cannot be met."""
        found = copy(self)
        closed = self._closed(moves)
        found.whys = {self.first + one: self.told.demands[one].text for one in closed[MOST_EXPLAINED:]}
        found.whys |= {self.first + one: self.why(one, moves) for one in closed[:MOST_EXPLAINED]}
        found.remedies = {self.first + one: self.remedy(one, moves) for one in closed[:MOST_EXPLAINED]}
        return found

    # ---- in words ----------------------------------------------------------------------------------------------------

    def why(self, index: int, moves: Booleans) -> str:
        """ "CPU 1, of which Trainer-0 holds 4 of 4" of the demand of this number."""
        demand = self.told.demands[index]
        holders, groups = self.blockers(index, moves)
        group = None if demand.group is None else self.told.groups.get(demand.group)
        needs, suffix = dict(demand.needs), ""
        text = demand.text
        if group is not None and group.is_created:
            suffix = f"_group_{demand.group}"
        elif group is not None:
            needs = _sum(group.bundles)
            text = f"placement group {group.name}, which needs {_shown(needs)}"
        scarce = [name for name in needs if self._is_scarce(demand, name, suffix, holders, groups)] or list(needs)
        total = {name: sum(one.get(name + suffix, 0) for one in self.told.nodes.values()) for name in scarce}
        missing = [name for name in scarce if total[name] < needs[name]]
        if missing:
            return f"{text}, and there is {_shown({name: total[name] for name in missing})} in all"
        parts = [self._share(self.told.holders[one], scarce, suffix, total) for one in holders]
        parts += [self._reservation(key, scarce, total, self._inside(key, moves)) for key in groups]
        parts = [part for part in parts if part]
        return text + (f", and {'; '.join(parts[:3])}{' and so on' if len(parts) > 3 else ''}" if parts else "")

    def remedy(self, index: int, moves: Booleans) -> str:
        """What to change so that a demand is met."""
        demand = self.told.demands[index]
        holders, groups = self.blockers(index, moves)
        actors = [self.told.holders[one] for one in holders if not self.told.holders[one].is_task]
        lacks = self._lacking(demand)
        if lacks:
            return f"Ask for less than {demand.text}, or give the cluster a node that has it: none has {lacks}."
        group = None if demand.group is None else self.told.groups.get(demand.group)
        names = [one.machine for one in actors]
        more = "its bundles" if group is not None and group.is_created else "the cluster"
        lack = _shown(self._missing(demand, group, holders, groups))
        if not names:
            whom = [(self.told.groups[key].name, self._inside(key, moves)) for key in groups]
            if not whom:
                return f"Give {more} {lack} more."
            first = "run it in that group, with a bundle for it" if whom[0][1] else "remove that group first"
            return f"Placement group {whom[0][0]} holds what is needed: {first}, or give {more} {lack} more."
        less = "num_cpus=0" if set(demand.needs) == {"CPU"} else "less of it"
        kind = _class_of(names[0])
        rest = "end it when it is done" if self._rests(holders[0]) else f"let {kind} wait for nothing that needs room"
        verb = "holds" if len(names) == 1 else "hold"
        return f"Give {kind} {less} ({listed(names)} {verb} it), {rest}, or give {more} {lack} more."

    def _missing(self, demand: Demand, group: Group | None, holders: list[int], groups: list[str]) -> dict[str, int]:
        """Of what is needed, that of which no node has enough left."""
        needs = demand.needs or (_sum(group.bundles) if group is not None else {})
        suffix = f"_group_{demand.group}" if group is not None and group.is_created else ""
        scarce = {name: needs[name] for name in needs if self._is_scarce(demand, name, suffix, holders, groups)}
        return scarce or dict(needs)

    def _lacking(self, demand: Demand) -> str:
        """What no node has at all, as much as is needed."""
        if demand.group is not None:
            return ""
        nodes = [one for name, one in self.told.nodes.items() if demand.nodes is None or name in demand.nodes]
        if any(_fits(demand.needs, one) for one in nodes):
            return ""
        return (
            _shown({n: a for n, a in demand.needs.items() if not any(one.get(n, 0) >= a for one in nodes)})
            or "all of it"
        )

    def _is_scarce(self, demand: Demand, name: str, suffix: str, holders: list[int], groups: list[str]) -> bool:
        left = _on(self._left(holders, set(groups)), demand.nodes)
        return not any(one.get(name + suffix, 0) >= demand.needs.get(name, 1) for one in left.values())

    def _reservation(self, key: str, scarce: list[str], total: Mapping[str, int], inside: list[int]) -> str:
        group = self.told.groups[key]
        mine = {name: amount for name, amount in _sum(group.bundles).items() if name in scarce}
        if not mine:
            return ""
        who = listed([self.told.holders[one].machine for one in inside]) or ", ".join(group.owners) or "its owner"
        return f"{who} holds {_parts_of(mine, total)} by placement group {group.name}"

    def _inside(self, key: str, moves: Booleans) -> list[int]:
        """Who is in a placement group, and stuck there."""
        busy = [one for one in self._stuck(moves, helped=False) if not self._rests(one)]
        return [one for one in busy if any(name.endswith(f"_{key}") for name in self.told.holders[one].amounts)]

    def _share(self, holder: Holder, scarce: list[str], suffix: str, total: Mapping[str, int]) -> str:
        mine = {name: holder.amounts[name + suffix] for name in scarce if holder.amounts.get(name + suffix)}
        if not mine:
            return ""
        return f"{holder.machine} holds {_parts_of(mine, total)}"


def _parts_of(amounts: Mapping[str, int], total: Mapping[str, int]) -> str:
    """ "CPU 4 of 4"."""
    return ", ".join(f"{name} {amount / _UNIT:g} of {total[name] / _UNIT:g}" for name, amount in amounts.items())


def _shown(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {amount / _UNIT:g}" for name, amount in amounts.items())


def _class_of(machine: str) -> str:
    """ "Trainer" of "Trainer-0"."""
    return machine.rpartition("-")[0] or machine


def _on(left: _Left, nodes: frozenset[str] | None) -> _Left:
    return left if nodes is None else {name: left[name] for name in left if name in nodes}


def _fits(needs: Amounts, left: Amounts) -> bool:
    return all(left.get(name, 0) >= amount for name, amount in needs.items())


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def rooms(
    snapshot: Snapshot, names: Any, ids: Any, machine: Integers, first_call: int, running_count: int, first_room: int
) -> Rooms:
    """The demands over nodes: `names` of the recorded machines, `ids` of calls, the `machine` of each."""
    found = told(snapshot)
    if not found.demands:
        return Rooms(found, first_room, np.zeros(0, np.int64), [], [], [], {})
    at = positions(pa.array([one.machine for one in found.holders], pa.string()), names)
    running = machine[:running_count]
    bound = integers(snapshot.tables["machines"]["max_concurrency"], 2**62)
    runs, by, has_slot = [], [], []
    for place, holder in zip(at.tolist(), found.holders, strict=True):
        calls = np.flatnonzero(running == place) if place >= 0 else np.zeros(0, np.int64)
        runs.append((calls + first_call).tolist())
        has_slot.append(place < 0 or len(calls) < bound[place])
        wanted = pa.array(holder.by or (), pa.string())
        as_machine, as_call = positions(wanted, names), positions(wanted, ids)
        own = as_machine[(as_machine >= 0) & (as_machine != place)]
        by.append([*own.tolist(), *(as_call[as_call >= 0] + first_call).tolist(), *_calls_of(machine, own, first_call)])
    owners = dict[str, list[int]]()
    for key, group in found.groups.items():
        made = positions(pa.array(group.owners, pa.string()), names)
        owners[key] = [*_calls_of(running, made[made >= 0], first_call), *made.tolist()]
    return Rooms(found, first_room, at, runs, by, has_slot, owners)


def _calls_of(machine: Integers, machines: Integers, first_call: int) -> list[int]:
    """The nodes of the calls of these machines: one of them that moves can drop a handle, though its machine has no node."""
    return (np.flatnonzero(np.isin(machine, machines)) + first_call).tolist() if len(machines) else []
