"""Does anybody wait for what is gone?

A machine that has stopped sends no more. A wait that needs it can never end, which is a deadlock without a circle: this
detector names the wait, and what is gone, where `Deadlock` tells of the whole that is stuck.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_snapshot.detectors.common import Booleans, NamedDetector, answer, plural, uncovered, unsound
from ray_snapshot.detectors.wait_graph import WaitGraph, wait_graph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class OrphanedWait(NamedDetector):
    """True iff a machine, or a call, waits for more than can still come, because of machines that have stopped.

    A wait for k of n is orphaned if fewer than k of those it names are left, messages and replies on their way among them; one
    with alternatives, if all are. A wait with a time-out is not. A name that was not recorded may be of a machine to come:
    it counts as left. Evidence: `orphans` (`machine`, `waits_for`, `gone`: the first 100 by name), `orphan_count`, `gone` (all
    that have stopped and are waited for, the first 100). Stable: what has stopped stays so.

    Who waits for an orphan is stuck as well, and is not named: see `Deadlock`. Cost: O(V + E) as `Deadlock`.
    """

    type = "orphaned-wait"
    stable = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Count, of each wait, what can still come."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Orphaned waits cannot be told: {reason}.")
        evidence = _orphans(wait_graph(snapshot))
        if evidence["orphan_count"]:
            first = evidence["orphans"][0]
            count = plural(evidence["orphan_count"], "wait")
            text = f"{count} for what is gone: {first['machine']} waits for {listed(first['gone'])}, stopped."
            return answer(self, snapshot, True, evidence, text)
        unseen = uncovered(snapshot)
        if unseen:
            text = f"Orphaned waits cannot be told: none was seen, but this was not observed: {listed(unseen)}."
            return answer(self, snapshot, None, {**evidence, "uncovered": unseen}, text)
        return answer(self, snapshot, False, evidence, "Nobody waits for what is gone.")


def _orphans(waits: WaitGraph) -> dict[str, Any]:
    graph, gone = waits.graph, _gone(waits)
    dead = gone[graph.target] & ~graph.satisfied
    left = np.bincount(graph.alternative[~dead], minlength=len(graph.k)) >= graph.k
    hopeful = np.zeros(graph.node_count, np.bool_)
    hopeful[graph.owner[left]] = True
    waiting = np.zeros(graph.node_count, np.bool_)
    waiting[graph.owner] = True
    orphaned = waiting & ~hopeful & ~waits.seeds & ~waits.inner & ~waits.resting & ~waits.stopped
    edges = np.flatnonzero(orphaned[graph.owner[graph.alternative]])
    found: dict[int, tuple[list[str], list[str]]] = {}
    owner, target = graph.owner[graph.alternative[edges]].tolist(), graph.target[edges]
    names = waits.names.take(target).to_pylist()
    for node, name, is_dead in zip(owner, names, dead[edges].tolist(), strict=True):
        on, lost = found.setdefault(node, ([], []))
        on.append(name)
        if is_dead:
            lost.append(name)
    owners = dict(zip(found, waits.names.take(list(found)).to_pylist() if found else [], strict=True))
    orphans = [
        {"machine": owners[node], "waits_for": sorted(set(on)), "gone": sorted(set(lost))}
        for node, (on, lost) in found.items()
    ]
    orphans.sort(key=lambda one: (one["machine"], one["waits_for"]))
    lost_names = sorted({name for one in orphans for name in one["gone"]})
    return {"orphans": orphans[: LIMITS.listed], "orphan_count": len(orphans), "gone": lost_names[: LIMITS.listed]}


def _gone(waits: WaitGraph) -> Booleans:
    """Nodes from which nothing comes any more: machines that have stopped."""
    found = waits.stopped.copy()
    found[waits.first_call :] = False
    return found
