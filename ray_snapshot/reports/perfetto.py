"""A history as a trace: snapshots, verdicts, waits and actions over time, in the JSON that Perfetto and Chrome's tracing open.

Each system has a group of tracks: its snapshots (the slowest parties of each below it), what detectors say, counters, who waits
for whom, and the actions of each machine that was traced. A wait is drawn until the last snapshot that has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import is_any_of
from ray_snapshot.history import History
from ray_snapshot.reports.texts import cut, plain
from ray_snapshot.verdicts import word_of

MOST_SNAPSHOTS = 10_000
MOST_MACHINES = 2_000
"""So many machines have a track, those that acted first, then those that waited longest."""
MOST_ACTIONS = 200_000
MOST_WAITS = 200_000
MOST_HOSTS = 20
"""So many parties of a snapshot are drawn, the slowest."""
MOST_SENTENCE = 1_000
AT_ONCE = 200
"""Snapshots whose rows are read at once."""

SNAPSHOTS, DETECTORS, FIRST_MACHINE = 1, 2, 10
"""Tracks of a group."""

Event = dict[str, Any]


@dataclass
class Left:
    """What is not in the trace, for there would be too much of it."""

    said: list[str] = field(default_factory=list)

    def note(self, count: int, most: int, what: str) -> None:
        """`count` there are, and `most` are drawn."""
        if count > most:
            self.said.append(f"{count - most:,} of {count:,} {what}")


@dataclass
class _Wait:
    machine: str
    on: str
    since: datetime
    until: datetime
    site: str


def trace(history: History, system: str | None, run: str | None, left: Left) -> Iterator[Event]:
    """The events of a history, in no order; what is left out is noted. `run`: the beginning of an id."""
    rows = history.snapshot_table(system)
    if run is not None:
        rows = rows.filter(pc.starts_with(rows["run_id"], run))
    left.note(rows.num_rows, MOST_SNAPSHOTS, "snapshots (the earliest)")
    rows = rows.slice(max(0, rows.num_rows - MOST_SNAPSHOTS)).drop_columns(["coverage"])
    for group, name in enumerate(sorted(set(rows["system"].drop_null().to_pylist())), start=1):
        own = rows.filter(pc.equal(rows["system"], name)).to_pylist()
        yield from _of_system(history, group, str(name), own, left)


def _of_system(history: History, group: int, name: str, rows: list[dict[str, Any]], left: Left) -> Iterator[Event]:
    yield _named("process_name", group, 0, f"system {plain(name)}")
    yield _named("thread_name", group, DETECTORS, "detectors")
    waits: dict[tuple[str, str, str, datetime], _Wait] = {}
    for at in range(0, len(rows), AT_ONCE):
        some = rows[at : at + AT_ONCE]
        ids = [str(row["snapshot_id"]) for row in some]
        delays = _delays(history, ids)
        for row in some:
            yield from _snapshot(group, row, delays.get(str(row["snapshot_id"]), {}))
        yield from _verdicts(history, group, ids, {str(row["snapshot_id"]): row for row in some})
        _gather_waits(history, ids, {str(row["snapshot_id"]): row for row in some}, waits)
    runs = dict.fromkeys(str(row["run_id"]) for row in rows)
    yield from _of_machines(history, group, runs, list(waits.values()), left)


def _named(what: str, group: int, track: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": group, "tid": track, "args": {"name": name}}


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


# ---- snapshots -----------------------------------------------------------------------------------------------------------


def _snapshot(group: int, row: Mapping[str, Any], delays: Mapping[str, float]) -> Iterator[Event]:
    begin, end = row["started_at"], row["completed_at"] or row["started_at"]
    if begin is None:
        return
    is_complete = row["status"] == "complete"
    keys = (
        "status",
        "protocol",
        "abort_reason",
        "machine_count",
        "in_flight_count",
        "bytes",
        "restorable",
        "consistent",
    )
    told = {key: plain(row[key]) if isinstance(row[key], str) else row[key] for key in keys if row[key] is not None}
    name = "snapshot" if is_complete else "snapshot that was given up"  # one name, one track
    told["sequence"] = row["sequence"]
    track = {"cat": "snapshot", "id": plain(row["snapshot_id"]), "pid": group, "tid": SNAPSHOTS}  # they may overlap
    end = max(begin, end)
    yield {"ph": "b", "name": name, "ts": _us(begin), "args": told, **track}
    slowest = sorted(delays.items(), key=lambda item: -item[1])[:MOST_HOSTS]
    for host, _ in slowest:  # one in the other, as the format wants it: the slowest outermost
        yield {"ph": "b", "name": plain(host), "ts": _us(begin), **track}
    for host, delay in reversed(slowest):
        recorded = _us(begin) + round(1_000 * min(max(delay, 0.0), 1e12))
        yield {"ph": "e", "name": plain(host), "ts": min(recorded, _us(end)), **track}
    yield {"ph": "e", "name": name, "ts": _us(end), **track}
    if is_complete:
        counts = {"in flight": row["in_flight_count"] or 0}
        yield {"ph": "C", "name": "in flight", "ts": _us(end), "pid": group, "args": counts}
        yield {"ph": "C", "name": "bytes", "ts": _us(end), "pid": group, "args": {"bytes": row["bytes"] or 0}}


def _delays(history: History, ids: list[str]) -> dict[str, dict[str, float]]:
    """By snapshot, by host: how long after the beginning its last machine recorded, in ms."""
    table = history.rows_of("machines", ids, ["snapshot_id", "host", "record_delay_ms"])
    found: dict[str, dict[str, float]] = {}
    last = table.group_by(["snapshot_id", "host"]).aggregate([("record_delay_ms", "max")])
    for row in last.to_pylist():
        if row["record_delay_ms_max"] is not None and math.isfinite(row["record_delay_ms_max"]):
            found.setdefault(str(row["snapshot_id"]), {})[str(row["host"])] = row["record_delay_ms_max"]
    return found


def _verdicts(history: History, group: int, ids: list[str], rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Event]:
    columns = ["snapshot_id", "detector", "evaluator", "holds", "alarm", "sentence"]
    for row in history.rows_of("verdicts", ids, columns).to_pylist():
        of = rows[row["snapshot_id"]]
        moment = of["completed_at"] or of["started_at"]
        if moment is None:
            continue
        word = f"{'ALARM: ' if row['alarm'] else ''}{word_of(row['holds'])}"
        yield {
            "ph": "i",
            "s": "p" if row["alarm"] else "t",
            "name": f"{plain(row['detector'])}: {word}",
            "ts": _us(moment),
            "pid": group,
            "tid": DETECTORS,
            "args": {
                "snapshot": plain(row["snapshot_id"]),
                "sentence": cut(plain(row["sentence"] or "", MOST_SENTENCE), MOST_SENTENCE),
            },
        }


# ---- machines ------------------------------------------------------------------------------------------------------------


def _gather_waits(
    history: History,
    ids: list[str],
    rows: Mapping[str, Mapping[str, Any]],
    waits: dict[tuple[str, str, str, datetime], _Wait],
) -> None:
    columns = ["snapshot_id", "machine", "call_id", "on_machine", "satisfied", "waiting_since"]
    table = history.rows_of("waits", ids, columns)
    table = table.filter(pc.is_valid(table["waiting_since"]))
    sites = _sites(history, ids, table)
    for row in table.to_pylist():
        until = rows[row["snapshot_id"]]["completed_at"] or row["waiting_since"]
        machine, on = str(row["machine"]), str(row["on_machine"] or "something that was not recorded")
        key = machine, str(row["call_id"]), on, row["waiting_since"]
        if key in waits:
            waits[key].until = max(until, waits[key].until)
        elif len(waits) < MOST_WAITS:
            site = sites.get(str(row["call_id"]), "")
            waits[key] = _Wait(machine, on, row["waiting_since"], max(until, row["waiting_since"]), site)


def _sites(history: History, ids: list[str], waits: pa.Table) -> dict[str, str]:
    """By call that waits: in which method, and where."""
    calls = sorted({str(one) for one in waits["call_id"].to_pylist() if one is not None})
    if not calls:
        return {}
    table = history.rows_of("calls", ids, ["call_id", "method", "call_site"])
    table = table.filter(pa.array(is_any_of(table["call_id"], *calls)))
    return {str(row["call_id"]): f"{row['method'] or ''} {row['call_site'] or ''}".strip() for row in table.to_pylist()}


def _of_machines(history: History, group: int, runs: Iterable[str], waits: list[_Wait], left: Left) -> Iterator[Event]:
    traced = [history.action_table(run) for run in runs]
    table = pa.concat_tables(traced).sort_by("acted_at") if traced else None
    count = 0 if table is None else table.num_rows
    left.note(count, MOST_ACTIONS, "actions (the last)")
    actions = [] if table is None else list(history.each("actions", table.slice(0, MOST_ACTIONS)))
    longest: dict[str, timedelta] = {}
    for wait in waits:
        longest[wait.machine] = max(longest.get(wait.machine, timedelta(0)), wait.until - wait.since)
    names = [*dict.fromkeys(str(row["machine"]) for row in actions), *sorted(longest, key=lambda one: -longest[one])]
    names = list(dict.fromkeys(names))
    left.note(len(names), MOST_MACHINES, "machines")
    tracks = {name: FIRST_MACHINE + at for at, name in enumerate(names[:MOST_MACHINES])}
    for name, track in tracks.items():
        yield _named("thread_name", group, track, plain(name))
    yield from _actions(group, tracks, actions)
    for at, wait in enumerate(waits):
        if wait.machine in tracks:
            own = {"cat": "wait", "id": f"{group}-wait-{at}", "pid": group, "tid": tracks[wait.machine]}
            name = f"{plain(wait.machine)} waits for {plain(wait.on)}"
            yield {"ph": "b", "name": name, "ts": _us(wait.since), "args": {"where": plain(wait.site)}, **own}
            yield {"ph": "e", "name": name, "ts": _us(wait.until), **own}


def _actions(group: int, tracks: Mapping[str, int], actions: Iterable[Mapping[str, Any]]) -> Iterator[Event]:
    """Each action as a moment on its machine's track, and each message as an arrow."""
    for row in actions:
        track, moment = tracks.get(str(row["machine"])), row["acted_at"]
        if track is None or moment is None:
            continue
        at = {"ts": _us(moment), "pid": group, "tid": track}
        told = {"number": row["number"], "colour": row["colour"]}
        for name in ("waited_at", "raised"):
            if row[name]:
                told[name] = plain(row[name])
        yield {"ph": "X", "name": plain(row["method"]), "dur": 1, "args": told, **at}
        for phase, messages in (("s", row["sent"]), ("f", row["accepted"])):
            for item in messages if isinstance(messages, list) else ():
                if (key := _key(phase, str(row["run_id"]), str(row["machine"]), item)) is not None:
                    arrow = {
                        "ph": phase,
                        "cat": "message",
                        "name": plain(item.get("method", "")),
                        "id": f"{group}:{key}",
                    }
                    yield {**arrow, **({"bp": "e"} if phase == "f" else {}), **at}


def _key(phase: str, run: str, machine: str, item: Any) -> str | None:
    """What a message of a run is called at both of its ends."""
    if not isinstance(item, Mapping):
        return None
    source, target = (machine, item.get("target")) if phase == "s" else (item.get("source"), machine)
    return plain(f"{run} {source}>{target} {item.get('kind')} {item.get('number')}", 1_000)
