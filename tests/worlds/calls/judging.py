"""What the product says of an app that asks, at every moment of it, by the code that judges real ones; is that true?

A state is put into ledgers, and their snapshot joined as the watcher does it (`CollectedCalls`); what its `Polls` tell of a
loop depends on an earlier snapshot, which may have been taken at any moment (`Question`). Imports nothing but the standard
library and `ray_snapshot`; read `asking` first.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock
from ray_snapshot.encoding import to_json
from ray_snapshot.instrument.process.polls import Poll, PolledMethod
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.polls import Polls
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot, PendingCallSnapshot, ResolvedWait
from ray_snapshot.protocol.calls import CallLedger, CallWait, InReport, MachineReport, RunningCall, call_id_of
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds.calls.asking import App, Run, State, Truth

NOW = 1_000.0

Told = tuple[tuple[str, int], ...]
Row = Mapping[str, Any]


class Question(NamedTuple):
    """What a loop asks again and again; and what is known of whom it asks."""

    machine: str
    method: str
    state: Told | None = None
    """In the first snapshot that shows it; None: there is none yet."""
    since: frozenset[str] = frozenset()
    """Who has called it since."""
    answers: int = 0
    """How many have come since, all equal; two stand for more."""
    inside: frozenset[str] = frozenset()
    """The calls that were there."""


Questions = tuple[Question, ...]
Known = tuple[tuple[str, Questions], ...]
"""Of each loop that has got nothing but equal answers."""


def is_poll(questions: Questions) -> bool:
    """One round is as good as many."""
    return all(one.answers or one.state is not None for one in questions)


def copied(app: App, state: State, machine: str) -> Told | None:
    """The state of an actor, but for what counts; None while a call is inside an action there."""
    is_inside = any(one.machine == machine and one.phase == "running" for one in state.runs)
    return None if is_inside else app.told(state, machine)


def inside_of(state: State, machine: str) -> frozenset[str]:
    """The calls that run there, but for those of loops that ask."""
    here = (one for one in state.runs if one.machine == machine and one.phase not in ("flying", "ended"))
    return frozenset(one.key for one in here if "?" not in one.key)


@functools.lru_cache(100_000)
def behind(app: App, known: Known, run: Run, kind: str) -> Known:
    """What is known behind a step of a call."""
    loops, step = dict(known), app.step_of(run)
    if kind == "accept":
        for key, questions in known:
            told = [one.machine == run.machine and one.state is not None for one in questions]
            since = [
                one.since | {run.caller} if is_told else one.since for one, is_told in zip(questions, told, strict=True)
            ]
            loops[key] = tuple(one._replace(since=by) for one, by in zip(questions, since, strict=True))
    elif kind in ("read", "end") and step[0] == "until":
        questions = loops.pop(run.key, ()) or tuple(Question(*by) for by in step[1])
        answers = [min(2, one.answers + (at == run.turn)) for at, one in enumerate(questions)]
        if kind == "read":
            loops[run.key] = tuple(one._replace(answers=by) for one, by in zip(questions, answers, strict=True))
    return tuple(sorted(loops.items()))


def behind_snapshot(app: App, known: Known, state: State) -> Known:
    """And behind a snapshot of this state."""

    def looked_at(one: Question) -> Question:
        now = copied(app, state, one.machine) if one.state is None else None
        inside = inside_of(state, one.machine)
        return one if now is None else Question(one.machine, one.method, now, inside=inside)

    return tuple((key, tuple(map(looked_at, those)) if is_poll(those) else those) for key, those in known)


@functools.lru_cache(100_000)
def row(app: App, run: Run, asked: Questions, asking: frozenset[tuple[str, str]], now: tuple[Any, ...]) -> Row:
    """What a watcher tells of a poll that has seen the first snapshot, one just before this, and sees this one.

    `asking`: (machine, whom it asks) of all polls. `now`: state and calls of each that is asked. `run.answer`: it has a reply.
    """
    watcher, rows, call_id = Polls(), list[Row](), None if run.machine == DRIVER else run.key
    for moment in range(3):
        machines, reports, polled = dict[str, MachineReport](), dict[str, ProcessReport](), list[PolledMethod]()
        for one, (copy, inside) in zip(
            asked, now if moment else [(one.state, one.inside) for one in asked], strict=True
        ):
            callers, since = {by for by, on in asking if on == one.machine}, one.since if moment else frozenset()
            counts = {by: 1 + 10 * (by in since) for by in callers | since}
            counters = {by: sum(counts[each] for each in callers) for on, by in app.counts if on == one.machine}
            inputs = tuple(InReport(by, 0, 0, (), count) for by, count in counts.items())
            state = to_json({**dict(copy or ()), **counters})
            calls = tuple(RunningCall(by, "", 0.0) for by in sorted(inside))
            has_state = copy is not None
            report = MachineReport(one.machine, 0, 1, 0, has_state=has_state, state=state, inputs=inputs, calls=calls)
            machines[one.machine] = report
            reports[one.machine] = ProcessReport(report, NOW, plain_methods=app.plain_methods(one.machine))
            times = 9 + one.answers * (moment > 0 and one.state is not None)
            polled.append(PolledMethod(one.machine, one.method, f"app.py:{len(polled)}", times, "False"))
        polls = [(by, Poll("another", on, 0.0, (PolledMethod(on, "", "", 9, ""),), "until", ())) for by, on in asking]
        for by, poll in [(run.machine, Poll(call_id, "", 0.0, tuple(polled), "until", ())), *polls]:
            told = reports.get(by) or ProcessReport(MachineReport(by, 0, 1, 0), NOW)
            reports[by] = replace(told, polls=(*told.polls, poll))
        wait = ResolvedWait(run.machine, CallWait(0, call_id, (), 1, 0.0), (), (), run.answer)
        cut = CompletedCallSnapshot(1, machines, (), (wait,), (), (), ())
        rows = [*watcher.rows(cut, reports, {}, NOW - (2 - moment) * 2 * LIMITS.poll_s)]
    return next(one for one in rows if one["call_id"] == call_id)


def polls_of(app: App, state: State, known: Known) -> tuple[Row, ...]:
    """What is told of all loops that are polls."""
    runs, polls = {one.key: one for one in state.runs}, [(key, those) for key, those in known if is_poll(those)]
    asking = frozenset((runs[key].machine, one.machine) for key, those in polls for one in those)
    replied = {one.key.rpartition("?")[0] for one in state.runs if one.phase == "ended"}
    asked = [Run(*runs[key][:5], answer=key in replied) for key, _ in polls]
    nows = [
        tuple((copied(app, state, one.machine), inside_of(state, one.machine)) for one in those) for _, those in polls
    ]
    return tuple(row(app, one, those, asking, now) for one, (_, those), now in zip(asked, polls, nows, strict=True))


def snapshot_of(app: App, state: State, polls: tuple[Row, ...]) -> Snapshot:
    """A state, as ledgers record it and the watcher joins them; all have the handles of all actors."""
    ledgers = {name: CallLedger(name, acts_unasked=name == DRIVER) for name in (*app.actors, DRIVER)}
    ids: dict[str, str | None] = {DRIVER: None}
    for run in sorted(state.runs, key=lambda one: len(one.key)):
        if run.machine != DRIVER:
            header = ledgers[run.caller].submit(run.machine, run.method, (), 0.0)
            ids[run.key] = call_id_of(run.caller, 0, run.machine, header.number)
            if run.phase != "flying":
                ledgers[run.machine].accept(header, run.method, 0.0)
            if run.phase == "ended":
                ledgers[run.machine].finish(str(ids[run.key]))
    again = list[Row]()
    for run in state.runs:
        wait = functools.partial(ledgers[run.machine].wait, ids[run.key], k=1, now=0.0, call_site=run.key)
        if run.phase == "replying":
            wait([ids[run.call]])
        elif run.phase in ("parked", "ready"):
            what = "threading.Condition" if app.actors[run.machine].has_threads else "asyncio.Condition"
            times_out = app.actors[run.machine].times_out
            wait_id = wait([], is_local=True, what=what, may_act=times_out)
            if times_out and run.phase == "parked":
                asked = [{"machine": "", "method": what, "call_site": run.key, "times": 9, "answer": "", "calls": ()}]
                about = {"machine": run.machine, "call_id": run.key, "thread": "", "at": 0.0, "asked": asked}
                again.append({"kind": "poll", "is_wait": True, "is_bounded": False, "is_moving": False, **about})
            if run.phase == "ready":
                ledgers[run.machine].ready(wait_id)
    pending = PendingCallSnapshot(1, ledgers)
    for name, ledger in ledgers.items():
        ledger.holds |= app.actors.keys()
        ledger.request(1)
        ledger.record(functools.partial(to_json, dict(app.told(state, name))))
        pending.report(ledger.report(1))
    slots = {DRIVER: 1} | {name: one.slots for name, one in app.actors.items()}
    return CollectedCalls(
        SnapshotHeader(1, "app", "1", "calls", [], NOW),
        pending.completed(),
        {name: ProcessReport(report, NOW) for name, report in pending.reports.items()},
        {name: {"shown": name, "pid": 1, "is_private": True, "max_concurrency": most} for name, most in slots.items()},
        happened=tuple({**one, "call_id": ids[one["call_id"] or DRIVER]} for one in (*polls, *again)),
    ).snapshot()


def check(app: App, most: int = 2_000_000) -> Counter[str]:
    """Hold what is said at every moment of an app, a state with what may be known there, against what can still happen.

    Of many, at `most` so many. Returns how often what was said. Raises `OracleError` at what is not true.
    """
    truth, said, verdicts = Truth(app), Counter[str](), dict[Any, Verdict]()
    met, stack = {(0, Known())}, [(0, Known())]
    while stack and said["moments"] < most:
        at, known = stack.pop()
        said["moments"] += 1
        following = {(after, behind(app, known, move.run, move.kind)) for move, after in truth.moves[at]}
        state = truth.states[at]
        is_cut = all(one.has_threads or copied(app, state, name) is not None for name, one in app.actors.items())
        if is_cut and any(one.machine == DRIVER for one in state.runs):
            following.add((at, behind_snapshot(app, known, state)))
            rows = polls_of(app, state, known)
            key = at, repr([(one["machine"], one["call_id"], one["is_moving"], one["counters"]) for one in rows])
            if key not in verdicts:
                verdicts[key] = Deadlock().evaluate(snapshot_of(app, state, rows))
            said[verdicts[key].grade] += 1
            if wrong := _wrong(truth, at, rows, verdicts[key]):
                raise OracleError(f"{wrong}: {verdicts[key].sentence}\n{state}\n{known}")
        stack += following - met
        met |= following
    return said


def _wrong(truth: Truth, at: int, polls: tuple[Row, ...], verdict: Verdict) -> str:
    """Proven: no schedule ends the wait. Suspected: none ends the loop, but by a count that is named. "No deadlock": something
    may happen yet, or there is a loop that is no poll so far. Returns what is not true."""
    runs = {one.key: one for one in truth.states[at].runs}
    asking = {one["call_id"] or DRIVER for one in polls if not one["is_moving"]}
    stuck = {one["call_site"] for name in ("members", "stuck_behind") for one in verdict.evidence.get(name, ())}
    is_counted = "how often" in verdict.unless and truth.app.is_counted
    kinds = ("end", "read") if verdict.holds else ("end",) if verdict.unless and not is_counted else ()
    for key in runs.keys() & (stuck if verdict.holds else asking):
        if any(at in truth.leading.get((key, kind), ()) for kind in kinds):
            return f"{key} can go on"
    loops = {key for key, one in runs.items() if truth.app.step_of(one)[0] == "until"}
    is_clear = verdict.holds is False and runs and loops <= asking
    return "nothing can happen any more" if is_clear and at not in truth.leading["", ""] else ""
