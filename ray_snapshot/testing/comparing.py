"""What is otherwise where an action is done twice: so what is not deterministic is found, with its line. Never imports Ray."""

from __future__ import annotations

from dataclasses import replace

from ray_snapshot.testing.acts import Outcome
from ray_snapshot.testing.guards import told_site
from ray_snapshot.testing.values import Loose, encoded, opened

Difference = tuple[str, str | None]
"""(what is otherwise, "file:line" where that was sent)."""


def difference(one: Outcome, other: Outcome) -> Difference | None:
    """What is otherwise between two executions of an action with the same inputs; None if nothing is."""
    one, other = one.exact(), other.exact()
    if one == other or (one.is_opaque and one == replace(other, shown=one.shown)):
        return None
    shorter, longer = sorted((one, other), key=lambda outcome: len(outcome.outputs))
    place = _first_unlike(shorter, longer)
    if place < len(shorter.outputs):
        return f"sends something else as its message {place + 1}", told_site(one.sites[place])
    if place < len(longer.outputs):
        return "does not always send as many messages", told_site(longer.sites[place])
    if one.shown != other.shown:
        return f"leaves another state behind ({_unlike(one.shown, other.shown)})", None
    return "ends otherwise", None


def difference_before(before: Outcome, now: Outcome) -> Difference | None:
    """What an action that goes on does otherwise of what it had done before it waited; None if nothing is."""
    before, now = before.exact(), now.exact()
    place = _first_unlike(before, now)
    if place == len(before.outputs):
        return None
    return f"sends something else as its message {place + 1} when it is done again", told_site(before.sites[place])


def _first_unlike(one: Outcome, other: Outcome) -> int:
    """The place of the first output of `one` that is not at that place of the other; if there is none, how many it has."""
    pairs = zip(one.outputs, (*other.outputs, *[None] * len(one.outputs)), strict=False)
    return next((place for place, (first, second) in enumerate(pairs) if first != second), len(one.outputs))


def _unlike(one: Loose, other: Loose) -> str:
    first, second = opened(one), opened(other)
    if isinstance(first, dict) and isinstance(second, dict):
        names = sorted({*first, *second})
        return "attribute " + ", ".join(name for name in names if encoded(first.get(name)) != encoded(second.get(name)))
    return "its attributes"
