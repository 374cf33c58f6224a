"""A deadlock in words and records: which machines and calls wait, where in the app's source, for which others, round
which cycle. What to change is in `remedies`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.detectors.common import Integers, is_any_of, texts
from ray_snapshot.detectors.wait_graph import WaitGraph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import HELD_BY, listed, waker
from ray_snapshot.snapshot import Snapshot

ENDED_TASKS = "ended tasks"
"""The source of what plain tasks had sent that have ended."""
CALLED_AT = " (called at {})"

Alternatives = dict[int, list[tuple[int, list[int]]]]
"""Per node: (k, nodes of which k are needed) of each alternative of its wait."""


def records(snapshot: Snapshot, waits: WaitGraph, nodes: Integers, cause: Iterable[int] = ()) -> list[dict[str, Any]]:
    """A record for each of `nodes` (machines and calls): `machine, class, method, call_site, waits_for, mode`.

    `is_cause` (True) of those of `cause`, the nodes that keep all others.
    `call` (its id) and `since` (ISO 8601; when it began, or was made) of a call, where deadlocks are to be broken;
    `k` beside mode `k_of_n`; `alternatives` (a list of `{"k", "of"}`) where several conditions are each
    enough; `waits_for_count` where more than 100 machines are waited for and the list was cut;
    `waits_for_calls` (`Class.method`) where calls are waited for; `waits_for_later_call` (True) where a call waits inside its
    own actor (on a queue, a lock, an event), and any of `waits_for` could end that by a later call to this actor;
    `primitive`: the function of a library that the line is in, or what it waits on ("asyncio.Lock held by Ledger.add");
    `held_by`: the functions that hold it;
    `waits_for_a_reader` (True) where Ray holds a generator at a `yield` until one of `waits_for` takes an item of it.
    """
    if not len(nodes):
        return []
    about, first = About(snapshot, waits, nodes), set(cause)
    return [about.record(node) | ({"is_cause": True} if node in first else {}) for node in nodes.tolist()]


@dataclass(frozen=True, slots=True)
class Node:
    """One node for a person: a machine, or a call of it; of a call that has not begun the `call_site` is None."""

    machine: str
    class_name: str | None
    method: str | None = None
    call_site: str | None = None
    is_call: bool = False
    is_running: bool = False
    primitive: str = ""
    """What its line is in, or waits on: "asyncio.Lock held by Ledger.add"."""
    call_id: str | None = None
    since: datetime | None = None
    """When the call began; of one that has not begun: when it was made."""

    @property
    def place(self) -> str:
        """ " (app.py:7, in queue.Queue.get)"; "" if it is not known."""
        return f" ({self.site})" if self.site else ""

    @property
    def site(self) -> str | None:
        """ "app.py:7, in queue.Queue.get"."""
        return self.call_site and self.call_site + (f", in {self.primitive}" if self.primitive else "")

    @property
    def holder(self) -> str:
        """Who holds what it waits on: "Ledger.add"; "" if that is not known."""
        return self.primitive.partition(HELD_BY)[2]

    @property
    def holders(self) -> list[str]:
        """The methods of those."""
        return [name.rpartition(".")[2] for name in self.holder.split(", ") if name]

    @property
    def call(self) -> str | None:
        """ "Account.deposit"."""
        is_of_class = self.class_name and self.method and not self.method.startswith("(")
        return f"{self.class_name}.{self.method}" if is_of_class else self.method


class About:
    """What a few nodes are and what they wait for; made once for all nodes of a report."""

    def __init__(self, snapshot: Snapshot, waits: WaitGraph, nodes: Integers) -> None:
        self.snapshot = snapshot
        self.waits = waits
        self.is_to_break = "ended_by" in snapshot.coverage
        self.alternatives = _alternatives(waits, nodes)
        awaited = [on for choices in self.alternatives.values() for _, on in choices]
        known = np.unique(np.concatenate([nodes, *(np.array(on, np.int64) for on in awaited)]))
        self.nodes = _described(snapshot, waits, known, nodes)
        held = pa.array(list(snapshot.coverage.get("held_generators") or ()), pa.string())
        found = waits.calls.find(held)
        self.generators = set((found[found >= 0] + waits.first_call).tolist())
        """Calls that Ray holds at a `yield`, until an item is taken."""

    def record(self, node: int) -> dict[str, Any]:
        found = self.nodes[node]
        alternatives = self.alternatives.get(node, [])
        calls = self.calls(node)
        return {
            "machine": found.machine,
            "class": found.class_name,
            "method": found.method,
            "call_site": found.call_site,
            **({"call": found.call_id} if self.is_to_break and found.call_id else {}),
            **({"since": found.since.isoformat()} if self.is_to_break and found.since else {}),
            **_wait([(k, [self.nodes[other].machine for other in on]) for k, on in alternatives]),
            **({"waits_for_calls": list(dict.fromkeys(calls))[: LIMITS.listed]} if calls else {}),
            **({"waits_for_later_call": True} if callers_of(self, node) else {}),
            **({"waits_for_a_reader": True} if node in self.generators else {}),
            **({"needs": why} if (why := self.room(node)) else {}),
            **({"primitive": found.primitive} if found.primitive else {}),
            **({"held_by": found.holder} if found.holder else {}),
        }

    def room(self, node: int) -> str:
        """What a call that has not begun needs on a node, and who holds it; "" if that is not what it waits for."""
        lack = self.waits.lacks.get(also_waits_on(self.waits, node))
        return "" if lack is None else lack.why()

    def calls(self, node: int) -> list[str]:
        """The calls that a node waits for, as `Class.method`."""
        if not self.waits.calls.call_count:
            return []
        on = [other for _, choice in self.alternatives.get(node, []) for other in choice]
        return [call for other in on if self.nodes[other].is_call and (call := self.nodes[other].call)]


def _described(snapshot: Snapshot, waits: WaitGraph, known: Integers, nodes: Integers) -> dict[int, Node]:
    shown = map(machine_of, waits.names.take(known).to_pylist())
    names = dict(zip(known.tolist(), shown, strict=True))
    classes = _classes(snapshot, waits, known)
    primitives = primitives_of(snapshot)
    found = {node: Node(names[node], classes.get(node)) for node in known.tolist() if node < waits.first_call}
    machines = [node for node in nodes.tolist() if node < waits.first_call]
    methods = _calls(snapshot, [names[node] for node in machines]) if machines else {}
    for node in machines:
        method, call_site = methods.get(names[node], (None, None))
        primitive = primitives.get(names[node], "")
        found[node] = Node(names[node], classes.get(node), method, call_site, primitive=primitive)
    for table, is_running, calls in _call_rows(waits, known):
        since = "started_at" if is_running else "sent_at"
        columns = ["method", "call_id", since, *(["call_site"] if is_running else [])]
        rows = snapshot.tables[table].select(columns).take(waits.calls.row[calls - waits.first_call]).to_pylist()
        for node, row in zip(calls.tolist(), rows, strict=True):
            row |= {"since": row.pop(since), "primitive": primitives.get(row["call_id"], "")}
            found[node] = Node(names[node], classes.get(node), **row, is_call=True, is_running=is_running)
    return found


def primitives_of(snapshot: Snapshot) -> Mapping[str, str]:
    """By call (by machine, of a wait of no call), as the watcher has listed them in the coverage."""
    found = snapshot.coverage.get("primitives")
    return {name: str(text) for name, text in found.items()} if isinstance(found, Mapping) else {}


def machine_of(name: str) -> str:
    """The machine of a call of which only the id is known (it has ended, or not begun); any other name as it is."""
    parts = name.split("/")
    return parts[2] if len(parts) == 4 else name


def _classes(snapshot: Snapshot, waits: WaitGraph, nodes: Integers) -> dict[int, str]:
    """The class of each node's machine; nothing for machines that were not recorded."""
    machine = np.where(nodes < waits.recorded_count, nodes, -1)
    is_call = nodes >= waits.first_call
    machine[is_call] = waits.calls.machine[nodes[is_call] - waits.first_call]
    names = texts(snapshot.tables["machines"]["class_name"]).take(machine[machine >= 0]).to_pylist()
    return dict(zip(nodes[machine >= 0].tolist(), names, strict=True))


def _call_rows(waits: WaitGraph, nodes: Integers) -> Iterable[tuple[str, bool, Integers]]:
    """(table, whether they run, nodes) of those of `nodes` that are calls, by the table that has their rows."""
    begun = waits.first_call + waits.calls.running_count
    end = waits.first_call + waits.calls.call_count
    yield "calls", True, nodes[(nodes >= waits.first_call) & (nodes < begun)]
    yield "messages", False, nodes[(nodes >= begun) & (nodes < end)]


def _calls(snapshot: Snapshot, machines: list[str]) -> dict[str, tuple[str | None, str | None]]:
    """Method and call site of a call that each of `machines` is in; preferably one that holds a slot."""
    calls = snapshot.tables["calls"]
    mine = calls.filter(pa.array(is_any_of(calls["machine"], *machines)))
    found: dict[str, tuple[str | None, str | None]] = {}
    for row in sorted(mine.to_pylist(), key=lambda row: not row["holds_slot"]):
        found.setdefault(row["machine"], (row["method"], row["call_site"]))
    return found


def _alternatives(waits: WaitGraph, nodes: Integers) -> Alternatives:
    """(k, nodes) of each alternative of each of `nodes`: how many of which it waits for yet; without the slot that a call
    needs beside them."""
    graph = waits.graph
    asked = np.zeros(graph.node_count, np.bool_)
    asked[nodes] = True
    mine = asked[graph.owner]
    edges = np.flatnonzero(mine[graph.alternative])
    on: dict[int, list[int]] = {}
    there: dict[int, int] = {}
    columns = (graph.alternative, graph.target, graph.satisfied)
    for alternative, target, satisfied in zip(*(column[edges].tolist() for column in columns), strict=True):
        there[alternative] = there.get(alternative, 0) + satisfied
        on.setdefault(alternative, []).extend([] if satisfied else [target])
    found: Alternatives = {}
    for alternative in np.flatnonzero(mine).tolist():
        node, k = int(graph.owner[alternative]), int(graph.k[alternative]) - there[alternative]
        beside = also_waits_on(waits, node)
        rest = [other for other in on[alternative] if other != beside]
        if beside >= waits.first_room:
            rest = rest or graph.target[graph.owner[graph.alternative] == beside].tolist()
            found.setdefault(node, []).append((len(rest), rest))
            continue
        if not rest and beside < first_gate(waits):
            rest = on[alternative]  # nothing but the event loop
        if rest:
            found.setdefault(node, []).append((k - (len(on[alternative]) - len(rest)), rest))
    return {node: _without_errors(waits, choices) for node, choices in found.items()}


def _without_errors(waits: WaitGraph, choices: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """`choices` without those that stand for "the first error of a list ends the wait": fewer of the same calls."""
    if len(choices) == 1:
        return choices
    most = max(choices, key=lambda choice: choice[0])
    different = [
        one for at, one in enumerate(choices) if one not in choices[:at]
    ]  # replies that are there made them alike
    return [one for one in different if one[0] == most[0] or not _is_within(waits, one[1], most[1])]


def _is_within(waits: WaitGraph, on: list[int], others: list[int]) -> bool:
    calls = {node for node in on if node >= waits.first_call}
    return bool(calls) and calls <= set(others)


def also_waits_on(waits: WaitGraph, node: int) -> int:
    """The node that a call needs beside what it waits for; -1: none."""
    call = node - waits.first_call
    also = int(waits.calls.also[call]) if 0 <= call < waits.calls.call_count else -1
    return also + waits.first_call if also >= 0 else -1


def _wait(alternatives: list[tuple[int, list[str]]]) -> dict[str, Any]:
    if len(alternatives) == 1:
        ((k, on),) = alternatives
        mode = "all" if k == len(on) else "any" if k == 1 else "k_of_n"
        return {**_bounded(list(dict.fromkeys(on))), "mode": mode, **({"k": k} if mode == "k_of_n" else {})}
    everybody = list(dict.fromkeys(name for _, on in alternatives for name in on))
    choices = [{"k": k, "of": on[: LIMITS.listed]} for k, on in alternatives[: LIMITS.listed] if len(on) > 1]
    return {**_bounded(everybody), "mode": "any", **({"alternatives": choices} if choices else {})}


def _bounded(names: Sequence[str]) -> dict[str, Any]:
    count = {"waits_for_count": len(names)} if len(names) > LIMITS.listed else {}
    return {"waits_for": list(names[: LIMITS.listed]), **count}


# ---- the cycle ------------------------------------------------------------------------------------------------------


def cycle_text(snapshot: Snapshot, waits: WaitGraph, cycle: Sequence[int], members: Integers) -> str:
    """ "a (Account.transfer at bank.py:12) waits for b, b waits for a" of a cycle, or of the first of `members`.

    Of calls: "A-0 in A.both (app.py:7) waits for A.ask of A-1, which waits for a free slot of A-1; A-1 in ...".
    """
    hops, count = _hops(waits, cycle)
    about = About(snapshot, waits, np.array([node for hop in hops for node in hop] if hops else members, np.int64))
    if not hops:
        node = int(members[0])
        return subject_text(about.nodes[node]) + " waits for " + awaited_text(about, node) + _why_never(about, node)
    following = [*hops[1:], hops[0]]
    parts = [_hop(about, hop, after[0]) for hop, after in zip(hops, following, strict=True)][: LIMITS.cycle_hops]
    joint = "; " if any(about.nodes[hop[0]].is_call for hop in hops) else ", "
    return joint.join(parts) + (f", and so on round a cycle of {count:,}" if count > LIMITS.cycle_hops else "")


def _hops(waits: WaitGraph, cycle: Sequence[int]) -> tuple[list[list[int]], int]:
    """The cycle cut in front of each node that waits (behind it what leads on to the next one), as far as it is
    shown; and how many such parts there are."""
    nodes = np.array(cycle, np.int64)
    starts = np.flatnonzero((waits.blocked | waits.resting)[nodes])
    if not len(starts):
        return [], 0
    turned = np.roll(nodes, -starts[0])
    cuts = (starts - starts[0])[1 : LIMITS.cycle_hops + 2]
    return [part.tolist() for part in np.split(turned, cuts)[: LIMITS.cycle_hops + 1]], len(starts)


def subject_text(node: Node) -> str:
    if not node.is_call:
        place = " at ".join(text for text in (node.call if node.method else None, node.site) if text)
        return node.machine + (f" ({place})" if place else "")
    if not node.is_running:
        return f"{object_text(node)}, not begun,"
    return f"{node.machine} in {node.call}{node.place}"


def object_text(node: Node) -> str:
    is_of_a_task = node.machine.endswith("()")  # which has no name before it begins
    return f"{node.call} of {node.machine}" if node.is_call and not is_of_a_task else node.machine


def _hop(about: About, hop: list[int], after: int) -> str:
    """From one that waits to the next one: "A-1 in A.ask waits for A.answer of A-0, which waits for a free slot"."""
    node, between = hop[0], hop[1:]
    gate = next((one for one in between if one >= first_gate(about.waits)), None)
    text = f"{subject_text(about.nodes[node])} waits for "
    if gate is not None and gate == between[0]:
        return text + _slot(about, gate)
    text += awaited_text(about, node, between[0] if between else after)
    return text if gate is None else f"{text}, which waits for {_slot(about, gate)}"


def first_gate(waits: WaitGraph) -> int:
    return waits.first_call + waits.calls.call_count


def _slot(about: About, gate: int) -> str:
    """What a gate stands for: "a free slot of A-0"."""
    if gate >= about.waits.first_room:
        return about.waits.lacks[gate].why() if gate in about.waits.lacks else "room on a node"
    gates, number, name = about.waits.calls.gates, gate - first_gate(about.waits), about.waits.names[gate].as_py()
    group = gates.group_names[gates.group[number]]
    if gates.exclusive[number] >= 0:
        return f"the {'constructor' if is_constructor(about, number) else 'event loop'} of {name}"
    return f"a free slot of {name}" if group is None else f"a free slot of group {group} of {name}"


def is_constructor(about: About, gate: int) -> bool:
    row = about.waits.calls.row[about.waits.calls.gates.exclusive[gate]]
    return bool(about.snapshot.tables["calls"]["method"][row].as_py() == "__init__")


def awaited_text(about: About, node: int, after: int | None = None) -> str:
    """What a node waits for, the one that the cycle goes on with first."""
    alternatives = about.alternatives.get(node, [])
    nodes = list(dict.fromkeys(other for _, on in alternatives for other in on))
    if after is not None:
        nodes = [after, *(other for other in nodes if other != after)]
    on = list(dict.fromkeys(object_text(about.nodes[other]) for other in nodes))
    if why := about.room(node):
        return why
    record = about.record(node)
    if node in about.generators:
        return f"{listed(on, most=1)} to take an item"
    if holder := about.nodes[node].holder:
        return f"{holder} to give it back"
    if callers := callers_of(about, node):
        return waker(name for name in callers if name != about.nodes[node].machine)
    if len(on) == 1 and record["mode"] != "k_of_n":
        return on[0]
    if record["mode"] == "all":
        return listed(on) if after is None else on[0]
    if "alternatives" in record:
        return f"any of several combinations of {listed(on)}"
    return f"{record['k'] if record['mode'] == 'k_of_n' else 'any'} of {listed(on)}"


def callers_of(about: About, node: int) -> list[str]:
    """Of a call that waits inside its own actor (on an event, a lock): machines that might call it; else nothing."""
    mine = about.nodes[node]
    if not mine.is_call:
        return []
    on = [about.nodes[other] for _, choice in about.alternatives.get(node, []) for other in choice]
    names = list(dict.fromkeys(other.machine for other in on if not other.is_call))
    if mine.machine not in names:
        return []
    return [name for name in names if name != mine.machine] or [mine.machine]


def _why_never(about: About, node: int) -> str:
    """Why what a machine outside of every cycle waits for cannot come."""
    if about.room(node):
        return ""
    waits = about.waits
    nodes = [other for _, on in about.alternatives.get(node, []) for other in on]
    for flags, reason in ((waits.stopped, "stopped"), (waits.passive, "passive, and nothing is left to wake")):
        who = list(dict.fromkeys(about.nodes[other].machine for other in nodes if flags[other]))
        if who:
            verb, pronoun = ("is", " it") if len(who) == 1 else ("are", " them")
            return f" ({listed(who)} {verb} {reason}{pronoun if 'wake' in reason else ''})"
    return ", and so many can never come"
