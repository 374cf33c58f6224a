"""A completed snapshot of machines of hosts and watched actors, as one system: what the hosts tell, and what the ledgers tell.

Of a machine that calls actors, and of a driver that sends to machines, the hosts' rows tell all but what it waits for at
actors. Between processes an actor has another name than for people: here the rows get those.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.columns import inner
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.joined import Tables
from ray_snapshot.names import DRIVER, is_actor, life_of
from ray_snapshot.protocol.calls import MachineReport
from ray_snapshot.runtime.assembly import Also, assembled
from ray_snapshot.runtime.brought import whole
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.report import HostPart
from ray_snapshot.runtime.rows import END_ROW, MESSAGE_ROW, MailPart
from ray_snapshot.schema import MESSAGES
from ray_snapshot.snapshot import Snapshot


def joint(collected: CollectedCalls) -> Snapshot:
    """The snapshot of a collection with parts of hosts; O(machines + channels + messages + calls)."""
    parts: list[HostPart] = [whole(pickle.loads(part)) for part in collected.parts]
    for part in parts:
        part.ends = part.table_of_ends  # to be looked at row by row
    mails = [one.mail for one in collected.recorded.values() if one.mail is not None]
    ends_of_the_dead = list(_closed(parts, mails))
    of_the_gone = dict.fromkeys(_of_the_gone(parts, collected))
    sent = [_mail_part(one) for one in mails] + [_part(ends_of_the_dead, [])]
    hosted = {name for part in parts if part.machines is not None for name in part.machines["machine"].to_pylist()}
    is_still = _is_still([*parts, *sent]) and not any(part.waits for part in parts)  # a reply to it may be on its way
    tables = Tables(collected, hosted, is_still=is_still)
    _number_on([*parts, *sent])
    for part in (*parts, *sent):
        _show(part, collected)
        part.obstacles = [tables.named(text) for text in part.obstacles]
    reports = [report for one in collected.hosted for report in one.reports]
    for part in parts:
        if part.machines is not None:
            part.machines = _with_calls(part.machines, [*reports, *_of_driver(collected)])
    coverage, obstacles = tables.facts()
    obstacles += of_the_gone
    return assembled(
        collected.header, [*parts, *sent], Also(tables.tables(), list(tables.waits()), coverage, obstacles)
    )


def _of_the_gone(parts: Iterable[HostPart], collected: CollectedCalls) -> Iterable[str]:
    """Mail in flight of actors that are gone, or have started again since: there is no sender to send it once more."""
    for part in parts:
        for source in part.messages["source"].to_pylist():
            name, life = life_of(source)
            report = collected.completed.machines.get(name)
            if is_actor(source) and (report is None or report.incarnation != life):
                yield f"{collected.shown(name)}: it is gone, and mail of it is on its way"


def _is_still(parts: Iterable[HostPart]) -> bool:
    """Whether no machine of a host will go on as things are, and no mail is on its way."""
    return not any(
        part.messages.num_rows or (part.machines is not None and "active" in part.machines["status"].to_pylist())
        for part in parts
    )


def _of_driver(collected: CollectedCalls) -> list[MachineReport]:
    found = collected.completed.machines.get(DRIVER)
    return [] if found is None else [found]


def _closed(parts: Iterable[HostPart], mails: Iterable[MailPart]) -> Iterable[tuple[Any, ...]]:
    """What actors have sent that are gone: all that has come of it. Only names of actors have a colon.

    One that had reported has sent what came and what waits in it: of the rest nothing is known any more. More is never missing
    from a snapshot that is complete.
    """
    known = {one.counts.host for one in mails if one.counts is not None}
    sent: Counter[tuple[str, str, str]] = Counter()
    come: Counter[tuple[str, str, str]] = Counter()
    for source, target, kind, count, _, _, held, _ in (row for one in mails for row in one.ends):
        sent[source, target, kind] += count - held
    for part in parts:
        for source, target, kind, _, accepted, in_flight, *_ in _tuples(part.ends):
            if is_actor(source):
                come[source, target, kind] += accepted + in_flight
    for key in {**sent, **come}:
        if key[0] not in known or sent[key] > come[key]:
            yield (*key, come[key] - sent[key], 0, 0, 0, 0)


def _number_on(parts: list[HostPart]) -> None:
    """Give messages of an actor that has had several lives the numbers that they have on the one channel that is shown."""
    rows = [row for part in parts for row in _tuples(part.ends)]
    again = {(life_of(source)[0], target, kind) for source, target, kind, *_ in rows if life_of(source)[1]}
    numbers: Counter[tuple[str, str, str]] = Counter()
    for source, target, kind, _, accepted, *_ in rows:
        numbers[life_of(source)[0], target, kind] += accepted
    found: list[tuple[tuple[str, str, str], int, int, HostPart, int]] = []
    for part in parts if again else ():
        columns = zip(
            *(part.messages[name].to_pylist() for name in ("source", "target", "kind", "number")), strict=True
        )
        for at, (source, target, kind, number) in enumerate(columns):
            name, life = life_of(source)
            if (name, target, kind) in again:
                found.append(((name, target, kind), life, number, part, at))
    shown: dict[int, list[int]] = {}
    for key, _, _, part, at in sorted(found, key=lambda one: one[:3]):
        numbers[key] += 1
        shown.setdefault(id(part), part.messages["number"].to_pylist())[at] = numbers[key]
    for part in parts:
        if id(part) in shown:
            table = _as_table(part.messages)
            place = table.schema.get_field_index("number")
            column = pa.array(shown[id(part)], table.schema.field(place).type)
            part.messages = table.set_column(place, table.schema.field(place), column)


def _tuples(batch: Any) -> Iterable[tuple[Any, ...]]:
    return zip(*(batch[name].to_pylist() for name in END_ROW), strict=True)


def _mail_part(mail: MailPart) -> HostPart:
    return _part(mail.ends, mail.messages)


def _part(ends: list[tuple[Any, ...]], messages: list[tuple[Any, ...]]) -> HostPart:
    rows = [dict(zip(MESSAGE_ROW, row, strict=True)) for row in messages]
    found = pa.Table.from_pylist([dict(zip(END_ROW, row, strict=True)) for row in ends], schema=ENDS)
    return HostPart(pa.Table.from_pylist(rows, schema=inner(MESSAGES)), found)


def _show(part: HostPart, collected: CollectedCalls) -> None:
    """Give actors their names for people."""

    def shown(name: Any) -> Any:
        return collected.shown(life_of(name)[0]) if isinstance(name, str) and ":" in name else name

    part.ends = _renamed(part.ends, shown, "source", "target")
    part.messages = _renamed(part.messages, shown, "source", "target")
    for row in part.calls:
        row["caller"] = shown(row.get("caller"))
    if part.machines is not None and any(
        ":" in name for names in part.machines["waits_for"].to_pylist() for name in names or ()
    ):
        names = [[shown(name) for name in names or ()] for names in part.machines["waits_for"].to_pylist()]
        at = part.machines.schema.get_field_index("waits_for")
        table = _as_table(part.machines)
        part.machines = table.set_column(at, table.schema.field(at), pa.array(names, table.schema.field(at).type))


def _renamed(batch: Any, shown: Any, *columns: str) -> pa.Table:
    table = _as_table(batch)
    for name in columns:
        at = table.schema.get_field_index(name)
        values = table[name].to_pylist()
        if any(":" in value for value in values):
            field = table.schema.field(at)
            table = table.set_column(at, field, pa.array([shown(value) for value in values], field.type))
    return table


def _with_calls(machines: Any, reports: Iterable[MachineReport]) -> pa.Table:
    """The rows of machines, with the calls that they have sent to actors among what they have sent."""
    table = _as_table(machines)
    sent = {report.machine: sum(out.sent_count for out in report.outputs) for report in reports}
    if not sent:
        return table
    at = pc.index_in(table["machine"], pa.array(list(sent), table["machine"].type))
    more = pc.fill_null(pc.take(pa.array(list(sent.values()), pa.int64()), at), 0)
    place = table.schema.get_field_index("sent_count")
    field = table.schema.field(place)
    return table.set_column(place, field, pc.add(table["sent_count"].cast(pa.int64()), more).cast(field.type))


def _as_table(part: Any) -> pa.Table:
    return pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
