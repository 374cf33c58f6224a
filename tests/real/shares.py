"""How many snapshots of a history have a definite verdict, and what is missing in the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray_snapshot as rs

_NUMBERS = re.compile(r"[-_ ]?\b\d[\d.-]*\b|\b[0-9a-f]{8,}\b|(?<=[A-Za-z])[-_]\d+\b|\(0x[0-9a-f]+\)")
_KINDS = (
    (re.compile(r"^thread (.*) of (.*)$"), r"a thread of \2 (\1)"),
    (re.compile(r"^the snapshot was aborted.*$"), "the snapshot was aborted"),
    (re.compile(r"^the reply to call .*$"), "the reply to a call that neither runs nor is in flight"),
    (re.compile(r"^who called .* without a header$"), "calls without a header"),
    (re.compile(r"^what (.*) of (.*) waits for$"), r"what \2.\1 waits for"),
)


@dataclass(frozen=True, slots=True)
class Share:
    """Of one detector."""

    snapshots: int
    definite: int
    """With the answer True or False."""
    alarms: int
    """With the answer True."""
    causes: dict[str, int]
    """What is missing where the answer is None: how many snapshots each cause was named in."""

    def plus(self, other: Share) -> Share:
        """Of the snapshots of both."""
        causes = Counter(self.causes)
        causes.update(other.causes)
        counts = self.snapshots + other.snapshots, self.definite + other.definite, self.alarms + other.alarms
        return Share(*counts, dict(causes))

    @property
    def percent(self) -> float | None:
        """None without a snapshot."""
        return 100.0 * self.definite / self.snapshots if self.snapshots else None

    @property
    def main_cause(self) -> str:
        """The one that most snapshots name; nothing where each has an answer."""
        return max(self.causes, key=lambda cause: self.causes[cause]) if self.causes else ""


def shares(histories: Iterable[Path]) -> dict[str, Share]:
    """Of `deadlock` and of `termination`, over all these; a snapshot without a verdict has no definite one."""
    found = {name: Share(0, 0, 0, {}) for name in ("deadlock", "termination")}
    for history in histories:
        if history.exists():
            kept = rs.History(history)
            every = [row.snapshot_id for row in kept.snapshots()]
            found = {name: one.plus(_share(every, kept.verdicts(name))) for name, one in found.items()}
    return found


def _share(every: list[str], verdicts: Any) -> Share:
    found = {row.snapshot_id: row for row in verdicts}
    causes: Counter[str] = Counter()
    definite = alarms = 0
    for snapshot in every:
        verdict = found.get(snapshot)
        if verdict is not None and verdict.holds is not None:
            definite += 1
            alarms += bool(verdict.holds)
        else:
            told = ["no verdict"] if verdict is None else causes_of(verdict.evidence, verdict.sentence)
            causes.update(list(dict.fromkeys(told)))  # in the order in which they are named
    return Share(len(every), definite, alarms, dict(causes))


def causes_of(evidence: dict[str, Any], sentence: str) -> list[str]:
    """What a verdict None names as missing, without the numbers that tell one actor from the next."""
    named = evidence.get("depends_on") or evidence.get("uncovered") or [sentence.partition(": ")[2] or sentence]
    return [_kind(str(item)) for item in named]


def _kind(text: str) -> str:
    for pattern, kind in _KINDS:
        if pattern.match(text):
            text = pattern.sub(kind, text)
            break
    return re.sub(r"[-_](?=\s|$)", "", _NUMBERS.sub("", text)).strip()
