"""From the tables of a snapshot to integers: the nodes, who can move for sure, and who waits for whom.

Nodes are the recorded machines (by row), then every name that is waited for but not recorded, then one for
a wait whose row names nobody. `reduction` decides on these; `deadlock` turns its answer back into names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import (
    MOST_LISTED,
    Booleans,
    Integers,
    distinct,
    integers,
    is_any_of,
    positions,
    texts,
    uncovered,
)
from ray_snapshot.detectors.reduction import Graph
from ray_snapshot.snapshot import Snapshot

_ALL = -1
"""A k that was not recorded: every row of the alternative is needed."""

_UNNAMED = "something that was not recorded"


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """The waits of one snapshot, over nodes."""

    names: Any
    """Arrow array: the name of each node."""
    graph: Graph
    blocked: Booleans
    stopped: Booleans
    passive: Booleans
    seeds: Booleans
    """What moves without anybody's help."""
    outside: Booleans
    """What may move, for all that the snapshot knows."""
    unseen: list[Any]
    """Why `outside` is more than `seeds`, for a person."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of waits, already as nodes: `group` is equal for rows of one alternative."""

    machine: Integers
    group: Integers
    k: Integers
    on: Integers
    satisfied: Booleans
    timed: Booleans


def wait_graph(snapshot: Snapshot) -> WaitGraph:
    """Read machines, waits and messages into one graph. O(V + E) and a sort of the rows of waits."""
    recorded = texts(snapshot.tables["machines"]["machine"])
    names = _node_names(snapshot, recorded)
    status = {word: _status(snapshot, word, len(names)) for word in ("blocked", "stopped", "passive")}
    idle = np.logical_or.reduce(list(status.values()))
    rows = _rows(snapshot, names, status["blocked"])
    graph = _graph(len(names), rows)
    message, timer, expected = _woken(snapshot, names, len(recorded))
    active = ~idle & (np.arange(len(names)) < len(recorded))
    seeds = active | (status["passive"] & message) | (~status["stopped"] & timer)
    seeds[rows.machine[rows.timed]] = True
    outside, why = _outside(names, len(recorded), status["blocked"], graph)
    unseen = uncovered(snapshot)
    outside[_suspects(names, unseen)] = True
    unseen += [f"{name}, which is sent to but not recorded" for name in expected[:MOST_LISTED]]
    return WaitGraph(names, graph, **status, seeds=seeds, outside=outside, unseen=unseen + why)


def _status(snapshot: Snapshot, word: str, node_count: int) -> Booleans:
    found = is_any_of(snapshot.tables["machines"]["status"], word)
    return np.concatenate([found, np.zeros(node_count - len(found), np.bool_)])


def _node_names(snapshot: Snapshot, recorded: Any) -> Any:
    """Recorded machines, then the other names waited for, then the node of waits that name nobody."""
    named = [
        texts(snapshot.tables["waits"]["on_machine"]),
        _short_names(snapshot.tables["machines"]["waits_for"]),
    ]
    unknown = [column.filter(pa.array(positions(column, recorded) < 0)) for column in named]
    strangers = pa.concat_arrays(unknown).drop_null().unique()
    return pa.concat_arrays([recorded, strangers, pa.array([_UNNAMED])])


def _short_names(lists: Any) -> Any:
    return texts(pc.list_flatten(lists))


def _rows(snapshot: Snapshot, names: Any, blocked: Booleans) -> _Rows:
    """What the blocked machines wait for: their rows of `waits`, or else the short form in `machines`."""
    messages = snapshot.tables["messages"]
    source, target = positions(texts(messages["source"]), names), positions(texts(messages["target"]), names)
    pairs = distinct(source * len(names) + target)
    long = _long_rows(snapshot.tables["waits"], names, blocked, pairs)
    brief = blocked.copy()
    brief[long.machine] = False
    short = _short_rows(snapshot.tables["machines"], names, brief, pairs)
    short_group = short.group + (int(long.group.max()) + 1 if len(long.group) else 0)
    columns = {
        name: np.concatenate([getattr(long, name), getattr(short, name)]) for name in _Rows.__slots__ if name != "group"
    }
    return _Rows(group=np.concatenate([long.group, short_group]), **columns)


def _long_rows(waits: Any, names: Any, blocked: Booleans, pairs: Integers) -> _Rows:
    machine = positions(texts(waits["machine"]), names)
    keep = (machine >= 0) & blocked[machine]
    machine, waits = machine[keep], waits.filter(pa.array(keep))
    group = _groups(machine, waits["call_id"], waits["alternative"])
    on = positions(texts(waits["on_machine"]), names)
    on = np.where(on < 0, len(names) - 1, on)
    known = pc.is_valid(waits["satisfied"]).to_numpy()
    told = pc.fill_null(waits["satisfied"], False).to_numpy()
    satisfied = np.where(known, told, np.isin(on * len(names) + machine, pairs))
    k = integers(waits["k"], _ALL)
    return _Rows(machine, group, k, on, satisfied, pc.is_valid(waits["timeout_at"]).to_numpy())


def _groups(machine: Integers, call_id: Any, alternative: Any) -> Integers:
    """A number for each (machine, call_id, alternative)."""
    calls = pc.dictionary_encode(texts(call_id), null_encoding="encode").indices.to_numpy().astype(np.int64)
    choices = pc.dictionary_encode(pa.array(integers(alternative, 0))).indices.to_numpy().astype(np.int64)
    width, height = (int(codes.max(initial=0)) + 1 for codes in (choices, calls))
    groups: Integers = (machine * height + calls) * width + choices
    return groups


def _short_rows(machines: Any, names: Any, brief: Booleans, pairs: Integers) -> _Rows:
    """The rows that `wait_mode`, `wait_k` and `waits_for` stand for; none where they do not say enough."""
    size = integers(pc.list_value_length(machines["waits_for"]), 0)
    mode = {word: is_any_of(machines["wait_mode"], word) for word in ("all", "any", "k_of_n")}
    k = np.select(list(mode.values()), [size, np.ones_like(size), integers(machines["wait_k"], -1)], -1)
    usable = brief[: len(size)] & (size > 0) & (k >= 0)
    machine = np.repeat(np.arange(len(size)), np.where(usable, size, 0))
    on = positions(_short_names(machines["waits_for"]), names)[np.repeat(usable, size)]
    on = np.where(on < 0, len(names) - 1, on)
    satisfied = np.isin(on * len(names) + machine, pairs)
    return _Rows(machine, machine, k[machine], on, satisfied, np.zeros(len(machine), np.bool_))


def _graph(node_count: int, rows: _Rows) -> Graph:
    _, first, alternative, size = np.unique(rows.group, return_index=True, return_inverse=True, return_counts=True)
    return Graph(
        node_count,
        rows.machine[first],
        np.where(rows.k[first] == _ALL, size, rows.k[first]),
        alternative=alternative.astype(np.int64),
        target=rows.on,
        satisfied=rows.satisfied,
    )


def _woken(snapshot: Snapshot, names: Any, recorded_count: int) -> tuple[Booleans, Booleans, list[str]]:
    """Which nodes have a message coming, which a pending timer; and who is sent to without being recorded.

    A timer that was due before the snapshot started is an ordinary message by now: it lies in the mailbox.
    """
    messages = snapshot.tables["messages"]
    receiver = texts(messages["target"])
    target = positions(receiver, names)
    started_at = pa.scalar(snapshot.started_at, messages["due_at"].type)
    pending = pc.fill_null(pc.greater_equal(messages["due_at"], started_at), True).to_numpy()
    strange = (target < 0) | (target >= recorded_count)
    message, timer = np.zeros(len(names), np.bool_), np.zeros(len(names), np.bool_)
    message[target[~strange]] = True
    timer[target[~strange & pending & is_any_of(messages["kind"], "timer")]] = True
    return message, timer, receiver.filter(pa.array(strange)).unique().to_pylist()


def _outside(names: Any, recorded_count: int, blocked: Booleans, graph: Graph) -> tuple[Booleans, list[str]]:
    """Nodes the snapshot cannot speak for: who is waited for but not recorded, and waits without rows."""
    strangers = distinct(graph.target[graph.target >= recorded_count])
    outside = blocked.copy()
    outside[graph.owner] = False
    silent = names.take(np.flatnonzero(outside)[:MOST_LISTED]).to_pylist()
    awaited = names.take(strangers[:MOST_LISTED]).to_pylist()
    why = [f"{name}, which is waited for but not recorded" for name in awaited]
    outside[strangers] = True
    return outside, why + [f"what {name} waits for" for name in silent]


def _suspects(names: Any, unseen: list[Any]) -> Integers:
    """The machines that `uncovered` names, by themselves or as the `machine` of an item."""
    words = [item.get("machine") if isinstance(item, dict) else item for item in unseen]
    found = positions(pa.array([word for word in words if isinstance(word, str)], pa.string()), names)
    return found[found >= 0]
