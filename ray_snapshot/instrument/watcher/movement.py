"""When anything in a watched app has moved last: a call, a wait, a state, or a process that has used its processor or read.

What asks again and again and gets equal answers does not move by that, nor does whom it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.usage import Usage
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot


class Movement:
    """Of one watched app."""

    def __init__(self) -> None:
        self.since = 0.0
        """Since then nothing has moved."""
        self.seen: Any = None
        self.used: dict[str, Usage] = {}
        self.worked: dict[str, float] = {}
        """By machine: when its process was found at work last."""

    def still_since(
        self, calls: CompletedCallSnapshot, reports: Mapping[str, ProcessReport], now: float, *, is_covered: bool
    ) -> float:
        """Compare a snapshot with the one before; returns since when nothing has moved, 0 if that is not known.

        `is_covered`: whether all processes of the app have reported.
        """
        seen = _seen(calls, reports)
        at_work = [name for name, one in reports.items() if self._has_worked(name, one.usage)]
        self.worked = {name: at for name, at in self.worked.items() if name in reports} | dict.fromkeys(at_work, now)
        if seen != self.seen or at_work:
            self.since = now
        self.seen = seen
        self.used = {name: used for name, used in self.used.items() if name in reports}
        return self.since if is_covered and all(one.usage is not None for one in reports.values()) else 0.0

    def _has_worked(self, machine: str, usage: Usage | None) -> bool:
        """Whether its process has done more than a process does that waits, since it was asked last."""
        if usage is None or usage == (before := self.used.get(machine)):
            return False
        self.used[machine] = usage
        if before is None:  # what it has come for is a call
            return False
        seconds = max(usage.at - before.at, LIMITS.usage_look_s)
        is_computing = usage.cpu_s - before.cpu_s > LIMITS.idle_cpu_share * seconds
        return is_computing or usage.read_bytes - before.read_bytes > LIMITS.idle_bytes_s * seconds


def _seen(calls: CompletedCallSnapshot, reports: Mapping[str, ProcessReport]) -> Any:
    """What is otherwise once anything has moved: calls and states, waits, and counts, each but for those of polls."""
    polls = [(name, poll) for name, one in reports.items() for poll in one.polls]
    callers = {(name, poll.call_id) for name, poll in polls}
    asked = {(name, by.machine) for name, poll in polls for by in poll.asked}
    waits = (one for one in calls.waits if (one.machine, one.wait.call_id) not in callers)
    channels = (one for one in calls.channels if (one.source, one.target) not in asked)
    return (
        {
            name: ([call for call in one.calls if (call.caller, name) not in asked], one.state)
            for name, one in calls.machines.items()
        },
        {(one.machine, one.wait.call_id, one.wait.waiting_since, one.wait.call_site) for one in waits},
        {(one.source, one.target, one.sent_count, one.accepted_count) for one in channels},
    )
