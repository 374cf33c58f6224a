"""Replies and calls that are overdue: the call has ended and its reply does not come, or a call could begin and does not.
Before a reply is overdue, its reader may just be told of it.

Compared over snapshots: no process sees both ends of a reply, or what a worker does before a call begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S
from ray_snapshot.protocol.calls import CONSTRUCTOR, parsed

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.reports import ProcessReport
    from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot, ResolvedWait


class DelayedCalls:
    """Of one watched app. By wait, or by call: when the first of the snapshots began that all found it so."""

    def __init__(self) -> None:
        self.replies: dict[Any, float] = {}
        self.calls: dict[Any, float] = {}
        self.open: dict[str, set[str]] = {}
        """By machine: the calls that have not ended, of those that it has made or whose refs have come to it."""
        self.answered: dict[str, float] = {}
        """By machine: when one of these was first seen to have ended, if that is not long ago."""

    def just_answered(
        self, calls: CompletedCallSnapshot, recorded: Mapping[str, ProcessReport], now: float
    ) -> frozenset[str]:
        """The machines that a reply may be about to reach: what they have put on its ref runs when that has come."""
        every = {*calls.open_calls()}
        before, self.open = self.open, {name: every.intersection(one.passed) for name, one in recorded.items()}
        for call in every:
            self.open.setdefault(parsed(call).source, set()).add(call)
        self.answered |= {name: now for name, those in before.items() if those - self.open.get(name, set())}
        self.answered = {name: at for name, at in self.answered.items() if now - at < LONG_S}
        return frozenset(self.answered)

    def update(
        self,
        calls: CompletedCallSnapshot,
        recorded: Mapping[str, ProcessReport],
        facts: Mapping[str, Mapping[str, Any]],
        now: float,
    ) -> tuple[tuple[tuple[ResolvedWait, float], ...], tuple[tuple[CallsOf, int, float], ...]]:
        """Replies and calls that are overdue, each with the time since when."""
        ended, free = _ended(calls), _unbegun(calls, recorded, facts)
        self.replies = {key: self.replies.get(key, now) for key in ended}
        self.calls = {key: self.calls.get(key, now) for key in free}
        replies = tuple((ended[key], since) for key, since in self.replies.items() if now - since >= LONG_S)
        unbegun = tuple((free[key], key[3], at) for key, at in self.calls.items() if now - at >= LIMITS.delayed_call_s)
        return replies, unbegun


def _ended(calls: CompletedCallSnapshot) -> dict[Any, ResolvedWait]:
    """Waits whose calls have ended: the reply is still being written, sent or read, which may take for ever."""
    blocked = {machine for machine, report in calls.machines.items() if report.status == "blocked"}
    return {
        (one.machine, one.wait.call_id, one.wait.waiting_since, one.wait.on): one
        for one in calls.waits
        if one.is_satisfied and one.on_machines and not (one.wait.is_ready or one.wait.is_local or one.wait.may_act)
        if not one.wait.is_callback and one.machine in blocked
    }


def _unbegun(
    calls: CompletedCallSnapshot, recorded: Mapping[str, ProcessReport], facts: Mapping[str, Mapping[str, Any]]
) -> dict[Any, CallsOf]:
    """Constructors, and calls that something waits for, that have not begun though they have their arguments and a slot.

    Whether a node has room is told elsewhere. A call that nothing waits for may have ended in an error before it began.
    """
    held_back = {one.wait.call_id for one in calls.argument_waits if one.is_satisfied is not True}
    answers = (pair for one in calls.waits for pair in zip(one.wait.calls, one.answers, strict=False))
    lacking = {call for call, answer in answers if answer is False}
    return {
        (channel.source, channel.incarnation, channel.target, number): channel
        for channel in calls.channels
        if channel.tasks or CONSTRUCTOR in channel.in_flight or _takes_calls(channel.target, calls, recorded, facts)
        for number in islice(_free(channel, held_back, facts), LIMITS.unexplained_waits)
        if channel.call_id(number) in lacking or (number == CONSTRUCTOR and number not in channel.tasks)
    }


def _free(channel: CallsOf, held_back: set[str | None], facts: Mapping[str, Mapping[str, Any]]) -> Iterator[int]:
    """The calls of a channel that have their arguments; behind a constructor there are none, nor behind what goes first."""
    for number in sorted(channel.in_flight):
        if channel.call_id(number) not in held_back:
            yield number
        elif facts.get(channel.target, {}).get("in_order"):
            return
        if number == CONSTRUCTOR and number not in channel.tasks:
            return


def _takes_calls(
    machine: str,
    calls: CompletedCallSnapshot,
    recorded: Mapping[str, ProcessReport],
    facts: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Whether an actor has a slot, and nothing runs there that could keep it from a call."""
    target, about = calls.machines.get(machine), facts.get(machine, {})
    if target is None or target.status == "active" or "max_concurrency" not in about or about.get("groups"):
        return False
    if machine not in recorded or recorded[machine].blocking_call is not None:
        return False
    return all(one.method != "__init__" for one in target.calls) and len(target.calls) < int(about["max_concurrency"])
