"""Polls of a watched app over snapshots: whether those who are asked have changed, and by what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ray_snapshot.instrument.process.answer_uses import Use
from ray_snapshot.instrument.process.polls import Poll
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import MachineReport


class _Callee(NamedTuple):
    """One who is asked, between two calls."""

    state: str | None
    accepted: Mapping[str, int]
    """How many calls of each caller."""
    answers: int
    """How many who asks has had to a question, at most."""
    inside: frozenset[str]
    """The calls that were there, but for those that ask."""

    def has_moved(self, after: _Callee, callers: Iterable[str]) -> bool:
        """Whether more has changed until then than what counts its calls; where that is not known, whether others called it."""
        if self.state is not None and after.state is not None:
            return self.counters(after) is None
        return not self.callers_until(after).issubset(callers)

    def callers_until(self, after: _Callee) -> set[str]:
        """Whose calls it has accepted until then."""
        return {name for name, count in after.accepted.items() if count != self.accepted.get(name, 0)}

    def counters(self, after: _Callee) -> list[str] | None:
        """The numbers that have grown by the number of calls until then; None if anything else has changed, or is not known."""
        if self.state == after.state is not None:
            return []
        if self.state is None or after.state is None or len(after.state) > LIMITS.compared_state_bytes:
            return None
        calls, names = sum(after.accepted.values()) - sum(self.accepted.values()), list[str]()
        return names if _is_counted(json.loads(self.state), json.loads(after.state), calls, "", names) else None


class Polls:
    """Of one watched app."""

    def __init__(self) -> None:
        self.callees: dict[tuple[Any, str], tuple[_Callee, _Callee]] = {}
        """By poll and machine: when it was seen first, and last."""
        self.moved: dict[Any, float] = {}
        """By poll: when somebody whom it asks has changed last, but for what counts calls."""
        self.others: set[str] = set()
        """Where something beside calls may act, and not only a poll, as of the last snapshot."""
        self.plain: dict[str, tuple[str, ...]] = {}
        """By machine: its plain methods when it was seen between two calls last."""

    def rows(
        self,
        calls: CompletedCallSnapshot,
        reports: Mapping[str, ProcessReport],
        worked: Mapping[str, float],
        now: float,
    ) -> Iterator[dict[str, Any]]:
        """A row of each, as `detectors.polls` reads it; machines have their names between processes.

        `worked`: when the process of each was found at work last.
        """
        polls = {(name, *one[:3]): one for name, report in reports.items() for one in report.polls}
        self.moved = {key: at for key, at in self.moved.items() if key in polls}
        before, self.callees = self.callees, {}
        asks: dict[str, set[str]] = {}  # of those of whose state there is a copy
        for key, poll in polls.items():
            for one in poll.asked:
                if (report := calls.machines.get(one.machine)) is not None and report.has_state:
                    asks.setdefault(one.machine, set()).add(key[0])
        callers = {key[0] for key in polls}
        replied = {(one.machine, one.wait.call_id) for one in calls.waits if one.is_satisfied is not False}
        unseen = {name for name, one in reports.items() if one.threads.acting or one.background}
        works = any(now - worked.get(name, 0.0) < LIMITS.poll_s for name in unseen - callers)
        others = {name for name in unseen if name not in callers or reports[name].background}
        others, self.others = others & self.others, others
        for key, poll in polls.items():
            for name in dict.fromkeys([*(one.machine for one in poll.asked), *(name for name, _ in poll.sent)]):
                seen, report = before.get((key, name)), calls.machines.get(name)
                if report is not None and report.has_state:
                    self.plain[name] = reports[name].plain_methods if name in reports else ()
                    callee = _now(report, poll)
                    if seen is not None and seen[1].has_moved(callee, asks.get(name, (key[0],))):
                        self.moved[key] = now
                    seen = (callee if seen is None else seen[0]), callee
                if seen is not None:
                    self.callees[key, name] = seen
            is_moving = works or now - self.moved.get(key, 0.0) < LIMITS.poll_s
            if not poll.is_young:
                counters = None if key[:2] in replied else self._counters(key, poll, asks)
                yield _row(key[0], poll) | {"is_moving": is_moving, "counters": counters}
            elif _is_in_vain(poll) and not (is_moving or others):
                yield _row(key[0], poll) | {"is_moving": False, "is_young": True}

    def _counters(self, key: Any, poll: Poll, asks: Mapping[str, set[str]]) -> list[str] | None:
        """What of those whom it asks only counts its calls, if all else has stayed, and the answers depend on nothing else.

        None: not so, as far as it is known; then nothing is suspected. The second answer behind a snapshot is of behind it.
        """
        if poll.use != Use.UNTIL.value or poll.sent or any(one.answer not in _NOT_YET for one in poll.asked):
            return None
        counting: list[str] = []
        for one in poll.asked:
            seen = self.callees.get((key, one.machine))
            is_plain = one.method in self.plain.get(one.machine, ())
            if seen is None or not is_plain or one.machine not in asks or one.times < seen[0].answers + 2:
                return None
            names = seen[0].counters(seen[1])
            others = seen[0].callers_until(seen[1]) - asks[one.machine]
            if names is None or others or seen[0].inside - seen[1].inside:
                return None
            counting += names
        return list(dict.fromkeys(counting))


_NOT_YET = ("None", "False", "0", "0.0", "''", "[]", "{}", "()", "set()")
"""Answers for which a loop waits that they change; one that asks whether all is well gets another."""


def _is_in_vain(poll: Poll) -> bool:
    """Whether it waits for another answer, as far as is seen."""
    return poll.use == Use.UNTIL.value or all(not one.machine or one.answer in _NOT_YET for one in poll.asked)


def _is_counted(before: Any, after: Any, calls: int, name: str, names: list[str]) -> bool:
    if type(before) is int and type(after) is int and after - before == calls:
        names.append(name)
        return True
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return all(_is_counted(before[key], after[key], calls, str(key), names) for key in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_is_counted(*pair, calls, name, names) for pair in zip(before, after, strict=True))
    return type(before) is type(after) and bool(before == after)


def _now(report: MachineReport, poll: Poll) -> _Callee:
    accepted: dict[str, int] = {}
    for one in report.inputs:
        accepted[one.source] = accepted.get(one.source, 0) + one.accepted_count
    answers = max((one.times for one in poll.asked if one.machine == report.machine), default=0)
    inside = frozenset(call.call_id for call in report.calls if call.method not in {one.method for one in poll.asked})
    state = None if report.state is None or report.state.truncated else report.state.text
    return _Callee(state, accepted, answers, inside)


def _row(machine: str, poll: Poll) -> dict[str, Any]:
    return {
        "kind": "poll",
        "machine": machine,
        "call_id": poll.call_id,
        "thread": poll.thread,
        "at": poll.since,
        "is_wait": poll.wait is not None,
        "asked": [one._asdict() for one in poll.asked],
        "is_bounded": poll.use in (Use.BOUNDED.value, Use.ONCE.value)
        or (poll.use == Use.WATCHED.value and not _is_in_vain(poll)),
    }
