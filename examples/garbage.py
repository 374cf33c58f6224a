"""A detector of one's own: which machines can nobody reach any more who will ever act?

A machine that is passive, has nothing in flight to it, and whose handle is in no state and no message of anybody who can act,
or can be reached by one who can, will never act again: it may be stopped, and its memory freed (Kafura, Washabaugh and
Nelson 1990 for actors; here on a consistent cut, so that a handle on its way is not overlooked). A deadlocked circle that
nobody knows of is garbage too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ray_snapshot.detectors.common import answer, check_name, plural, texts, uncovered, unsound
from ray_snapshot.detectors.groups import check_group, members
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Garbage:
    """True iff there are machines that nobody who can act can ever reach.

    - `unless`: names, or patterns such as `worker-*`, of machines that the program itself uses no more. What its variables
      hold is in no snapshot, so it may reach all others, and these are never garbage.
    - `roots`: machines that are reached by a name which a machine puts together (`self.machine(f"worker-{n}")`): that
      cannot be seen.

    Who can act: active machines, those to which anything is in flight or whose timers are pending, and the program. They reach
    whose handles, or whose names as texts, are in their states and in what is in flight to them; who calls them; and so on.

    Evidence: `garbage` (the first 100 by name), `count`, `classes` (how many of each), `state_bytes`. Stable. None where a
    state or message that counts was not recorded whole, or anything uncovered may have handles. A Python object for each
    machine and message.
    """

    stable: bool = True
    alarm_when: bool | None = None
    looks_at = frozenset({"statuses", "states"})

    def __init__(self, unless: Any, *, roots: Any = None, name: str = "garbage") -> None:
        self.name = check_name(name)
        self.unless = check_group(unless, "unless")
        self.roots = None if roots is None else check_group(roots, "roots")
        self.spec: dict[str, Any] = {"type": "garbage", "name": name, "unless": self.unless, "roots": self.roots}

    def __repr__(self) -> str:
        return f"Garbage({self.unless!r}, roots={self.roots!r}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Go from those who can act along handles, as far as they lead."""
        if reason := unsound(snapshot):
            return answer(self, snapshot, None, {}, f"Garbage cannot be told: {reason}.")
        reached = reach(can_act(snapshot) | self._roots(snapshot), acquaintances(snapshot))
        left = [one for one in snapshot.machines.values() if one.machine not in reached and one.status != "stopped"]
        evidence: dict[str, Any] = {
            "garbage": sorted(one.machine for one in left)[: LIMITS.listed],
            "count": len(left),
            "classes": dict(Counter(one.class_name for one in left)),
            "state_bytes": sum(one.state_bytes or 0 for one in left),
        }
        if not left:
            text = "No garbage: every machine can be reached by one that can act."
            return answer(self, snapshot, False, evidence, text)
        if doubts := [*unread(snapshot, reached), *map(str, uncovered(snapshot))]:
            evidence["unknown"] = doubts[: LIMITS.listed]
            text = f"Garbage cannot be told: {plural(len(left), 'machine')} may be, but for {listed(doubts)}."
            return answer(self, snapshot, None, evidence, text)
        text = f"Garbage: nobody can reach {listed(evidence['garbage'], len(left))} any more."
        return answer(self, snapshot, True, evidence, text)

    def _roots(self, snapshot: Snapshot) -> set[str]:
        """The program, what it may still use, and what the user names."""
        names = texts(snapshot.tables["machines"]["machine"])
        chosen = ~members(names, self.unless) | (members(names, self.roots) if self.roots else False)
        return {DRIVER, *(name for name, is_root in zip(names.to_pylist(), chosen, strict=True) if is_root)}


def can_act(snapshot: Snapshot) -> set[str]:
    """Who acts, may go on by itself, or has something coming."""
    waits = snapshot.tables["waits"].select(["machine", "satisfied", "timeout_at"]).to_pylist()
    may_end = {row["machine"] for row in waits if row["satisfied"] or row["timeout_at"] is not None}
    held = {row["machine"] for row in waits} - may_end
    acting = {
        one.machine
        for one in snapshot.machines.values()
        if one.status == "active" or (one.status == "blocked" and one.machine not in held)
    }
    return acting | {message.target for message in snapshot.messages}


def acquaintances(snapshot: Snapshot) -> dict[str, set[str]]:
    """By machine: of whom it has a handle, or a name, in its state or in what is in flight to it; and whom it answers.

    A message may make its target: that one is no machine of the snapshot yet.
    """
    machines = snapshot.machines
    known = {name: {*mentioned(one.state)} for name, one in machines.items()}
    for message in snapshot.messages:
        known.setdefault(message.target, set()).update(mentioned(message.args))
        if message.call_id is not None:
            known[message.target].add(message.source)
    for call in snapshot.tables["calls"].select(["machine", "caller"]).to_pylist():
        known.setdefault(call["machine"], set()).add(call["caller"])
    stopped = {name for name, one in machines.items() if one.status == "stopped"}
    return {name: whom & machines.keys() for name, whom in known.items() if name not in stopped}


def mentioned(value: Any) -> Iterator[str]:
    """Every text in a recorded state, or in recorded arguments; a handle is `{"$machine": name}`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from mentioned(item)
    elif isinstance(value, list):
        for item in value:
            yield from mentioned(item)


def reach(seeds: set[str], known: Mapping[str, set[str]]) -> set[str]:
    """Who is reached from `seeds`."""
    found, front = set(seeds), list(seeds)
    while front:
        new = known.get(front.pop(), set()) - found
        found |= new
        front += new
    return found


def unread(snapshot: Snapshot, reached: set[str]) -> Iterator[str]:
    """What of those that were reached was not recorded whole."""
    if any(one.host.startswith("pid-") for one in snapshot.machines.values()):
        yield "whose handles watched actors have: it is not in a snapshot"
    for name, one in snapshot.machines.items():
        if (one.state is None or one.state_truncated) and name in reached and name != DRIVER:
            yield f"the state of {name} was not recorded whole"
    yield from (f"a message to {one.target} was not recorded whole" for one in snapshot.messages if one.args_truncated)
