"""What of a few machines is otherwise in one snapshot than in an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_snapshot.reports.rows import classes_of, rows_by
from ray_snapshot.reports.texts import compact, plain
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.views.report import machine_place

MOST_CHANGES = 60
MOST_FIELDS = 6
"""So many fields of one state."""
MOST_VALUE = 160
"""Characters of one value."""


@dataclass(frozen=True, slots=True)
class Change:
    """What of one machine is otherwise than it was."""

    machine: str
    what: str
    before: str
    after: str


def changes(before: Snapshot, now: Snapshot, names: Sequence[str]) -> list[Change]:
    """What is otherwise with these machines: status, class, host, where they are, the fields of their states."""
    places = _places(before, names), _places(now, names)
    found: list[Change] = []
    for name in names:
        new = now.machines[name]
        if name not in before.machines:
            found.append(Change(plain(name), "machine", "was not there", plain(new.status)))
            continue
        old = before.machines[name]
        pairs = [(what, getattr(old, column), getattr(new, column)) for what, column in _COLUMNS.items()]
        pairs.append(("where", places[0].get(name, "in no call"), places[1].get(name, "in no call")))
        pairs += changed_fields(old.state, new.state)
        found += [Change(plain(name), *map(plain, one)) for one in pairs if one[1] != one[2]]
    return found


_COLUMNS = {"status": "status", "class": "class_name", "host": "host", "incarnation": "incarnation"}


def _places(snapshot: Snapshot, names: Sequence[str]) -> dict[str, str]:
    found = {}
    classes = classes_of(snapshot, names)
    for name, rows in rows_by(snapshot.tables["calls"], "machine", names).items():
        text = machine_place({**rows[0], "class": classes.get(name)}).removeprefix(f"{name} ")
        found[name] = text + (f" and {len(rows) - 1:,} more" if len(rows) > 1 else "")
    return found


def changed_fields(old: Any, new: Any) -> list[tuple[str, str, str]]:
    """(Which field, before, now) of two states, the first `MOST_FIELDS`."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [("state", compact(old, MOST_VALUE), compact(new, MOST_VALUE))] if old != new else []
    names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    found = [(f"state: {name}", _value(old, name), _value(new, name)) for name in names[:MOST_FIELDS]]
    more = len(names) - MOST_FIELDS
    return [*found, ("state", "", f"{more:,} more fields changed")] if more > 0 else found


_ABSENT = object()


def _value(state: Mapping[str, Any], name: str) -> str:
    return compact(state[name], MOST_VALUE) if name in state else "absent"
