"""Polls of a watched app over snapshots: whether those who are asked have changed, and by what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ray_snapshot.instrument.process.answer_uses import Use
from ray_snapshot.instrument.process.polls import Poll
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import MachineReport


class _Asked(NamedTuple):
    """One who is asked, between two calls."""

    state: str | None
    by_asking: int
    """How many calls of this kind it had accepted from the caller, or of any kind if it is asked only."""
    by_others: int


class Polls:
    """Of one watched app."""

    def __init__(self) -> None:
        self.asked: dict[tuple[Any, str], tuple[_Asked, _Asked]] = {}
        """By poll and machine: when it was seen first, and last."""
        self.moved: dict[Any, float] = {}
        """By poll: when somebody whom it asks has changed last by other calls than its own."""

    def told(
        self, calls: CompletedCallSnapshot, reports: Mapping[str, ProcessReport], now: float
    ) -> Iterator[dict[str, Any]]:
        """A row of each, as `detectors.polls` reads it; machines have their names between processes."""
        polls = {
            (name, one.call_id, one.thread, one.since): one for name, report in reports.items() for one in report.polls
        }
        self.moved = {key: at for key, at in self.moved.items() if key in polls}
        before, self.asked = self.asked, {}
        for key, poll in polls.items():
            machine = key[0]
            for name in dict.fromkeys([*(one.machine for one in poll.asked), *(name for name, _ in poll.sent)]):
                seen, report = before.get((key, name)), calls.machines.get(name)
                if report is not None and report.has_state:
                    found = _now(report, poll, machine)
                    if seen is not None and found.by_others != seen[1].by_others and found.state != seen[1].state:
                        self.moved[key] = now
                    seen = (found if seen is None else seen[0]), found
                if seen is not None:
                    self.asked[key, name] = seen
            yield _row(machine, poll) | {
                "is_moving": now - self.moved.get(key, 0.0) < LIMITS.poll_s,
                "counters": self._counters(key, poll, reports),
            }

    def _counters(self, key: Any, poll: Poll, reports: Mapping[str, ProcessReport]) -> list[str] | None:
        """What of those whom it asks only counts its calls, if all else has stayed, and the answers depend on nothing else.

        None: not so, as far as it is known; then nothing is suspected.
        """
        is_waiting = poll.use == Use.UNTIL.value and not poll.sent and all(one.answer in _NOT_YET for one in poll.asked)
        found: list[str] = []
        for one in poll.asked if is_waiting else ():
            report, seen = reports.get(one.machine), self.asked.get((key, one.machine))
            if report is None or one.method not in report.plain_methods or seen is None or seen[0] is seen[1]:
                return None
            first, last = seen
            if last.by_others != first.by_others or last.by_asking == first.by_asking:
                return None
            names = counters(first.state, last.state, last.by_asking - first.by_asking)
            if names is None:
                return None
            found += names
        return list(dict.fromkeys(found)) if is_waiting else None


_NOT_YET = ("None", "False", "0", "0.0", "''", "[]", "{}", "()", "set()")
"""Answers for which a loop waits that they change; one that asks whether all is well gets another."""


def counters(before: str | None, after: str | None, calls: int) -> list[str] | None:
    """The numbers of a state that have grown by the number of calls; None if anything else has changed."""
    if before is None or after is None or max(len(before), len(after)) > LIMITS.compared_state_bytes:
        return None
    found: list[str] = []
    return found if _is_counted(json.loads(before), json.loads(after), calls, "", found) else None


def _is_counted(before: Any, after: Any, calls: int, name: str, found: list[str]) -> bool:
    if type(before) is int and type(after) is int and after - before == calls:
        found.append(name)
        return True
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return all(_is_counted(before[key], after[key], calls, str(key), found) for key in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_is_counted(*pair, calls, name, found) for pair in zip(before, after, strict=True))
    return type(before) is type(after) and bool(before == after)


def _now(report: MachineReport, poll: Poll, caller: str) -> _Asked:
    own = sum(one.accepted_count for one in report.inputs if one.source == caller)
    others = sum(one.accepted_count for one in report.inputs if one.source != caller)
    state = None if report.state is None or report.state.truncated else report.state.text
    if any(name == report.machine for name, _ in poll.sent):  # its own calls there do not only ask
        return _Asked(state, 0, others + own)
    return _Asked(state, own, others)


def _row(machine: str, poll: Poll) -> dict[str, Any]:
    return {
        "kind": "poll",
        "machine": machine,
        "call_id": poll.call_id,
        "thread": poll.thread,
        "at": poll.since,
        "asked": [one._asdict() for one in poll.asked],
        "is_bounded": poll.use in (Use.BOUNDED.value, Use.ONCE.value),
    }
