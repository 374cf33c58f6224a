"""Does an app stand still, and cannot it be told what would end that?

The watcher notes in the coverage since when nothing has moved (`still_since`, ISO 8601): no call, wait or state changed, and no
process used its processor or read. What sleeps, or waits for what can still come, is no stall: `Deadlock` answers False then.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from ray_snapshot.detectors.common import answer, check_name, lasted, plural
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.happened import happened
from ray_snapshot.detectors.places import places
from ray_snapshot.detectors.unexplained import unexplained
from ray_snapshot.errors import SettingError
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

_SERVES = "that listens on", "its standard input", "a signal"
"""What a service at rest waits for."""


class Stall:
    """True iff nothing has moved for `seconds`, and `Deadlock` can neither be told nor ruled out.

    A service that waits for requests, its input or a signal is at rest, and no stall. Evidence: `seconds` (for how long),
    `places` (where each group of actors stands, the smallest first), `happened`. Not stable: a reply from outside may come.
    None for snapshots of systems whose processes are not watched. Cost: that of `Deadlock`, once nothing has moved for so long.
    """

    stable: bool = False
    alarm_when: bool | None = True
    looks_at = frozenset({"statuses"})

    def __init__(self, *, seconds: float = 120.0, name: str = "stall") -> None:
        if not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
            raise SettingError(f"Stall(seconds={seconds!r}): give a number of seconds above 0")
        self.name = check_name(name)
        self.seconds = seconds
        self.spec: dict[str, Any] = {"type": "stall", "name": name, "seconds": seconds}

    def __repr__(self) -> str:
        return f"Stall(seconds={self.seconds:g}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Ask how long nothing has moved, then whether that can end."""
        try:
            since = datetime.fromisoformat(snapshot.coverage["still_since"])
        except (KeyError, TypeError, ValueError):
            return answer(
                self, snapshot, None, {}, "A stall cannot be told: the snapshot does not say what processes do."
            )
        still_s = (snapshot.started_at - since).total_seconds()
        evidence: dict[str, Any] = {"seconds": still_s}
        if still_s < self.seconds:
            return answer(self, snapshot, False, evidence, f"Something has moved {lasted(still_s)} ago.")
        deadlock = Deadlock().evaluate(snapshot)
        if deadlock.holds is not None:
            reason = "it is deadlocked" if deadlock.holds else "what is waited for can still come"
            return answer(self, snapshot, False, evidence, f"Nothing has moved for {lasted(still_s)}: {reason}.")
        waits = unexplained(snapshot)
        if waits and all(any(text in one.what for text in _SERVES) for one in waits):
            return answer(self, snapshot, False, evidence, f"Nothing has moved for {lasted(still_s)}: it serves.")
        evidence |= {"places": places(snapshot), "happened": happened(snapshot)}
        count = plural(snapshot.machine_count, "machine")
        text = f"Nothing has moved for {lasted(still_s)} in {count}, and what would end that cannot be told."
        return answer(self, snapshot, True, evidence, text)
