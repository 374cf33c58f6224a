"""A detector of one's own: how far a computation in virtual time has come for good.

It looks for the least time stamp that is in any state or on its way.

Jefferson's global virtual time (Virtual Time, 1985): nobody will ever be sent anything earlier, so what came before may be
forgotten, printed, or committed. Reading clocks one after the other misses a message with an early stamp that was on its way; a
consistent cut cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ray_snapshot.adding import total
from ray_snapshot.detectors.common import MOST_LISTED, answer, check_name, listed, uncovered, unsound
from ray_snapshot.detectors.holdings import (
    CONSTRUCTOR,
    Holdings,
    StatePath,
    check_message_paths,
    check_state_path,
    in_machines,
    in_messages,
    labels,
    unmade,
)
from ray_snapshot.detectors.json_path import MISSING
from ray_snapshot.detectors.ledger import Amount, amount_of, plain, say
from ray_snapshot.errors import SettingError
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Stamps:
    """The least stamp among some machines and messages."""

    least: Fraction | None
    """None: there is no stamp."""
    held_by: str
    """Who has it: the first by name."""
    count: int
    unknown: tuple[str, ...]
    """What could not be read, a line each: at most 100."""

    def plus(self, other: Stamps) -> Stamps:
        """That among both."""
        known = [(one.least, one.held_by) for one in (self, other) if one.least is not None]
        least, held_by = min(known, default=(None, ""))
        unknown = tuple(sorted(self.unknown + other.unknown)[:MOST_LISTED])
        return Stamps(least, held_by, self.count + other.count, unknown)


class VirtualTime:
    """True iff virtual time has come to `value`: no machine and no message in flight has an earlier stamp.

    - `state`: where a state has its machine's time, a path such as `$.clock` or a dict of paths by class name. A machine with
      nothing there, or null, is ahead of everybody: it has no time of its own until it is sent something.
    - `messages`: where the arguments of a message have its stamp, a path such as `$[0]` by method. Other methods carry none.
      A message of a method named here must have a number there.
    - `value`: the time to reach. Stable if no machine sends into its own past, which the second form finds out.

    Without `value` it is the invariant that virtual time never goes back: False, an alarm, if it is less than in the
    `earlier` snapshot; None in the first of a run.

    Evidence: `virtual_time` (None: there is no stamp), `held_by`, `stamps` (how many), and `earlier`. None where a stamp could
    not be read, while machines are being made, and with anything uncovered, unless a stamp that was seen decides. Where there
    is no stamp at all, everybody is ahead: True. Adds up. Cost: O(machines + messages).
    """

    is_timeless = True
    looks_at = frozenset({"states"})

    def __init__(
        self,
        value: float | None = None,
        state: StatePath = "$.clock",
        messages: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        if value is not None and amount_of(value, missing_is_zero=False) is None:
            raise SettingError(f"VirtualTime(value={value!r}): it is a number")
        self.value = value
        self.state = check_state_path(state)
        self.messages = check_message_paths({} if messages is None else messages)
        self.stable = value is not None
        self.alarm_when: bool | None = None if value is not None else False
        self.name = check_name(name or ("virtual-time" if value is None else f"virtual-time({plain(value)})"))
        self.spec: dict[str, Any] = {
            "type": "virtual-time",
            "name": self.name,
            "value": value,
            "state": self.state,
            "messages": self.messages,
        }

    def __repr__(self) -> str:
        return f"VirtualTime({self.value!r}, state={self.state!r}, messages={self.messages!r}, name={self.name!r})"

    def partial(self, part: Snapshot) -> Stamps:
        """The least stamp of some machines and messages."""
        return _stamps(part, in_machines(part, self.state), "machine").plus(
            _stamps(part, in_messages(part, self.messages), "message")
        )

    def merge(self, one: Stamps, other: Stamps) -> Stamps:
        """The least of both."""
        return one.plus(other)

    def evaluate(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> Verdict:
        """Compare the least stamp with the time to reach, or with that of the earlier snapshot."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Virtual time cannot be told: {reason}.")
        now: Stamps = total(self, snapshot)
        evidence: dict[str, Any] = {
            "virtual_time": None if now.least is None else plain(now.least),
            "held_by": now.held_by or None,
            "stamps": now.count,
        }
        goal = self._goal(earlier)
        if goal is not None:
            evidence["earlier" if self.value is None else "value"] = plain(goal)
        if goal is not None and now.least is not None and now.least < goal:
            return answer(self, snapshot, False, evidence, self._behind(now, goal))
        doubts = [*now.unknown, *map(str, uncovered(snapshot)), *_unborn(snapshot, self.messages)]
        if doubts:
            evidence["unknown"] = doubts[:MOST_LISTED]
            return answer(self, snapshot, None, evidence, f"Virtual time cannot be told: {listed(doubts)}.")
        if goal is None:
            first = "there is no earlier snapshot to compare it with"
            return answer(self, snapshot, None, evidence, f"Virtual time is {_said(now)}; {first}.")
        return answer(self, snapshot, True, evidence, f"Virtual time is {_said(now)}.")

    def _goal(self, earlier: Snapshot | None) -> Fraction | None:
        if self.value is not None:
            return Fraction(self.value)
        if earlier is None or unsound(earlier):
            return None
        before: Stamps = total(self, earlier)
        return before.least

    def _behind(self, now: Stamps, goal: Fraction) -> str:
        if self.value is None:
            return f"Virtual time has gone back: from {say(goal)} to {_said(now)}."
        return f"Virtual time has not come to {say(goal)}: it is {_said(now)}."


def _stamps(part: Snapshot, found: Holdings, kind: str) -> Stamps:
    unknown = list(found.unknown)
    stamps: list[tuple[Amount, int]] = []
    least_each = [column.only(column.is_least) for column in found.numbers]
    greater = sum(len(column.rows) - len(kept.rows) for column, kept in zip(found.numbers, least_each, strict=True))
    for row, value in Holdings(found.rows, found.values, numbers=least_each).pairs():
        if kind == "machine" and (value is MISSING or value is None):
            continue
        amount = value if type(value) is int else amount_of(value, missing_is_zero=False)
        if amount is None:
            shown = "nothing" if value is MISSING else repr(value)[:40]
            unknown.append((row, f"there is {shown} where its time should be"))
        else:
            stamps.append((amount, row))
    least = min((stamp for stamp, _ in stamps), default=None)
    first = [row for stamp, row in stamps if stamp == least]
    holder = min(_names(part, first, kind), default="")
    lines = (
        f"{name}: {why}" for name, (_, why) in zip(_names(part, [r for r, _ in unknown], kind), unknown, strict=True)
    )
    return Stamps(
        None if least is None else Fraction(least), holder, greater + len(stamps), tuple(sorted(lines)[:MOST_LISTED])
    )


def _names(part: Snapshot, rows: list[int], kind: str) -> list[str]:
    if kind == "machine":
        return [name for (name,) in labels(part.tables["machines"], rows, "machine")]
    found = labels(part.tables["messages"], rows, "method", "source", "target")
    return [f"the message {method} from {source} to {target}" for method, source, target in found]


def _unborn(snapshot: Snapshot, messages: Mapping[str, Any]) -> list[str]:
    """Machines whose time is not known yet: their constructor runs, or comes without a stamp."""
    found = unmade(snapshot, messages)
    return [f"{name} is being made ({CONSTRUCTOR})" for name in found.names]


def _said(now: Stamps) -> str:
    return "nowhere: there is no stamp" if now.least is None else f"{say(now.least)} ({now.held_by})"
