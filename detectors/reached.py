"""Have all machines come as far as some phase?

"Past a phase" is stable if phases only grow, and then it can be read off a consistent cut: a barrier at which no
machine has to wait. The detector is data (a path, a value), so that Spark can run it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import filterfalse
from typing import Any

import numpy as np
import pyarrow.compute as pc

from ray_snapshot.adding import total
from ray_snapshot.detectors.common import answer, check_name, parties, uncovered, unsound
from ray_snapshot.detectors.groups import absent, check_group, is_pattern, members
from ray_snapshot.detectors.holdings import CONSTRUCTOR, Holdings, StatePath, check_state_path, in_machines, labels
from ray_snapshot.detectors.json_path import MISSING
from ray_snapshot.detectors.ledger import amount_of
from ray_snapshot.errors import SettingError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed, noun_of
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

Phase = float | str
Behind = list[tuple[int, Any]]
"""(row, phase) of machines that are not there yet."""


@dataclass(frozen=True, slots=True)
class Phases:
    """How far some machines have come."""

    machines: int
    """How many count."""
    behind_count: int
    behind: tuple[tuple[str, Any], ...]
    """Of these the first 100 by name, and their phases."""
    unknown: tuple[str, ...]
    """Why some cannot be told, a line each, at most 100."""
    there: frozenset[str]
    """Of the names and patterns that were asked for: those that some machine has."""

    def plus(self, other: Phases) -> Phases:
        """Those of both."""
        return Phases(
            self.machines + other.machines,
            self.behind_count + other.behind_count,
            _first(self.behind + other.behind),
            tuple(sorted(self.unknown + other.unknown)[: LIMITS.listed]),
            self.there | other.there,
        )


def _first(behind: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(behind, key=lambda one: one[0])[: LIMITS.listed])


class Reached:
    """True iff every machine is at phase `value`, or past it.

    - `state`: where a state says which phase its machine is in, a path such as `$.round` or a dict of paths by class name
      (then machines of other classes do not count).
    - `value`: a number, which is reached by any number that is not less; or, with `phases`, one of these names.
    - `phases`: the names of the phases in their order; `value` defaults to the last.
    - `name`: default `reached($.round,3)`, of the path, the value and the machines.
    - `machines`: whose phase counts, by names or patterns such as `worker-*`; default all (but the driver).

    False as soon as one is known to be behind; evidence: `behind` (machine and phase, the first 100), `behind_count`,
    `machines`. Else None, and `unknown`, where a phase was not recorded whole, is none, or is not among `phases`; where a
    machine named is not recorded or just being created; where there is no machine at all; and, unless exact names are
    given, with anything uncovered.

    Stable if phases only grow, and if no machine that counts is born behind.

    Cost: O(machines + messages).
    """

    stable: bool = True
    alarm_when: bool | None = None
    is_timeless = True
    looks_at = frozenset({"states"})

    def __init__(
        self,
        state: StatePath,
        value: Phase | None = None,
        *,
        phases: Sequence[str] | None = None,
        machines: Any = None,
        name: str | None = None,
    ) -> None:
        self.state = check_state_path(state)
        self.phases = None if phases is None else _check_phases(phases)
        self.value = self.phases[-1] if self.phases and value is None else value
        if self._rank(self.value) is None:
            known = "a number" if self.phases is None else f"one of {', '.join(self.phases)}"
            raise SettingError(
                f"Reached(value={value!r}): it is {known}; names of phases need phases=[...] in their order"
            )
        self.machines = None if machines is None else check_group(machines)
        self.name = check_name(self._own_name() if name is None else name)
        self.spec: dict[str, Any] = {
            "type": "reached",
            "name": self.name,
            "state": self.state,
            "value": self.value,
            "phases": self.phases,
            "machines": self.machines,
        }

    def _own_name(self) -> str:
        """ "reached($.round,2)", "reached(Worker:$.round,2,worker-*)": two goals of one run have two names."""
        paths = [self.state] if isinstance(self.state, str) else [f"{kind}:{path}" for kind, path in self.state.items()]
        return f"reached({','.join([*paths, str(self.value), *(self.machines or ())])})"

    def __repr__(self) -> str:
        return f"Reached({self.state!r}, {self.value!r}, phases={self.phases}, machines={self.machines}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Compare every machine's phase with the one to reach."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Whether {self.value} is reached cannot be told: {reason}.")
        found: Phases = total(self, snapshot)
        evidence: dict[str, Any] = {
            "machines": found.machines,
            "behind": [{"machine": name, "phase": phase} for name, phase in found.behind],
            "behind_count": found.behind_count,
        }
        if found.behind:
            names = [name for name, _ in found.behind]
            verb = "is" if found.behind_count == 1 else "are"
            text = f"{self.value} is not reached: {listed(names, found.behind_count)} {verb} behind"
            return answer(
                self, snapshot, False, evidence, f"{text} ({names[0]} is at {evidence['behind'][0]['phase']})."
            )
        doubts = [*found.unknown, *self._unseen(snapshot, found)]
        if doubts:
            evidence["unknown"] = doubts[: LIMITS.listed]
            return answer(
                self, snapshot, None, evidence, f"Whether {self.value} is reached cannot be told: {listed(doubts)}."
            )
        return answer(
            self, snapshot, True, evidence, f"{self.value} is reached by {parties(snapshot, found.machines)}."
        )

    def partial(self, part: Snapshot) -> Phases:
        """How far some machines have come."""
        found = self._phases(part)
        behind, unknown = self._behind(found)
        recorded = part.tables["machines"]["machine"]
        names = labels(part.tables["machines"], [row for row, _ in behind], "machine")
        return Phases(
            found.count,
            len(behind),
            _first((name, phase) for (name,), (_, phase) in zip(names, behind, strict=True)),
            tuple(sorted(_named(part, unknown))[: LIMITS.listed]),
            frozenset(self.machines or ()).difference(absent(recorded, self.machines or ())),
        )

    def merge(self, one: Phases, other: Phases) -> Phases:
        """How far both have come."""
        return one.plus(other)

    def _phases(self, snapshot: Snapshot) -> Holdings:
        """What the states of the machines that count say."""
        found = in_machines(snapshot, self.state)
        if self.machines is None:
            return found
        mine = members(snapshot.tables["machines"]["machine"], self.machines)
        return found.among(mine)

    def _behind(self, found: Holdings) -> tuple[Behind, list[tuple[int, str]]]:
        goal = self._rank(self.value)
        behind: Behind = []
        unknown = list(found.unknown)
        for row, value in self._worth_a_look(found, goal):
            rank = self._rank(value)
            if rank is None:
                shown = "nothing" if value is MISSING else repr(value)[:40]
                unknown.append((row, f"there is {shown} where its phase should be"))
            elif goal is not None and rank < goal:
                behind.append((row, value))
        return behind, unknown

    def _worth_a_look(self, found: Holdings, goal: Fraction | None) -> Iterator[tuple[int, Any]]:
        """All rows; of those whose phase is a whole number only those that are behind, or have none."""
        if goal is None or self.phases is not None:
            return found.pairs()
        behind = [part.only(part.below(goal)) for part in found.numbers]
        return Holdings(found.rows, found.values, numbers=behind).pairs()

    def _rank(self, value: Any) -> Fraction | None:
        """Where a phase stands in their order; None if it is none."""
        if self.phases is not None:
            return Fraction(self.phases.index(value)) if isinstance(value, str) and value in self.phases else None
        amount = None if value is MISSING else amount_of(value, missing_is_zero=False)
        return None if amount is None else Fraction(amount)

    def _unseen(self, snapshot: Snapshot, found: Phases) -> list[str]:
        """Machines that may count and were not looked at."""
        named = [*filterfalse(is_pattern, self.machines or ()), *filter(is_pattern, self.machines or ())]
        missing = [f"{name} is not recorded" for name in named if name not in found.there]
        born = snapshot.tables["messages"].filter(pc.equal(snapshot.tables["messages"]["method"], CONSTRUCTOR))
        coming = np.ones(born.num_rows, np.bool_) if self.machines is None else members(born["target"], self.machines)
        missing += [f"{name} is being created" for name in born["target"].filter(coming).to_pylist()]
        if not found.machines and not missing:
            missing.append(f"no {noun_of(snapshot.protocol)} counts")
        if self.machines is None or any(map(is_pattern, self.machines)):
            missing += [str(item) for item in uncovered(snapshot)]
        return missing


def _check_phases(phases: object) -> list[str]:
    found = list(phases) if isinstance(phases, Sequence) and not isinstance(phases, str) else []
    if not found or not all(isinstance(one, str) for one in found) or len(set(found)) != len(found):
        raise SettingError(f"Reached(phases={phases!r}): it is a list of different names, the first phase first")
    return found


def _named(snapshot: Snapshot, unknown: list[tuple[int, str]]) -> list[str]:
    names = labels(snapshot.tables["machines"], [row for row, _ in unknown], "machine")
    return [f"{name}: {why}" for (name,), (_, why) in zip(names, unknown, strict=True)]
