"""A deadlock in words and records: who waits where in the app's source, for whom, and round which cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.detectors.common import MOST_LISTED, Integers, is_any_of, listed, positions, texts
from ray_snapshot.detectors.wait_graph import WaitGraph
from ray_snapshot.snapshot import Snapshot

_MOST_HOPS = 8


def records(snapshot: Snapshot, waits: WaitGraph, nodes: Integers) -> list[dict[str, Any]]:
    """A record for each of `nodes` (machines): `machine, class, method, call_site, waits_for, mode`.

    `k` beside mode `k_of_n`; `alternatives` (a list of `{"k", "of"}`) where several conditions are each
    enough; `waits_for_count` where more than 100 machines are waited for and the list was cut.
    """
    if not len(nodes):
        return []
    names = waits.names.take(nodes).to_pylist()
    classes = texts(snapshot.tables["machines"]["class_name"]).take(nodes).to_pylist()
    calls = _calls(snapshot, names)
    alternatives = _alternatives(waits, nodes)
    return [
        {
            "machine": name,
            "class": class_name,
            "method": calls.get(name, (None, None))[0],
            "call_site": calls.get(name, (None, None))[1],
            **_wait(alternatives.get(node, [])),
        }
        for node, name, class_name in zip(nodes.tolist(), names, classes, strict=True)
    ]


def _calls(snapshot: Snapshot, machines: list[str]) -> dict[str, tuple[str | None, str | None]]:
    """Method and call site of a call that each of `machines` is in; preferably one that holds a slot."""
    calls = snapshot.tables["calls"]
    mine = calls.filter(pa.array(is_any_of(calls["machine"], *machines)))
    found: dict[str, tuple[str | None, str | None]] = {}
    for row in sorted(mine.to_pylist(), key=lambda row: not row["holds_slot"]):
        found.setdefault(row["machine"], (row["method"], row["call_site"]))
    return found


def _alternatives(waits: WaitGraph, nodes: Integers) -> dict[int, list[tuple[int, list[str]]]]:
    """(k, names) of each alternative of each of `nodes`."""
    graph = waits.graph
    mine = np.isin(graph.owner, nodes)
    edges = np.flatnonzero(mine[graph.alternative])
    on: dict[int, list[str]] = {}
    for alternative, name in zip(
        graph.alternative[edges].tolist(), waits.names.take(graph.target[edges]).to_pylist(), strict=True
    ):
        on.setdefault(alternative, []).append(name)
    found: dict[int, list[tuple[int, list[str]]]] = {}
    for alternative in np.flatnonzero(mine).tolist():
        found.setdefault(int(graph.owner[alternative]), []).append((int(graph.k[alternative]), on[alternative]))
    return found


def _wait(alternatives: list[tuple[int, list[str]]]) -> dict[str, Any]:
    if len(alternatives) == 1:
        ((k, on),) = alternatives
        mode = "all" if k == len(on) else "any" if k == 1 else "k_of_n"
        return {**_bounded(list(dict.fromkeys(on))), "mode": mode, **({"k": k} if mode == "k_of_n" else {})}
    everybody = list(dict.fromkeys(name for _, on in alternatives for name in on))
    choices = [{"k": k, "of": on[:MOST_LISTED]} for k, on in alternatives[:MOST_LISTED] if len(on) > 1]
    return {**_bounded(everybody), "mode": "any", **({"alternatives": choices} if choices else {})}


def _bounded(names: Sequence[str]) -> dict[str, Any]:
    count = {"waits_for_count": len(names)} if len(names) > MOST_LISTED else {}
    return {"waits_for": list(names[:MOST_LISTED]), **count}


def cycle_text(evidence: dict[str, Any], waits: WaitGraph, cycle: Sequence[int]) -> str:
    """ "a (Account.transfer at bank.py:12) waits for b, b waits for a" of a cycle, or of one node."""
    known = {record["machine"]: record for record in evidence["members"]}
    names = waits.names.take(np.array(cycle[: _MOST_HOPS + 1], np.int64)).to_pylist()
    following = [*names[1:], names[0]] if evidence["cycle"] else [None]
    hops = [_hop(name, known.get(name), after) for name, after in zip(names, following, strict=True)]
    if not evidence["cycle"]:
        return hops[0] + _why_never(waits, known.get(names[0]))
    if len(cycle) > _MOST_HOPS:
        return ", ".join(hops[:_MOST_HOPS]) + f", and so on round a cycle of {len(cycle):,}"
    return ", ".join(hops)


def _hop(name: str, record: dict[str, Any] | None, after: str | None) -> str:
    if record is None:
        return f"{name} waits for {after}"
    method = f"{record['class']}.{record['method']}" if record["method"] else None
    place = " at ".join(text for text in (method, record["call_site"]) if text)
    return f"{name}{f' ({place})' if place else ''} waits for {_awaited(record, after)}"


def _awaited(record: dict[str, Any], after: str | None) -> str:
    """What a machine waits for, the one that the cycle goes on with first."""
    on = [name for name in record["waits_for"] if name != after]
    if after is not None:
        on.insert(0, after)
    count = record.get("waits_for_count", len(on))
    if count == 1:
        return str(on[0])
    if record["mode"] == "all":
        return listed(on, count) if after is None else after
    if "alternatives" in record:
        return f"any of several combinations of {listed(on, count)}"
    return f"{record['k'] if record['mode'] == 'k_of_n' else 'any'} of {listed(on, count)}"


def _why_never(waits: WaitGraph, record: dict[str, Any] | None) -> str:
    """Why what a machine outside of every cycle waits for cannot come."""
    on = record["waits_for"] if record else []
    rows = positions(pa.array(on, pa.string()), waits.names)
    for flags, reason in ((waits.stopped, "stopped"), (waits.passive, "passive, and nobody is left to wake")):
        who = [name for name, row in zip(on, rows.tolist(), strict=True) if flags[row]]
        if who:
            return f" ({_is(who)} {reason}{(' it' if len(who) == 1 else ' them') if 'wake' in reason else ''})"
    return ", and so many can never come"


def _is(names: Iterable[str]) -> str:
    listing = list(names)
    return f"{listed(listing)} {'is' if len(listing) == 1 else 'are'}"
