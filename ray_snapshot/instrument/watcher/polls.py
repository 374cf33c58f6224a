"""Polls of a watched app over snapshots: whether those who are asked have changed, and by what."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
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
    accepted: Mapping[str, int]
    """How many calls of each caller."""

    def since(self, before: _Asked, callers: Collection[str]) -> tuple[int, int]:
        """How many calls of these callers it has accepted since then, and how many of others."""
        new = {name: count - before.accepted.get(name, 0) for name, count in self.accepted.items()}
        own = sum(new[name] for name in callers & new.keys())
        return own, sum(new.values()) - own


class Polls:
    """Of one watched app."""

    def __init__(self) -> None:
        self.asked: dict[tuple[Any, str], tuple[_Asked, _Asked]] = {}
        """By poll and machine: when it was seen first, and last."""
        self.moved: dict[Any, float] = {}
        """By poll: when somebody whom it asks has changed last by other calls than its own."""

    def told(
        self,
        calls: CompletedCallSnapshot,
        reports: Mapping[str, ProcessReport],
        worked: Mapping[str, float],
        now: float,
    ) -> Iterator[dict[str, Any]]:
        """A row of each, as `detectors.polls` reads it; machines have their names between processes.

        `worked`: when the process of each was found at work last.
        """
        polls = {
            (name, one.call_id, one.thread, one.since): one for name, report in reports.items() for one in report.polls
        }
        self.moved = {key: at for key, at in self.moved.items() if key in polls}
        before, self.asked = self.asked, {}
        callers = {key[0] for key in polls}
        asks: dict[str, set[str]] = {}
        for key, poll in polls.items():
            for one in poll.asked:
                if all(name != one.machine for name, _ in poll.sent):
                    asks.setdefault(one.machine, set()).add(key[0])
        unseen = (
            name for name, one in reports.items() if (one.threads.acting or one.background) and name not in callers
        )
        works = any(now - worked.get(name, 0.0) < LIMITS.poll_s for name in unseen)  # in a thread, or on a loop
        for key, poll in polls.items():
            machine = key[0]
            for name in dict.fromkeys([*(one.machine for one in poll.asked), *(name for name, _ in poll.sent)]):
                seen, report = before.get((key, name)), calls.machines.get(name)
                if report is not None and report.has_state:
                    found = _now(report)
                    if (
                        seen is not None
                        and found.state != seen[1].state
                        and found.since(seen[1], asks.get(name, set()))[1]
                    ):
                        self.moved[key] = now
                    seen = (found if seen is None else seen[0]), found
                if seen is not None:
                    self.asked[key, name] = seen
            yield _row(machine, poll) | {
                "is_moving": works or now - self.moved.get(key, 0.0) < LIMITS.poll_s,
                "counters": self._counters(key, poll, reports, asks),
            }

    def _counters(
        self, key: Any, poll: Poll, reports: Mapping[str, ProcessReport], asks: Mapping[str, set[str]]
    ) -> list[str] | None:
        """What of those whom it asks only counts its calls, if all else has stayed, and the answers depend on nothing else.

        None: not so, as far as it is known; then nothing is suspected.
        """
        is_waiting = poll.use == Use.UNTIL.value and not poll.sent and all(one.answer in _NOT_YET for one in poll.asked)
        found: list[str] = []
        for one in poll.asked if is_waiting else ():
            report, seen = reports.get(one.machine), self.asked.get((key, one.machine))
            if report is None or one.method not in report.plain_methods or seen is None or seen[0] is seen[1]:
                return None
            by_asking, by_others = seen[1].since(seen[0], asks[one.machine])
            if by_others or not by_asking:
                return None
            names = counters(seen[0].state, seen[1].state, by_asking)
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


def _now(report: MachineReport) -> _Asked:
    accepted: dict[str, int] = {}
    for one in report.inputs:
        accepted[one.source] = accepted.get(one.source, 0) + one.accepted_count
    return _Asked(None if report.state is None or report.state.truncated else report.state.text, accepted)


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
