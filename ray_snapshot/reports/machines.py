"""The machines that a report shows: what each was doing, what it held, and what was on its way to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray_snapshot.detectors.common import at_most
from ray_snapshot.evidence import names_in
from ray_snapshot.names import name_ranges, noun_of, word_for
from ray_snapshot.reports.rows import rows_by
from ray_snapshot.reports.texts import cut, plain, pretty
from ray_snapshot.snapshot import Machine, Snapshot
from ray_snapshot.views.report import short_sites

MOST_CARDS = 40
MOST_STATE = 20_000
"""Characters of a state."""
MOST_ARGUMENTS = 160
MOST_CALLS = 8
"""So many calls, and so many messages, of one machine."""
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
    count: int = 1
    """Of so many machines."""


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
    """The first of `names`, a card each; one for several of which nothing else is said."""
    chosen = list(names[:MOST_CARDS])
    calls, inbox = (
        rows_by(snapshot.tables["calls"], "machine", chosen),
        rows_by(snapshot.tables["messages"], "target", chosen),
    )
    noun = noun_of(snapshot.protocol)
    without = set(names_in(snapshot.coverage, "without_state"))
    alike: dict[Card, list[Card]] = {}
    for name in chosen:
        machine = snapshot.machines[name]
        card = _card(machine, calls.get(name, []), inbox.get(name, []), noun, is_amid=name in without)
        alike.setdefault(replace(card, machine="", name="", about=plain(machine.class_name)), []).append(card)
    return [one if len(those) == 1 else _of_all(key, those) for key, those in alike.items() for one in those[:1]]


def _of_all(card: Card, those: Sequence[Card]) -> Card:
    name = plain(name_ranges(one.machine for one in those))
    return replace(card, machine=those[0].machine, name=name, count=len(those))


def _card(
    machine: Machine, calls: list[dict[str, Any]], inbox: list[dict[str, Any]], noun: str, *, is_amid: bool
) -> Card:
    where = " on ".join(part for part in (machine.class_name, machine.host) if part)
    again = f", incarnation {machine.incarnation}" if (machine.incarnation or 1) > 1 else ""
    return Card(
        machine=machine.machine,
        name=plain(machine.machine),
        about=plain(f"{where}{again}"),
        status=word_for(plain(machine.status), noun),
        calls=tuple(_shown(calls, _call, ", called by", "caller")),
        inbox=tuple(_shown(inbox, _message, " from", "source")),
        inbox_count=len(inbox),
        state=None if machine.state is None else pretty(machine.state, MOST_STATE),
        note=_note(machine, is_amid=is_amid),
    )


def _shown(rows: list[dict[str, Any]], line: Callable[[Mapping[str, Any]], str], by: str, who: str) -> list[str]:
    """Calls that are alike in a line, with those that called (column `who`)."""
    alike: dict[str, list[str]] = {}
    for row in rows:
        alike.setdefault(line(row), []).append(row[who] or "")
    lines = []
    for text, those in alike.items():
        count = f" ({len(those):,} calls)" if len(those) > 1 else ""
        callers = name_ranges(dict.fromkeys(filter(None, those)))
        lines.append(plain(text + count + (f"{by} {callers}" if callers else "")))
    return at_most(lines, MOST_CALLS)


def _call(row: Mapping[str, Any]) -> str:
    return str(row["method"]) + (f" ({short_sites(row['call_site'])})" if row["call_site"] else "")


def _message(row: Mapping[str, Any]) -> str:
    return str(row["method"]) + cut(" ".join((row["args"] or "").split()), MOST_ARGUMENTS)


def _note(machine: Machine, *, is_amid: bool) -> str:
    if is_amid:
        return "recorded in the middle of an action, without its state"
    return "the state was too large to be recorded whole" if machine.state_truncated else ""
