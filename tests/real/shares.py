"""How many snapshots of a history have a definite verdict, and what is missing in the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray_snapshot as rs
from ray_snapshot.names import NO_CALL

KINDS = {
    "no verdict": "the detector had not answered when the program ended",
    "aborted": "the snapshot was given up: a process did not record in time",
    "thread": "a thread of the program or of a library that may act",
    "loop": "tasks, timers or sockets on an event loop that may wake a coroutine",
    "signal": "a timer or a handler of signals that may act",
    "plain task": "a plain task that may hold a handle or a ref and reports nothing yet",
    "starting": "an actor whose constructor runs",
    "no header": "a call that came from a process that is not watched",
    "generator": "nobody is known who takes the items of a generator",
    "not recorded": "an actor that is in no report yet, or in none any more",
    "dead": "a process that died while the snapshot was open",
    "lost call": "a call that neither runs nor is in flight",
    "not observed wait": "a wait of which no row says for what",
    "object of no call": "a wait for an object that no watched call gives",
    "wait in Python": "a lock, queue, socket or child process that is waited for, for more than ten seconds",
    "busy loop": "a call that occupies the event loop of its actor",
    "delayed": "a call that has not begun, though its arguments, a slot and room are there",
    "room": "room on a node that others hold, or that may be given back",
    "node": "a node of which nothing is seen",
}
"""What a verdict None depends on: kinds by name."""

_FIRST = (
    ("aborted", r"the snapshot was aborted|the cut is not consistent"),
    ("thread", r"thread .* of |who calls actors from a thread of "),
    ("loop", r".*\bon the loops?\b|the event loop \("),
    ("signal", r"a timer\b|the handler of "),
    ("plain task", r"plain tasks|what plain tasks"),
    ("starting", r"what .* was starting$"),
    ("no header", r"who called .* without a header$"),
    ("generator", r"who takes the items of the generator "),
    ("dead", r".* while the snapshot was open$|mail of .*, which is gone$"),
    ("node", r"actors on node |.*nodes that "),
    ("not recorded", r".*, which (is (sent to|waited for) but not recorded|does not report)|actor .* \(\w+\)$|host "),
    ("lost call", r"the reply to call "),
    ("object of no call", rf"what ends the wait of .* {NO_CALL}$"),
    ("wait in Python", r"what ends "),
    ("not observed wait", r"what .* waits for\b"),
    ("delayed", r"what keeps .* from beginning$"),
    ("busy loop", r"whether .* ends without "),
    ("room", r".* needs |whether a handle of "),
)
"""By kind: how a text of it begins; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Share:
    snapshots: int
    definite: int
    """With the answer True or False."""
    alarms: int
    """With the answer True."""
    causes: dict[str, int]
    """What is missing where the answer is None: how many snapshots name each kind."""

    def plus(self, other: Share) -> Share:
        causes = Counter(self.causes)
        causes.update(other.causes)
        counts = self.snapshots + other.snapshots, self.definite + other.definite, self.alarms + other.alarms
        return Share(*counts, dict(causes))

    @property
    def percent(self) -> float | None:
        return 100.0 * self.definite / self.snapshots if self.snapshots else None


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
            causes.update(set(told))
    return Share(len(every), definite, alarms, dict(causes))


def causes_of(evidence: dict[str, Any], sentence: str) -> list[str]:
    """The kind of each thing that a verdict None names as missing."""
    named = evidence.get("depends_on") or evidence.get("uncovered") or [sentence.partition(": ")[2] or sentence]
    return [_kind(str(item)) for item in named]


def _kind(text: str) -> str:
    """A text of no known kind is its own: the page shows that it has no name yet."""
    return next((kind for kind, begin in _FIRST if re.match(begin, text)), text)
