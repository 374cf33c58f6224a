"""Why things of a snapshot have not begun: what they need on a node and who has it now, or which arguments are to come.

For a person who asks; nothing is concluded from it (`deadlock` does that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from ray_snapshot.detectors.call_graph import is_call_id
from ray_snapshot.detectors.common import at_most, lasted, positions, texts, with_workers
from ray_snapshot.detectors.room_rows import Demand, demand_of_rows, shown, told
from ray_snapshot.detectors.room_words import Lack
from ray_snapshot.detectors.rooms import held_now
from ray_snapshot.detectors.stores import may_hold_back_tasks
from ray_snapshot.detectors.unexplained import seconds_since
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, NOT_RECORDED, listed
from ray_snapshot.snapshot import Snapshot


def why_pending(snapshot: Snapshot) -> list[str]:
    """A line for each kind of calls that have not begun, and each placement group: `pending_lines`, and how many more."""
    lines = [*_without_room(snapshot), *_without_arguments(_argument_waits(snapshot)), *_groups(snapshot)]
    return [with_workers(snapshot, line) for line in at_most(lines, LIMITS.pending_lines)]


def _argument_waits(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The open waits of calls that have not begun."""
    ids, waits = texts(snapshot.tables["messages"]["call_id"]), snapshot.tables["waits"]
    queued = ids.filter(is_call_id(ids))
    rows = waits.filter(positions(texts(waits["call_id"]), queued) >= 0).to_pylist()
    return [row for row in rows if not row["satisfied"]]


def _may_begin(snapshot: Snapshot) -> pa.Table:
    """The messages but for calls that wait for their arguments."""
    messages, waiting = snapshot.tables["messages"], _argument_waits(snapshot)
    held_back = pa.array([row["call_id"] for row in waiting], pa.string())
    return messages.filter(pa.array(positions(texts(messages["call_id"]), held_back) < 0))


@dataclass(frozen=True, slots=True)
class Roomless:
    """Calls to one target that have the same demand, and no room on a node."""

    name: str
    """ "prepare() of Trainer-0 (3 calls)"."""
    waited_s: float
    lack: Lack
    source: str | None
    target: str

    @property
    def has_room(self) -> bool:
        """Whether a node has room for it now."""
        return self.lack.state.is_met(self.lack.demand)

    def line(self, reason: str) -> str:
        """For how long it has waited, and why."""
        return f"{self.name} has waited for {self.waited_s:.0f} s: it needs {reason}"


def roomless(snapshot: Snapshot) -> list[Roomless]:
    """What has not begun and needs room on a node; nothing of what waits for its arguments."""
    if not snapshot.coverage.get("resources"):
        return []
    messages = _may_begin(snapshot)
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
    now = snapshot.started_at.timestamp()
    return [
        Roomless(_named(source, target, count), now - at, Lack(state, found.demands[demand]), source, target)
        for (source, target, demand), at in since.items()
        if (count := asked[source, target, demand])
    ]


class Unbegun(NamedTuple):
    """Calls that nothing known keeps from beginning, and that do not begin."""

    name: str
    seconds: float

    def __str__(self) -> str:
        """ "prepare() of Trainer-0 has not begun for 42 s, ..."."""
        return f"{self.name} has not begun for {lasted(self.seconds)}, though nothing that is seen keeps it from that"

    @property
    def depends_on(self) -> str:
        """What would decide it, for the evidence of a verdict."""
        return f"what keeps {self.name} from beginning"

    @property
    def remedies(self) -> list[str]:
        """What a person can do about it."""
        return [
            f"Look whether the process for {self.name} starts: its runtime environment may not come about, the import of"
            " its module may not end, its arguments may be large, or Ray repeats what fails (see the log of the driver)."
        ]


def unbegun(snapshot: Snapshot) -> list[Unbegun]:
    """Those of the coverage, less what lacks room on a node. What is of another form is left out."""
    rows = snapshot.coverage.get("unbegun")
    if not isinstance(rows, list):
        return []
    lacking = {(one.source, one.target) for one in roomless(snapshot) if not one.has_room}
    found = []
    for row in rows:
        match row:
            case {"source": str() | None as source, "target": str(target), "method": str(method), "since": since}:
                seconds = seconds_since(since, snapshot.started_at)
                if seconds is not None and (source, target) not in lacking:
                    found.append(Unbegun(f"{method} of {target}" if method else _named(source, target, 1), seconds))
    return found


def _named(source: str | None, target: str, count: int) -> str:
    return (target if source is None else f"{target} of {source}") + (f" ({count:,} calls)" if count > 1 else "")


def _without_room(snapshot: Snapshot) -> list[str]:
    """Which need room on a node, and who has it now."""
    or_held_back = ", or it is held back until an object store has room" if may_hold_back_tasks(snapshot) else ""
    lines = []
    for one in roomless(snapshot):
        soon = "it is about to begin" if one.waited_s < LONG_S else "Ray has not begun it all the same"
        room = f"{one.lack.text}, and a node has room: {soon}{or_held_back}"
        lines.append(one.line(room if one.has_room else one.lack.why()))
    return lines


def _without_arguments(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    on: dict[str, list[str]] = {}
    for row in rows:
        other = "a call before it" if row["on_machine"] == row["machine"] else row["on_machine"]
        on.setdefault(row["machine"], []).append(other or NOT_RECORDED)
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
