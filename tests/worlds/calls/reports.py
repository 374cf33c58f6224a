"""A completed snapshot of calls in the oracle's words. Imports the standard library only; see `oracle`."""

from __future__ import annotations

from collections import Counter

from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import CallWait, call_id_of, parsed
from worlds.calls.oracle import CallName, Seen, Waiting


def seen_of(found: CompletedCallSnapshot, began: int, ended: int, was_quiet: bool) -> Seen:
    """A completed snapshot, in the oracle's words."""
    reports = [report for report in found.machines.values() if not report.has_left]
    seen = Seen(found.number, began, ended, was_quiet, problems=found.problems, obstacles=found.obstacles)
    seen.machines = {report.machine: report.incarnation for report in found.machines.values()}
    seen.states = {report.machine: report.state for report in reports if report.has_state}
    seen.active = {report.machine for report in reports if report.status == "active"}
    seen.running = Counter(name_of(call.call_id) for report in reports for call in report.calls)
    seen.waits = Counter(waiting_of(wait) for report in reports for wait in report.waits)
    seen.ready = {waiting_of(wait) for report in reports for wait in report.waits if wait.is_ready}
    for channel in found.channels:
        key = channel.source, channel.incarnation, channel.target
        seen.sent[key] = channel.sent_count
        seen.accepted[key] = channel.accepted_count
        seen.settled[key] = channel.settled_count
        for number, sent in channel.in_flight.items():
            seen.in_flight[name_of(channel.call_id(number))] = tuple(name_of(one or "") for one in sent.needs)
    for resolved in (*found.waits, *found.argument_waits):
        seen.answers.update(zip((name_of(one or "") for one in resolved.wait.calls), resolved.answers, strict=False))
        if resolved.errors:
            errors = [(None if call is None else name_of(call), has_ended) for call, has_ended in resolved.errors]
            seen.errors[waiting_of(resolved.wait)] = tuple(errors)
        if resolved.wait.is_local:
            seen.callers[resolved.machine] = resolved.on_machines
    seen.gone = {line.split()[0] for line in found.obstacles if line.endswith("while the snapshot was open")}
    return seen


def waiting_of(wait: CallWait) -> Waiting:
    caller = name_of(wait.call_id) if wait.call_id is not None else None
    on = tuple(name_of(one or "") for one in wait.calls)
    return Waiting(caller, on, wait.k, wait.is_local, wait.may_act or bool(wait.owed), wait.raises)


def name_of(call_id: str) -> CallName:
    source, incarnation, target, number = parsed(call_id)
    return source, incarnation, target, number


def id_of(call: CallName) -> str:
    return call_id_of(*call)
