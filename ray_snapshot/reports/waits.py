"""Who waits for whom in a snapshot, as a report shows it: a deadlock from the evidence of its verdict, else all open waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import with_workers
from ray_snapshot.detectors.happened import happened
from ray_snapshot.evidence import deadlock_evidence, names, names_in, records
from ray_snapshot.names import NOT_RECORDED
from ray_snapshot.reports.rows import classes_of, rows_by
from ray_snapshot.reports.texts import cut, distinct, plain
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.views.report import deadlock_lines, short_sites, wait_lines
from ray_snapshot.views.wait_picture import Picture, picture

MOST_WAITS = 2_000
"""So many waits are read where there is no deadlock."""
MOST_ADVICE = 50
MOST_SENTENCE = 2_000
_AS_LONG_AS = "This holds as long as no node joins, and nobody outside gives anything back."


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for whom."""

    heading: str
    picture: Picture
    lines: tuple[str, ...]
    """Of a deadlock: what can never move again; else what waits."""
    behind: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """What has happened before."""
    advice: tuple[str, ...] = ()
    note: str = ""
    detector: str = ""
    """Whose verdict says nothing more than this."""


def waiting(snapshot: Snapshot, verdicts: Sequence[Mapping[str, Any]]) -> tuple[Waiting | None, list[dict[str, Any]]]:
    """The waits to show, and their records."""
    for row in verdicts:
        if _is_of_deadlock(row) and row["holds"] is not False and (members := records(evidence_of(row, "members"))):
            return _deadlock(snapshot, row, members)
    rows, more = wait_records(snapshot)
    if not rows:
        return None, []
    stands = next((those for row in verdicts if row["alarm"] and (those := names_in(row["evidence"], "places"))), [])
    lines = stands or wait_lines(rows, len(rows) + more)
    is_clear = any(row["detector"] == "deadlock" and row["holds"] is False for row in verdicts)
    note = "Not all of these wait for ever: what is waited for may act." if is_clear else ""
    before = tuple(sentence(snapshot, text) for text in happened(snapshot))
    shown = Waiting(
        "Where it stands" if stands else "What waits",
        picture((), rows),
        tuple(_with_workers(snapshot, lines)),
        before=before,
        note=note,
    )
    return shown, rows


def _is_of_deadlock(row: Mapping[str, Any]) -> bool:
    spec = row["detector_spec"]
    return row["detector"] == "deadlock" or (isinstance(spec, Mapping) and spec.get("type") == "deadlock")


def _deadlock(
    snapshot: Snapshot, row: Mapping[str, Any], members: list[dict[str, Any]]
) -> tuple[Waiting, list[dict[str, Any]]]:
    evidence = deadlock_evidence(row["evidence"])
    behind, told = evidence["stuck_behind"], evidence_of(row, "cores")
    cores = [names(core) for core in told] if isinstance(told, list) else []
    lines, lines_behind = deadlock_lines(evidence)
    callers = {*evidence["callers"]}  # a thread that has ended is told there
    count = evidence.get("member_count", 0) + evidence.get("stuck_behind_count", 0)
    advice = distinct(sentence(snapshot, text) for text in evidence["advice"][:MOST_ADVICE])
    found = Waiting(
        heading="What can never move again" if row["holds"] else "What would be stuck if nothing else acts",
        picture=picture(
            members, behind, cores, is_certain=bool(row["holds"]), left_out=max(0, count - len(members) - len(behind))
        ),
        lines=tuple(_with_workers(snapshot, lines)),
        behind=tuple(_with_workers(snapshot, lines_behind)),
        before=tuple(sentence(snapshot, text) for text in evidence["happened"][:MOST_ADVICE] if text not in callers),
        advice=tuple(advice),
        note=_AS_LONG_AS if any(record.get("needs") for record in (*members, *behind)) else "",
        detector=str(row["detector"]) if row["holds"] else "",
    )
    return found, [*members, *behind]


def _with_workers(snapshot: Snapshot, lines: Sequence[str]) -> list[str]:
    return [sentence(snapshot, line.strip()) for line in lines]


def wait_records(snapshot: Snapshot) -> tuple[list[dict[str, Any]], int]:
    """The waits of a snapshot as records, each with where it is; and how many waits are not among them."""
    table = snapshot.tables["waits"]
    open_ = table.filter(pc.invert(pc.fill_null(table["satisfied"], False)))
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    shown = open_.select(["machine", "call_id", "on_machine"])  # not its times: a stranger's may be none of Python's
    for row in shown.slice(0, MOST_WAITS).to_pylist():
        record = found.setdefault((row["machine"], row["call_id"]), {"machine": row["machine"], "waits_for": []})
        name = row["on_machine"] or NOT_RECORDED
        if name not in record["waits_for"]:
            record["waits_for"].append(name)
    names = [record["machine"] for record in found.values()]
    calls: dict[tuple[str, str | None], dict[str, Any]] = {}
    about = snapshot.tables["calls"].select(["machine", "call_id", "method", "call_site"])
    for name, rows in rows_by(about, "machine", names).items():
        for row in rows:
            calls.setdefault((name, row["call_id"]), row)
            calls.setdefault((name, None), row)
    classes = classes_of(snapshot, names)
    for (name, call_id), record in found.items():
        record["class"] = classes.get(name)
        if row := calls.get((name, call_id)):
            record |= {"method": row["method"], "call_site": row["call_site"]}
    whose = pa.table([open_[name].cast(pa.string()) for name in ("machine", "call_id")], ["machine", "call_id"])
    return list(found.values()), whose.group_by(["machine", "call_id"]).aggregate([]).num_rows - len(found)


def evidence_of(row: Mapping[str, Any], name: str) -> Any:
    """One item of the evidence of a verdict; None if there is none of that name."""
    evidence = row["evidence"]
    return evidence.get(name) if isinstance(evidence, Mapping) else None


def sentence(snapshot: Snapshot, text: str) -> str:
    """A stranger's sentence for people: cut, call sites short, tasks in place of Ray's workers."""
    return plain(with_workers(snapshot, short_sites(cut(text, MOST_SENTENCE))), 2 * MOST_SENTENCE)
