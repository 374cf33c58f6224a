"""One snapshot: what it says of itself, the verdicts, its machines and channels, a part at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.reports.gathering import MOST_VERDICTS, ShownVerdict, facts, gaps, shown_verdict
from ray_snapshot.reports.texts import plain
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked, Part
from ray_snapshot.web.served import Place, Served

MOST_MESSAGES = 200

MACHINE_COLUMNS = {
    "machine": "machine",
    "class": "class_name",
    "status": "status",
    "host": "host",
    "accepted": "accepted_count",
    "sent": "sent_count",
    "state bytes": "state_bytes",
    "delay": "record_delay_ms",
}
"""By which machines can be sorted."""

CHANNEL_COLUMNS = {
    "source": "source",
    "target": "target",
    "kind": "kind",
    "in flight": "in_flight_count",
    "sent": "sent_count",
    "accepted": "accepted_count",
}


@dataclass(frozen=True, slots=True)
class OneSnapshot:
    """The page."""

    place: str
    snapshot_id: str
    system: str
    run_id: str
    taken_at: datetime
    facts: tuple[tuple[str, str], ...]
    is_sound: bool
    obstacles: tuple[str, ...]
    verdicts: tuple[ShownVerdict, ...]
    more_verdicts: int
    gaps: tuple[str, ...]
    earlier_id: str | None
    later_id: str | None
    waits: int


@dataclass(frozen=True, slots=True)
class Rows:
    """A part of a table."""

    place: str
    snapshot_id: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    part: Part
    sort: str
    is_down: bool
    """The largest first."""


def snapshot(served: Served, place: Place, snapshot_id: str) -> OneSnapshot:
    """One snapshot; raises `HistoryNotFoundError`."""
    found = reading.lean(served, place, snapshot_id)
    said = reading.verdicts_on(served, place, found)
    listed = reading.snapshot_rows(served, place)
    run = listed.filter(pc.equal(listed["run_id"], found.run_id))["snapshot_id"].to_pylist()
    at = run.index(snapshot_id) if snapshot_id in run else -1
    return OneSnapshot(
        place=place.key,
        snapshot_id=snapshot_id,
        system=plain(found.system),
        run_id=plain(found.run_id),
        taken_at=found.started_at,
        facts=tuple(facts(found)),
        is_sound=bool(found.status == "complete" and found.consistent),
        obstacles=tuple(plain(one) for one in found.obstacles[:50]),
        verdicts=tuple(shown_verdict(found, row) for row in said[:MOST_VERDICTS]),
        more_verdicts=max(0, len(said) - MOST_VERDICTS),
        gaps=tuple(gaps(found, said)),
        earlier_id=run[at - 1] if at > 0 else None,
        later_id=run[at + 1] if 0 <= at < len(run) - 1 else None,
        waits=found.tables["waits"].num_rows,
    )


def machines(served: Served, place: Place, snapshot_id: str, asked: Asked) -> Rows:
    """The machines of a snapshot: `search` in names, `class`, `status`, `sort`, `down`."""
    table = reading.lean(served, place, snapshot_id).tables["machines"]
    if (text := asked.text("search")) is not None:
        table = table.filter(pc.match_substring(table["machine"], text, ignore_case=True))
    for name, column in (("class", "class_name"), ("status", "status"), ("host", "host")):
        if (value := asked.text(name)) is not None:
            table = table.filter(pc.equal(table[column], value))
    part, chosen, sort, is_down = _part(table, asked, MACHINE_COLUMNS, ("machine",))
    names = (
        "machine",
        "class_name",
        "status",
        "host",
        "accepted_count",
        "sent_count",
        "state_bytes",
        "record_delay_ms",
    )
    return Rows(place.key, snapshot_id, names, tuple(chosen.select(names).to_pylist()), part, sort, is_down)


def channels(served: Served, place: Place, snapshot_id: str, asked: Asked) -> Rows:
    """The channels of a snapshot: `search` in both ends, `machine` at one of them, `kind`, `full` (1: with messages)."""
    table = reading.lean(served, place, snapshot_id).tables["channels"]
    if (text := asked.text("search")) is not None:
        found = (pc.match_substring(table[one], text, ignore_case=True) for one in ("source", "target"))
        table = table.filter(pc.or_(*found))
    if (machine := asked.text("machine")) is not None:
        table = table.filter(pc.or_(pc.equal(table["source"], machine), pc.equal(table["target"], machine)))
    if (kind := asked.text("kind")) is not None:
        table = table.filter(pc.equal(table["kind"], kind))
    if asked.text("full") is not None:
        table = table.filter(pc.greater(table["in_flight_count"], 0))
    part, chosen, sort, is_down = _part(table, asked, CHANNEL_COLUMNS, ("source", "target", "kind"))
    names = ("source", "target", "kind", "sent_count", "accepted_count", "settled_count", "in_flight_count")
    return Rows(place.key, snapshot_id, names, tuple(chosen.select(names).to_pylist()), part, sort, is_down)


def _part(
    table: pa.Table, asked: Asked, known: Mapping[str, str], key: Sequence[str]
) -> tuple[Part, pa.Table, str, bool]:
    """The rows of one page in their order: only as many as are shown up to there are sorted. `key`: how they lie there."""
    sort = asked.one_of("sort", known, key[0])
    is_down = asked.text("down") is not None
    part = Part.of(asked, table.num_rows)
    if sort == key[0] and not is_down:
        return part, table.slice(part.begin, part.rows), sort, is_down
    first = known[sort]
    keys = [(first, "descending" if is_down else "ascending"), *((one, "ascending") for one in key if one != first)]
    most = min(table.num_rows, part.begin + part.rows)
    order = pc.select_k_unstable(table, most, keys) if most else pa.array([], pa.uint64())
    return part, table.take(order.slice(part.begin, part.rows)), sort, is_down


@dataclass(frozen=True, slots=True)
class Channel:
    """What is in flight on one channel."""

    place: str
    snapshot_id: str
    source: str
    target: str
    kind: str
    messages: tuple[Mapping[str, Any], ...]
    more: int


def channel(served: Served, place: Place, snapshot_id: str, asked: Asked) -> Channel:
    """The messages in flight on the channel from `source` to `target` of this `kind`, one by one."""
    source, target, kind = (asked.values.get(name, "") for name in ("source", "target", "kind"))
    wanted = {"source": source, "target": target, "kind": kind}
    rows, total = reading.messages_of(served, place, snapshot_id, wanted, MOST_MESSAGES)
    shown = tuple(map(message_of, rows))
    return Channel(place.key, snapshot_id, plain(source), plain(target), plain(kind), shown, total - len(shown))


def message_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is shown."""
    return {
        "number": row["number"],
        "source": plain(row["source"]),
        "kind": plain(row["kind"]),
        "method": plain(row["method"]),
        "args": compact_text(row["args"]),
        "bytes": row["payload_bytes"],
        "sent_at": row["sent_at"],
    }


def compact_text(text: str | None) -> str:
    """JSON text in one line, cut."""
    return "-" if text is None else plain(text, 400)
