"""One snapshot, everything evaluated: which machine waits for which, and what that means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.evidence import names_in, needs_in
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import HELD_BY, LONG_S
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import SUSPECTED, Verdict, evaluate
from ray_snapshot.views.report import (
    broken,
    chain,
    deadlock_report,
    first_run,
    folded,
    happened_lines,
    machine_place,
    open_waits,
    remedy_lines,
    short_sites,
    wait_tree,
)

if TYPE_CHECKING:
    from ray_snapshot.detectors.unexplained import Unexplained
    from ray_snapshot.instrument.process.stacks import Stack, StackFrame

HEALTHY, DEADLOCK, UNKNOWN = 0, 3, 4

_OF_A_CHILD = "child process "


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one snapshot says."""

    verdicts: list[Verdict]
    lines: list[str]
    exit_code: int
    """0 healthy, 3 an alarm or a suspicion, 4 could not tell."""


def diagnosis(snapshot: Snapshot) -> Diagnosis:
    """Is it deadlocked, terminated, infeasible; which call waits for which, and what has not begun. An alarm, or else the
    deadlock detector, decides the exit code.

    A deadlock is told once, by its report; every other verdict in a line, but for later ones that could alarm and do not.
    """
    from ray_snapshot.detectors import Collective, Deadlock, Infeasible, Termination  # loaded only when somebody asks
    from ray_snapshot.detectors.common import lasted, parties, plural, unobserved, with_workers
    from ray_snapshot.detectors.pending import why_pending
    from ray_snapshot.detectors.queued import all_taken, why_queued
    from ray_snapshot.detectors.stores import short_of_room
    from ray_snapshot.detectors.unexplained import remedies, seconds_still, unexplained

    ranks = (Collective(),) if "collectives" in snapshot.coverage else ()  # of machines it is not looked for
    detectors, pending = (Deadlock(), Termination(), Infeasible(), *ranks), why_pending(snapshot)
    verdicts = [evaluate(item, snapshot) for item in detectors]
    first = verdicts[0]
    is_alarm = first.grade == SUSPECTED or any(one.alarm for one in verdicts)
    code = DEADLOCK if is_alarm else UNKNOWN if first.holds is None else HEALTHY
    lines = [
        f"{snapshot.system}: {parties(snapshot, snapshot.machine_count)},"
        f" {plural(snapshot.in_flight_count, 'call or message', 'calls or messages')} in flight,"
        f" snapshot {snapshot.snapshot_id} in {snapshot.duration_ms:.0f} ms"
    ]
    objects = unexplained(snapshot)
    is_reported = bool(first.holds and first.evidence.get("members"))
    if is_reported:
        report = deadlock_report(first.evidence, snapshot.system, snapshot.snapshot_id)
        lines.append(with_workers(snapshot, report))
        if (since := _waiting_since(snapshot, first.evidence["members"])) is not None:
            lines.append(f"  the last of these waits began at {since:%H:%M:%S}, {lasted(_age(snapshot, since))} ago")
        pending = [_without(line, first.evidence) for line in pending]
    quiet = {item.name for item in detectors[1:] if item.alarm_when is True or is_reported}
    shown = [
        one
        for one in verdicts[is_reported:]
        if (one.holds is not False or one.detector not in quiet or one.evidence.get("groups"))
        and not _is_in(one, first.evidence)
    ]
    lines += [line for one in shown for line in broken(f"  {one.detector}: {short_sites(one.sentence)}")]
    if first.holds is None:
        own = () if first.evidence.get("members") else first.evidence.get("advice", ())
        lines += remedy_lines([*own, *remedies(objects)])
    tree = [f"    {with_workers(snapshot, line)}" for line in _tree(snapshot, objects, all_taken)]
    lines += ["  who waits for whom:", *tree] if tree else ["  nothing waits for anything"]
    if (still_s := seconds_still(snapshot)) is not None and still_s >= LONG_S:
        lines.append(f"  nothing has moved for {lasted(still_s)}")
    if not is_reported:
        lines += happened_lines(text for text in first.evidence.get("happened", ()) if text not in first.sentence)
    queued = why_queued(snapshot, _awaited_calls(first.evidence) if is_reported else ())
    if pending := [*pending, *map(short_sites, queued)]:
        lines += ["  has not begun:", *folded([f"    {line}" for line in pending])]
    lines += [f"  hint: {line}" for line in short_of_room(snapshot)]
    if uncovered := unobserved(item for name in ("uncovered", "apart") for item in snapshot.coverage.get(name, ())):
        lines.append(with_workers(snapshot, short_sites(f"  not observed: {', '.join(uncovered)}")))
    return Diagnosis(verdicts, lines, code)


def concerned(snapshot: Snapshot, verdict: Verdict) -> list[str]:
    """The machines of which a person wants to see the stacks: of a deadlock, its members and those behind; else what waits."""
    records = (*verdict.evidence.get("members", ()), *verdict.evidence.get("stuck_behind", ()))
    names = [str(one["machine"]) for one in records] or [row["machine"] for row in snapshot.calls]
    return list(dict.fromkeys(names))[: LIMITS.diagnosed_machines]


def stack_lines(told: Mapping[str, Sequence[Stack]], *, with_locals: bool) -> list[str]:
    """Those with more than the line that stands with the wait already, and of children; all of them with their variables."""
    found = Counter[str]()
    for machine, stacks in told.items():
        for one in stacks:
            if with_locals:
                lines = [f"    {machine}, {one.of}:", *(line for frame in one.frames for line in _frame_lines(frame))]
                found["\n".join(lines)] += 1
            elif not one.frames:
                found[f"    {machine}, {one.of}"] += 1
            elif len(one.frames) > 1 or one.of.startswith(_OF_A_CHILD):
                frames = (frame._asdict() for frame in one.frames)
                found[f"    {machine}, {one.of}: {chain(frames, one.cut)}"] += 1
    lines = [text + (f" ({count:,} calls)" if count > 1 else "") for text, count in found.items()]
    return ["  called from:", *folded(lines)] if lines else []


def _frame_lines(frame: StackFrame) -> Iterator[str]:
    yield f"      {chain([frame._asdict()])}"
    if frame.variables not in (None, "{}"):
        yield f"        {frame.variables}"


def _without(line: str, evidence: Mapping[str, Any]) -> str:
    """A line of what has not begun, without what the report of the deadlock has told of it."""
    head, _, reason = line.partition(": it needs ")
    return f"{head}: see the deadlock" if reason in needs_in(evidence) else line


def _awaited_calls(evidence: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The calls, by machine and method, that a report of the deadlock says others wait for."""
    records = (*evidence.get("members", ()), *evidence.get("stuck_behind", ()))
    pairs = ((one["waits_for"], one.get("waits_for_calls", ())) for one in records)
    told = (zip(names, calls, strict=True) for names, calls in pairs if len(names) == len(calls))
    return {(machine, call.rpartition(".")[2]) for those in told for machine, call in those}


def _waiting_since(snapshot: Snapshot, members: Iterable[Mapping[str, Any]]) -> datetime | None:
    """When the last wait began of those that make the deadlock."""
    where = {(one["machine"], one.get("method")) for one in members}
    methods = {
        one["call_id"]: one["method"] for one in snapshot.tables["calls"].select(["call_id", "method"]).to_pylist()
    }
    rows = snapshot.tables["waits"].select(["machine", "call_id", "waiting_since", "satisfied"]).to_pylist()
    own = [one for one in rows if not one["satisfied"] and (one["machine"], methods.get(one["call_id"])) in where]
    began = [one["waiting_since"] for one in own]
    return max(filter(None, began), default=None)


def _age(snapshot: Snapshot, began: datetime) -> float:
    return (snapshot.started_at - began).total_seconds()


def _is_in(verdict: Verdict, evidence: Mapping[str, Any]) -> bool:
    """Whether the report of the deadlock has told all that this one tells."""
    needs = names_in(verdict.evidence, "needs")
    return bool(needs) and needs_in(evidence).issuperset(needs)


def _tree(snapshot: Snapshot, objects: Iterable[Unexplained], all_taken: Callable[..., Any]) -> list[str]:
    """Which call waits for which; `objects`: waits of which it cannot be told what ends them; `all_taken`: of `queued`."""
    machines, calls = snapshot.tables["machines"], snapshot.calls
    classes = dict(zip(*(machines[name].to_pylist() for name in ("machine", "class_name")), strict=True))
    at = {(row["machine"], row["call_site"]): row["call_id"] for row in calls}
    waits, over = open_waits(snapshot.waits)
    waits = _as_known(snapshot, waits)
    for one in objects:
        call_id = at.get((one.machine, one.call_site))
        wait = {"machine": one.machine, "call_id": call_id, "on_machine": None, "satisfied": False}
        waits.append({**wait, "text": short_sites(one.in_a_tree)})
    primitives = snapshot.coverage.get("primitives") or {}
    places = {}
    for row in calls:
        about = {"class": classes.get(row["machine"]), "primitive": primitives.get(row["call_id"] or row["machine"])}
        places[row["machine"], first_run(row["call_id"])] = machine_place({**row, **about})
    to_begin = _to_begin(snapshot, classes, waits)
    waiting, taken = {row["call_id"] for row in waits}, all_taken(snapshot, {machine for machine, *_ in to_begin})
    for machine, call_id, group in to_begin:
        on = [] if call_id in waiting else taken.get((machine, group), [])
        wait = {"machine": machine, "call_id": call_id, "on_machine": machine, "satisfied": False}
        waits += [{**wait, "on_call_id": one["call_id"]} for one in on]
    tree = wait_tree(waits, places, {(machine, call_id): text for (machine, call_id, _), text in to_begin.items()})
    where = {machine: text for (machine, _), text in places.items()}
    return [*tree, *(f"{where.get(machine, machine)}: what it waits for has come" for machine in over)]


def _as_known(snapshot: Snapshot, waits: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Waits for a lock as waits for the calls that hold it; and without what else, not recorded, might take an item of a
    generator."""
    primitives = snapshot.coverage.get("primitives") or {}
    held = {*(snapshot.coverage.get("held_generators") or ())}
    running: dict[tuple[str, str], list[str]] = {}
    for call in snapshot.calls:
        running.setdefault((call["machine"], call["method"]), []).append(call["call_id"])
    found, known = list[Mapping[str, Any]](), set[str]()
    for row in waits:
        holders = str(primitives.get(row["call_id"], "")).partition(HELD_BY)[2].split(", ")
        every = [one for name in holders for one in running.get((row["machine"], name.rpartition(".")[2]), ())]
        holding = [one for one in every if HELD_BY not in primitives.get(one, "")]
        if len(holding) != len(holders):  # not seen, or one of several
            found += [row] * (row["on_machine"] is not None or row["call_id"] not in held)
        elif row["call_id"] not in known:
            found += [{**row, "on_machine": row["machine"], "on_call_id": one} for one in holding]
            known.add(row["call_id"])
    return found


def _to_begin(
    snapshot: Snapshot, classes: Mapping[str, str], waits: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, str, str | None], str]:
    """By machine, id and concurrency group: the calls in flight that wait for their arguments, or that others wait for."""
    ids = {row.get(name) for row in waits for name in ("call_id", "on_call_id")}
    messages = snapshot.tables["messages"].select(["target", "call_id", "method", "concurrency_group"])
    rows = messages.filter(pc.is_in(messages["call_id"], pa.array(ids, pa.string()), skip_nulls=True)).to_pylist()
    places = [machine_place({**row, "machine": row["target"], "class": classes.get(row["target"])}) for row in rows]
    keys = [(row["target"], row["call_id"], row["concurrency_group"]) for row in rows]
    return {key: f"{place}, not begun" for key, place in zip(keys, places, strict=True)}
