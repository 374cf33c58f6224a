"""What machines with declared inputs wait for, filled in where a snapshot is put together.

Only there is every message in flight known, those included that a host has heard of late. Imports no Ray. Read
`protocol.joins` for the rule; here its answer becomes rows.

A machine in whose mailboxes lies a part of a join is *blocked*. One in whose mailboxes nothing lies is at rest: it stays
*passive*, and its rows of `waits` only say which machines can wake it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.protocol.joins import Inputs, Pattern, Waiting, half_begun, waiting_of
from ray_snapshot.runtime.mixin import joins_of
from ray_snapshot.waits import Wait


def waits_by_inputs(inputs: Mapping[str, Inputs], messages: pa.Table) -> tuple[dict[str, Waiting], dict[str, str]]:
    """By machine: what it waits for, if it waits; and what a join of it lacks for which no senders are declared.

    O(machines + messages to them).
    """
    channels = _channels(messages, pa.array(list(inputs), pa.string()))
    found = {name: waiting_of(item, channels.get(name, [])) for name, item in inputs.items()}
    known = {name: waiting for name, waiting in found.items() if waiting is not None}
    half = {name: half_begun(inputs[name], one) for name, one in sorted(channels.items()) if name not in known}
    return known, {name: lacks(inputs[name], lacking) for name, lacking in half.items() if lacking}


def _channels(messages: pa.Table, targets: pa.Array) -> dict[str, list[list[str]]]:
    """The methods in flight to each of `targets`, channel by channel, in order; a timer has its own."""
    mine = messages.filter(pc.is_in(messages["target"], value_set=targets))
    rows = zip(*(mine[name].to_pylist() for name in ("target", "source", "kind", "number", "method")), strict=True)
    return arriving(sorted(rows, key=lambda row: row[3]))


def arriving(messages: Iterable[tuple[str, str, str, int, str]]) -> dict[str, list[list[str]]]:
    """By machine: the methods in flight to it, channel by channel; a timer has its own.

    `messages`: (target, source, kind, number, method) of each, those of a channel in order.
    """
    found: dict[str, dict[tuple[Any, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for target, source, kind, number, method in messages:
        found[target][source, kind, number if kind == "timer" else None].append(method)
    return {target: list(channels.values()) for target, channels in found.items()}


def wait_rows(machine: str, wait: Wait, *, satisfied: bool | None = False) -> Iterator[dict[str, Any]]:
    """Rows of `waits` for a wait; `satisfied`: False of one that leaves out what has arrived."""
    for position, one in enumerate(wait.alternatives):
        for name in one.on:
            yield {"machine": machine, "alternative": position, "k": one.k, "on_machine": name, "satisfied": satisfied}


def call_row(machine: str, inputs: Inputs, waiting: Waiting) -> dict[str, Any]:
    """A row of `calls` for a blocked machine: which joins it cannot begin, and for want of which ports."""
    return {"machine": machine, "method": lacks(inputs, waiting.lacking), "holds_slot": True}


def half_join(kind: type, channels: Sequence[Sequence[str]]) -> str | None:
    """What joins of a machine of this class lack of which a part is there, where it is not known who sends the rest.

    `channels`: the methods in flight to it, channel by channel. None if anything can be accepted, or nothing is there.
    """
    joins = joins_of(kind)
    inputs = Inputs(tuple(joins), {}, tuple(joins.values()))
    lacking = half_begun(inputs, channels) if joins else ()
    return lacks(inputs, lacking) if lacking else None


def lacks(inputs: Inputs, lacking: Iterable[tuple[Pattern, Pattern]]) -> str:
    """ "eat (lacks right)" of each join."""
    names = dict(zip(inputs.joins, inputs.methods, strict=False))
    return " or ".join(
        f"{names.get(ports, '+'.join(ports))} (lacks {', '.join(missing) or 'one more of any'})"
        for ports, missing in lacking
    )


def with_waits(machines: pa.Table, blocked: Mapping[str, Waiting]) -> pa.Table:
    """The table of machines in which those are blocked."""
    if not blocked:
        return machines
    rows = [position for position, name in enumerate(machines["machine"].to_pylist()) if name in blocked]
    names = [machines["machine"][row].as_py() for row in rows]
    short = [blocked[name].wait.short_form for name in names]
    columns: dict[str, list[Any]] = {"status": ["blocked"] * len(rows)}
    columns |= {name: [form[at] for form in short] for at, name in enumerate(("wait_mode", "wait_k", "waits_for"))}
    for name, values in columns.items():
        kept = machines[name].to_pylist()
        for row, value in zip(rows, values, strict=True):
            kept[row] = value
        position = machines.schema.get_field_index(name)
        machines = machines.set_column(position, machines.schema.field(position), pa.array(kept, machines[name].type))
    return machines
