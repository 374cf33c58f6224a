"""The machines that a report shows: what each was doing, what it held, and what was on its way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import is_any_of
from ray_snapshot.reports.texts import compact, cut, names_in, plain, pretty
from ray_snapshot.snapshot import Machine, Snapshot
from ray_snapshot.views.report import place, short_site

MOST_CARDS = 40
MOST_STATE = 2_000
"""Characters of a state."""
MOST_ARGUMENTS = 160
MOST_CALLS = 8
"""So many calls, and so many messages, of one machine."""
MOST_WAITS = 2_000
"""So many waits are read where there is no deadlock."""
MOST_LOOKED_AT = 20_000
"""So many values of a piece of evidence are looked at for names."""


@dataclass(frozen=True, slots=True)
class Card:
    """One machine as of the cut."""

    machine: str
    """Its name as it is, however long."""
    name: str
    """As it is shown."""
    about: str
    """Class, host, incarnation."""
    status: str
    calls: tuple[str, ...] = ()
    inbox: tuple[str, ...] = ()
    inbox_count: int = 0
    state: str | None = None
    """JSON over several lines; None if it was not recorded."""
    note: str = ""


def concerned(snapshot: Snapshot, waits: Sequence[Mapping[str, Any]], evidence: Iterable[Any]) -> list[str]:
    """Names of the machines that a report is about: those that wait, then those that the evidence of an alarm names."""
    found = dict.fromkeys(str(record["machine"]) for record in waits)
    for one in evidence:
        found |= dict.fromkeys(_texts(one))
    return [name for name in found if name in snapshot.machines]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, also as a key."""
    ahead, seen = [value], 0
    while ahead and (seen := seen + 1) <= MOST_LOOKED_AT:
        match ahead.pop():
            case str() as text:
                yield text
            case dict() as items:
                ahead += [*reversed(list(items.values())), *reversed(list(items))]
            case list() as items:
                ahead += reversed(items)


def cards(snapshot: Snapshot, names: Sequence[str]) -> list[Card]:
    """The first of `names`, a card each."""
    chosen = list(names[:MOST_CARDS])
    calls, inbox = _by(snapshot.tables["calls"], "machine", chosen), _by(snapshot.tables["messages"], "target", chosen)
    without = set(names_in(snapshot.coverage, "without_state"))
    return [
        _card(snapshot.machines[name], calls.get(name, []), inbox.get(name, []), is_amid=name in without)
        for name in chosen
    ]


def _by(table: pa.Table, column: str, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    if names:
        for row in table.filter(pa.array(is_any_of(table[column], *names))).to_pylist():
            found.setdefault(row[column], []).append(row)
    return found


def _card(machine: Machine, calls: list[dict[str, Any]], inbox: list[dict[str, Any]], *, is_amid: bool) -> Card:
    where = " on ".join(part for part in (machine.class_name, machine.host) if part)
    again = f", incarnation {machine.incarnation}" if (machine.incarnation or 1) > 1 else ""
    return Card(
        machine=machine.machine,
        name=plain(machine.machine),
        about=plain(f"{where}{again}"),
        status=plain(machine.status),
        calls=tuple(_shown(calls, _call)),
        inbox=tuple(_shown(inbox, _message)),
        inbox_count=len(inbox),
        state=None if machine.state is None else pretty(machine.state, MOST_STATE),
        note=_note(machine, is_amid=is_amid),
    )


def _shown(rows: list[dict[str, Any]], line: Callable[[Mapping[str, Any]], str]) -> list[str]:
    more = len(rows) - MOST_CALLS
    lines = [line(row) for row in rows[:MOST_CALLS]]
    return [*lines, f"... and {more:,} more"] if more > 0 else lines


def _call(row: Mapping[str, Any]) -> str:
    site = f" ({short_site(row['call_site'])})" if row["call_site"] else ""
    caller = f", called by {row['caller']}" if row["caller"] else ""
    return plain(f"{row['method']}{site}{caller}")


def _message(row: Mapping[str, Any]) -> str:
    arguments = cut(" ".join((row["args"] or "").split()), MOST_ARGUMENTS)
    return plain(f"{row['method']}{arguments} from {row['source']}")


def _note(machine: Machine, *, is_amid: bool) -> str:
    if is_amid:
        return "recorded in the middle of an action, without its state"
    return "the state was too large to be recorded whole" if machine.state_truncated else ""


def waiting(snapshot: Snapshot) -> tuple[list[dict[str, Any]], int]:
    """The waits of a snapshot as records, each with where it is; and how many waits are not among them."""
    table = snapshot.tables["waits"]
    open_ = table.filter(pc.invert(pc.fill_null(table["satisfied"], False)))
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for row in open_.slice(0, MOST_WAITS).to_pylist():
        record = found.setdefault((row["machine"], row["call_id"]), {"machine": row["machine"], "waits_for": []})
        name = row["on_machine"] or "something that was not recorded"
        if name not in record["waits_for"]:
            record["waits_for"].append(name)
    names = [record["machine"] for record in found.values()]
    calls: dict[tuple[str, str | None], dict[str, Any]] = {}
    for name, rows in _by(snapshot.tables["calls"], "machine", names).items():
        for row in rows:
            calls.setdefault((name, row["call_id"]), row)
            calls.setdefault((name, None), row)
    classes = _classes(snapshot, names)
    for (name, call_id), record in found.items():
        record["class"] = classes.get(name)
        if row := calls.get((name, call_id)) or calls.get((name, None)):
            record |= {"method": row["method"], "call_site": row["call_site"]}
    return list(found.values()), max(0, open_.num_rows - MOST_WAITS)


def _classes(snapshot: Snapshot, names: Sequence[str]) -> dict[str, str]:
    table = snapshot.tables["machines"].select(["machine", "class_name"])
    rows = table.filter(pa.array(is_any_of(table["machine"], *names))).to_pylist() if names else []
    return {row["machine"]: row["class_name"] for row in rows}


@dataclass(frozen=True, slots=True)
class Change:
    """What of one machine is otherwise than it was."""

    machine: str
    what: str
    before: str
    after: str


MOST_CHANGES = 60
MOST_FIELDS = 6
"""So many fields of one state."""


def changes(before: Snapshot, now: Snapshot, names: Sequence[str]) -> list[Change]:
    """What is otherwise with these machines: status, class, host, where they are, the fields of their states."""
    chosen = names[:MOST_CARDS]
    places = _places(before, chosen), _places(now, chosen)
    found: list[Change] = []
    for name in chosen:
        new = now.machines[name]
        if name not in before.machines:
            found.append(Change(plain(name), "machine", "was not there", plain(new.status)))
            continue
        old = before.machines[name]
        pairs = [(what, getattr(old, column), getattr(new, column)) for what, column in _COLUMNS.items()]
        pairs.append(("where", places[0].get(name, "in no call"), places[1].get(name, "in no call")))
        pairs += _fields(old.state, new.state)
        found += [Change(plain(name), *map(plain, one)) for one in pairs if one[1] != one[2]]
    return found


_COLUMNS = {"status": "status", "class": "class_name", "host": "host", "incarnation": "incarnation"}


def _places(snapshot: Snapshot, names: Sequence[str]) -> dict[str, str]:
    found = {}
    classes = _classes(snapshot, names)
    for name, rows in _by(snapshot.tables["calls"], "machine", names).items():
        text = place({**rows[0], "class": classes.get(name)}).removeprefix(f"{name} ")
        found[name] = text + (f" and {len(rows) - 1:,} more" if len(rows) > 1 else "")
    return found


def _fields(old: Any, new: Any) -> list[tuple[str, str, str]]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [("state", compact(old, MOST_ARGUMENTS), compact(new, MOST_ARGUMENTS))] if old != new else []
    names = [name for name in {**old, **new} if old.get(name, _ABSENT) != new.get(name, _ABSENT)]
    found = [(f"state: {name}", _value(old, name), _value(new, name)) for name in names[:MOST_FIELDS]]
    more = len(names) - MOST_FIELDS
    return [*found, ("state", "", f"{more:,} more fields changed")] if more > 0 else found


_ABSENT = object()


def _value(state: Mapping[str, Any], name: str) -> str:
    return compact(state[name], MOST_ARGUMENTS) if name in state else "absent"
