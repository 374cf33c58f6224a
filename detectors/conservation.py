"""Is the total of what machines hold and what is on its way between them what it has to be?

Counting the machines alone is wrong whenever something is in flight; a consistent cut counts each token
exactly once (Chandy and Lamport 1985, the token example). The detector is data (paths, a total), so that
Spark can run it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from ray_snapshot.adding import total as total_of
from ray_snapshot.detectors.changes import changes, changes_text
from ray_snapshot.detectors.common import answer, check_name, parties, uncovered, unsound
from ray_snapshot.detectors.holdings import (
    StatePath,
    Unmade,
    check_message_paths,
    check_state_path,
    is_bare,
    unmade,
)
from ray_snapshot.detectors.ledger import Ledger, plain, say
from ray_snapshot.detectors.sums import Sums, ledger_of, sums_of
from ray_snapshot.errors import SettingError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed, noun_of
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Expected(NamedTuple):
    """What a snapshot has to come to; if that is rounded, so is the comparison."""

    amount: Fraction
    is_rounded: bool


@dataclass(frozen=True, slots=True)
class Count:
    """What a snapshot holds, and what stands in the way of judging it."""

    sums: Sums
    to_come: Unmade
    is_bare: bool
    """Whether there is nothing yet that could hold anything."""
    is_sound: bool
    """Whether the cut is complete and consistent, and nothing was left out of it."""

    @property
    def found(self) -> Expected:
        """What is there, as what another snapshot has to come to."""
        return Expected(self.sums.found, self.sums.is_rounded)


Doubt = Literal["unread", "empty", "unmade"]
"""Why nothing is said: there is no sum or nothing to compare it with; the paths lead to nothing; machines are being made."""


class TokenConservation:
    """True iff the tokens in the states plus those in the messages in flight are `total`.

    - `total`: a number; None: as many as in the `earlier` snapshot (so the first snapshot of a run cannot
      be told).
    - `state`: where a state says what its machine holds, a path such as `$.balance` or a dict of paths by
      class name. A machine whose state has nothing there (or null) holds 0; with a dict, so do machines of
      other classes.
    - `messages`: where the arguments of a message say what it carries, a path such as `$[0]` by method.
      Other methods carry nothing. A message of a method named here must have a number there.
    - `tolerance`: integers, decimals and fractions are summed and compared exactly. Where a float is among
      the amounts (of the `earlier` snapshot, too, if that is expected) or `total` is a fraction, found and
      expected may differ by `tolerance`, times `total` where that is more than 1.

    None if a value is needed that was not recorded whole (truncated, null, or no number), or if anything is
    uncovered; and while machines are being made, for what they will hold is not known, unless all of
    `total` is there already, or more (none is made with less than nothing). A path for `__init__` in
    `messages` counts what is in flight to them; each must have a number there. A driver with a null state
    holds nothing. `stable` is False: an invariant that was violated may look right again.

    Cost: O(machines + messages), the same again for `earlier` where it is needed, and O(channels) on a
    mismatch.
    """

    stable: bool = False
    alarm_when: bool | None = False
    is_timeless = True
    looks_at = frozenset({"states"})

    def __init__(
        self,
        total: float | None = None,
        state: StatePath = "$.tokens",
        messages: Mapping[str, str] | None = None,
        *,
        tolerance: float = 1e-9,
        name: str = "conservation",
    ) -> None:
        self.name = check_name(name)
        self.total = None if total is None else _check_number(total, "total")
        self.state = check_state_path(state)
        self.messages = check_message_paths({} if messages is None else messages)
        self.tolerance = _check_number(tolerance, "tolerance")
        self.spec: dict[str, Any] = {
            "type": "token-conservation",
            "name": name,
            "total": self.total,
            "state": self.state,
            "messages": self.messages,
            "tolerance": self.tolerance,
        }

    def __repr__(self) -> str:
        settings = f"total={self.total}, state={self.state!r}, messages={self.messages!r}"
        return f"TokenConservation({settings}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> Verdict:
        """Count; on a mismatch say what changed since `earlier`, the last snapshot that was right."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Conservation cannot be told: {reason}.")
        now = self.count(snapshot)
        expected = self.expected(None if earlier is None or self.total is not None else self.count(earlier))
        evidence = _figures(now.sums, expected)
        doubt = self.doubt(now, expected)
        if expected is None or doubt == "unread":
            evidence["unknown"] = now.sums.unknown[: LIMITS.listed]
            text = f"Conservation cannot be told: {_doubt(snapshot, now.sums)}."
            return answer(self, snapshot, None, evidence, text)
        if doubt == "empty":
            text = f"Conservation cannot be told: no {noun_of(snapshot.protocol)} and no message has anything at {self.state}."
            return answer(self, snapshot, None, evidence, text)
        if doubt == "unmade":
            evidence["unmade"] = now.to_come.count
            return answer(self, snapshot, None, evidence, _untold(snapshot, now, expected))
        if self.is_same(now, expected):
            text = f"Conserved: {say(now.sums.found)} in all, {say(now.sums.in_flight)} of it in flight."
            return answer(self, snapshot, True, evidence, text)
        if earlier is not None and not unsound(earlier):
            evidence["since"] = earlier.snapshot_id
            evidence["changed"] = changes(*(self.ledger(one) for one in (earlier, snapshot)))
        return answer(self, snapshot, False, evidence, _mismatch(snapshot, evidence, now.sums, expected))

    def count(self, snapshot: Snapshot) -> Count:
        """What a snapshot holds; of one that was added up before, at no cost by row."""
        sums: Sums = total_of(self, snapshot)
        is_sound = not unsound(snapshot) and not uncovered(snapshot)
        return Count(sums, unmade(snapshot, self.messages), is_bare(snapshot, sums.machines), is_sound)

    def ledger(self, snapshot: Snapshot) -> Ledger:
        """What each machine and each message in flight holds."""
        return ledger_of(snapshot, self.state, self.messages)

    def expected(self, before: Count | None) -> Expected | None:
        """What a snapshot has to come to: `total`, or without one as much as there was `before`."""
        if self.total is not None:
            total = Fraction(self.total)
            return Expected(total, total.denominator != 1)
        return None if before is None or not before.is_sound or before.sums.unreadable else before.found

    def doubt(self, now: Count, expected: Expected | None) -> Doubt | None:
        """Why nothing is said of a snapshot; None if it can be told."""
        if expected is None or now.sums.unreadable or not now.is_sound:
            return "unread"
        if now.sums.is_empty and (expected.amount == 0 or now.is_bare):
            return "empty"
        # without a total it may be held against itself
        is_all_there = self.total is not None if self.is_same(now, expected) else now.sums.found > expected.amount
        return "unmade" if now.to_come.count and not is_all_there else None

    def is_same(self, now: Count, expected: Expected) -> bool:
        """Whether what is there is what is expected: exactly, or within the tolerance where a float is involved."""
        difference = now.sums.found - expected.amount
        if not now.sums.is_rounded and not expected.is_rounded:
            return difference == 0
        return abs(difference) <= Fraction(self.tolerance) * max(Fraction(1), abs(expected.amount))

    def partial(self, part: Snapshot) -> Sums:
        """What some machines and messages hold."""
        return sums_of(part, self.state, self.messages)

    def merge(self, one: Sums, other: Sums) -> Sums:
        """What both hold."""
        return one.plus(other)


def _check_number(value: object, setting: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingError(f"{setting}={value!r} is not a number")
    return value


def _figures(now: Sums, expected: Expected | None) -> dict[str, Any]:
    return {
        "expected": None if expected is None else plain(expected.amount),
        "found": plain(now.found),
        "difference": None if expected is None else plain(now.found - expected.amount),
        "in_machines": plain(now.in_machines),
        "in_flight": plain(now.in_flight),
        "machines": now.machines,
        "messages": now.messages,
    }


def _doubt(snapshot: Snapshot, now: Sums) -> str:
    """Why the count cannot be judged."""
    if now.unknown:
        return listed(now.unknown, most=2)
    unseen = uncovered(snapshot)
    if unseen:
        return f"this was not observed: {listed(unseen)}"
    return f"no total was given, and no earlier snapshot has one to compare {say(now.found)} with"


def _untold(snapshot: Snapshot, now: Count, expected: Expected) -> str:
    """Why nothing is said while machines are being made."""
    to_come = now.to_come
    who = f"{parties(snapshot, to_come.count)} ({listed(to_come.names, to_come.count)})"
    return (
        f"Conservation cannot be told: what {who} will hold is not known until its __init__ has run, and so far"
        f" {say(now.sums.found)} of {say(expected.amount)} are there."
    )


def _mismatch(snapshot: Snapshot, evidence: dict[str, Any], now: Sums, expected: Expected) -> str:
    difference, noun = now.found - expected.amount, noun_of(snapshot.protocol)
    where = f"{say(now.in_machines)} in {noun}s, {say(now.in_flight)} in flight, {say(expected.amount)} expected"
    text = f"Not conserved: {say(abs(difference))} {'too many' if difference > 0 else 'missing'} ({where})."
    if now.is_empty:
        text += f" No {noun} and no message has anything where the paths lead: are they right?"
    changed = evidence.get("changed", {})
    if changed.get("machine_count") or changed.get("channel_count"):
        text += f" Since {evidence['since']}: {changes_text(evidence['changed'], noun)}."
    return text
