"""One snapshot of machines and watched actors as rows, so that detectors can judge it.

`Snapshot.from_rows(**rows_of(world, *world.snapshots[number]))`. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot, ResolvedWait
from ray_snapshot.protocol.call_messages import MachineReport, RunningCall, Sent, call_id_of, parsed
from ray_snapshot.simulation.mail.oracle import RecordedSnapshot
from worlds.mail import rows

if TYPE_CHECKING:
    from worlds.parties.world import PartyWorld

Row = dict[str, Any]


def owed_id(source: str, target: str, number: int) -> str:
    """What the call of a machine is called in rows."""
    return f"{source}>{target}/{number}"


def rows_of(world: PartyWorld, recorded: RecordedSnapshot, calls: CompletedCallSnapshot) -> dict[str, Any]:
    """One snapshot of both as rows, so that detectors can judge it: `Snapshot.from_rows(**rows_of(...))`.

    Machines of hosts have rows of `machines` and `messages`; actors have those, and of `calls`; all have rows of `waits`. A
    wait for a call is satisfied where that neither runs nor is in flight; one for a machine, where its message is accepted,
    or the machine is in no action and will.
    """
    mail = rows.rows_of(world.mail, recorded)
    actors = [report for report in calls.machines.values() if report.machine not in world.machines]
    running = [_call_row(report.machine, call) for report in actors for call in report.calls]
    flying = [_flying_row(one, number, sent) for one in calls.channels for number, sent in one.in_flight.items()]
    for row in mail["messages"]:
        if row.get("kind") == "call":
            row["call_id"] = owed_id(row["source"], row["target"], row["number"])
    unfinished = {row["call_id"] for row in mail["messages"] if row["target"] in recorded.waiting and "call_id" in row}
    waits = [{**row, "satisfied": not _is_held_up(row, recorded)} for row in mail["waits"]]
    return {
        "machines": [_machine_row(row, recorded) for row in mail["machines"] if row["machine"] in world.machines]
        + [_actor_row(report, world.calls.slots()) for report in actors],
        "waits": waits + [row for one in calls.waits for row in _wait_rows(world.machines, one, unfinished)],
        "channels": mail["channels"] + [_channel_row(one) for one in calls.channels],
        "messages": mail["messages"] + flying,
        "calls": running,
    }


def _machine_row(row: Row, recorded: RecordedSnapshot) -> Row:
    return {**row, "status": "blocked"} if row["machine"] in recorded.waiting else row


def _actor_row(report: MachineReport, slots: Mapping[str, int]) -> Row:
    return {"machine": report.machine, "status": report.status, "max_concurrency": slots.get(report.machine, 1)}


def _call_row(machine: str, call: RunningCall) -> Row:
    return {"machine": machine, "call_id": call.call_id, "caller": call.caller, "method": call.method}


def _channel_row(one: CallsOf) -> Row:
    counts = {name: getattr(one, name) for name in ("sent_count", "accepted_count", "settled_count", "in_flight_count")}
    return {"source": one.source, "target": one.target, "kind": "call", **counts}


def _flying_row(one: CallsOf, number: int, sent: Sent) -> Row:
    call_id = call_id_of(one.source, one.incarnation, one.target, number)
    ends = {"source": one.source, "target": one.target, "kind": "call"}
    return {**ends, "number": number, "call_id": call_id, "method": sent.method}


def _wait_rows(machines: Collection[str], resolved: ResolvedWait, unfinished: Collection[str]) -> Iterator[Row]:
    """A machine of a host takes one action at a time: the machine itself waits."""
    wait = resolved.wait
    common = {
        "machine": resolved.machine,
        "call_id": None if resolved.machine in machines else wait.call_id,
        "k": wait.k,
    }
    for call, answer in zip(wait.calls, resolved.answers, strict=True):
        on = {"on_machine": None if call is None else parsed(call).target, "on_call_id": call}
        yield {**common, **on, "satisfied": bool(answer) or wait.is_ready}
    for machine, call in wait.owed:
        yield {**common, "on_machine": machine, "on_call_id": call, "satisfied": call not in unfinished}


def _is_held_up(row: Row, recorded: RecordedSnapshot) -> bool:
    """Whether a machine's call of another one is in flight to one that waits inside an action."""
    return (
        bool(recorded.channels.get((row["machine"], row["on_machine"], "call")))
        and row["on_machine"] in recorded.waiting
    )
