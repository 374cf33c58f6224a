"""Who waits for whom in a snapshot, as a drawing and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.reports.rows import classes_of
from ray_snapshot.reports.texts import plain
from ray_snapshot.reports.waits import Waiting, waiting
from ray_snapshot.views.report import wait_lines
from ray_snapshot.views.wait_picture import Box, Picture, picture
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked
from ray_snapshot.web.served import Place, Served

MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class Waits:
    """The page."""

    place: str
    snapshot_id: str
    heading: str
    picture: Picture
    lines: tuple[str, ...]
    behind: tuple[str, ...]
    advice: tuple[str, ...]
    note: str
    class_name: str | None
    """Only those of this class are shown."""
    classes: tuple[tuple[str, int], ...]
    """Of what waits: (class, how many)."""
    boxes: Mapping[str, str]
    """By title of a box of several machines: their class."""


def waits(served: Served, place: Place, snapshot_id: str, asked: Asked) -> Waits:
    """The waits of a snapshot, of one `class` if asked for."""
    snapshot = reading.lean(served, place, snapshot_id)
    key = ("waits", place.key, snapshot_id, reading.commits(place, "verdicts"))

    def read() -> tuple[Waiting | None, list[dict[str, Any]], dict[str, str]]:
        told, records = waiting(snapshot, reading.verdicts_on(served, place, snapshot))
        names = {str(one["machine"]) for one in records} | {
            name for box in (told.picture.boxes if told else ()) for name in box.machines
        }
        return told, records, classes_of(snapshot, sorted(names))

    told, records, class_of = served.kept.get(key, read, lambda _: 2_000_000)
    classes: dict[str, int] = {}
    for name in {str(one["machine"]) for one in records}:
        classes[class_of.get(name, "")] = classes.get(class_of.get(name, ""), 0) + 1
    listed = tuple((plain(name), count) for name, count in sorted(classes.items(), key=lambda one: (-one[1], one[0])))
    wanted = asked.text("class")
    if told is None:
        return Waits(place.key, snapshot_id, "Nothing waits", Picture(), (), (), (), "", wanted, listed, {})
    drawn, lines, behind = told.picture, told.lines, told.behind
    if wanted is not None:
        chosen = [one for one in records if class_of.get(str(one["machine"])) == wanted]
        drawn = picture((), chosen)
        lines, behind = tuple(map(plain, wait_lines(chosen[:MOST_LINES], len(chosen)))), ()
    return Waits(
        place=place.key,
        snapshot_id=snapshot_id,
        heading=told.heading if wanted is None else f"What waits, of class {plain(wanted)}",
        picture=drawn,
        lines=lines[:MOST_LINES],
        behind=behind[:MOST_LINES],
        advice=told.advice if wanted is None else (),
        note=told.note,
        class_name=wanted,
        classes=listed[:100],
        boxes={box.title: _class_of(box, class_of) for box in drawn.boxes if len(box.machines) > 1},
    )


def _class_of(box: Box, class_of: Mapping[str, str]) -> str:
    return class_of.get(box.machines[0], "")
