"""Does exactly one machine or message in flight hold the token?

The single token of Chandy and Lamport 1985, and the reason why channels belong to a snapshot: a token in
transit is held by no machine, and is not lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_snapshot.detectors.common import MOST_LISTED, answer, check_name, listed, uncovered, unsound
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
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


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
        machines, messages = in_machines(snapshot, self.state), in_messages(snapshot, self.messages)
        evidence = _holders(snapshot, machines, messages)
        count = evidence["count"]
        doubts = [
            f"{len(found.unknown):,} {word}"
            for found, word in ((machines, "states"), (messages, "messages"))
            if found.unknown
        ]
        doubts += [str(item) for item in uncovered(snapshot)]
        if not count:
            doubts += [f"{name} is being created" for name in unmade(snapshot, self.messages).names]
            doubts += ["nothing has been made yet"] if is_bare(snapshot, machines.rows) else []
        if count < 2 and doubts:
            text = f"{count} found, but not read or observed: {listed(doubts)}"
            text = f"Whether the token is unique cannot be told: {text}."
            return answer(self, snapshot, None, {**evidence, "unknown": doubts[:MOST_LISTED]}, text)
        if count == 1:
            return answer(self, snapshot, True, evidence, f"One token: {_who(evidence)}.")
        if count > 1:
            return answer(self, snapshot, False, evidence, f"{count:,} tokens: {_who(evidence)}.")
        if earlier is not None and not unsound(earlier):
            evidence["last"] = {"snapshot_id": earlier.snapshot_id, **self._holders_in(earlier)}
        return answer(self, snapshot, False, evidence, _lost(evidence))

    def _holders_in(self, snapshot: Snapshot) -> dict[str, Any]:
        return _holders(snapshot, in_machines(snapshot, self.state), in_messages(snapshot, self.messages))


def _holders(snapshot: Snapshot, machines: Holdings, messages: Holdings) -> dict[str, Any]:
    """`count`, and the first `machines` (names) and `messages` (channel, method, number) that hold it."""
    keeping, carrying = _holding(machines), _holding(messages)
    columns = ["source", "target", "kind", "method", "number"]
    return {
        "count": len(keeping) + len(carrying),
        "machines": [name for (name,) in labels(snapshot.tables["machines"], keeping[:MOST_LISTED], "machine")],
        "messages": snapshot.tables["messages"].select(columns).take(carrying[:MOST_LISTED]).to_pylist()
        if carrying
        else [],
    }


def _holding(found: Holdings) -> list[int]:
    return sorted(row for row, value in zip(found.rows, found.values, strict=True) if value is not MISSING and value)


def _who(evidence: dict[str, Any]) -> str:
    parts = [f"held by {listed(evidence['machines'])}"] if evidence["machines"] else []
    routes = [f"{message['source']} to {message['target']}" for message in evidence["messages"]]
    return "; ".join([*parts, *([f"in flight from {listed(routes)}"] if routes else [])])


def _lost(evidence: dict[str, Any]) -> str:
    if "last" in evidence and evidence["last"]["count"]:
        last = evidence["last"]
        return f"The token is lost: nothing holds it; in {last['snapshot_id']} it was {_who(last)}."
    return "The token is lost: no machine and no message in flight holds it."
