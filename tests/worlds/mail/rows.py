"""A simulated snapshot as rows, so that detectors can judge it: `Snapshot.from_rows(**rows_of(world, recorded))`.

What a machine waits for is the same as on Ray: what it says itself, the reply that it waits for inside an action, or what
follows from its joins where its inputs are declared (`World.declared`). Imports the standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ray_snapshot import Wait
from ray_snapshot.protocol.joins import Inputs, half_begun, waiting_of
from ray_snapshot.simulation.mail.oracle import Message, RecordedSnapshot
from worlds.mail.machines import Behaviour

if TYPE_CHECKING:
    from worlds.mail.world import World

Row = dict[str, Any]
Channels = Mapping[tuple[str, str, str], list[Message]]


def rows_of(world: World, recorded: RecordedSnapshot) -> dict[str, Any]:
    """Rows of `machines`, `waits`, `channels` and `messages`; and `coverage`, if a join has begun and nobody said who sends.

    A behaviour may have, beside what `Behaviour` asks for: `is_active(state)`, `wait_of(state)` (a `Wait` or None) and
    `call_of(state)` (the machine whose reply is waited for, or None).
    """
    machines: list[Row] = []
    waits: list[Row] = []
    behaviours = world.programs
    for name, state in recorded.states.items():
        status, rows = _waiting(name, state, behaviours, world.declared.sources.get(name), recorded)
        machines.append({"machine": name, "status": status, "state": state})
        waits += rows
    undeclared = dict(_undeclared(world, behaviours, recorded))
    return {
        "machines": machines,
        "waits": waits,
        "channels": list(_channels(recorded)),
        "messages": list(_messages(recorded)),
        **({"coverage": {"uncovered": [], "undeclared": undeclared}} if undeclared else {}),
    }


def _undeclared(
    world: World, behaviours: Mapping[str, Behaviour], recorded: RecordedSnapshot
) -> Iterator[tuple[str, str]]:
    """Machines that have begun a join whose sources were not declared, each with what it lacks."""
    for name in sorted(set(recorded.states) - set(world.declared.sources)):
        lacking = half_begun(Inputs(behaviours[name].joins, {}), _arriving(name, recorded))
        if lacking:
            yield name, " or ".join(f"{'+'.join(ports)} (lacks {', '.join(missing)})" for ports, missing in lacking)


def _waiting(
    name: str,
    state: Any,
    behaviours: Mapping[str, Behaviour],
    sources: Mapping[str, tuple[str, ...]] | None,
    recorded: RecordedSnapshot,
) -> tuple[str, list[Row]]:
    """Its status, and its rows of `waits`."""
    behaviour = behaviours[name]
    called = _asked(behaviour, "call_of", state)
    if called is not None:
        return "blocked", [_call_row(name, called, behaviours, recorded)]
    wait = _asked(behaviour, "wait_of", state)
    if wait is not None:
        return "blocked", list(_rows(name, wait, None))
    if _asked(behaviour, "is_active", state):
        return "active", []
    waiting = None if sources is None else waiting_of(Inputs(behaviour.joins, sources), _arriving(name, recorded))
    if waiting is None:
        return "passive", []
    return "blocked" if waiting.lacking else "passive", list(_rows(name, waiting.wait, False))


def _asked(behaviour: Behaviour, what: str, state: Any) -> Any:
    hook = getattr(behaviour, what, None)
    return None if hook is None else hook(state)


def _rows(name: str, wait: Wait, satisfied: bool | None) -> Iterator[Row]:
    for position, one in enumerate(wait.alternatives):
        for on in one.on:
            yield {"machine": name, "alternative": position, "k": one.k, "on_machine": on, "satisfied": satisfied}


def _call_row(name: str, called: str, behaviours: Mapping[str, Behaviour], recorded: RecordedSnapshot) -> Row:
    """A reply is on its way, or will be, where the call was accepted or the called machine is free to accept it."""
    in_flight = recorded.channels.get((name, called, "call"))
    is_free = called in recorded.states and _asked(behaviours[called], "call_of", recorded.states[called]) is None
    ports = {port for ports in behaviours[called].joins for port in ports} if called in behaviours else set()
    satisfied = not in_flight or (is_free and in_flight[0][1] not in ports)
    return {"machine": name, "on_machine": called, "satisfied": satisfied}


def _arriving(name: str, recorded: RecordedSnapshot) -> list[list[str]]:
    """The methods in flight to a machine, channel by channel; each timer by itself."""
    found: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for (source, target, kind), messages in recorded.channels.items():
        if target == name:
            for number, method, _ in messages:
                found[source, kind, number if kind == "timer" else None].append(method)
    return list(found.values())


def _channels(recorded: RecordedSnapshot) -> Iterator[Row]:
    for source, target, kind in {**recorded.sent, **recorded.accepted}:
        key = source, target, kind
        counts = {"sent_count": recorded.sent.get(key, 0), "accepted_count": recorded.accepted.get(key, 0)}
        yield {"source": source, "target": target, "kind": kind, **counts}


def _messages(recorded: RecordedSnapshot) -> Iterator[Row]:
    for (source, target, kind), messages in recorded.channels.items():
        for number, method, args in messages:
            common = {"source": source, "target": target, "kind": kind}
            yield {**common, "number": number, "method": method, "args": [args]}
    for creator, child in sorted(recorded.creations):
        yield {"source": creator, "target": child, "number": 0, "method": "__init__"}
