"""Does an app stand still, while it cannot be told what would end this?

The watcher notes in the coverage since when nothing has moved (`still_since`, ISO 8601): no call, wait or state changed, and no
process used its processor or read. It leaves that out while a process of the app does not report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ray_snapshot.detectors.collective import Collective
from ray_snapshot.detectors.common import answer, check_name, lasted, parties
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.happened import happened, rows
from ray_snapshot.detectors.places import places
from ray_snapshot.detectors.unexplained import Unexplained, seconds_still, unexplained
from ray_snapshot.errors import SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

_SERVES = re.compile(r"(?:\bthat listens on \S+|\bfor its standard input|\bfor a signal)$")
"""What a service at rest waits for."""

_OUTSIDE = re.compile(r"\bfor (?:a socket|sockets|a pipe|child process|any child|the file)\b")
"""What no thread of the process itself ends."""

_USUAL_S = 120.0


class Stall:
    """True iff nothing has moved for `seconds`, each call waits, and of one wait it cannot be told what ends it.

    False while a call runs on without a wait (it sleeps, or receives), while the program waits for requests, its input or a
    signal, and where `Deadlock` has an answer. Evidence: `seconds` (for how long), `places` (where each group of actors stands,
    the smallest first), `happened`. Not stable: a reply from outside may come. None for snapshots that do not say what
    processes do. Cost: that of `Deadlock`, once nothing has moved for so long.
    """

    stable: bool = False
    alarm_when: bool | None = True
    looks_at = frozenset({"statuses"})

    def __init__(self, *, seconds: float = _USUAL_S, name: str = "stall") -> None:
        if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise SettingError(f"Stall(seconds={seconds!r}): give a number of seconds above 0")
        self.name = check_name(name)
        self.seconds = seconds
        self.spec: dict[str, Any] = {
            "type": "stall",
            "name": name,
            **({"seconds": seconds} if seconds != _USUAL_S else {}),
        }

    def __repr__(self) -> str:
        return f"Stall(seconds={self.seconds:g}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Ask how long nothing has moved, then whether that can end."""
        still_s = seconds_still(snapshot)
        if still_s is None:
            return answer(
                self, snapshot, None, {}, "A stall cannot be told: the snapshot does not say what processes do."
            )
        evidence: dict[str, Any] = {"seconds": still_s}
        if still_s < self.seconds:
            return answer(self, snapshot, False, evidence, f"Something moved {lasted(still_s)} ago.")
        if reason := next(_reasons(snapshot), ""):
            return answer(self, snapshot, False, evidence, f"Nothing has moved for {lasted(still_s)}: {reason}.")
        ranks = Collective().evaluate(snapshot).evidence.get("groups", ())
        evidence |= {"places": [*ranks, *places(snapshot)], "happened": happened(snapshot)}
        count = parties(snapshot, snapshot.machine_count)
        text = f"Nothing has moved for {lasted(still_s)} in {count}, and it cannot be told what would end this."
        return answer(self, snapshot, True, evidence, text)


def _has_a_thread(wait: Unexplained, snapshot: Snapshot) -> bool:
    """Whether a thread beside it in its process acts, and may end it."""
    acting = snapshot.coverage.get("uncovered") or ()
    return not _OUTSIDE.search(wait.what) and any(str(text).endswith(f" of {wait.machine}") for text in acting)


def _reasons(snapshot: Snapshot) -> Iterator[str]:
    """Why it is no stall."""
    waits = [one for one in unexplained(snapshot) if not _has_a_thread(one, snapshot)]
    polls = [one for one in rows(snapshot) if one["kind"] == "poll"]
    if not (waits or polls or snapshot.coverage.get("unbegun")):
        yield "no wait is without an explanation"
    serving = [one.machine for one in waits if _SERVES.search(one.what)]
    if DRIVER in serving or len(serving) == len(waits) > 0:
        yield "the program waits for requests, its input or a signal"
    parked = {(row["machine"], row["call_id"]) for row in snapshot.waits if not row["satisfied"]}
    parked |= {(one["machine"], one["call_id"]) for one in polls if one.get("is_wait")}
    unknown = {(one.machine, one.call_site) for one in waits}
    for row in snapshot.calls:
        if (row["machine"], row["call_id"]) not in parked and (row["machine"], row["call_site"]) not in unknown:
            yield f"{row['machine']} runs on in {row['method']}"
    if Collective().evaluate(snapshot).holds:
        yield "a collective cannot complete"
    if (deadlock := Deadlock().evaluate(snapshot)).holds is not None:
        yield "it is deadlocked" if deadlock.holds else "what is waited for can still come"
