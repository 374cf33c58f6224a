"""What a snapshot of a crowded run concludes, by the code that judges real ones; and what the run itself says of that.

`judged` puts a `Cut` together as the watcher does (`CollectedCalls`, `resources`) and asks the detector. The truth is the run's
own log: who is reported as deadlocked never goes on, unless a node joins, and stays reported; what stands still is reported.
"""

from collections import Counter
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from worlds import replay
from worlds.calls.crowds import Crowd, Cut, Look, run_crowd
from worlds.calls.oracle import CallName, Event
from worlds.calls.reports import name_of

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock
from ray_snapshot.encoding import to_json
from ray_snapshot.instrument.capacity import Cluster, Node
from ray_snapshot.instrument.process.process import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.resources import Looks, concerns
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.tasks import is_task
from ray_snapshot.runtime.collected import SnapshotHeader

NOW = 10 * LIMITS.scheduling_s
"""All that is sent in a simulated run is sent at 0."""

Caller = CallName | None
"""A call that runs; None: the driver's program."""


@dataclass(frozen=True)
class Judged:
    """A complete snapshot, and what the detector says of it."""

    cut: Cut
    snapshot: Snapshot
    verdict: Verdict

    @property
    def stuck(self) -> set[Caller]:
        """The calls that are said to be stuck, of those that have begun."""
        told = [*self.verdict.evidence["members"], *self.verdict.evidence["stuck_behind"]]
        sites = [one["call_site"] for one in told if one["call_site"]]
        found: set[Caller] = {name_of(site) for site in sites}
        return found | ({None} if any(one["machine"] == DRIVER for one in told) else set())

    @property
    def lacks_room(self) -> bool:
        """Whether somebody is stuck for lack of room."""
        return any("needs" in one for one in self.verdict.evidence["members"])


def judged(crowd: Crowd, cut: Cut) -> Judged:
    """A complete snapshot, judged."""
    snapshot = snapshot_of(crowd, cut)
    return Judged(cut, snapshot, Deadlock().evaluate(snapshot))


def snapshot_of(crowd: Crowd, cut: Cut) -> Snapshot:
    """A complete snapshot as the watcher hands it to the detectors."""
    completed, slots = cut.completed, crowd.world.slots()
    shown = {name: replace(report, state=to_json(report.state)) for name, report in completed.machines.items()}
    completed = replace(completed, machines=shown)
    assert cut.after is not None
    return CollectedCalls(
        SnapshotHeader(cut.number, "app", "1", "calls", [], NOW),
        completed,
        {name: ProcessReport(report, NOW) for name, report in cut.reports.items()},
        {name: {"shown": name, "pid": 1, "is_private": True, **_slots(slots, name)} for name in cut.reports},
        looks=Looks(_cluster(cut.before), _cluster(cut.after)) if concerns(completed, NOW) else None,
        reserved={name: name for name in completed.machines if is_task(name)},
    ).snapshot()


def _slots(slots: dict[str, int], name: str) -> dict[str, Any]:
    return {"max_concurrency": slots[name]} if name in slots else {}


def _cluster(look: Look) -> Cluster:
    return Cluster({name: Node(amounts) for name, amounts in look.items()}, {}, grows=False)


# ---- the truth -------------------------------------------------------------------------------------------------------


def moved(crowd: Crowd, one: Judged) -> list[Event]:
    """What those did that are said to be stuck, behind the cut, and before a node joined behind the snapshot."""
    log = crowd.world.log
    later = crowd.joins[one.cut.joined :]
    events = log.events[: later[0]] if later else log.events
    stuck = one.stuck
    return [event for event in events if not log.is_white(event, one.cut.number) and _goes_on(event, stuck)]


def _goes_on(event: Event, stuck: set[Caller]) -> bool:
    if event.kind == "wake" and event.waiting is not None:
        caller = event.waiting.caller
        return caller in stuck if caller is not None else event.machine == DRIVER and None in stuck
    return event.kind == "finish" and event.call in stuck


def standing(crowd: Crowd) -> set[Caller]:
    """What waits, now that nothing can happen any more."""
    assert crowd.is_still
    runs = [run for machine in crowd.world.alive.values() for run in machine.runs.values()]
    assert all(run.wait_id is not None for run in runs)
    return {None if run.call_id is None else name_of(run.call_id) for run in runs}


# ---- whole runs ------------------------------------------------------------------------------------------------------


DIED = "died while the snapshot was open"
NAMED = ("nodes or placement groups that came or went", "whether a handle of", DIED)
"""Why it may be unknown whether anything is stuck."""


def check(crowd: Crowd) -> Iterator[Judged]:
    """Hold every snapshot of a run against it; fails with what is wrong."""
    end, known, joined = standing(crowd), set[Caller](), 0
    for cut in crowd.cuts:
        one = judged(crowd, cut)
        if cut.joined != joined:
            known, joined = set(), cut.joined
        has_lost = any(DIED in text for text in cut.completed.obstacles)  # then what has ended may be unknown, and how
        is_told = has_lost or known <= one.stuck or known <= undoubted(one).stuck
        assert is_told, f"forgotten: snapshot {cut.number}: {known} were reported before: {one.verdict}"
        if one.verdict.holds is True:
            assert not (wrong := moved(crowd, one)), f"false alarm: snapshot {cut.number}: {wrong[0]}: {one.verdict}"
            known |= one.stuck
        if one.verdict.holds is None:
            assert not (why := unnamed(one)), f"unknown for no reason: snapshot {cut.number}: {why}"
        if cut.was_still and cut.before == cut.after and not crowd.joins[cut.joined :]:
            told = one.stuck if one.stuck == end else undoubted(one).stuck
            assert told == end, f"missed: snapshot {cut.number}: {end} stand still, told is {told}: {one.verdict}"
        yield one


def unnamed(one: Judged) -> list[str]:
    """Reasons of an unknown verdict that it should not have; of what has died meanwhile, it is not known how it ended."""
    told = one.verdict.evidence["depends_on"]
    if any(DIED in text for text in told):
        return []
    return [text for text in told if not any(part in text for part in NAMED)]


def undoubted(one: Judged) -> Judged:
    """As it would be if nothing were unsure of room: who is stuck for certain is told alone, where others are so in doubt."""
    resources = one.snapshot.coverage.get("resources")
    if not resources:
        return one
    sure = [{**holder, "checked": True} for holder in resources["holders"]]
    snapshot = copy(one.snapshot)
    snapshot.coverage = {**one.snapshot.coverage, "resources": {**resources, "holders": sure, "unsure": []}}
    return Judged(one.cut, snapshot, Deadlock().evaluate(snapshot))


def played(seed: int) -> Counter[str]:
    """A run, held against the truth; what it has met. A failure names what replays it."""
    crowd = run_crowd(seed)
    met: Counter[str] = Counter(runs=1, joins=len(crowd.joins))
    try:
        for one in check(crowd):
            met[f"{one.verdict.holds}"] += 1
            met[f"{one.verdict.holds} for lack of room"] += one.verdict.holds is not False and one.lacks_room
            met[f"{one.verdict.holds} in quiet"] += one.cut.was_still
            met["waits for room"] += bool(one.snapshot.coverage.get("resources"))
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{replay('crowd', seed)}") from error
    return met
