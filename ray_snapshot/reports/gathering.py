"""What a report says: one snapshot of a history, its verdicts, who waits for whom, what came before, what was not covered.

Plain values, of bounded size, whatever the history holds: `page` and `markdown` write them down. A verdict on termination and
deadlock that the history has not is found now.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from ray_snapshot import __version__
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.detectors.common import at_most, plural, unsound
from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.evidence import names, names_in, records
from ray_snapshot.history import History
from ray_snapshot.names import listed, noun_of, word_for
from ray_snapshot.reports.machines import MOST_CARDS, Card, cards, concerned
from ray_snapshot.reports.past import Past, past
from ray_snapshot.reports.texts import cut, distinct, plain, pretty
from ray_snapshot.reports.waits import Waiting, evidence_of, sentence, waiting
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import evaluate, word_of

ALARM, UNKNOWN, CLEAR = "alarm", "unknown", "clear"

MOST_EVIDENCE = 12_000
"""Characters of the evidence of one verdict."""
MOST_VERDICTS = 30
ABOVE = "As told above."
MOST_ITEMS = 50
"""So many things that were not covered are named."""


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """A verdict."""

    detector: str
    word: str
    """ "ALARM: holds", "does not hold", "cannot be told"."""
    sentence: str
    is_alarm: bool
    evaluator: str
    evidence: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that a report says."""

    system: str
    run_id: str
    snapshot_id: str
    taken_at: datetime | None
    facts: tuple[tuple[str, str], ...]
    level: str
    """`ALARM`, `UNKNOWN` or `CLEAR`."""
    is_sound: bool
    """Whether the snapshot is complete and its cut consistent."""
    headline: str
    verdicts: tuple[ShownVerdict, ...]
    more_verdicts: int
    waiting: Waiting | None
    past: Past
    cards: tuple[Card, ...]
    more_cards: int
    gaps: tuple[str, ...]
    """What was not covered, or not recorded."""
    versions: tuple[tuple[str, str], ...]
    history: str
    noun: str = "machine"
    """ "actor" where an app was watched."""


def choose(history: History, text: str | None, system: str | None = None) -> str:
    """The snapshot that `text` means (as `History.resolve`); without: the newest alarm of the newest run, else its newest
    snapshot."""
    if text is not None:
        return history.resolve(text, system=system)
    rows = history.snapshot_table(system)
    if not rows.num_rows:
        raise HistoryNotFoundError(
            f"no snapshot in the history {history.path} to report", path=str(history.path), snapshot_id=None
        )
    newest = rows.slice(rows.num_rows - 1).to_pylist()[0]
    ids = rows.filter(pc.equal(rows["run_id"], newest["run_id"]))["snapshot_id"].to_pylist()
    said = history.rows_of("verdicts", ids, ["snapshot_id", "alarm"])
    alarms = said.filter(pc.fill_null(said["alarm"], False))["snapshot_id"].to_pylist()
    return str(max(alarms) if alarms else newest["snapshot_id"])


def gather(history: History, snapshot_id: str, *, has_charts: bool = True) -> Report:
    """The report of one snapshot; raises as `History.load`. `has_charts`: with the charts, as SVG."""
    snapshot = history.load(snapshot_id)
    verdicts = verdicts_on(history, snapshot)
    alarms = [row for row in verdicts if row["alarm"]]
    found, waits = waiting(snapshot, verdicts)
    about = concerned(snapshot, waits, [row["evidence"] for row in alarms if not records(evidence_of(row, "members"))])
    first = {box.machines[0] for box in found.picture.boxes if box.machines} if found is not None else set()
    about.sort(key=lambda name: name not in first)  # one of those that wait alike comes before the second one
    return Report(
        system=plain(snapshot.system),
        run_id=plain(snapshot.run_id),
        snapshot_id=plain(snapshot.snapshot_id),
        taken_at=snapshot.started_at,
        facts=tuple(facts(snapshot)),
        level=_level(snapshot, verdicts),
        is_sound=unsound(snapshot) is None,
        headline=_headline(snapshot, verdicts),
        verdicts=tuple(
            shown_verdict(
                snapshot, row if found is None or row["detector"] != found.detector else {**row, "sentence": ABOVE}
            )
            for row in verdicts[:MOST_VERDICTS]
        ),
        more_verdicts=max(0, len(verdicts) - MOST_VERDICTS),
        waiting=found,
        past=past(history, snapshot, distinct(str(row["detector"]) for row in alarms), about, has_charts=has_charts),
        cards=tuple(cards(snapshot, about)),
        more_cards=max(0, len(about) - MOST_CARDS),
        gaps=tuple(gaps(snapshot, verdicts)),
        versions=tuple(_versions(snapshot)),
        history=str(history.path),
        noun=noun_of(snapshot.protocol),
    )


def verdicts_on(history: History, snapshot: Snapshot) -> list[dict[str, Any]]:
    """Alarms first, then what cannot be told; of several evaluators of one detector each."""
    found: list[dict[str, Any]] = [dict(row) for row in history.verdicts(snapshot_id=snapshot.snapshot_id)]
    known = {row["detector"] for row in found}
    if snapshot.status == "complete":
        for item in (Deadlock(), Termination()):
            if item.name not in known:
                verdict = evaluate(item, snapshot, evaluator="report")
                found.append(verdict.model_dump())
    order = {"deadlock": 0, "termination": 1}
    return sorted(found, key=lambda row: (not row["alarm"], order.get(row["detector"], 2), str(row["detector"])))


def shown_verdict(snapshot: Snapshot, row: Mapping[str, Any]) -> ShownVerdict:
    """A verdict as it is shown."""
    return ShownVerdict(
        detector=plain(row["detector"]),
        word="ALARM: " * bool(row["alarm"]) + word_of(row["holds"]),
        sentence=sentence(snapshot, row["sentence"] or ""),
        is_alarm=bool(row["alarm"]),
        evaluator=plain(row["evaluator"]),
        evidence=pretty(row["evidence"] or {}, MOST_EVIDENCE),
    )


def _level(snapshot: Snapshot, verdicts: Sequence[Mapping[str, Any]]) -> str:
    if any(row["alarm"] for row in verdicts):
        return ALARM
    is_told = not any(
        row["holds"] is None and (row["detector"] == "deadlock" or evidence_of(row, "error")) for row in verdicts
    )
    return CLEAR if is_told and unsound(snapshot) is None else UNKNOWN


def _headline(snapshot: Snapshot, verdicts: Sequence[Mapping[str, Any]]) -> str:
    told = ((row["detector"], " does not hold" * (not row["holds"])) for row in verdicts if row["alarm"])
    if alarms := distinct(plain("".join(one)) for one in told):
        return cut(f"{snapshot.system}: {', '.join(alarms[:5])}", 200)
    if (reason := unsound(snapshot)) is not None:
        return f"{snapshot.system}: nothing can be told, {plain(reason)}"
    unknown = [plain(row["detector"]) for row in verdicts if row["holds"] is None]
    if "deadlock" in unknown:
        return f"{snapshot.system}: whether it is deadlocked cannot be told"
    return f"{snapshot.system}: no alarm" + (f"; {', '.join(unknown[:5])} cannot be told" if unknown else "")


def facts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """What is said of a snapshot first: (name, value)."""
    counted = pc.value_counts(snapshot.tables["machines"]["status"]).to_pylist()
    most, noun = sorted(counted, key=lambda one: -one["counts"])[:8], noun_of(snapshot.protocol)
    statuses = ", ".join(f"{one['counts']:,} {word_for(plain(one['values']), noun)}" for one in most)
    of = "" if noun == "actor" else f", {snapshot.protocol}"
    whole = unsound(snapshot)
    found = [
        ("snapshot", f"{snapshot.snapshot_id}, number {snapshot.sequence} of run {snapshot.run_id}"),
        ("taken in", f"{snapshot.duration_ms or 0.0:,.0f} ms{of}"),
        *([] if whole is None else [("not whole", whole)]),
        (f"{noun}s", f"{snapshot.machine_count or 0:,}" + (f" ({statuses})" if statuses else "")),
        ("in flight", plural(snapshot.in_flight_count or 0, "call" if noun == "actor" else "message")),
    ]
    if snapshot.restorable:
        found.append(("restore", "it can be restored"))
    elif snapshot.obstacles:
        found.append(("restore", f"it cannot be restored: {listed(snapshot.obstacles)}"))
    if snapshot.restored_from:
        found.append(("restored from", snapshot.restored_from))
    return [(name, plain(value)) for name, value in found]


# ---- what is missing, and of what versions -------------------------------------------------------------------------------


def gaps(snapshot: Snapshot, verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a snapshot does not cover, and what a verdict on it that cannot be told depends on."""
    reason = unsound(snapshot)
    found = [] if reason is None else [reason]
    told = snapshot.coverage
    if not isinstance(told, Mapping) or "uncovered" not in told:
        found.append("the snapshot does not say what it covers")
    found += [f"not observed: {item}" for name in ("uncovered", "apart") for item in names_in(told, name)]
    found += [
        f"recorded in the middle of an action, without its state: {name}" for name in names_in(told, "without_state")
    ]
    for row in verdicts:
        if row["holds"] is None:
            found += [f"{row['detector']} depends on: {text}" for text in names(evidence_of(row, "depends_on"))]
    return [sentence(snapshot, text) for text in at_most(found, MOST_ITEMS)]


def _versions(snapshot: Snapshot) -> list[tuple[str, str]]:
    told = snapshot.coverage.get("versions") if isinstance(snapshot.coverage, Mapping) else None
    run = [(plain(name, 60), plain(value, 60)) for name, value in told.items()] if isinstance(told, Mapping) else []
    return [
        *([(f"{name} of the run", value) for name, value in run[:10]] or [("of the run", "not recorded")]),
        ("this report", f"ray-snapshot {__version__}, Python {platform.python_version()}"),
    ]
