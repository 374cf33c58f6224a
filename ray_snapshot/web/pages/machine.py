"""One machine: as it was in a snapshot, and from one snapshot to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.json_text import parsed_json
from ray_snapshot.reports.machines import Card, cards
from ray_snapshot.reports.texts import compact, plain
from ray_snapshot.reports.waits import wait_records
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.views.report import wait_lines
from ray_snapshot.web import reading
from ray_snapshot.web.pages.snapshot import message_of
from ray_snapshot.web.served import Place, Served

MOST_MOMENTS = 60
"""So many snapshots of it are looked through, the last ones up to the one that is looked at."""
LARGEST = 100_000
"""Bytes of a state; of a larger one it is only told whether its size changed."""
KEPT = 200_000
"""Bytes that the page of one machine is taken for."""
MOST_MESSAGES = 100
MOST_FIELDS = 6
"""So many fields of one state."""
MOST_VALUE = 160
"""Characters of one value."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A machine in one snapshot, and what changed since the one before."""

    snapshot_id: str
    taken_at: datetime | None
    status: str
    accepted_count: int | None
    sent_count: int | None
    state_bytes: int | None
    changes: tuple[tuple[str, str, str], ...]
    same: int = 0
    """So many snapshots before it, in which nothing changed, are not listed."""


@dataclass(frozen=True, slots=True)
class OneMachine:
    """The page."""

    place: str
    snapshot_id: str
    run_id: str
    machine: str
    card: Card
    waits: tuple[str, ...]
    inbox: tuple[Mapping[str, Any], ...]
    more_inbox: int
    moments: tuple[Moment, ...]
    """The latest first."""


def machine(served: Served, place: Place, snapshot_id: str, name: str) -> OneMachine:
    """A machine by its name; raises `HistoryNotFoundError`."""
    key = ("machine", place.key, snapshot_id, name, reading.born(place))
    found = served.kept.get(key, lambda: _machine(served, place, snapshot_id, name), lambda _: KEPT)
    assert isinstance(found, OneMachine)
    return found


def _machine(served: Served, place: Place, snapshot_id: str, name: str) -> OneMachine:
    whole = reading.lean(served, place, snapshot_id)
    row = reading.machine_row(place, snapshot_id, name)
    own = _own(whole, row, name)
    messages, total = reading.messages_of(served, place, snapshot_id, {"target": name}, MOST_MESSAGES)
    shown = tuple(map(message_of, messages))
    records, more = wait_records(own)
    return OneMachine(
        place=place.key,
        snapshot_id=snapshot_id,
        run_id=plain(whole.run_id),
        machine=name,
        card=cards(own, [name])[0],
        waits=tuple(plain(line.strip()) for line in wait_lines(records, len(records) + more)),
        inbox=shown,
        more_inbox=total - len(shown),
        moments=tuple(_folded(_moments(served, place, whole, name))),
    )


def _own(whole: Snapshot, row: pa.Table, name: str) -> Snapshot:
    """The snapshot as far as it is of one machine."""
    tables = {"snapshots": whole.tables["snapshots"], "machines": row}
    for table in ("calls", "waits"):
        rows = whole.tables[table]
        tables[table] = rows.filter(pc.equal(rows["machine"], name))
    return Snapshot(tables)


def _moments(served: Served, place: Place, whole: Snapshot, name: str) -> list[Moment]:
    """The machine in the snapshots of its run up to this one."""
    listed = reading.snapshot_rows(served, place)
    run = listed.filter(pc.equal(listed["run_id"], whole.run_id))
    last = pc.index(run["snapshot_id"], whole.snapshot_id).as_py() + 1
    run = run.slice(max(0, last - MOST_MOMENTS - 1), min(last, MOST_MOMENTS + 1))
    times = dict(zip(run["snapshot_id"].to_pylist(), run["started_at"].to_pylist(), strict=True))
    columns = ["status", "accepted_count", "sent_count", "state_bytes", "class_name", "host", "incarnation"]
    rows = {row["snapshot_id"]: row for row in place.history.machine_table(name, times, columns).to_pylist()}
    small = [one for one, row in rows.items() if (row["state_bytes"] or 0) <= LARGEST]
    told = place.history.machine_table(name, small, ["state"])
    states = dict(zip(told["snapshot_id"].to_pylist(), told["state"].to_pylist(), strict=True))
    found, before = [], None
    for snapshot_id in times:
        if snapshot_id in rows:
            found.append(_moment(rows[snapshot_id], before, times, states))
            before = rows[snapshot_id]
    return found[1:] if len(found) > MOST_MOMENTS else found


def _folded(moments: Sequence[Moment]) -> list[Moment]:
    """The latest first, without those in which all was as before; the latest and the earliest are there in any case."""
    found: list[Moment] = []
    for at in range(len(moments) - 1, -1, -1):
        one = moments[at]
        is_same = 0 < at < len(moments) - 1 and not one.changes and _counts(one) == _counts(moments[at - 1])
        if is_same:
            found[-1] = replace(found[-1], same=found[-1].same + 1)
        else:
            found.append(one)
    return found


def _counts(moment: Moment) -> tuple[Any, ...]:
    return moment.accepted_count, moment.sent_count


def _moment(
    row: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    times: Mapping[str, datetime],
    states: Mapping[str, str | None],
) -> Moment:
    changes: list[tuple[str, str, str]] = []
    if before is not None:
        for column in ("status", "class_name", "host", "incarnation"):
            if row[column] != before[column]:
                changes.append((column, str(before[column]), str(row[column])))
        pair = before["snapshot_id"], row["snapshot_id"]
        if all(one in states for one in pair):
            changes += _state_changes(*(states[one] for one in pair))
        elif row["state_bytes"] != before["state_bytes"]:
            changes.append(("state", f"{before['state_bytes'] or 0:,} bytes", f"{row['state_bytes'] or 0:,} bytes"))
    return Moment(
        str(row["snapshot_id"]),
        times.get(row["snapshot_id"]),
        plain(row["status"]),
        row["accepted_count"],
        row["sent_count"],
        row["state_bytes"],
        tuple((plain(what), plain(old), plain(new)) for what, old, new in changes),
    )


def _state_changes(old: str | None, new: str | None) -> list[tuple[str, str, str]]:
    if old == new:
        return []
    try:
        return _changed_fields(*(None if text is None else parsed_json(text) for text in (old, new)))
    except ValueError:
        return [("state", "-", "cannot be read")]


def _changed_fields(old: Any, new: Any) -> list[tuple[str, str, str]]:
    """(Which field, before, now) of two states, the first `MOST_FIELDS`."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [("state", compact(old, MOST_VALUE), compact(new, MOST_VALUE))] if old != new else []
    names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    found = [(f"state: {name}", _value(old, name), _value(new, name)) for name in names[:MOST_FIELDS]]
    more = len(names) - MOST_FIELDS
    return [*found, ("state", "", f"{more:,} more fields changed")] if more > 0 else found


_ABSENT = object()


def _value(state: Mapping[str, Any], name: str) -> str:
    return compact(state[name], MOST_VALUE) if name in state else "absent"
