"""Which verdicts tell something new: what begins, and what ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.verdicts import Verdict


ALL = frozenset({"all"})
"""The core of what has none."""


def cores_of(evidence: Mapping[str, Any]) -> list[frozenset[str]]:
    """The machines of each independent core of a deadlock; of another predicate one core, which is always the same."""
    found = evidence.get("cores")  # a detector of the user's may call anything so
    cores = found if isinstance(found, (list, tuple)) else ()
    return [frozenset(map(str, core)) for core in cores if isinstance(core, (list, tuple, set, frozenset))] or [ALL]


class News:
    """Which verdicts begin something, or end it: an alarm; of a detector without one, that it holds.

    A deadlock begins anew with each core that shares no machine with one that is known. What cannot be told ends nothing.
    """

    def __init__(self, alarm_when: Callable[[str], bool | None]) -> None:
        """`alarm_when`: of the detector of this name; None: it has no alarm."""
        self.alarm_when = alarm_when
        self.known: dict[str, list[frozenset[str]]] = {}
        """By detector: the cores of what has begun."""

    def has(self, verdict: Verdict) -> bool:
        """Whether this one tells anything new."""
        detector, holds = verdict.detector, verdict.holds
        wanted = holds if verdict.alarm else self.alarm_when(detector)  # also if its detector is asked no more
        if holds is None:
            return False
        if holds is not (True if wanted is None else wanted):
            return self.known.pop(detector, None) is not None
        known, found = self.known.get(detector, []), cores_of(verdict.evidence)
        is_new = any(all(core.isdisjoint(one) for one in known) for core in found)
        self.known[detector] = found
        return is_new

    def is_alarm(self, verdict: Verdict) -> bool:
        """Whether an alarm is what this one is about, or was."""
        return verdict.alarm or self.alarm_when(verdict.detector) is not None or verdict.detector in self.known

    def forget(self, detectors: Iterable[str]) -> None:
        """These are asked no more; another of that name begins anew."""
        for name in detectors:
            self.known.pop(name, None)
