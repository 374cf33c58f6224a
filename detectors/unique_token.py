"""Does exactly one machine or message in flight hold the token?

The single token of Chandy and Lamport 1985, and the reason why channels belong to a snapshot: a token in
transit is held by no machine, and is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.adding import total
from ray_snapshot.detectors.common import answer, check_name, uncovered, unsound
from ray_snapshot.detectors.holdings import (
    Holdings,
    StatePath,
    check_message_paths,
    check_state_path,
    in_machines,
    in_messages,
    is_bare,
    labels,
    unmade,
)
from ray_snapshot.detectors.json_path import MISSING
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed, noun_of
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Holders:
    """Who holds a token, among some machines and messages."""

    count: int
    machines: tuple[str, ...]
    """The first 100 that hold one, by name."""
    messages: tuple[dict[str, Any], ...]
    """The first 100 that carry one: channel, method, number."""
    unread_machines: int
    """How many states could not be read."""
    unread_messages: int
    looked_at: int
    """How many machines count."""

    def plus(self, other: Holders) -> Holders:
        """Those of both."""
        return Holders(
            self.count + other.count,
            tuple(sorted(self.machines + other.machines)[: LIMITS.listed]),
            (self.messages + other.messages)[: LIMITS.listed],
            self.unread_machines + other.unread_machines,
            self.unread_messages + other.unread_messages,
            self.looked_at + other.looked_at,
        )

    def evidence(self) -> dict[str, Any]:
        """`count`, and the first `machines` and `messages`."""
        return {"count": self.count, "machines": list(self.machines), "messages": list(self.messages)}


class UniqueToken:
    """True iff exactly one machine or message in flight holds the token.

    - `state`: a path (or a dict of paths by class name) to what says that a machine holds it. JSON's false,
      0, null, "", [] and {} say no, and so does a state that has nothing there; anything else says yes.
    - `messages`: by method, a path into the arguments that says so of a message, or None: each of them
      carries it.

    Two holders are two even if something else could not be read; none or one is then None, and so with
    anything uncovered. Where none holds it, the answer is None while machines are being made. A driver with a null state
    holds nothing.

    Cost: O(machines + messages).
    """

    stable: bool = False
    alarm_when: bool | None = False
    is_timeless = True
    looks_at = frozenset({"states"})

    def __init__(
        self,
        state: StatePath = "$.has_token",
        messages: Mapping[str, str | None] | None = None,
        *,
        name: str = "unique-token",
    ) -> None:
        self.name = check_name(name)
        self.state = check_state_path(state)
        self.messages = check_message_paths({"token": None} if messages is None else messages, optional=True)
        self.spec: dict[str, Any] = {
            "type": "unique-token",
            "name": name,
            "state": self.state,
            "messages": self.messages,
        }

    def __repr__(self) -> str:
        return f"UniqueToken(state={self.state!r}, messages={self.messages!r}, name={self.name!r})"

    def evaluate(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> Verdict:
        """Count the holders; if there is none, say which was the last, by `earlier`."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Whether the token is unique cannot be told: {reason}.")
        found: Holders = total(self, snapshot)
        evidence = found.evidence()
        count = found.count
        unread = ((found.unread_machines, "states"), (found.unread_messages, "messages"))
        doubts = [f"{number:,} {word}" for number, word in unread if number]
        doubts += [str(item) for item in uncovered(snapshot)]
        if not count:
            doubts += [f"{name} is being created" for name in unmade(snapshot, self.messages).names]
            doubts += ["nothing has been made yet"] if is_bare(snapshot, found.looked_at) else []
        if count < 2 and doubts:
            text = f"{count} found, but not read or observed: {listed(doubts)}"
            text = f"Whether the token is unique cannot be told: {text}."
            return answer(self, snapshot, None, {**evidence, "unknown": doubts[: LIMITS.listed]}, text)
        if count == 1:
            return answer(self, snapshot, True, evidence, f"One token: {_who(evidence)}.")
        if count > 1:
            return answer(self, snapshot, False, evidence, f"{count:,} tokens: {_who(evidence)}.")
        if earlier is not None and not unsound(earlier):
            last: Holders = total(self, earlier)
            evidence["last"] = {"snapshot_id": earlier.snapshot_id, **last.evidence()}
        return answer(self, snapshot, False, evidence, _lost(snapshot, evidence))

    def partial(self, part: Snapshot) -> Holders:
        """Who holds a token among some machines and messages."""
        return _holders(part, in_machines(part, self.state), in_messages(part, self.messages))

    def merge(self, one: Holders, other: Holders) -> Holders:
        """Who does among both."""
        return one.plus(other)


def _holders(snapshot: Snapshot, machines: Holdings, messages: Holdings) -> Holders:
    keeping, carrying = _holding(machines), _holding(messages)
    names = labels(snapshot.tables["machines"], keeping, "machine")
    columns = ["source", "target", "kind", "method", "number"]
    return Holders(
        len(keeping) + len(carrying),
        tuple(sorted(name for (name,) in names)[: LIMITS.listed]),
        tuple(
            snapshot.tables["messages"].select(columns).take(carrying[: LIMITS.listed]).to_pylist() if carrying else ()
        ),
        len(machines.unknown),
        len(messages.unknown),
        machines.count,
    )


def _holding(found: Holdings) -> list[int]:
    rows = [row for row, value in zip(found.rows, found.values, strict=True) if value is not MISSING and value]
    for part in found.numbers:
        rows += part.rows[part.values != 0].tolist()
    return sorted(rows)


def _who(evidence: dict[str, Any]) -> str:
    parts = [f"held by {listed(evidence['machines'])}"] if evidence["machines"] else []
    routes = [f"{message['source']} to {message['target']}" for message in evidence["messages"]]
    return "; ".join([*parts, *([f"in flight from {listed(routes)}"] if routes else [])])


def _lost(snapshot: Snapshot, evidence: dict[str, Any]) -> str:
    if "last" in evidence and evidence["last"]["count"]:
        last = evidence["last"]
        return f"The token is lost: nothing holds it; in {last['snapshot_id']} it was {_who(last)}."
    return f"The token is lost: no {noun_of(snapshot.protocol)} and no message in flight holds it."
