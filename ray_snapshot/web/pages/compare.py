"""Two snapshots side by side: which machines are new, gone or otherwise, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from ray_snapshot.questions import diff
from ray_snapshot.reports.texts import plain
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked, Part
from ray_snapshot.web.served import Place, Served

MOST_COMPARED = 300_000
"""Snapshots of more machines are not held against each other here: `ray-snapshot ask HISTORY diff` does."""
MOST_FIELDS = 100


@dataclass(frozen=True, slots=True)
class Compared:
    """The page."""

    place: str
    snapshot_id: str
    other_id: str
    """The one that it is held against."""
    others: tuple[str, ...]
    """What it can be held against: those of its run around it."""
    came_and_went: tuple[Mapping[str, Any], ...]
    fields: tuple[Mapping[str, Any], ...]
    """By class and field: how many changes, of how many machines."""
    rows: tuple[Mapping[str, Any], ...]
    part: Part
    note: str = ""


def compare(served: Served, place: Place, snapshot_id: str, asked: Asked) -> Compared:
    """A snapshot held against another one, `with` (the one before it in its run), of one `machine` or `field` if asked for."""
    listed = reading.snapshot_rows(served, place)
    row = listed.filter(pc.equal(listed["snapshot_id"], snapshot_id)).to_pylist()[0]
    run = listed.filter(pc.and_(pc.equal(listed["run_id"], row["run_id"]), pc.equal(listed["status"], "complete")))
    ids = run["snapshot_id"].to_pylist()
    at = ids.index(snapshot_id) if snapshot_id in ids else -1
    others = tuple(ids[max(0, at - 50) : at][::-1] + ids[at + 1 : at + 50]) if at >= 0 else ()
    wanted = asked.text("with")
    other = reading.resolved(served, place, wanted) if wanted else (others[0] if others else "")
    nothing = Compared(place.key, snapshot_id, other, others, (), (), (), Part.of(asked, 0))
    if not other or at < 0:
        return _noted(nothing, "The run has no other complete snapshot.")
    if (row["machine_count"] or 0) > MOST_COMPARED:
        return _noted(
            nothing,
            f"It has {row['machine_count']:,} machines, too many for a page: ray-snapshot ask HISTORY diff.",
        )
    key = ("diff", place.key, snapshot_id, other, reading.born(place))
    found = served.kept.get(
        key, lambda: diff(place.history, other, snapshot_id), lambda tables: sum(one.nbytes for one in tables.values())
    )
    changes = found["changes"]
    for name in ("machine", "field"):
        if (value := asked.text(name)) is not None:
            changes = changes.filter(pc.equal(changes[name], value))
    part = Part.of(asked, changes.num_rows)
    shown = changes.slice(part.begin, part.rows).select(["machine", "class_name", "field", "before", "after"])
    return Compared(
        place=place.key,
        snapshot_id=snapshot_id,
        other_id=other,
        others=others,
        came_and_went=_rows(
            found["machines"].slice(0, MOST_FIELDS), ("machine", "class_name", "event", "before", "after")
        ),
        fields=_rows(found["fields"].slice(0, MOST_FIELDS), ("class_name", "field", "changes", "machines")),
        rows=_rows(shown, shown.column_names),
        part=part,
    )


def _noted(nothing: Compared, note: str) -> Compared:
    return Compared(
        nothing.place, nothing.snapshot_id, nothing.other_id, nothing.others, (), (), (), nothing.part, note
    )


def _rows(table: Any, names: Any) -> tuple[dict[str, Any], ...]:
    return tuple(
        {name: plain(value) if isinstance(value, str) and name != "machine" else value for name, value in row.items()}
        for row in table.select(list(names)).to_pylist()
    )
