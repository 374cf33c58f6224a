"""Is the total of what machines hold and what is on its way between them what it has to be?

Counting the machines alone is wrong whenever something is in flight; a consistent cut counts each token
exactly once (Chandy and Lamport 1985, the token example). The detector is data (paths, a total), so that
Spark can run it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ray_snapshot.adding import Together
from ray_snapshot.adding import total as total_of
from ray_snapshot.detectors.changes import changes, changes_text
from ray_snapshot.detectors.common import MOST_LISTED, answer, check_name, listed, plural, uncovered, unsound
from ray_snapshot.detectors.holdings import (
    StatePath,
    Unmade,
    check_message_paths,
    check_state_path,
    is_bare,
    unmade,
)
from ray_snapshot.detectors.ledger import plain, say
from ray_snapshot.detectors.sums import Sums, ledger_of, sums_of, sums_of_each
from ray_snapshot.errors import SettingError
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


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
      the amounts or `total` is a fraction, found and expected may differ by `tolerance`, times `total`
      where that is more than 1.

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
        now: Sums = total_of(self, snapshot)
        usable = earlier is not None and not unsound(earlier) and not uncovered(earlier)
        before: Sums | None = total_of(self, earlier) if earlier is not None and usable and self.total is None else None
        expected = self._expected(before)
        evidence = _figures(now, expected)
        if expected is None or now.unknown or uncovered(snapshot):
            evidence["unknown"] = now.unknown[:MOST_LISTED]
            text = f"Conservation cannot be told: {_doubt(snapshot, now)}."
            return answer(self, snapshot, None, evidence, text)
        if now.is_empty and (expected == 0 or is_bare(snapshot, now.machines)):
            text = f"Conservation cannot be told: no machine and no message has anything at {self.state}."
            return answer(self, snapshot, None, evidence, text)
        to_come, is_same = unmade(snapshot, self.messages), self._same(now, expected)
        is_all_there = (
            self.total is not None if is_same else now.found > expected
        )  # without a total it may be held against itself
        if to_come.count and not is_all_there:
            evidence["unmade"] = to_come.count
            return answer(self, snapshot, None, evidence, _untold(to_come, now, expected))
        if is_same:
            text = f"Conserved: {say(now.found)} in all, {say(now.in_flight)} of it in flight."
            return answer(self, snapshot, True, evidence, text)
        if earlier is not None and not unsound(earlier):
            evidence["since"] = earlier.snapshot_id
            evidence["changed"] = changes(*(ledger_of(one, self.state, self.messages) for one in (earlier, snapshot)))
        return answer(self, snapshot, False, evidence, _mismatch(evidence, now, expected))

    def partial(self, part: Snapshot) -> Sums:
        """What some machines and messages hold."""
        return sums_of(part, self.state, self.messages)

    def total_of_each(self, rows: Together) -> list[Sums | None]:
        """What each of many snapshots holds; None where that takes more than adding up whole numbers."""
        return sums_of_each(rows, self.state, self.messages)

    def merge(self, one: Sums, other: Sums) -> Sums:
        """What both hold."""
        return one.plus(other)

    def _expected(self, before: Sums | None) -> Fraction | None:
        if self.total is not None:
            return Fraction(self.total)
        return None if before is None or before.unknown else before.found

    def _same(self, now: Sums, expected: Fraction) -> bool:
        if not now.is_rounded and (self.total is None or expected.denominator == 1):
            return now.found == expected
        return abs(now.found - expected) <= Fraction(self.tolerance) * max(Fraction(1), abs(expected))


def _check_number(value: object, setting: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SettingError(f"{setting}={value!r} is not a number")
    return value


def _figures(now: Sums, expected: Fraction | None) -> dict[str, Any]:
    return {
        "expected": None if expected is None else plain(expected),
        "found": plain(now.found),
        "difference": None if expected is None else plain(now.found - expected),
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


def _untold(to_come: Unmade, now: Sums, expected: Fraction) -> str:
    """Why nothing is said while machines are being made."""
    who = f"{plural(to_come.count, 'machine')} ({listed(to_come.names, to_come.count)})"
    return (
        f"Conservation cannot be told: what {who} will hold is not known until its __init__ has run, and so far"
        f" {say(now.found)} of {say(expected)} are there."
    )


def _mismatch(evidence: dict[str, Any], now: Sums, expected: Fraction) -> str:
    difference = now.found - expected
    where = f"{say(now.in_machines)} in machines, {say(now.in_flight)} in flight, {say(expected)} expected"
    text = f"Not conserved: {say(abs(difference))} {'too many' if difference > 0 else 'missing'} ({where})."
    if now.is_empty:
        text += " No machine and no message has anything where the paths lead: are they right?"
    changed = evidence.get("changed", {})
    if changed.get("machine_count") or changed.get("channel_count"):
        text += f" Since {evidence['since']}: {changes_text(evidence['changed'])}."
    return text
