"""Since when does each detector's answer stand, for how long did its predicate hold, and did a stable one ever go back?

`since` asks of the verdicts that were told live: no detector is evaluated again, so nothing is said of snapshots that were not
judged, nor whether a live verdict was right. The Spark job `detections` evaluates all again, and has `summary` say the same
of its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors import from_spec
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History
from ray_snapshot.json_text import parsed_json
from ray_snapshot.names import DRIVER
from ray_snapshot.questions.reading import TIME, Answers, chosen, faults, in_batches, latest_specs, rows_of, table_of

DETECTORS = pa.schema(
    [
        *((name, pa.string()) for name in ("system", "run_id", "detector")),
        *((name, pa.bool_()) for name in ("stable", "alarm_when")),
        ("first_started_at", TIME),
        *((name, pa.int64()) for name in ("evaluated", "held", "not_held", "unknown", "alarms")),
        ("rank", pa.int32()),
        ("failed", pa.int64()),
        ("failure", pa.string()),
        ("first_held", pa.string()),
        ("first_held_at", TIME),
        *((name, pa.float64()) for name in ("first_held_seconds", "longest_held_seconds")),
        ("went_back", pa.int64()),
        *((name, pa.string()) for name in ("went_back_from", "went_back_at")),
        *((name, pa.int64()) for name in ("live", "disagreements")),
        ("disagreement_ids", pa.list_(pa.field("element", pa.string()))),
        *((name, pa.bool_()) for name in ("holds", "alarm")),
        ("since_id", pa.string()),
        ("since_at", TIME),
        ("since_seconds", pa.float64()),
        ("last_id", pa.string()),
    ]
)
"""Behind `disagreement_ids`: the present answer."""

_AT_REST = ("passive", "stopped")


MOST_IDS = 20
"""So many snapshot ids are listed in a row."""


@dataclass(slots=True)
class Judgement:
    """What a detector says of one snapshot, and what must be known of that to hold it against later ones."""

    snapshot_id: str
    sequence: int
    started_at: datetime
    completed_at: datetime | None
    restored_from: str | None
    incarnation: int | None
    driver_status: str | None
    driver_sent_count: int | None
    holds: bool | None
    alarm: bool
    failure: str | None
    is_known: bool = True
    """False: it was judged live, and cannot be judged again."""
    is_live: bool = True
    live_holds: bool | None = None
    generation: int = 0
    stretch: int = 0
    true_before: Judgement | None = None
    """Of a stable predicate that is false here and was true before: the first on which it was."""

    @property
    def differs(self) -> bool:
        """Whether it was answered otherwise live."""
        return self.is_known and self.is_live and self.holds is not self.live_holds


def since(
    history: History, *, system: str | None = None, run: str | None = None, detector: str | None = None
) -> Answers:
    """`detectors`: one row a detector of a run, those that alarm first.

    `summary` of live verdicts; `disagreements` are null, for nothing is evaluated again. Raises `HistoryNotFoundError` for a
    system, run or detector that the history has not.
    """
    if detector is not None:
        history.check_known("detector", detector)
    snapshots = chosen(history, system, run)
    with faults(history):
        specs = latest_specs(history, system)
        rows = [
            {**summary(key, _kind(specs.get(key[1:])), answers), "disagreements": None, "disagreement_ids": None}
            for key, answers in sorted(_answers(history, snapshots).items())
            if detector in (None, key[2])
        ]
        rows.sort(key=lambda row: (-row["rank"], row["first_started_at"]))
        return {"detectors": table_of(DETECTORS, rows)}


# ---- what was said -----------------------------------------------------------------------------------------------------


def _answers(history: History, snapshots: pa.Table) -> dict[tuple[str, str, str], list[Judgement]]:
    """By system, run and detector: the answers."""
    listed = {row["snapshot_id"]: row for row in snapshots.select(_KNOWN).to_pylist()}
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for batch in in_batches(snapshots):
        columns = ("snapshot_id", "detector", "evaluator", "holds", "alarm", "evidence", "evaluated_at")
        verdicts = rows_of(history, "verdicts", batch, columns)
        verdicts = verdicts.filter(pc.equal(verdicts["evaluator"], "live")).sort_by("evaluated_at")
        judged = verdicts["snapshot_id"].unique().to_pylist()
        about = _about(history, judged)
        errors = pc.fill_null(pc.match_substring(verdicts["evidence"], '"error"'), False).to_pylist()
        for row, may_have_failed in zip(verdicts.to_pylist(), errors, strict=True):
            failure = _failure(row["evidence"]) if may_have_failed else None
            last[row["snapshot_id"], row["detector"]] = {**row, "failure": failure, **about[row["snapshot_id"]]}
    found: dict[tuple[str, str, str], list[Judgement]] = {}
    for (snapshot_id, name), row in last.items():
        of = listed[snapshot_id]
        answer = Judgement(
            **{column: of[column] for column in _OF_SNAPSHOT},
            **{column: row[column] for column in ("incarnation", "driver_status", "driver_sent_count")},
            holds=row["holds"],
            alarm=bool(row["alarm"]),
            failure=row["failure"],
            live_holds=row["holds"],
        )
        found.setdefault((of["system"], of["run_id"], name), []).append(answer)
    return found


_OF_SNAPSHOT = ("snapshot_id", "sequence", "started_at", "completed_at", "restored_from")
_KNOWN = [*_OF_SNAPSHOT, "system", "run_id"]


def _about(history: History, snapshot_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By snapshot: the highest incarnation of its machines, and what its driver did, as far as that takes part."""
    columns = ("snapshot_id", "machine", "incarnation", "status", "sent_count")
    rows = rows_of(history, "machines", snapshot_ids, columns)
    nobody = {"incarnation": None, "driver_status": None, "driver_sent_count": None}
    found: dict[str, dict[str, Any]] = {snapshot_id: dict(nobody) for snapshot_id in snapshot_ids}
    highest = rows.group_by("snapshot_id").aggregate([("incarnation", "max")])
    for row in highest.to_pylist():
        found[row["snapshot_id"]]["incarnation"] = row["incarnation_max"]
    for row in rows.filter(pc.equal(rows["machine"], DRIVER)).to_pylist():
        found[row["snapshot_id"]] |= {"driver_status": row["status"], "driver_sent_count": row["sent_count"]}
    return found


def _failure(evidence: str) -> str | None:
    """What a detector raised, if it did."""
    try:
        found = parsed_json(evidence)
    except ValueError:
        return None
    error = found.get("error") if isinstance(found, dict) else None
    return None if error is None else str(error)


def _kind(spec: Mapping[str, Any] | None) -> tuple[bool | None, bool | None]:
    """Whether a detector is stable, and which answer of it alarms; unknown of code that the history alone names."""
    if spec is None or spec.get("type") == "callable":
        return None, None
    try:
        found = from_spec(spec)
    except RaySnapshotError:
        return None, None
    return found.stable, found.alarm_when


# ---- what follows ------------------------------------------------------------------------------------------------------


def summary(
    key: tuple[str, str, str], kind: tuple[bool | None, bool | None], judgements: Iterable[Judgement]
) -> dict[str, Any]:
    """A row of `DETECTORS`; `key`: system, run and detector, `kind`: whether it is stable, and which answer of it alarms.

    `first_held_seconds`, `longest_held_seconds`: from the start of the first to the start of the last of successive
    snapshots on which it held. `went_back`: on how many snapshots a stable predicate was false though it had been true
    before (null for one that is not stable). `disagreements`: how many live verdicts answered otherwise. A detector with
    `evaluated` 0 was live only: nothing stored tells how to evaluate it again. `rank`: 2 where there is an alarm, 1 where it
    held, else 0. `failure`: what it raised on the first snapshot on which it failed. The present answer: `holds`, `alarm`,
    since which snapshot it stands without a break (`since_id`, `since_at`), from there to the last that was judged
    (`since_seconds`, `last_id`).
    """
    stable, alarm_when = kind
    answers = sorted(judgements, key=lambda one: one.sequence)
    _number(answers)
    _look_back(answers, stable=bool(stable))
    held = [one for one in answers if one.holds]
    failed = [one for one in answers if one.failure is not None]
    back = [one for one in answers if one.true_before is not None]
    alarms = sum(one.alarm for one in answers)
    lengths = _lengths(answers)
    differing = sorted(one.snapshot_id for one in answers if one.differs)
    first = held[0] if held else None
    return {
        **dict(zip(("system", "run_id", "detector"), key, strict=True)),
        "stable": stable,
        "alarm_when": alarm_when,
        "first_started_at": min(one.started_at for one in answers),
        "evaluated": sum(one.is_known for one in answers),
        "held": len(held),
        "not_held": sum(one.holds is False for one in answers),
        "unknown": sum(one.is_known and one.holds is None for one in answers),
        "alarms": alarms,
        "rank": 2 if alarms else 1 if held else 0,
        "failed": len(failed),
        "failure": failed[0].failure if failed else None,
        "first_held": first and first.snapshot_id,
        "first_held_at": first and first.started_at,
        "first_held_seconds": first and lengths[first.generation, first.stretch],
        "longest_held_seconds": max(lengths.values(), default=None),
        "went_back": len(back) if stable else None,
        "went_back_from": back[0].true_before.snapshot_id if back and back[0].true_before else None,
        "went_back_at": back[0].snapshot_id if back else None,
        "live": sum(one.is_live for one in answers),
        "disagreements": len(differing),
        "disagreement_ids": differing[:MOST_IDS],
        **_present(answers),
    }


def _number(answers: Sequence[Judgement]) -> None:
    """Tell generations apart, which a restore or a restart begins, and stretches of successive snapshots on which it held."""
    generation = stretch = 0
    before: Judgement | None = None
    for one in answers:
        restored = one.restored_from is not None and one.restored_from != (before and before.restored_from)
        restarted = before is not None and None not in (one.incarnation, before.incarnation)
        if restored or (restarted and before is not None and one.incarnation != before.incarnation):
            generation, stretch = generation + 1, 0
        stretch += not one.holds
        one.generation, one.stretch = generation, stretch
        before = one


def _lengths(answers: Sequence[Judgement]) -> dict[tuple[int, int], float]:
    """By generation and stretch: the seconds from the start of the first to the start of the last snapshot on which it held."""
    held: dict[tuple[int, int], list[datetime]] = {}
    for one in answers:
        if one.holds:
            held.setdefault((one.generation, one.stretch), []).append(one.started_at)
    return {key: _seconds(min(times), max(times)) for key, times in held.items()}


def _look_back(answers: Sequence[Judgement], *, stable: bool) -> None:
    """Note where a stable predicate is false though it was true on a snapshot that was completed before this one began.

    Only pairs count between which nothing reached in from outside: no restore or restart, no message that the driver sent, no
    driver that woke up.
    """
    if not stable:
        return
    for _, of in groupby(sorted(answers, key=_period), _period):
        together = list(of)
        true = [one for one in together if one.holds]
        first, first_awake = _first(true), _first([one for one in true if _is_awake(one)])
        for one in together:
            before = first_awake if _is_awake(one) else first
            if one.holds is False and before is not None and before.completed_at is not None:
                one.true_before = before if before.completed_at < one.started_at else None


def _period(one: Judgement) -> tuple[int, bool, int]:
    return one.generation, one.driver_sent_count is None, one.driver_sent_count or 0


def _first(answers: Sequence[Judgement]) -> Judgement | None:
    known = [one for one in answers if one.completed_at is not None]
    return min(known, key=lambda one: (one.completed_at, one.snapshot_id), default=None)


def _is_awake(one: Judgement) -> bool:
    return one.driver_status is not None and one.driver_status not in _AT_REST


def _present(answers: Sequence[Judgement]) -> dict[str, Any]:
    """The last answer, and since when it stands."""
    last = since = answers[-1]
    for one in reversed([one for one in answers if one.generation == last.generation]):
        if one.holds is not last.holds:
            break
        since = one
    return {
        "holds": last.holds,
        "alarm": last.alarm,
        "since_id": since.snapshot_id,
        "since_at": since.started_at,
        "since_seconds": _seconds(since.started_at, last.started_at),
        "last_id": last.snapshot_id,
    }


def _seconds(first: datetime, last: datetime) -> float:
    return (last - first).total_seconds()
