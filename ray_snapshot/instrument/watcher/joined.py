"""A completed snapshot of calls as Arrow tables, with names for people: `Account-0` instead of an actor's id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ray_snapshot.columns import inner
from ray_snapshot.encoding import to_json
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import ENDED_TASKS, CollectedCalls
from ray_snapshot.instrument.watcher.covered import Coverage
from ray_snapshot.names import DRIVER, EVENT_WAIT
from ray_snapshot.protocol.call_collector import CallsOf, ResolvedWait
from ray_snapshot.protocol.calls import CONSTRUCTOR, Awaited, CallWait, MachineReport, RunningCall, call_id_of, parsed
from ray_snapshot.protocol.task_collector import parsed_target
from ray_snapshot.protocol.tasks import ANYBODY, call_of_task, function_of, is_task, is_worker
from ray_snapshot.runtime.assembly import checked, with_delay
from ray_snapshot.runtime.collected import MachineCalls
from ray_snapshot.runtime.here import split_place
from ray_snapshot.schema import SNAPSHOT_TABLES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.waits import short_form_of

UNKNOWN = "an unwatched process"
"""The name of the source of calls that came without a header."""


class Tables:
    """`hosted`: machines of hosts (and the driver, if it sends to them), of which the hosts' rows tell all but their waits."""

    def __init__(self, collected: CollectedCalls, hosted: Collection[str] = (), *, is_still: bool = True) -> None:
        """`is_still`: whether no machine of a host will go on as things are, and no mail is on its way."""
        self.collected = collected
        self.completed = collected.completed
        self.hosted = hosted
        every = dict(sorted(self.completed.machines.items(), key=lambda one: self._in_order(one[0])))
        self.channels = sorted(
            self.completed.channels,
            key=lambda one: (self._in_order(one.source), one.incarnation, self._in_order(one.target)),
        )
        owing = {one.source for one in self.completed.channels if one.sent_count != one.accepted_count}
        idle = {name for name, one in every.items() if is_worker(name) and one.status != "active"} - owing
        self.own = {name: one for name, one in every.items() if name not in hosted and name not in idle}
        self.task_calls: dict[str, str] = {}
        """By the id of a plain task's call: the id that it has in a snapshot, if its sender has it in its log."""
        for channel in self.completed.channels:
            for number in channel.tasks:
                self.task_calls[channel.call_id(number)] = self._call_of(channel, number)
        self.held_by_hosts = {name for one in collected.hosted for name in one.handles}
        """Actors of which machines of hosts may have a handle, or get one."""
        self.cells: Mapping[str, str] = collected.facts.get(DRIVER, {}).get("cells", {})
        self.waits_of: dict[str, list[ResolvedWait]] = {}
        for wait in sorted(self.completed.waits, key=lambda one: self._in_order(one.machine)):
            self.waits_of.setdefault(wait.machine, []).append(wait)
        self.arguments_of: dict[str, list[ResolvedWait]] = {}
        """Calls that wait in Ray's queues for their arguments, and those behind them."""
        for wait in sorted(self._held_back(), key=lambda one: self._in_order(one.machine)):
            self.arguments_of.setdefault(wait.machine, []).append(wait)

        self.births = {
            one.target: self._call_of(one, CONSTRUCTOR)
            for one in self.channels
            if CONSTRUCTOR in one.in_flight and CONSTRUCTOR not in one.tasks
        }
        """By actor whose constructor has not begun: the id of that call in a snapshot."""
        self.worker_of = {
            parsed_target(call.call_id): name
            for name, one in collected.recorded.items()
            if is_worker(name)
            for call in one.report.calls
        }
        """By plain task that runs: its worker."""
        self.starter_of = {task: name for name, one in every.items() for tasks in one.tasks for task in tasks.log}
        """By plain task: who has started it, as far as that one has not dropped it."""
        self.open_of: dict[str, dict[str, None]] = {}
        """By source: the calls that have not ended, each once."""
        for call in self.completed.open_calls():
            source, _, target, _ = parsed(call)
            self.open_of.setdefault(source, {})[call] = None
            if (starter := self.starter_of.get(target)) is not None:
                self.open_of.setdefault(starter, {})[call] = None

        held = (one for one in self.completed.waits if one.wait.at_yield and one.is_satisfied is False)
        self.held_by = {str(one.wait.call_id): one.on_machines for one in held}
        """By call that Ray holds at a `yield` for certain: who alone could take an item."""

        self.blocking = {
            name: one.blocking_call
            for name, one in collected.recorded.items()
            if one.blocking_call is not None and not collected.facts.get(name, {}).get("groups")
        }
        """Calls that block the loop of their async actor: no other call of it can go on or begin. Concurrency groups have loops
        of their own."""

        told: list[ProcessReport | MachineCalls] = [*collected.recorded.values(), *collected.hosted]
        loose = [one.loose for one in told]
        self.has_tasks = any(one.started for one in loose)
        self.has_scattered = any(one.scattered for one in loose)
        self.is_still = is_still and not any(one.pending for one in loose) and self._is_still()

    def _held_back(self) -> Iterable[ResolvedWait]:
        """An actor with one slot runs the calls of one process in their order, also where the first one lacks an argument."""
        waiting = {one.wait.call_id: one for one in self.completed.argument_waits}
        for channel in self.channels:
            is_in_order = self.collected.facts.get(channel.target, {}).get("in_order")
            before: str | None = None
            for number, sent in sorted(channel.in_flight.items()):
                call_id = channel.call_id(number)
                one = waiting.get(call_id)
                if before is not None:
                    wait = CallWait(0, call_id, (), 0, sent.sent_at) if one is None else one.wait
                    wait = replace(wait, on=(*wait.on, Awaited(before)), k=wait.k + 1)
                    answers, on = (one.answers, one.on_machines) if one is not None else ((), ())
                    one = ResolvedWait(channel.target, wait, (*answers, False), (*on, channel.target), False)
                if one is not None:
                    yield one
                if is_in_order and one is not None and one.is_satisfied is False:
                    before = call_id

    def _is_still(self) -> bool:
        """Whether no machine will go on as things are, and no reply is on its way: then nothing wakes a parked thread."""
        if any(one.status == "active" for one in self.own.values()):
            return False
        if any(wait.is_satisfied is not False for wait in self.completed.waits if not wait.wait.is_local):
            return False
        return not any(channel.in_flight and self._takes_calls(channel) for channel in self.completed.channels)

    def _takes_calls(self, channel: CallsOf) -> bool:
        """Whether a call that is in flight on this channel may begin now."""
        target = self.completed.machines.get(channel.target)
        if target is None or self.collected.facts.get(channel.target, {}).get("groups"):
            return True
        return CONSTRUCTOR in channel.in_flight or len(target.calls) < self._slots(target)

    def snapshot(self) -> Snapshot:
        """Of watched actors alone."""
        tables, coverage, obstacles = self.tables(), *Coverage(self).facts()
        tables["waits"] = _table("waits", self.waits)
        return checked(self.collected.header, tables, coverage, obstacles)

    def tables(self) -> dict[str, pa.Table]:
        """All but the waits."""
        rows = {
            "machines": [self._machine(report) for report in self.own.values()],
            "channels": self._channels(),
            "messages": list(self._messages()),
            "calls": list(self._calls()),
        }
        tables = {name: _table(name, found) for name, found in rows.items()}
        tables["machines"] = with_delay(tables["machines"], self.collected.header.started_at)
        return tables

    # ---- names ----------------------------------------------------------------------------------------------------

    def shown(self, machine: str) -> str:
        """What people call a machine."""
        return self.collected.shown(machine)

    def place(self, call_site: str | None) -> str | None:
        """ "file:line" of a place, with the name of a notebook's cell in place of the file that its kernel has made up."""
        if call_site is None:
            return None
        site = split_place(call_site)[0]
        file, _, line = site.rpartition(":")
        return f"{self.cells[file]}:{line}" if file in self.cells else site

    def _in_order(self, machine: str) -> tuple[str, str]:
        """Its place in the order of names: whichever process reported first, what is said of machines is said in one order."""
        return self.shown(machine), machine

    def _call_of(self, channel: CallsOf, number: int) -> str:
        """The id of a call in flight."""
        source, target = _part(self.shown(channel.source)), _part(self.shown(channel.target))
        return call_id_of(source, channel.incarnation, target, number)

    def call_id(self, call_id: str) -> str:
        """The id that a call has in the snapshot."""
        if call_id in self.task_calls:
            return self.task_calls[call_id]
        source, incarnation, target, number = parsed(call_id)
        return call_id_of(_part(self.shown(source)), incarnation, _part(self.shown(target)), number)

    def named(self, text: str) -> str:
        """A text with names for people in place of those between processes."""
        for machine in sorted((*self.collected.facts, *self.collected.reserved), key=len, reverse=True):
            text = text.replace(machine, self.shown(machine))
        return text

    # ---- rows -----------------------------------------------------------------------------------------------------

    def _machine(self, report: MachineReport) -> dict[str, Any]:
        process = self.worker_of.get(report.machine, report.machine)
        facts, recorded = self.collected.facts.get(process, {}), self.collected.recorded.get(process)
        state = report.state if report.has_state else None
        mode, k, waits_for = short_form_of(self.rows_of.get(self.shown(report.machine), ()))
        return {
            "machine": self.shown(report.machine),
            "class_name": "" if is_task(report.machine) else facts.get("class", ""),
            "host": f"pid-{facts.get('pid')}",
            "incarnation": report.incarnation,
            "status": "active" if self._is_called_back(report) else report.status,
            "max_concurrency": self._slots(report),
            "state": None if state is None else state.text,
            "state_truncated": bool(state is not None and state.truncated),
            "state_bytes": None if state is None else state.size,
            "wait_mode": mode,
            "wait_k": k,
            "waits_for": waits_for,
            "accepted_count": sum(channel.accepted_count for channel in report.inputs),
            "sent_count": sum(channel.sent_count for channel in report.outputs),
            "recorded_at": None if recorded is None else int(recorded.recorded_at * 1e6),
        }

    def _is_called_back(self, report: MachineReport) -> bool:
        """Whether a callback of a machine that does nothing else is about to run: its reply is there, or may be."""
        waits = self.waits_of.get(report.machine, ())
        return report.status == "passive" and any(
            one.wait.is_callback and one.is_satisfied is not False for one in waits
        )

    def _slots(self, report: MachineReport) -> int:
        """How many calls a machine may run at once; where that is not known, one more than it does."""
        running = len(report.calls)
        if report.machine in self.blocking:
            return running
        default = 1 if report.machine == DRIVER else running + 1
        if is_task(report.machine):
            return running
        return int(self.collected.facts.get(report.machine, {}).get("max_concurrency", default))

    @cached_property
    def rows_of(self) -> dict[str, list[dict[str, Any]]]:
        """By machine: its rows of `waits`."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self.waits:
            found.setdefault(row["machine"], []).append(row)
        return found

    def _channels(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], dict[str, Any]] = {}
        runs = {worker: self.shown(task) for task, worker in self.worker_of.items()}
        for channel in self.channels:
            idles = is_worker(channel.source) and channel.source not in self.own  # then it is no machine
            source = runs.get(channel.source, ENDED_TASKS) if idles else self.shown(channel.source)
            key = source, self.shown(channel.target)
            row = found.setdefault(key, {"source": key[0], "target": key[1], "kind": "call", "recorded_by": "sender"})
            for name in ("sent_count", "accepted_count", "settled_count", "in_flight_count"):
                row[name] = row.get(name, 0) + getattr(channel, name)
        return [{**row, "duplicate_count": 0} for row in found.values()]

    def _messages(self) -> Iterable[dict[str, Any]]:
        for channel in self.channels:
            group_of = self.collected.facts.get(channel.target, {}).get("group_of", {})
            source, target = self.shown(channel.source), self.shown(channel.target)
            for number, sent in sorted(channel.in_flight.items()):
                encoded = to_json(list(sent.about) if isinstance(sent.about, tuple) else sent.about)
                yield {
                    "source": source,
                    "target": target,
                    "kind": "call",
                    "number": number,
                    "call_id": self._call_of(channel, number),
                    "concurrency_group": sent.group or group_of.get(sent.method),
                    "method": sent.method or function_of(channel.target),
                    "args": encoded.text,
                    "args_truncated": encoded.truncated,
                    "payload_bytes": encoded.size,
                    "sent_at": int(sent.sent_at * 1e6),
                }

    def _calls(self) -> Iterable[dict[str, Any]]:
        for report in self.own.values():
            sites = self.sites_of(report)
            for call in report.calls:
                yield {
                    "machine": self.shown(report.machine),
                    "call_id": self.run_id(call.call_id),
                    "caller": self._caller(call),
                    "method": call.method,
                    "concurrency_group": call.group,
                    "holds_slot": call.holds_slot,
                    "call_site": self.place(sites.get(call.call_id)),
                    "started_at": int(call.started_at * 1e6),
                }
            yield from self._own_wait(report)

    def sites_of(self, report: MachineReport) -> dict[str, str]:
        """By call that runs: where it is."""
        recorded = self.collected.recorded.get(self.worker_of.get(report.machine, report.machine))
        sites = {} if recorded is None else recorded.call_sites
        return {**sites, **{wait.call_id: wait.call_site for wait in report.waits if wait.call_id is not None}}

    def _caller(self, call: RunningCall) -> str | None:
        if not call.call_id.startswith(ANYBODY):
            return UNKNOWN if call.caller is None else self.shown(call.caller)
        starter = self.starter_of.get(parsed(call.call_id).target)
        return None if starter is None else self.shown(starter)

    def _own_wait(self, report: MachineReport) -> Iterable[dict[str, Any]]:
        """A wait of no call (the driver's, or a task's that has outlived its call) is a row too, for its call site."""
        for wait in report.waits:
            if wait.call_id is None:
                yield {
                    "machine": self.shown(report.machine),
                    "method": _method_of(wait, report.machine),
                    "holds_slot": False,
                    "call_site": self.place(wait.call_site),
                    "started_at": int(wait.waiting_since * 1e6),
                }

    def run_id(self, call_id: str) -> str:
        """The id that a call that runs has in the snapshot."""
        base, mark, run = call_id.partition("#")
        if base.startswith("?/"):
            _, incarnation, machine, number = base.split("/")
            return f"?/{incarnation}/{_part(self.shown(machine))}/{number}{mark}{run}"
        return self.call_id(base) + mark + run

    @cached_property
    def waits(self) -> list[dict[str, Any]]:
        """The rows of `waits`."""
        return list(self._waits())

    def _waits(self) -> Iterable[dict[str, Any]]:
        for machine, waits in (*self.waits_of.items(), *self.arguments_of.items()):
            alternatives: dict[str | None, int] = {}
            stalled = self._stalled(machine)
            yield from self._stalled_rows(machine, stalled)
            for resolved in waits:
                wait = resolved.wait
                if machine in self.hosted and not any(wait.calls):
                    continue  # it waits for machines only, or for none: the hosts' rows tell
                at = alternatives[wait.call_id] = alternatives.get(wait.call_id, -1) + 1
                is_own = wait.call_id is None or machine in self.hosted
                common = {
                    "machine": self.shown(machine),
                    "call_id": None if is_own else self.run_id(str(wait.call_id)),
                    "alternative": at,
                    "k": wait.k,
                    "waiting_since": int(wait.waiting_since * 1e6),
                    "timeout_at": None if wait.timeout_at is None else int(wait.timeout_at * 1e6),
                }
                if wait.at_yield:
                    yield from self._reader_rows(common, resolved)
                    continue
                if wait.call_id in stalled or (wait.may_act and wait.timeout_at is None):
                    continue  # stalled, or it may go on by itself: a call without a row is active
                if wait.is_local:
                    yield from self.local_rows(common, resolved)
                    continue
                for call, answer in zip(wait.calls, resolved.answers, strict=True):
                    on = None if answer is None else call  # it may have been answered, and no ledger knows any more
                    yield {
                        **common,
                        "on_machine": None if on is None else self.shown(parsed(on).target),
                        "on_call_id": None if on is None else self.call_id(on),
                        "satisfied": bool(answer) or wait.is_ready,
                    }
                is_over = (
                    None if self.collected.parts else True
                )  # their hosts have ended: so does the wait, in an error
                for name, call_id in wait.owed:
                    yield {**common, "on_machine": name, "on_call_id": call_id, "satisfied": is_over}
                owed = wait.owed if wait.raises and len(wait.on) + len(wait.owed) > 1 else ()
                if resolved.errors or owed:
                    alternatives[wait.call_id] += 1
                    yield from self._error_rows({**common, "alternative": at + 1, "k": 1}, resolved)
                    for name, call_id in owed:  # it may end in an error, or has
                        error = {"alternative": at + 1, "k": 1, "on_machine": name, "on_call_id": call_id}
                        yield {**common, **error, "satisfied": is_over}

    def _error_rows(self, common: dict[str, Any], resolved: ResolvedWait) -> Iterable[dict[str, Any]]:
        """The wait for all of a list, again: any one of the calls that have not ended well may end it, by an error."""
        for call, has_ended in resolved.errors:
            yield {
                **common,
                "on_machine": None if call is None else self.shown(parsed(call).target),
                "on_call_id": None if call is None else self.call_id(call),
                "satisfied": has_ended,
            }

    def _stalled(self, machine: str) -> set[str]:
        """The calls of a machine whose loop another of its calls blocks."""
        blocking = self.blocking.get(machine)
        calls = (
            self.completed.machines[machine].calls
            if blocking is not None and machine in self.completed.machines
            else ()
        )
        return {call.call_id for call in calls if call.call_id != blocking}

    def _stalled_rows(self, machine: str, stalled: set[str]) -> Iterable[dict[str, Any]]:
        """Each waits for the call that blocks the loop, or for a task that this left when it ended, if that goes on in time."""
        is_left = stalled and self._is_left_in_time(machine)
        for call_id in sorted(stalled):
            yield {
                "machine": self.shown(machine),
                "call_id": self.run_id(call_id),
                "alternative": 0,
                "k": 1,
                "on_machine": self.shown(machine),
                "on_call_id": None if is_left else self.run_id(self.blocking[machine]),
                "satisfied": False,
            }

    def _is_left_in_time(self, machine: str) -> bool:
        """Whether the call that blocks a loop has ended, and what its tasks wait for is bounded in time."""
        runs = any(call.call_id == self.blocking[machine] for call in self.completed.machines[machine].calls)
        own = [one.wait for one in self.waits_of.get(machine, ()) if one.wait.call_id is None]
        return not runs and bool(own) and all(wait.timeout_at is not None for wait in own)

    def local_rows(self, common: dict[str, Any], resolved: ResolvedWait) -> Iterable[dict[str, Any]]:
        """Any one of those that could call the machine, or answer it, may end the wait; with anything unobserved, that too.

        By its name every machine may find it, and so may a plain task; another program, if the namespace is not this job's own.
        What a worker does that is no machine, its tasks do, and those that are to begin.
        """
        is_named = bool(self.collected.facts.get(resolved.machine, {}).get("name"))
        has_slot = self._has_free_slot(resolved.machine)
        is_open = has_slot and (self.is_known_elsewhere(resolved.machine) or self._is_uncovered)
        if is_open or self._acts_beside(resolved.machine) or self._is_parked_service(resolved):
            yield {**common, "k": 1, "on_machine": None, "on_call_id": None, "satisfied": False}
        recorded = self.collected.recorded.get(resolved.machine)
        before = () if recorded is None else recorded.passed_before
        every = (
            [name for name in self.completed.machines if name in self.own or not is_worker(name)] if is_named else ()
        )
        callers = (*every, *resolved.on_machines) if has_slot else (resolved.machine,)
        for machine in dict.fromkeys((*callers, *before)):
            is_to_begin = is_task(machine) and machine not in self.completed.machines
            on_call = self.call_id(call_of_task(machine)) if is_to_begin else self.births.get(machine)
            row = {**common, "k": 1, "on_machine": self.shown(machine), "on_call_id": on_call}
            yield {**row, "satisfied": resolved.wait.is_ready}
        for call in self._unanswered(resolved.machine):
            on = {"on_machine": self.shown(parsed(call).target), "on_call_id": self.call_id(call)}
            yield {**common, "k": 1, **on, "satisfied": False}

    def _acts_beside(self, machine: str) -> bool:
        """Whether anything in a machine's process may act beside its calls, or could, of what was not observed."""
        return self.acts_unasked(machine) or bool(Coverage(self).threads(self.worker_of.get(machine, machine)))

    def acts_unasked(self, machine: str) -> bool:
        """The same of all but threads."""
        process = self.worker_of.get(machine, machine)
        one = self.collected.recorded.get(process)
        if one is None or one.background or one.was_starting or self._has_tasks(process):
            return True
        return process in self.collected.just_answered

    def _is_parked_service(self, resolved: ResolvedWait) -> bool:
        """Whether a call whose thread waits looks like a service that has nothing more to do: nobody needs its end, or the
        program alone that of one that waits for an event."""
        wait = resolved.wait
        is_of_a_thread = wait.what and not wait.what.startswith("asyncio.")
        return bool(is_of_a_thread) and self._are_all(resolved, {DRIVER} if wait.what == EVENT_WAIT else set())

    def _are_all(self, resolved: ResolvedWait, callers: Set[str]) -> bool:
        """Whether no call is queued behind one, and nobody but these waits for its reply."""
        return resolved.machine not in self._called and self._callers.get(resolved.wait.call_id, set()) <= callers

    @cached_property
    def _is_uncovered(self) -> bool:
        """Whether anything could act without our seeing it."""
        return bool(Coverage(self).uncovered())

    @cached_property
    def _called(self) -> set[str]:
        """Machines to which calls are on their way."""
        return {one.target for one in self.channels if one.in_flight}

    @cached_property
    def _callers(self) -> dict[str | None, set[str]]:
        """By call: who waits for its reply."""
        callers: dict[str | None, set[str]] = {}
        for one in self.completed.waits:
            for call in one.wait.calls:
                callers.setdefault(call, set()).add(one.machine)
        return callers

    def is_service(self, resolved: ResolvedWait, asked: Collection[str]) -> bool:
        """Whether a call is alone in its machine, and nobody needs its end. `asked`: whose replies Ray is asked for."""
        call_id, calls = resolved.wait.call_id, self.completed.machines[resolved.machine].calls
        return call_id not in (None, *asked) and len(calls) == 1 and self._are_all(resolved, frozenset())

    def _has_free_slot(self, machine: str) -> bool:
        """Whether a call that is yet to come may begin at a machine before one ends that has begun there."""
        process = self.worker_of.get(machine, machine)
        report, facts = self.completed.machines.get(machine), self.collected.facts.get(process, {})
        if report is None or is_task(machine):
            return report is None
        taken = Counter(call.group for call in report.calls if call.holds_slot)
        bounds = {None: self._slots(report), **facts.get("groups", {})}
        return any(taken[group] < bound for group, bound in bounds.items())

    def _reader_rows(self, common: dict[str, Any], resolved: ResolvedWait) -> Iterable[dict[str, Any]]:
        """A generator that Ray holds at a `yield`: any action of who takes its items may let it go on.

        What that one has put on the replies to its calls (`ref.future()`) may take an item, too.
        """
        if resolved.is_satisfied is None or self._is_uncovered:
            yield {**common, "k": 1, "on_machine": None, "on_call_id": None, "satisfied": False}
        own = str(resolved.wait.call_id).partition("#")[0]
        for reader in resolved.on_machines:
            yield {**common, "k": 1, "on_machine": self.shown(reader), "on_call_id": None, "satisfied": False}
            alone = {one.wait.calls[0] for one in self.waits_of.get(reader, ()) if len(one.wait.on) == one.wait.k == 1}
            for call in self._unanswered(self.worker_of.get(reader, reader)):
                is_held_alike = self.held_by.get(call) == resolved.on_machines
                if (
                    call != own and call not in alone and not is_held_alike
                ):  # with these the reader, or nothing new, acts
                    on = {"on_machine": self.shown(parsed(call).target), "on_call_id": self.call_id(call)}
                    yield {**common, "k": 1, **on, "satisfied": False}

    def may_be_reached(self, machine: str) -> bool:
        """Whether what is no holder of its handle may call a machine."""
        return bool(self.collected.facts.get(machine, {}).get("name")) or self.is_known_elsewhere(machine)

    def is_known_elsewhere(self, machine: str) -> bool:
        """Whether what is not followed may call a machine, by its name or a handle."""
        facts = self.collected.facts.get(machine, {})
        is_found = bool(facts.get("name")) and (self.has_tasks or not facts.get("is_private"))
        return self.has_scattered or is_found or machine in self.held_by_hosts or self._has_tasks(machine)

    def owners_of(self, group: str) -> list[str]:
        """Who has made a placement group, or looked it up."""
        having = (name for name, one in self.own.items() if one.held is not None and group in one.held.groups)
        return list(dict.fromkeys(map(self.shown, having)))

    def _has_tasks(self, machine: str) -> bool:
        """Whether plain tasks that it has started have not ended: what it has put on their replies may wake it."""
        recorded = self.collected.recorded.get(machine)
        return recorded is not None and recorded.loose.pending > 0

    def _unanswered(self, machine: str) -> Iterable[str]:
        """The calls that have not ended, of those that it has made, or whose refs have come to it.

        What it has put on their replies (`ref.future()`) may wake it.
        """
        recorded = self.collected.recorded.get(machine)
        passed = () if recorded is None else recorded.passed
        own = self.open_of.get(machine, {})
        yield from own
        yield from (call for call in passed if call not in own and call in self.open_of.get(parsed(call).source, {}))


def _part(shown: str) -> str:
    """A name as it stands in the id of a call, which is taken apart at its slashes."""
    return shown.replace("%", "%25").replace("/", "%2F").replace("#", "%23")


def _method_of(wait: CallWait, machine: str) -> str:
    """What stands for the method where no call waits."""
    return "(a callback)" if wait.is_callback else "(the program)" if machine == DRIVER else "(a task of its own)"


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=inner(SNAPSHOT_TABLES[name]))
