"""One snapshot, everything evaluated: which machine waits for which, and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, evaluate
from ray_snapshot.views.report import deadlock_report, place, wait_tree

HEALTHY, DEADLOCK, UNKNOWN = 0, 3, 4


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one snapshot says."""

    verdicts: list[Verdict]
    lines: list[str]
    exit_code: int
    """0 healthy, 3 deadlock, 4 could not tell."""


def diagnosis(
    snapshot: Snapshot, detectors: Sequence[Detector], pending: Sequence[str] = (), hints: Sequence[str] = ()
) -> Diagnosis:
    """Evaluate the detectors, and draw which machine waits for which; the first detector decides on the exit code.

    `pending`: a line for each thing that has not begun; `hints`: what may be a reason, and decides nothing.
    """
    verdicts = [evaluate(item, snapshot) for item in detectors]
    first = verdicts[0]
    code = {True: DEADLOCK, False: HEALTHY, None: UNKNOWN}[first.holds]
    lines = [
        f"{snapshot.system}: {snapshot.machine_count} machines, {snapshot.in_flight_count} calls or messages in flight,"
        f" snapshot {snapshot.snapshot_id} in {snapshot.duration_ms:.0f} ms"
    ]
    tree = wait_tree(snapshot.waits, _places(snapshot))
    lines += [f"  {line}" for line in tree] or ["  nothing waits for anything"]
    if first.holds and first.evidence.get("members"):
        lines.append(deadlock_report(first.evidence, snapshot.system, snapshot.snapshot_id))
    if pending:
        lines += ["  has not begun:", *(f"    {line}" for line in pending)]
    lines += [f"  hint: {line}" for line in hints]
    lines += [f"  {verdict.detector}: {verdict.sentence}" for verdict in verdicts]
    uncovered = [str(item) for name in ("uncovered", "apart") for item in snapshot.coverage.get(name, ())]
    if uncovered:
        lines.append(f"  not observed: {', '.join(uncovered)}")
    return Diagnosis(verdicts, lines, code)


def _places(snapshot: Snapshot) -> dict[str, str]:
    classes = dict(
        zip(
            *(snapshot.tables["machines"][name].to_pylist() for name in ("machine", "class_name")),
            strict=True,
        )
    )
    found: dict[str, str] = {}
    for row in snapshot.calls:
        found.setdefault(row["machine"], place({**row, "class": classes.get(row["machine"])}))
    return found
