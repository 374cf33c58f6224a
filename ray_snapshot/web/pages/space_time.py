"""The trace of a run around a snapshot, as it happened and as the equivalent computation in which the cut is one moment."""

from __future__ import annotations

from dataclasses import dataclass

from ray_snapshot.errors import HistoryFormatError, RaySnapshotError
from ray_snapshot.reports import runs
from ray_snapshot.reports.texts import plain
from ray_snapshot.views.space_time import Cut, panel, stacked
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked
from ray_snapshot.web.served import Place, Served

MOST_READ = 200_000
"""A trace of more actions is not drawn: `ray-snapshot witness` reads it."""
MOST_DRAWN = 10_000
DRAWN = 600
MOST_MACHINES = 60


@dataclass(frozen=True, slots=True)
class SpaceTime:
    """The page."""

    place: str
    snapshot_id: str
    run_id: str
    actions: int
    drawn: int
    svg: str
    note: str


def space_time(served: Served, place: Place, snapshot_id: str, asked: Asked) -> SpaceTime:
    """The run of a snapshot; `actions`: how many are drawn."""
    snapshot = reading.lean(served, place, snapshot_id)
    total = reading.action_count(served, place, snapshot.run_id)
    if not total:
        note = "The history holds no trace of this run: run the system with rs.System(..., trace=True)."
        return SpaceTime(place.key, snapshot_id, plain(snapshot.run_id), 0, 0, "", note)
    most = asked.number("actions", DRAWN, 10, MOST_DRAWN)
    if total > MOST_READ:
        note = f"The trace has {total:,} actions, more than a page can draw: see ray-snapshot witness."
        return SpaceTime(place.key, snapshot_id, plain(snapshot.run_id), total, 0, "", note)
    key = ("space-time", place.key, snapshot_id, most, reading.commits(place, "actions"))
    drawn, note = served.kept.get(
        key, lambda: _drawn(place, snapshot.run_id, snapshot.sequence, most), lambda one: len(one[0])
    )
    return SpaceTime(
        place.key, snapshot_id, plain(snapshot.run_id), total, min(total, most) if drawn else 0, drawn, note
    )


def _drawn(place: Place, run_id: str, number: int, most: int) -> tuple[str, str]:
    from ray_snapshot.witness.log import log_of
    from ray_snapshot.witness.steps import actions_of

    try:
        actions = log_of(actions_of(place.history.actions(run_id))).actions
    except (KeyError, TypeError, AttributeError) as error:
        raise HistoryFormatError(
            f"history {place.history.path}: table actions has a row that is none: {type(error).__name__}: {error}",
            path=str(place.history.path),
            table="actions",
        ) from None
    except RaySnapshotError as error:
        return "", f"The trace has a hole, so it cannot be drawn: {plain(error)}"
    counts: dict[str, int] = {}
    for action in actions:
        white = action.place if action.colour < number else 0
        counts[action.machine] = max(counts.get(action.machine, 0), white)
    events, cut = runs.traced_events(actions), Cut(f"snapshot {number}", counts)
    title = "An equivalent computation: all white actions, the snapshot, all red ones"
    ran, equivalent = (
        panel(events, [cut], title=words, equivalent=is_equivalent, most_events=most, most_machines=MOST_MACHINES)
        for words, is_equivalent in (("The run", False), (title, True))
    )
    return stacked([ran, equivalent]), ""
