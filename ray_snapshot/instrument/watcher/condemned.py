"""Which process runs a call of a snapshot, and whether what it waits for may end in an error: `Processes.condemn`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.joined import Tables
from ray_snapshot.protocol.calls import MachineReport, Sent, parsed
from ray_snapshot.protocol.tasks import is_task


class Found(NamedTuple):
    """A call, as processes know it."""

    process: str
    call_id: str


def condemned(collected: CollectedCalls, call_id: str) -> Found | str:
    """The call that has this id in the snapshot, or why it gets no error."""
    tables = Tables(collected)
    machines = collected.completed.machines
    for name, report in machines.items():
        for call in report.calls:
            if tables.run_id(call.call_id) == call_id:
                refusal = _refusal(machines, report, call.call_id)
                return refusal or Found(tables.worker_of.get(name, name), call.call_id)
    return "it has not begun"


def _refusal(machines: Mapping[str, MachineReport], report: MachineReport, call_id: str) -> str:
    if any(sent.is_retried for sent in _sent(machines.values(), call_id)):
        return "Ray would run it again (retry_exceptions, or max_task_retries)"
    if not any(wait.call_id == call_id and wait.on and wait.timeout_at is None for wait in report.waits):
        return "it waits for something else than a reply (a lock, a queue, a thread)"
    return ""


def _sent(reports: Iterable[MachineReport], call_id: str) -> Iterable[Sent]:
    """What the log of its sender has of a call; a call that Ray may run again stays there until it has ended."""
    source, incarnation, target, number = parsed(call_id) if not call_id.startswith("?/") else ("?", 0, "?", 0)
    for report in reports:
        if is_task(target):
            yield from (tasks.log[target].sent for tasks in report.tasks if target in tasks.log)
        elif (report.machine, report.incarnation) == (source, incarnation):
            yield from (out.log[number] for out in report.outputs if out.target == target and number in out.log)
