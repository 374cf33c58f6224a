"""A detector of one's own: how far a computation in virtual time has come for good.

It looks for the least time stamp that is in any state or on its way.

Jefferson's global virtual time (Virtual Time, 1985): nobody will ever be sent anything earlier, so what came before may be
forgotten, printed, or committed. Reading clocks one after the other misses a message with an early stamp that was on its way; a
consistent cut cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ray_snapshot.detectors.common import answer, check_name, uncovered, unsound
from ray_snapshot.detectors.holdings import (
    CONSTRUCTOR,
    StatePath,
    check_message_paths,
    check_state_path,
    in_machines,
    in_messages,
    labels,
    unmade,
)
from ray_snapshot.detectors.json_path import MISSING
from ray_snapshot.detectors.ledger import amount_of, plain, say
from ray_snapshot.errors import SettingError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

Stamps = list[tuple[Fraction, str]]
"""Every stamp, with who has it."""


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
    is no stamp at all, everybody is ahead: True. Cost: O(machines + messages).
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

    def evaluate(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> Verdict:
        """Compare the least stamp with the time to reach, or with that of the earlier snapshot."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Virtual time cannot be told: {reason}.")
        stamps, unknown = self._read(snapshot)
        now, held_by = min(stamps, default=(None, None))
        goal = Fraction(self.value) if self.value is not None else self._before(earlier)
        evidence: dict[str, Any] = {
            "virtual_time": None if now is None else plain(now),
            "held_by": held_by,
            "stamps": len(stamps),
        }
        if goal is not None:
            evidence["earlier" if self.value is None else "value"] = plain(goal)
        told = "nowhere: there is no stamp" if now is None else f"{say(now)} ({held_by})"
        if goal is not None and now is not None and now < goal:
            back = f"Virtual time has gone back: from {say(goal)} to {told}."
            text = back if self.value is None else f"Virtual time has not come to {say(goal)}: it is {told}."
            return answer(self, snapshot, False, evidence, text)
        unborn = unmade(snapshot, self.messages)  # its constructor runs, or comes without a stamp
        unknown += [*map(str, uncovered(snapshot)), *(f"{name} is being made ({CONSTRUCTOR})" for name in unborn.names)]
        if unknown:
            evidence["unknown"] = unknown[: LIMITS.listed]
            return answer(self, snapshot, None, evidence, f"Virtual time cannot be told: {listed(unknown)}.")
        if goal is None:
            first = "there is no earlier snapshot to compare it with"
            return answer(self, snapshot, None, evidence, f"Virtual time is {told}; {first}.")
        return answer(self, snapshot, True, evidence, f"Virtual time is {told}.")

    def _before(self, earlier: Snapshot | None) -> Fraction | None:
        if earlier is None or unsound(earlier):
            return None
        return min(self._read(earlier)[0], default=(None, ""))[0]

    def _read(self, snapshot: Snapshot) -> tuple[Stamps, list[str]]:
        """The stamps, and what could not be read, a line each."""
        stamps: Stamps = []
        unknown: list[str] = []
        own, sent = in_machines(snapshot, self.state), in_messages(snapshot, self.messages)
        for table, found, words, columns in (
            ("machines", own, "{}", ("machine",)),
            ("messages", sent, "the message {} from {} to {}", ("method", "source", "target")),
        ):
            read = [*found.pairs()]
            rows = [row for row, _ in (*read, *found.unknown)]
            names = [words.format(*one) for one in labels(snapshot.tables[table], rows, *columns)]
            for name, (_, value) in zip(names, read, strict=False):
                amount = amount_of(value, missing_is_zero=False)
                if amount is not None:
                    stamps.append((Fraction(amount), name))
                elif found is sent or not (value is MISSING or value is None):  # a machine may be ahead of everybody
                    shown = "nothing" if value is MISSING else repr(value)[:40]
                    unknown.append(f"{name}: there is {shown} where its time should be")
            lacking = zip(names[len(read) :], found.unknown, strict=True)
            unknown += [f"{name}: {why}" for name, (_, why) in lacking]
        return stamps, sorted(unknown)
