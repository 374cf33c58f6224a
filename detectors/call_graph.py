"""The calls of a snapshot as nodes of the wait-for graph: those that run, those that have not begun, and the gates
and rooms that these need.

A call that has not begun needs a slot of its actor. Any running call that holds a slot may give it back, so a gate (one
for each machine and concurrency group that has such calls) waits for any one of the holders; a call waits for its gate.
While a constructor runs, or a call blocks the event loop of its actor, the gate waits for that call alone. What a call
will wait for once it has its slot is not known yet: so a call that can begin counts as one that can also end.

A plain task or a constructor that has waited for a node for long needs room there: each demand is one node more (`rooms`).

Call ids are `SOURCE/INCARNATION/TARGET/NUMBER`; other ids (`HOST/NUMBER`) belong to machines that take one action
at a time, of which the machine itself is the node. Nothing here imports Ray or Spark. Read `wait_graph` next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import Booleans, Integers, integers, is_any_of, positions, texts
from ray_snapshot.detectors.room_rows import Told, demand_of_rows, told
from ray_snapshot.name_index import NameIndex
from ray_snapshot.snapshot import Snapshot

_UNBOUNDED = 2**62
_CONSTRUCTOR = "__init__"


@dataclass(frozen=True, slots=True)
class Gates:
    """Where calls wait for a slot: the key of each is (machine, group)."""

    machine: Integers
    group: Integers
    """Index into `group_names`; 0: the group that has no name."""
    group_names: list[str | None]
    held: Integers
    """How many running calls hold a slot."""
    exclusive: Integers
    """The call without whose end no other can begin (a constructor, a blocked event loop); -1: none."""
    is_open: Booleans
    source: Integers
    """With `target`: which gate waits for which running call; any one of them is enough."""
    target: Integers


@dataclass(frozen=True, slots=True)
class CallNodes:
    """Running calls, then those that have not begun, then gates, then rooms; all numbers in here count from 0 over these."""

    ids: Any
    """Arrow array: the id of each call, each once (`#2` of a retried run is cut off)."""
    running_count: int
    row: Integers
    """Of each call: its row in `calls`, or in `messages` if it has not begun."""
    machine: Integers
    """The recorded machine of each node; -1: not recorded."""
    machine_names: Any
    """Arrow array: the name of that machine."""
    also: Integers
    """What each call needs before anything else: a gate, a room, or the call that blocks its event loop; -1: nothing."""
    unhindered: Booleans
    """Nodes that move by themselves: open gates, and calls to machines that have stopped (these are refused) or are
    not recorded (these are not born yet)."""
    gates: Gates
    told: Told
    """What rooms stand for, and who holds what."""
    full: Integers
    """The recorded machines at which no call can begin before one ends that holds a slot."""

    @property
    def first_room(self) -> int:
        return self.call_count + len(self.gates.machine)

    @property
    def call_count(self) -> int:
        return len(self.ids)

    @property
    def node_count(self) -> int:
        return len(self.machine)

    def find(self, call_ids: Any) -> Integers:
        """The node of each of `call_ids`; -1 for those that neither run nor wait to begin."""
        return positions(without_run(call_ids), self.ids)


def is_call_id(call_ids: Any) -> Booleans:
    """Which of `call_ids` have the form `SOURCE/INCARNATION/TARGET/NUMBER`."""
    if len(call_ids) == call_ids.null_count:
        return np.zeros(len(call_ids), np.bool_)
    found: Booleans = pc.fill_null(pc.equal(pc.count_substring(call_ids, "/"), 3), False).to_numpy(zero_copy_only=False)
    return found


def without_run(call_ids: Any) -> Any:
    """`call_ids` without the `#2` of a run that is a retry: a wait for the call is a wait for any of its runs."""
    if len(call_ids) == call_ids.null_count or not pc.any(pc.match_substring(call_ids, "#")).as_py():
        return call_ids
    return pc.replace_substring_regex(call_ids, "#.*$", "")


def call_nodes(snapshot: Snapshot, recorded: NameIndex) -> CallNodes:
    """The nodes of a snapshot whose machines are `recorded`. O(calls + messages), and a sort of the gates."""
    rows = _Rows(snapshot, recorded)
    run_ids, run_of, first_run = _distinct(without_run(texts(rows.running["call_id"])))
    queued_ids, _, first_queued = _distinct(texts(rows.queued["call_id"]))
    ids = pa.concat_arrays([run_ids, queued_ids])
    loops = _blocked_loops(snapshot, recorded, ids)
    gate_of, gates = _gates(snapshot, rows, run_of, _exclusive(rows, run_ids.take(run_of), run_of, loops))
    gate = gate_of[first_queued]
    found = told(snapshot)
    room, rooms = demand_of_rows(found, rows.queued)[first_queued], len(found.demands)
    queued = np.where(gate >= 0, gate + len(ids), np.where(room >= 0, room + len(ids) + len(gates.machine), -1))
    loop = loops[rows.run[first_run]]
    loop[loop == np.arange(len(loop))] = -1
    names = [texts(rows.running["machine"]).take(first_run), texts(rows.queued["target"]).take(first_queued)]
    return CallNodes(
        ids=ids,
        running_count=len(run_ids),
        row=np.concatenate([rows.run_row[first_run], rows.wait_row[first_queued]]),
        machine=np.concatenate([rows.run[first_run], rows.wait[first_queued], gates.machine, np.full(rooms, -1)]),
        machine_names=pa.concat_arrays(
            [*names, recorded.names.take(gates.machine), pa.array(["room"] * rooms, pa.string())]
        ),
        also=np.concatenate([loop, queued]),
        unhindered=np.concatenate(
            [np.zeros(len(loop), np.bool_), queued < 0, gates.is_open, np.zeros(rooms, np.bool_)]
        ),
        gates=gates,
        told=found,
        full=_full(snapshot, rows),
    )


def _full(snapshot: Snapshot, rows: _Rows) -> Integers:
    """The recorded machines at which no call can begin before one ends that holds a slot."""
    machines, grouped = snapshot.tables["machines"], snapshot.coverage.get("groups") or {}
    held = np.bincount(rows.run[rows.holds_slot & (rows.run >= 0)], minlength=machines.num_rows)
    is_full = (held > 0) & (held >= integers(machines["max_concurrency"], _UNBOUNDED))
    return np.flatnonzero(is_full & ~is_any_of(machines["machine"], *grouped))


def _distinct(values: Any) -> tuple[Any, Integers, Integers]:
    """Each of `values` once; which of them each row has; and the first row of each."""
    encoded = values.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    first = np.zeros(len(encoded.dictionary), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return encoded.dictionary, codes, first


class _Rows:
    """The rows of calls that run and of calls that have not begun: on which recorded machine, in which group."""

    def __init__(self, snapshot: Snapshot, recorded: NameIndex) -> None:
        calls, messages = snapshot.tables["calls"], snapshot.tables["messages"]
        self.run_row = np.flatnonzero(is_call_id(texts(calls["call_id"])))
        is_call = is_any_of(messages["kind"], "call") & is_call_id(texts(messages["call_id"]))
        self.wait_row = np.flatnonzero(is_call)
        columns = ["machine", "call_id", "method", "concurrency_group", "holds_slot"]
        self.running = running = calls.select(columns).take(self.run_row)
        columns = ["source", "target", "number", "call_id", "concurrency_group"]
        self.queued = queued = messages.select(columns).take(self.wait_row)
        self.run = recorded.positions(texts(running["machine"]))
        self.wait = recorded.positions(texts(queued["target"]))
        self.holds_slot: Booleans = pc.fill_null(running["holds_slot"], True).to_numpy()
        groups = pa.concat_arrays([texts(running["concurrency_group"]), texts(queued["concurrency_group"])])
        names = groups.drop_null().unique()
        codes = positions(groups, names) + 1
        self.group_names: list[str | None] = [None, *names.to_pylist()]
        self.run_group, self.wait_group = codes[: len(self.run)], codes[len(self.run) :]

    def key(self, machine: Integers, group: Integers) -> Integers:
        """One number for (machine, group)."""
        return machine * len(self.group_names) + group


def _exclusive(rows: _Rows, run_ids: Any, run_of: Integers, loops: Integers) -> Integers:
    """Per machine the running call without whose end no other call can begin (a constructor's number is 0); -1: none."""
    numbered: Booleans = pc.ends_with(run_ids, "/0").to_numpy(zero_copy_only=False)
    starts = np.flatnonzero((numbered | is_any_of(rows.running["method"], _CONSTRUCTOR)) & (rows.run >= 0))
    found = loops.copy()
    found[rows.run[starts]] = run_of[starts]
    return found


def _blocked_loops(snapshot: Snapshot, recorded: NameIndex, ids: Any) -> Integers:
    """Per machine the call that blocks its event loop, by the coverage; -1: none. The last item, always -1, is for
    calls whose machine is not recorded."""
    loops = snapshot.coverage.get("blocked_loops") or {}
    machine = recorded.positions(pa.array(list(loops), pa.string()))
    call = positions(without_run(pa.array(list(loops.values()), pa.string())), ids)
    found = np.full(len(recorded.names) + 1, -1, np.int64)
    found[machine[machine >= 0]] = call[machine >= 0]
    return found


def _gates(snapshot: Snapshot, rows: _Rows, call: Integers, exclusive: Integers) -> tuple[Integers, Gates]:
    """The gate of each row of calls that have not begun (-1: its machine is gone), and the gates."""
    stopped = snapshot.statuses.are("stopped")
    live = np.flatnonzero((rows.wait >= 0) & ~np.append(stopped, True)[rows.wait])
    keys, inverse = np.unique(rows.key(rows.wait[live], rows.wait_group[live]), return_inverse=True)
    gate_of = np.full(len(rows.wait), -1, np.int64)
    gate_of[live] = inverse
    machine, group = keys // len(rows.group_names), keys % len(rows.group_names)
    holder, at = _holders(rows, keys)
    held = np.bincount(at, minlength=len(keys))
    alone = exclusive[machine]
    is_full = (held > 0) & (held >= _bounds(snapshot, rows, machine, group))
    among = is_full[at] & (alone[at] < 0)
    only = np.flatnonzero(alone >= 0)
    return gate_of, Gates(
        machine=machine,
        group=group,
        group_names=rows.group_names,
        held=held,
        exclusive=alone,
        is_open=~is_full & (alone < 0),
        source=np.concatenate([at[among], only]),
        target=np.concatenate([call[holder[among]], alone[only]]),
    )


def _holders(rows: _Rows, keys: Integers) -> tuple[Integers, Integers]:
    """The rows of running calls that hold a slot behind one of the gates `keys`, and which gate it is."""
    holder = np.flatnonzero(rows.holds_slot & (rows.run >= 0))
    key = rows.key(rows.run[holder], rows.run_group[holder])
    at = np.searchsorted(keys, key)
    known = np.append(keys, -1)[at] == key
    return holder[known], at[known]


def _bounds(snapshot: Snapshot, rows: _Rows, machine: Integers, group: Integers) -> Integers:
    """How many calls each gate lets run at a time; a group whose bound was not recorded counts as unbounded."""
    found = integers(snapshot.tables["machines"]["max_concurrency"], _UNBOUNDED)[machine]
    told = snapshot.coverage.get("groups") or {}
    named = np.flatnonzero(group > 0)
    names = texts(snapshot.tables["machines"]["machine"]).take(machine[named]).to_pylist()
    for gate, name in zip(named.tolist(), names, strict=True):
        found[gate] = (told.get(name) or {}).get(rows.group_names[group[gate]], _UNBOUNDED)
    return found
