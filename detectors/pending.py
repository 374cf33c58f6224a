"""Why things of a snapshot have not begun: what they need on a node and who has it now, or which arguments are to come.

For a person who asks; nothing is concluded from it (`deadlock` does that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from ray_snapshot.detectors.call_graph import is_call_id
from ray_snapshot.detectors.common import listed, positions, texts, with_workers
from ray_snapshot.detectors.room_rows import Demand, demand_of_rows, shown, told
from ray_snapshot.detectors.room_words import Lack
from ray_snapshot.detectors.rooms import held_now
from ray_snapshot.detectors.stores import may_hold_back_tasks
from ray_snapshot.snapshot import Snapshot

MOST_TOLD = 20
SOON_S = 10.0
"""What has room, and has waited less, is told to be about to begin."""


def why_pending(snapshot: Snapshot) -> list[str]:
    """A line for each kind of calls that have not begun, and each placement group; at most `MOST_TOLD`, and how many more."""
    messages, waits = snapshot.tables["messages"], snapshot.tables["waits"]
    ids = texts(messages["call_id"])
    queued = ids.filter(is_call_id(ids))
    open_rows = [
        row for row in waits.filter(positions(texts(waits["call_id"]), queued) >= 0).to_pylist() if not row["satisfied"]
    ]
    held_back = positions(ids, pa.array([row["call_id"] for row in open_rows], pa.string())) >= 0
    lines = [*_without_room(snapshot, messages.filter(~held_back)), *_without_arguments(open_rows), *_groups(snapshot)]
    more = len(lines) - MOST_TOLD
    shown = [with_workers(snapshot, line) for line in lines[:MOST_TOLD]]
    return shown + ([f"... and {more:,} more"] if more > 0 else [])


def _without_room(snapshot: Snapshot, messages: pa.Table) -> list[str]:
    """Of these, which need room on a node, and who has it now."""
    if not snapshot.coverage.get("resources"):
        return []
    state = held_now(told(snapshot, is_of_now=True))
    found = state.told
    asked: Counter[tuple[str | None, str, int]] = Counter()
    since: dict[tuple[str | None, str, int], float] = {}
    for one in found.asked:
        key = one.source, one.target, one.demand
        since[key] = min(one.since, since.get(key, one.since))
    ends = zip(messages["source"].to_pylist(), messages["target"].to_pylist(), strict=True)
    for (source, target), demand in zip(ends, demand_of_rows(found, messages).tolist(), strict=True):
        asked[(source if (source, target, demand) in since else None, target, demand)] += 1
    or_held_back = ", or it is held back until an object store has room" if may_hold_back_tasks(snapshot) else ""
    lines = []
    for (source, target, demand), at in since.items():
        count = asked[source, target, demand]
        if count:
            wanted = found.demands[demand]
            lack, waited_s = Lack(state, wanted), snapshot.started_at.timestamp() - at
            reason = lack.why()
            if state.is_met(wanted):
                soon = "it is about to begin" if waited_s < SOON_S else "Ray has not begun it all the same"
                reason = f"{lack.text}, and a node has room: {soon}{or_held_back}"
            name = (target if source is None else f"{target} of {source}") + (
                f" ({count:,} calls)" if count > 1 else ""
            )
            lines.append(f"{name} has waited for {waited_s:.0f} s: it needs {reason}")
    return lines


def _without_arguments(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    on: dict[str, list[str]] = {}
    for row in rows:
        on.setdefault(row["machine"], []).append(row["on_machine"] or "something that was not recorded")
    return [f"{machine} waits for its arguments, by {listed(dict.fromkeys(others))}" for machine, others in on.items()]


def _groups(snapshot: Snapshot) -> list[str]:
    """Placement groups that have not been made, and that nothing waits for that was recorded."""
    state = held_now(told(snapshot, is_of_now=True))
    groups = state.told.groups
    wanted = {one.group for one in state.told.demands}
    lines = []
    for key, one in groups.items():
        if not one.is_created and key not in wanted:
            demand = Demand((), key, -1, None)
            why = ", and there is room: it is about to be made" if state.is_met(demand) else Lack(state, demand).held()
            lines.append(f"{one.text} has not been made: it needs {shown(one.whole)}{why}")
    return lines
