"""Is a part of the system done: can no machine of a group ever act again?

That its members are passive and nothing is in flight to them is not enough: a machine outside may send to them at any
moment. So the claim that is decided is the stable one, on the same graph as `deadlock`: no machine that can ever move
may send to a member. To a member at rest only its declared sources send (`system.connect(..., port=...)`). To any other
passive member only `senders` send; if these are not given, any machine that can move may have its handle and send to
it. Read `termination` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.detectors.common import Booleans, at_rest, is_any_of, parties, plural, texts
from ray_snapshot.detectors.groups import absent, members
from ray_snapshot.detectors.reduction import movable
from ray_snapshot.detectors.wait_graph import WaitGraph, wait_graph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot

Answer = tuple[bool | None, dict[str, Any], str]
"""holds, evidence, sentence."""


def judge_part(snapshot: Snapshot, group: Sequence[str], senders: Sequence[str] | None) -> Answer:
    """Whether the group has terminated. O(V + E) of machines, calls, rows of waits and messages."""
    table = snapshot.tables["machines"]
    mine = members(table["machine"], group)
    evidence = _members(snapshot, mine, group)
    if evidence["active"] or evidence["blocked"] or evidence["in_flight"]:
        return False, evidence, f"Not terminated: {_busy(evidence)}."
    missing = absent(table["machine"], group)
    if missing:
        evidence["absent"] = missing
        return None, evidence, f"Termination of {listed(group)} cannot be told: {listed(missing)} not recorded."
    waits = wait_graph(snapshot)
    wakers = _wakers(waits, mine, table["machine"], senders)
    if len(wakers):
        evidence["could_be_woken_by"] = wakers[: LIMITS.listed]
        text = f"all is quiet there, but {listed(wakers)} may still send to it"
        return None, evidence, f"Termination of {listed(group)} cannot be told: {text}."
    count = parties(snapshot, evidence["machines"])
    text = f"{listed(group)} terminated: {count} {at_rest(snapshot)}, and none is left that could wake them."
    return True, evidence, text


def _members(snapshot: Snapshot, mine: Booleans, group: Sequence[str]) -> dict[str, Any]:
    """What the members are doing, and what is in flight to them (not what goes to stopped ones)."""
    table = snapshot.tables["machines"].filter(pa.array(mine))
    idle = is_any_of(table["status"], "passive", "stopped")
    blocked = is_any_of(table["status"], "blocked")
    names = texts(table["machine"])
    stopped = names.filter(is_any_of(table["status"], "stopped"))
    messages = snapshot.tables["messages"]
    coming = members(messages["target"], group) & ~is_any_of(messages["target"], *stopped.to_pylist())
    return {
        "group": list(group),
        "machines": table.num_rows,
        "active": _some(names, ~idle & ~blocked),
        "blocked": _some(names, blocked),
        "in_flight": int(coming.sum()),
        "first_messages": messages.filter(pa.array(coming))
        .slice(0, 3)
        .select(["source", "target", "method"])
        .to_pylist(),
    }


def _some(names: Any, chosen: Booleans) -> list[str]:
    found: list[str] = names.filter(pa.array(chosen)).slice(0, LIMITS.listed).to_pylist()
    return found


def _busy(evidence: dict[str, Any]) -> str:
    parts = [f"{listed(evidence[word])} {word}" for word in ("active", "blocked") if evidence[word]]
    if evidence["in_flight"]:
        first = evidence["first_messages"][0]
        count = plural(evidence["in_flight"], "message")
        parts.append(f"{count} in flight to it (the first from {first['source']} to {first['target']})")
    return "; ".join(parts)


def _wakers(waits: WaitGraph, mine: Booleans, names: Any, senders: Sequence[str] | None) -> list[str]:
    """Names of what may act again and then send to a member, directly or through others; what was not observed, too.

    A member whose inputs are declared counts as reached by any source that can move, also if one message is not enough
    for it to act: with a part of a join in its mailbox it is no longer at rest.
    """
    member = np.zeros(waits.graph.node_count, np.bool_)
    member[: len(mine)] = mine
    loose = member & waits.passive  # their inputs are not declared
    moves = _moves(waits, loose if senders is not None else np.zeros_like(member))
    woken = _moving_sources(waits, member & waits.resting, moves)
    more: list[str] = []
    if loose.any() and senders is not None:
        woken[: len(mine)] |= moves[: len(mine)] & members(names, senders)
        more = absent(names, senders) if moves.any() or waits.unseen else []
    elif (moves & loose).any():
        woken |= waits.seeds | waits.outside
        more = list(map(str, waits.unseen))
    found = [*_names(waits, woken & ~member), *more]
    return found or ["a machine of its own"] * bool((moves & member).any())


def _moving_sources(waits: WaitGraph, at_rest: Booleans, moves: Booleans) -> Booleans:
    """The nodes that can move and that a machine at rest waits for."""
    owner, target = waits.graph.owner[waits.graph.alternative], waits.graph.target
    found = np.zeros_like(moves)
    found[target[at_rest[owner] & moves[target]]] = True
    return found


def _names(waits: WaitGraph, nodes: Booleans) -> list[str]:
    return list(dict.fromkeys(waits.names.take(np.flatnonzero(nodes)[: LIMITS.listed]).to_pylist()))


def _moves(waits: WaitGraph, kept: Booleans) -> Booleans:
    """The nodes that can ever move, also with help of what was not observed; `kept`: passive machines with given
    senders."""
    seeds = waits.seeds | waits.outside
    anything = bool(waits.unseen) or waits.acts(seeds)
    return movable(waits.graph, seeds | (waits.passive & ~kept) if anything else seeds)
