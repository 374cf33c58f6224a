"""Polls of a watched app over snapshots: whether those who are asked have changed by anything but the asking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.instrument.process.answer_uses import Use
from ray_snapshot.instrument.process.polls import Poll
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import MachineReport


@dataclass(slots=True)
class _Asked:
    """One who is asked, when it was seen between two calls last."""

    state: str | None = None
    by_others: int = 0
    """How many calls of others, or of another kind, it had accepted."""


class Polls:
    """Of one watched app."""

    def __init__(self) -> None:
        self.asked: dict[tuple[Any, str], _Asked] = {}
        """By poll and machine."""
        self.moved: dict[Any, float] = {}
        """By poll: when somebody whom it asks has changed last by other calls than its own."""

    def told(
        self, calls: CompletedCallSnapshot, reports: Mapping[str, ProcessReport], now: float
    ) -> Iterator[dict[str, Any]]:
        """A row of each, as `detectors.polls` reads it; machines have their names between processes."""
        polls = {(name, one.call_id, one.thread): one for name, report in reports.items() for one in report.polls}
        self.moved = {key: at for key, at in self.moved.items() if key in polls}
        before, self.asked = self.asked, {}
        for key, poll in polls.items():
            callees = dict.fromkeys([*(one.machine for one in poll.asked), *(name for name, _ in poll.sent)])
            for name in callees:
                seen = before.get((key, name), _Asked())
                report = calls.machines.get(name)
                is_seen = report is not None and report.has_state
                self.asked[key, name] = _now(report, poll, key[0]) if is_seen and report is not None else seen
                if is_seen and seen.state is not None and _has_moved(seen, self.asked[key, name]):
                    self.moved[key] = now
            yield _row(key[0], poll, is_moving=now - self.moved.get(key, 0.0) < LIMITS.poll_s)


def _now(report: MachineReport, poll: Poll, caller: str) -> _Asked:
    by_others = sum(one.accepted_count for one in report.inputs if one.source != caller)
    has_others = any(name == report.machine for name, _ in poll.sent)
    own = sum(one.accepted_count for one in report.inputs if one.source == caller) if has_others else 0
    return _Asked(None if report.state is None else report.state.text, by_others + own)


def _has_moved(before: _Asked, after: _Asked) -> bool:
    """Whether its state has changed, and calls came that do not only ask."""
    return after.by_others != before.by_others and after.state != before.state


def _row(machine: str, poll: Poll, *, is_moving: bool) -> dict[str, Any]:
    return {
        "kind": "poll",
        "machine": machine,
        "call_id": poll.call_id,
        "thread": poll.thread,
        "at": poll.since,
        "asked": [one._asdict() for one in poll.asked],
        "is_bounded": poll.use in (Use.BOUNDED.value, Use.ONCE.value),
        "is_moving": is_moving,
    }
