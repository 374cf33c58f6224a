"""The evidence of a verdict, as far as reports read it: a detector of a user's, or a stranger's history, may have anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def names(value: Any) -> list[str]:
    """A list of texts, as they are; nothing if it is none."""
    return [str(item) for item in value] if isinstance(value, list) else []


def names_in(value: Any, name: str) -> list[str]:
    """The list of texts under `name` in a dictionary; nothing if either is something else."""
    return names(value.get(name)) if isinstance(value, Mapping) else []


_TEXTS = ("machine", "class", "method", "call_site", "mode", "needs", "primitive", "held_by")


def records(value: Any) -> list[dict[str, Any]]:
    """The records of waits in a piece of evidence, as `wait_picture` and `views.report` read them; others are left out.

    Texts are as they are: who shows them makes them harmless.
    """
    found = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("machine"), str):
            record: dict[str, Any] = {key: _text(item.get(key)) for key in _TEXTS}
            record |= {key: names(item.get(key)) for key in ("waits_for", "waits_for_calls")}
            record |= {key: item.get(key) is True for key in ("is_cause", "waits_for_later_call", "waits_for_a_reader")}
            record |= {key: item[key] for key in ("k", "count", "waits_for_count") if type(item.get(key)) is int}
            found.append(record)
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def deadlock_evidence(evidence: Any) -> dict[str, Any]:
    """What a report of a deadlock reads of it: members, those behind them, advice, and how many there are."""
    if not isinstance(evidence, Mapping):
        return {"members": []}
    found: dict[str, Any] = {name: records(evidence.get(name)) for name in ("members", "stuck_behind")}
    found |= {name: names_in(evidence, name) for name in ("callers", "advice", "happened")}
    counts = ("member_count", "cause_count", "stuck_behind_count")
    return found | {name: value for name in counts if type(value := evidence.get(name)) is int}


def needs_in(evidence: Mapping[str, Any]) -> set[str]:
    """What the calls of a deadlock need on nodes, and who has it."""
    found = (*records(evidence.get("members")), *records(evidence.get("stuck_behind")))
    return {one["needs"] for one in found if one["needs"]}
