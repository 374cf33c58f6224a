"""A completed snapshot of machines of hosts and watched actors, as one system: what the hosts tell, and what the ledgers tell.

Of a machine that calls actors, and of a driver that sends to machines, the hosts' rows tell all but what it waits for at
actors. Between processes an actor has another name than for people: here the rows get those.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.columns import inner, spread
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.covered import Coverage
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
from ray_snapshot.waits import short_form_of


def joint(collected: CollectedCalls) -> Snapshot:
    """The snapshot of a collection with parts of hosts; O(machines + channels + messages + calls)."""
    parts: list[HostPart] = [whole(pickle.loads(part)) for part in collected.parts]
    mails = [one.mail for one in collected.recorded.values() if one.mail is not None]
    ends_of_the_dead = list(_closed(parts, mails))
    of_the_gone = dict.fromkeys(_of_the_gone(parts, collected))
    sent = [_part(one.ends, one.messages) for one in mails] + [_part(ends_of_the_dead, [])]
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
            part.machines = _with_short_waits(part.machines, part.waits, tables.rows_of)
    coverage, obstacles = Coverage(tables).facts()
    obstacles += of_the_gone
    return assembled(collected.header, [*parts, *sent], Also(tables.tables(), tables.waits, coverage, obstacles))


def _of_the_gone(parts: Iterable[HostPart], collected: CollectedCalls) -> Iterable[str]:
    """Mail in flight of actors that are gone, or have started again since: there is no sender to send it once more."""
    for part in parts:
        for source in filter(is_actor, pc.unique(part.messages["source"]).to_pylist()):
            name, life = life_of(source)
            report = collected.completed.machines.get(name)
            if report is None or report.incarnation != life:
                yield f"{collected.shown(name)}: it is gone, and mail of it is on its way"


def _is_still(parts: Iterable[HostPart]) -> bool:
    """Whether no machine of a host will go on as things are, and no mail is on its way."""
    return not any(
        part.messages.num_rows
        or (part.machines is not None and pc.any(pc.equal(part.machines["status"], "active")).as_py())
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
        for source, target, kind, _, accepted, in_flight, *_ in _of_actors(part):
            come[source, target, kind] += accepted + in_flight
    for key in {**sent, **come}:
        if key[0] not in known or sent[key] > come[key]:
            yield (*key, come[key] - sent[key], 0, 0, 0, 0)


def _number_on(parts: list[HostPart]) -> None:
    """Give messages of an actor that has had several lives the numbers that they have on the one channel that is shown."""
    rows = [row for part in parts for row in _of_actors(part)]
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
            part.messages = _with(_as_table(part.messages), "number", shown[id(part)])


def _of_actors(part: HostPart) -> Iterable[tuple[Any, ...]]:
    """The rows of a part's ends whose sources are actors: mostly there are none, and thousands of others."""
    for rows, columns in part.batches_of_ends:
        source = columns["source"]
        places = [at for at, name in enumerate(source.dictionary.to_pylist()) if is_actor(name)]
        if places:
            batch = spread((rows, columns))
            found = batch.filter(pc.is_in(batch["source"].indices, pa.array(places, source.indices.type)))
            yield from zip(*(found[name].to_pylist() for name in END_ROW), strict=True)


def _part(ends: list[tuple[Any, ...]], messages: list[tuple[Any, ...]]) -> HostPart:
    rows = [dict(zip(MESSAGE_ROW, row, strict=True)) for row in messages]
    found = pa.Table.from_pylist([dict(zip(END_ROW, row, strict=True)) for row in ends], schema=ENDS)
    return HostPart(pa.Table.from_pylist(rows, schema=inner(MESSAGES)), found)


def _show(part: HostPart, collected: CollectedCalls) -> None:
    """Give actors their names for people."""

    def shown(name: Any) -> Any:
        return collected.shown(life_of(name)[0]) if isinstance(name, str) and ":" in name else name

    part.ends = [(rows, {**columns, **_renamed(columns, shown)}) for rows, columns in part.batches_of_ends]
    table = _as_table(part.messages)
    for name, column in _renamed({name: table[name].combine_chunks() for name in ("source", "target")}, shown).items():
        table = _with(table, name, column)
    part.messages = table
    for row in part.calls:
        row["caller"] = shown(row.get("caller"))
    if part.machines is not None:
        table = _as_table(part.machines)
        if any(map(is_actor, pc.unique(pc.list_flatten(table["waits_for"])).to_pylist())):
            names = [[shown(name) for name in names or ()] for names in table["waits_for"].to_pylist()]
            part.machines = _with(table, "waits_for", names)


def _renamed(columns: Mapping[str, pa.Array], shown: Callable[[Any], Any]) -> dict[str, pa.Array]:
    """Those of the columns `source` and `target` in which names of actors stand, with the names for people."""
    found = {}
    for name in ("source", "target"):
        column = columns[name]
        is_dictionary = pa.types.is_dictionary(column.type)
        known = (column if is_dictionary else column.dictionary_encode()) if len(column) else None
        if known is not None and any(map(is_actor, known.dictionary.to_pylist())):
            names = pa.array([shown(one) for one in known.dictionary.to_pylist()], pa.string())
            texts = names.take(known.indices)  # two actors may have one name
            found[name] = texts.dictionary_encode() if is_dictionary else texts
    return found


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with another column of that name."""
    place = table.schema.get_field_index(name)
    field = table.schema.field(place)
    return table.set_column(place, field, values if isinstance(values, pa.Array) else pa.array(values, field.type))


def _with_calls(machines: Any, reports: Iterable[MachineReport]) -> pa.Table:
    """The rows of machines, with the calls that they have sent to actors among what they have sent."""
    table = _as_table(machines)
    sent = {report.machine: sum(out.sent_count for out in report.outputs) for report in reports}
    if not sent:
        return table
    at = pc.index_in(table["machine"], pa.array(list(sent), table["machine"].type))
    more = pc.fill_null(pc.take(pa.array(list(sent.values()), pa.int64()), at), 0)
    return _with(table, "sent_count", pc.add(table["sent_count"], more).combine_chunks())


def _with_short_waits(
    machines: pa.Table, own: Iterable[Mapping[str, Any]], rows_of: Mapping[str, list[dict[str, Any]]]
) -> pa.Table:
    """The rows of machines, with what those say in short that wait for actors; `own`: waits that their host has told of."""
    mine = pc.is_in(machines["machine"], pa.array(list(rows_of), pa.string())).to_pylist() if rows_of else []
    if not any(mine):
        return machines
    names = machines["machine"].to_pylist()
    rows = [{"call_id": None, **row} for row in own]
    forms = {
        at: short_form_of([*(row for row in rows if row["machine"] == names[at]), *rows_of[names[at]]])
        for at, is_mine in enumerate(mine)
        if is_mine
    }
    for place, name in enumerate(("wait_mode", "wait_k", "waits_for")):
        before = machines[name].to_pylist()
        machines = _with(machines, name, [forms[at][place] if at in forms else one for at, one in enumerate(before)])
    return machines


def _as_table(part: Any) -> pa.Table:
    return pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part
