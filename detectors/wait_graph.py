"""From the tables of a snapshot to integers: the nodes, which can move for sure, and which waits for which.

Nodes are the recorded machines (by row), then every name (of a machine or a call) that is waited for but not
recorded, then one for all waits whose row gives no name, then the calls and gates of `call_graph`. A row of `waits`
leads to the call it names, else to its machine; a machine that runs calls moves as soon as one of them does, or as
one that has not begun. `reduction` decides on these; `deadlock` turns its answer back into names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.call_graph import CallNodes, call_nodes, is_call_id
from ray_snapshot.detectors.common import Booleans, Integers, distinct, integers, is_any_of, positions, reaching, texts
from ray_snapshot.detectors.reduction import Graph, free, movable
from ray_snapshot.detectors.room_words import Lack
from ray_snapshot.detectors.rooms import Rooms, placed
from ray_snapshot.limits import LIMITS
from ray_snapshot.name_index import NameIndex
from ray_snapshot.names import NOT_RECORDED
from ray_snapshot.snapshot import Snapshot

_ALL = -1
"""A k that was not recorded: every row of the alternative is needed."""

_NOBODY = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """The waits of one snapshot, over nodes."""

    names: Any
    """Arrow array: the name of each node; of a call or a gate, that of its machine."""
    graph: Graph
    blocked: Booleans
    """Machines and calls that wait."""
    undeclared: Booleans
    """Of these, passive machines that hold a part of a join and have no declared senders of the rest; also in
    `outside`."""
    inner: Booleans
    """Nodes that only pass on what others do: calls that have not begun, gates, machines by the calls they run."""
    stopped: Booleans
    passive: Booleans
    """Machines that wait for any message, from any sender."""
    resting: Booleans
    """Passive machines whose senders are known, by rows of `waits`: they are at rest, not stuck."""
    seeds: Booleans
    """Nodes that move by themselves, without help of another node."""
    outside: Booleans
    """What may move, for all that the snapshot knows."""
    unseen: list[Any]
    """Why `outside` is more than `seeds`, for a person."""
    calls: CallNodes
    first_call: int
    """The number that node 0 of `calls` has here."""
    recorded_count: int
    """Nodes with smaller numbers are recorded machines."""
    rooms: Rooms
    """What calls need on a node; `calls.first_room` nodes behind `first_call`."""
    lacks: Mapping[int, Lack]
    """Per room that there will never be, as far as that was asked: what is missing."""

    @property
    def first_room(self) -> int:
        return self.first_call + self.calls.first_room

    def acts(self, seeds: Booleans) -> bool:
        """Whether anything at all moves if `seeds` do. A free slot is nothing that moves, nor is room that nothing takes."""
        acting = slice(self.first_call + self.calls.call_count)
        if seeds[acting].any() or free(self.graph)[acting].any():
            return True
        return bool(seeds.any() and movable(self.graph, seeds)[acting].any())


@dataclass(frozen=True, slots=True)
class _Nodes:
    """`names` are looked up (machines, strangers, the unnamed); calls and gates follow."""

    names: Any
    recorded: NameIndex
    calls: CallNodes
    awaited: Integers
    """Per row of `waits`: the call that it names, as `calls` counts; -1: none, or an unknown one."""
    on_recorded: Integers
    """Per row of `waits`: the recorded machine that it names as the one waited for; -1: none, or a stranger."""
    unborn: Any
    """Arrow array: the names of machines whose creation is in flight."""

    @property
    def recorded_count(self) -> int:
        return len(self.recorded.names)

    @property
    def first_call(self) -> int:
        return len(self.names)

    @property
    def unnamed(self) -> int:
        return len(self.names) - 1

    @property
    def count(self) -> int:
        return self.first_call + self.calls.node_count

    def named(self, values: Any) -> Integers:
        """Where in `names` each of an Arrow array of texts stands; -1: nowhere."""
        return self._among_others(values, self.recorded.positions(values))

    def named_in_runs(self, values: Any) -> Integers:
        """`named` of a column in which equal values mostly stand together."""
        return self._among_others(values, self.recorded.positions_of_runs(values))

    def _among_others(self, values: Any, found: Integers) -> Integers:
        lost = np.flatnonzero(found < 0)
        if len(lost):
            others = positions(values.take(pa.array(lost)), self.names[self.recorded_count :])
            found[lost] = np.where(others < 0, -1, others + self.recorded_count)
        return found

    def called(self, call_ids: Any) -> Integers:
        """The nodes of calls; -1 for those that neither run nor wait to begin."""
        found = self.calls.find(call_ids) if self.calls.call_count else np.full(len(call_ids), -1, np.int64)
        return np.where(found >= 0, found + self.first_call, -1)

    def flags(self, nodes: Integers) -> Booleans:
        """True for `nodes`."""
        found = np.zeros(self.count, np.bool_)
        found[nodes] = True
        return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of waits, already as nodes: `group` is equal for rows of one alternative."""

    owner: Integers
    group: Integers
    k: Integers
    on: Integers
    satisfied: Booleans
    timed: Booleans


def wait_graph(snapshot: Snapshot) -> WaitGraph:
    """Read machines, calls, waits and messages into one graph. O(V + E), and a sort of the rows of waits."""
    nodes = _nodes(snapshot)
    status = {word: _status(snapshot, word, nodes.count) for word in ("blocked", "stopped", "passive")}
    running = nodes.first_call + np.arange(nodes.calls.running_count)
    busy = nodes.flags(_recorded(nodes.calls.machine[: len(running)]))
    rows = _rows(snapshot, nodes, status, busy)
    own, held_up = nodes.flags(rows.owner), _also(nodes) >= 0
    silent = _silent(nodes, status["blocked"], own)
    by_calls = _by_calls(nodes, rows)
    graph = _graph(nodes.count, _joined(_hindered(nodes, rows), by_calls))
    undeclared = nodes.flags(_undeclared(snapshot, nodes)) & status["passive"]
    resting = own & status["passive"]
    blocked = (own & ~resting) | silent | (status["blocked"] & ~busy)
    blocked[running] |= held_up[running]
    blocked[np.flatnonzero(nodes.calls.also >= nodes.calls.first_room) + nodes.first_call] = True
    seeds, expected = _seeds(snapshot, nodes, rows, status, undeclared | _inside(snapshot, nodes))
    unborn = nodes.flags(nodes.named(nodes.unborn))
    seeds |= _unhindered(nodes, rows, blocked) | unborn
    outside, why = _outside(snapshot, nodes, blocked & ~own & ~held_up & ~silent, silent, graph, unborn)
    unseen = reaching(snapshot)
    outside |= nodes.flags(_suspects(nodes, unseen))
    if unseen:  # what was not observed may call a machine, though not answer for it
        outside |= nodes.flags(by_calls.owner[by_calls.owner < nodes.recorded_count]) & ~nodes.flags(nodes.calls.full)
    unseen += [f"{name}, which is sent to but not recorded" for name in expected[: LIMITS.listed]]
    return WaitGraph(
        names=pa.concat_arrays([nodes.names, nodes.calls.machine_names]),
        graph=graph,
        blocked=blocked | undeclared,
        undeclared=undeclared,
        inner=((np.arange(nodes.count) >= nodes.first_call) | nodes.flags(by_calls.owner)) & ~blocked,
        stopped=status["stopped"],
        passive=status["passive"] & ~resting,
        resting=resting,
        seeds=seeds,
        outside=outside | undeclared,
        unseen=unseen + why,
        calls=nodes.calls,
        first_call=nodes.first_call,
        recorded_count=nodes.recorded_count,
        rooms=placed(snapshot, nodes.calls.told, nodes.names[: nodes.recorded_count], nodes.calls, nodes.first_call),
        lacks={},
    )


def _nodes(snapshot: Snapshot) -> _Nodes:
    recorded = snapshot.recorded_names
    calls = call_nodes(snapshot, recorded)
    waits = snapshot.tables["waits"]
    awaited = calls.find(texts(waits["on_call_id"]))
    on_recorded = recorded.positions(texts(waits["on_machine"]))
    unborn = _unborn(snapshot, recorded)
    names = _node_names(snapshot, recorded, awaited, on_recorded, unborn)
    return _Nodes(names, recorded, calls, awaited, on_recorded, unborn)


def _recorded(machines: Integers) -> Integers:
    return machines[machines >= 0]


def _also(nodes: _Nodes) -> Integers:
    """What each node needs beside what it waits for; -1: nothing."""
    found = np.full(nodes.count, -1, np.int64)
    also = nodes.calls.also
    found[nodes.first_call : nodes.first_call + len(also)] = np.where(also >= 0, also + nodes.first_call, -1)
    return found


def _unhindered(nodes: _Nodes, rows: _Rows, blocked: Booleans) -> Booleans:
    """What moves by itself: calls that wait for nothing, waits with a time-out, open gates, constructors in flight."""
    found = nodes.flags(rows.owner[rows.timed]) & (_also(nodes) < 0)
    running = slice(nodes.first_call, nodes.first_call + nodes.calls.running_count)
    found[running] |= ~blocked[running]
    if nodes.calls.node_count:
        unborn = (nodes.calls.machine < 0) & nodes.flags(rows.owner)[nodes.first_call :]  # these wait for arguments
        found[nodes.first_call :] |= nodes.calls.unhindered & ~unborn
    return found


def _status(snapshot: Snapshot, word: str, node_count: int) -> Booleans:
    found = snapshot.statuses.are(word)
    return np.concatenate([found, np.zeros(node_count - len(found), np.bool_)])


def _node_names(snapshot: Snapshot, recorded: NameIndex, awaited: Integers, on_recorded: Integers, unborn: Any) -> Any:
    """Recorded machines, then the other names waited for (calls by their id) and those about to be born, then the node of waits
    without a name."""
    waits = snapshot.tables["waits"]
    on_machine, on_call = texts(waits["on_machine"]), texts(waits["on_call_id"])
    by_call = is_call_id(on_call)
    short = _short_names(snapshot.tables["machines"]["waits_for"])
    unknown = [
        on_machine.filter(pa.array(~by_call & (on_recorded < 0))),
        short.filter(pa.array(recorded.positions(short) < 0)),
        on_call.filter(pa.array(by_call & (awaited < 0))),
        unborn,
    ]
    strangers = pa.concat_arrays(unknown).drop_null().unique()
    return pa.concat_arrays([recorded.names, strangers, pa.array([NOT_RECORDED])])


def _unborn(snapshot: Snapshot, recorded: NameIndex) -> Any:
    """The names of machines whose creation is in flight: they move by themselves, for their constructors will run."""
    messages = snapshot.tables["messages"]
    names = texts(
        messages["target"].filter(pc.and_(pc.equal(messages["number"], 0), pc.equal(messages["kind"], "mail")))
    )
    return names.filter(pa.array(recorded.positions(names) < 0))


def _short_names(lists: Any) -> Any:
    return texts(pc.list_flatten(lists))


def _rows(snapshot: Snapshot, nodes: _Nodes, status: dict[str, Booleans], busy: Booleans) -> _Rows:
    """What calls and machines wait for: their rows of `waits`; or, of blocked machines, the short form in `machines`."""
    long = _long_rows(snapshot, nodes, status["blocked"] | status["passive"])
    brief = status["blocked"] & ~busy & ~nodes.flags(long.owner)
    return _joined(long, _short_rows(snapshot, nodes, brief) if brief.any() else _plain(*[_NOBODY] * 4))


def _written(snapshot: Snapshot, nodes: _Nodes, on: Integers, machine: Integers) -> Booleans:
    """Where a message from `on` to `machine` is in flight."""
    messages = snapshot.tables["messages"]
    source, target = nodes.named(texts(messages["source"])), nodes.named(texts(messages["target"]))
    return np.isin(on * nodes.first_call + machine, distinct(source * nodes.first_call + target))


def _looked_up(column: Any, nodes: _Nodes, rows: Booleans) -> Integers:
    """The node of the name in each of `rows` of a column; -1 in all other rows."""
    found = np.full(len(rows), -1, np.int64)
    if rows.any():
        found[rows] = nodes.named(column.filter(pa.array(rows)))
    return found


def _joined(*parts: _Rows) -> _Rows:
    """All rows of `parts`; groups of different parts get different numbers."""
    parts = tuple(part for part in parts if len(part.owner)) or parts[:1]
    if len(parts) == 1:
        return parts[0]
    groups, above = [], 0
    for part in parts:
        groups.append(part.group + above)
        above += int(part.group.max(initial=-1)) + 1
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _Rows.__slots__ if name != "group"
    }
    return _Rows(group=np.concatenate(groups), **columns)


def _long_rows(snapshot: Snapshot, nodes: _Nodes, waiting: Booleans) -> _Rows:
    """A row belongs to the call that it names, if that runs or waits to begin, else to its machine, if that waits."""
    waits = snapshot.tables["waits"]
    owner, on = nodes.named_in_runs(texts(waits["machine"])), _targets(waits, nodes)
    keep = waiting[owner] & (owner >= 0)
    if nodes.calls.call_count:
        call = nodes.called(texts(waits["call_id"]))
        owner, keep = np.where(call >= 0, call, owner), keep | (call >= 0)
    if not keep.all():
        owner, on, waits = owner[keep], on[keep], waits.filter(pa.array(keep))
    group = _groups(owner, waits["call_id"], waits["alternative"])
    satisfied: Booleans = pc.fill_null(waits["satisfied"], False).to_numpy()
    if waits["satisfied"].null_count:
        untold = pc.is_null(waits["satisfied"]).to_numpy() & (np.maximum(owner, on) < nodes.first_call)
        satisfied = satisfied | (untold & _written(snapshot, nodes, on, owner))
    return _Rows(owner, group, integers(waits["k"], _ALL), on, satisfied, pc.is_valid(waits["timeout_at"]).to_numpy())


def _targets(waits: Any, nodes: _Nodes) -> Integers:
    """The node that each row waits for: a call; a call that is unknown; a machine; or the one without a name."""
    on_call = texts(waits["on_call_id"])
    by_call, known = is_call_id(on_call), nodes.awaited >= 0
    on = nodes.on_recorded
    if by_call.any() or known.any():
        on = np.where(by_call, -1, on)
        on = np.maximum(on, np.where(known, nodes.awaited + nodes.first_call, -1))
        on = np.maximum(on, _looked_up(on_call, nodes, by_call & ~known))
    lost = on < 0
    if not lost.any():
        return on
    on = np.maximum(on, _looked_up(texts(waits["on_machine"]), nodes, ~by_call & lost))
    return np.where(on < 0, nodes.unnamed, on)


def _groups(owner: Integers, call_id: Any, alternative: Any) -> Integers:
    """A number for each (owner, call_id, alternative)."""
    groups = owner
    for column in (call_id, alternative):
        if column.null_count < len(column):
            codes = _codes(column)
            groups = groups * (int(codes.max(initial=0)) + 1) + codes
    return groups


def _codes(column: Any) -> Integers:
    """A number for each value of a column, of which the greatest is small."""
    column = pa.array(integers(column, 0)) if pa.types.is_integer(column.type) else texts(column)
    if not len(column) or (pa.types.is_integer(column.type) and pc.min_max(column).as_py() == {"min": 0, "max": 0}):
        return np.zeros(len(column), np.int64)
    found: Integers = pc.dictionary_encode(column, null_encoding="encode").indices.to_numpy().astype(np.int64)
    return found


def _short_rows(snapshot: Snapshot, nodes: _Nodes, brief: Booleans) -> _Rows:
    """The rows that `wait_mode`, `wait_k` and `waits_for` stand for; none where they do not say enough."""
    machines = snapshot.tables["machines"]
    size = integers(pc.list_value_length(machines["waits_for"]), 0)
    mode = {word: is_any_of(machines["wait_mode"], word) for word in ("all", "any", "k_of_n")}
    k = np.select(list(mode.values()), [size, np.ones_like(size), integers(machines["wait_k"], -1)], -1)
    usable = brief[: len(size)] & (size > 0) & (k >= 0)
    machine = np.repeat(np.arange(len(size)), np.where(usable, size, 0))
    on = nodes.named(_short_names(machines["waits_for"]))[np.repeat(usable, size)]
    on = np.where(on < 0, nodes.unnamed, on)
    satisfied = _written(snapshot, nodes, on, machine)
    return _Rows(machine, machine, k[machine], on, satisfied, np.zeros(len(machine), np.bool_))


def _hindered(nodes: _Nodes, rows: _Rows) -> _Rows:
    """`rows`, and what calls need beside what they wait for: a free slot, or a free event loop."""
    also = _also(nodes)
    if not (also >= 0).any():
        return rows
    needs = also[rows.owner] >= 0
    more = np.where(needs & (rows.k != _ALL), rows.k + 1, rows.k)
    _, first = np.unique(rows.group[needs], return_index=True)
    first = np.flatnonzero(needs)[first]
    beside = _plain(rows.owner[first], rows.group[first], more[first], also[rows.owner[first]])
    both = {name: np.concatenate([getattr(rows, name), getattr(beside, name)]) for name in _Rows.__slots__}
    both["k"] = np.concatenate([more, beside.k])
    untimed = nodes.flags(rows.owner) & ~nodes.flags(rows.owner[rows.timed])
    alone = np.flatnonzero((also >= 0) & ~untimed)
    return _joined(_Rows(**both), _plain(alone, alone, np.ones_like(alone), also[alone]))


def _by_calls(nodes: _Nodes, rows: _Rows) -> _Rows:
    """Rows of waits of machines that are waited for, for their calls; and of gates, for the calls that hold their
    slots."""
    calls, gates = nodes.calls, nodes.calls.gates
    call = np.arange(calls.call_count)
    machine = calls.machine[call]
    if len(call):
        call = call[nodes.flags(rows.on)[machine] & (machine >= 0)]
    owner = np.concatenate([machine[call], gates.source + calls.call_count + nodes.first_call])
    on = np.concatenate([call, gates.target]) + nodes.first_call
    return _plain(owner, owner, np.ones_like(owner), on)


def _plain(owner: Integers, group: Integers, k: Integers, on: Integers) -> _Rows:
    return _Rows(owner, group, k, on, np.zeros(len(owner), np.bool_), np.zeros(len(owner), np.bool_))


def _graph(node_count: int, rows: _Rows) -> Graph:
    first, alternative = _numbered(rows.group)
    size = np.bincount(alternative, minlength=len(first))
    return Graph(
        node_count,
        rows.owner[first],
        np.where(rows.k[first] == _ALL, size, rows.k[first]),
        alternative=alternative,
        target=rows.on,
        satisfied=rows.satisfied,
    )


def _numbered(groups: Integers) -> tuple[Integers, Integers]:
    """The first row of each group, and the number of each row's group; groups in ascending order."""
    if len(groups) and (groups[1:] >= groups[:-1]).all():
        starts = np.concatenate([[True], groups[1:] != groups[:-1]])
        return np.flatnonzero(starts), np.cumsum(starts) - 1
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    return first, number.astype(np.int64)


def _silent(nodes: _Nodes, blocked: Booleans, own: Booleans) -> Booleans:
    """Running calls of a blocked machine of which no wait was recorded: they wait for something of their own."""
    call = np.arange(nodes.calls.running_count)
    machine = nodes.calls.machine[call]
    call = call[(machine >= 0) & blocked[machine]] + nodes.first_call
    return nodes.flags(call[~own[call]])


def _undeclared(snapshot: Snapshot, nodes: _Nodes) -> Integers:
    told = pa.array(list(snapshot.coverage.get("undeclared") or ()), pa.string())
    return _recorded(nodes.named(told))


def _seeds(
    snapshot: Snapshot, nodes: _Nodes, rows: _Rows, status: dict[str, Booleans], deaf: Booleans
) -> tuple[Booleans, list[str]]:
    """Machines that move by themselves, and names of machines that are sent to but not recorded.

    Not those that are `deaf` to what comes: a machine with half a join in its mailbox does not move by that, nor one that is
    inside an action by a timer."""
    message, timer, expected = _woken(snapshot, nodes, rows)
    seeds = ~np.logical_or.reduce(list(status.values()))
    seeds[nodes.recorded_count :] = False
    seeds |= ~deaf & ((status["passive"] & message) | (~status["stopped"] & timer))
    return seeds, expected


def _woken(snapshot: Snapshot, nodes: _Nodes, rows: _Rows) -> tuple[Booleans, Booleans, list[str]]:
    """Which nodes have a message coming, which a pending timer; and the names that are sent to but not recorded.

    A timer that was due before the snapshot started is an ordinary message by now: it lies in the mailbox.
    """
    messages = _without_waiting(snapshot, nodes, rows)
    receiver = texts(messages["target"])
    target = nodes.named(receiver)
    started_at = pa.scalar(snapshot.started_at, messages["due_at"].type)
    pending = pc.fill_null(pc.greater_equal(messages["due_at"], started_at), True).to_numpy()
    strange = (target < 0) | (target >= nodes.recorded_count)
    timer = ~strange & pending & is_any_of(messages["kind"], "timer")
    unborn = nodes.flags(nodes.named(nodes.unborn))
    unknown = (target < 0) | (strange & ~unborn[target])
    expected = receiver.filter(pa.array(unknown)).unique().to_pylist()
    return nodes.flags(target[~strange]), nodes.flags(target[timer]), expected


def _inside(snapshot: Snapshot, nodes: _Nodes) -> Booleans:
    """The machines that are inside an action."""
    return nodes.flags(_recorded(nodes.named(texts(snapshot.tables["calls"]["machine"]))))


def _without_waiting(snapshot: Snapshot, nodes: _Nodes, rows: _Rows) -> Any:
    """The messages, but for calls that wait for room, or for their arguments: they wake nobody before they can begin."""
    calls, messages = nodes.calls, snapshot.tables["messages"]
    if calls.running_count == calls.call_count:
        return messages
    short = np.flatnonzero(calls.also >= calls.first_room)
    lacking = distinct(rows.owner[~rows.satisfied]) - nodes.first_call
    lacking = lacking[(lacking >= calls.running_count) & (lacking < calls.call_count)]
    waiting = np.concatenate([short, lacking])
    if not len(waiting):
        return messages
    keep = np.ones(messages.num_rows, np.bool_)
    keep[calls.row[waiting]] = False
    return messages.filter(pa.array(keep))


def _outside(
    snapshot: Snapshot, nodes: _Nodes, untold: Booleans, silent: Booleans, graph: Graph, unborn: Booleans
) -> tuple[Booleans, list[str]]:
    """Nodes of which the snapshot does not know enough: waited for but not recorded nor about to be born, or waiting without a
    row that says for what. And why, for a person. A reply that is there already hides nothing."""
    strange = (graph.target >= nodes.recorded_count) & (graph.target < nodes.first_call) & ~graph.satisfied
    strangers = distinct(graph.target[strange])
    strangers = strangers[~unborn[strangers]]
    names = nodes.names.take(strangers[: LIMITS.listed]).to_pylist()
    why = [_why_unknown(name) for name in names if name != NOT_RECORDED]
    why += _untold_waits(snapshot, _unnamed(snapshot) if NOT_RECORDED in names else [])
    without = nodes.names.take(np.flatnonzero(untold)[: LIMITS.listed]).to_pylist()
    why += _untold_waits(snapshot, [(name, None) for name in without])
    calls = nodes.calls.row[np.flatnonzero(silent)[: LIMITS.listed] - nodes.first_call]
    rows = snapshot.tables["calls"].select(["machine", "call_id"]).take(calls).to_pylist()
    why += _untold_waits(snapshot, [(row["machine"], row["call_id"]) for row in rows])
    return untold | silent | nodes.flags(strangers), why


def _why_unknown(name: str) -> str:
    if "/" in name:
        return f"the reply to call {name}, which neither runs nor is in flight"
    return f"{name}, which is waited for but not recorded"


def _unnamed(snapshot: Snapshot) -> list[tuple[str, str | None]]:
    """(machine, call; None: the machine itself) of the waits of which a row says for nothing that has a name."""
    waits = snapshot.tables["waits"]
    is_unnamed = pc.and_(pc.is_null(waits["on_machine"]), pc.is_null(waits["on_call_id"]))
    rows = waits.filter(pc.and_not(is_unnamed, pc.fill_null(waits["satisfied"], False)))
    return [(row["machine"], row["call_id"]) for row in rows.select(["machine", "call_id"]).to_pylist()]


def _untold_waits(snapshot: Snapshot, waits: Sequence[tuple[str, str | None]]) -> list[str]:
    """ "what get of B-0 waits for (app.py:11, in queue.Queue.get, since 10:07:31)" of each (machine, call; None: itself)."""
    waits = list(dict.fromkeys(waits))[: LIMITS.listed]
    if not waits:
        return []
    names, primitives = [name for name, _ in waits], snapshot.coverage.get("primitives") or {}
    calls, rows = (snapshot.tables[table] for table in ("calls", "waits"))
    running = calls.filter(pa.array(is_any_of(calls["machine"], *names))).to_pylist()
    about = {(row["machine"], row["call_id"]): row for row in running}
    since: dict[tuple[str, str | None], Any] = {}
    for row in rows.filter(pa.array(is_any_of(rows["machine"], *names))).to_pylist():
        if row["waiting_since"] is not None:
            since.setdefault((row["machine"], row["call_id"]), row["waiting_since"])
    found = []
    for machine, call in waits:
        row = about.get((machine, call)) or {"method": None, "call_site": None}
        began, primitive = since.get((machine, call)), primitives.get(call or machine)
        details = [
            row["call_site"],
            f"in {primitive}" if primitive else None,
            f"since {began:%H:%M:%S}" if began else None,
        ]
        place = ", ".join(filter(None, details))
        who = f"{row['method']} of {machine}" if call is not None and row["method"] else machine
        found.append(f"what {who} waits for" + (f" ({place})" if place else ""))
    return found


def _suspects(nodes: _Nodes, unseen: list[Any]) -> Integers:
    """The machines that `uncovered` names, by themselves or as the `machine` of an item."""
    words = [item.get("machine") if isinstance(item, dict) else item for item in unseen]
    found = nodes.named(pa.array([word for word in words if isinstance(word, str)], pa.string()))
    return found[found >= 0]
