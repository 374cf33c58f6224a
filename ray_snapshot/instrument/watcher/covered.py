"""The coverage of a snapshot of calls: what could act unseen, long waits that nothing seen ends, what has happened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument.here import class_in
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.kernel_waits import OF_PROCESS
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.instrument.watcher.resources import by, in_a_group, resources
from ray_snapshot.instrument.watcher.sections import obstacles_of
from ray_snapshot.instrument.watcher.stores import stores
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, LONG_S, NO_CALL
from ray_snapshot.protocol.call_collector import ResolvedWait
from ray_snapshot.protocol.calls import CONSTRUCTOR, MachineReport, parsed
from ray_snapshot.protocol.task_collector import parsed_target
from ray_snapshot.protocol.tasks import ANYBODY, is_task, is_worker
from ray_snapshot.runtime.here import USERS, rank_of, split_place

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.joined import Tables

_ENDED = "which has ended: its value is still being written, sent or read"


class Coverage:
    """Of the snapshot that these tables are of."""

    def __init__(self, rows: Tables) -> None:
        self.rows = rows

    def facts(self) -> tuple[dict[str, Any], list[str]]:
        """The coverage, and the obstacles to a restore."""
        uncovered = self.uncovered()
        without = [
            self.rows.shown(name) for name, one in self.rows.own.items() if not one.has_state and not is_task(name)
        ]
        coverage = {
            "hosts": len(self.rows.own),
            "uncovered": uncovered,
            "apart": list(self.rows.collected.apart),
            "without_state": [name for name in without if name != DRIVER],
            "library_states_off": self._of_libraries(),
            "groups": {
                facts["shown"]: facts["groups"] for facts in self.rows.collected.facts.values() if facts.get("groups")
            },
            "blocked_loops": {
                self.rows.shown(name): self.rows.run_id(call) for name, call in self.rows.blocking.items()
            },
        }
        if held := [self.rows.run_id(str(one.wait.call_id)) for one in self.rows.completed.waits if one.wait.at_yield]:
            coverage |= {"held_generators": held}
        if primitives := self._primitives():
            coverage |= {"primitives": primitives}
        if parked := self._parked_threads():
            coverage |= {"parked_threads": parked}
        if unexplained := self._unexplained():
            coverage |= {"unexplained": unexplained}
        if self.rows.collected.delayed_calls:
            coverage |= {"unbegun": self._unbegun()}
        if self.rows.collected.happened:
            coverage |= {"happened": list(map(self._happened, self.rows.collected.happened))}
        told = [{**one, "members": list(map(self._member, one["members"]))} for one in self.rows.collected.groups]
        coverage |= {"collectives": told}
        if self.rows.collected.still_since:
            coverage |= {"still_since": datetime.fromtimestamp(self.rows.collected.still_since, UTC).isoformat()}
        if self.rows.collected.tells_callers:
            coverage |= {"ended_by": self._ended_by()}
        if self.rows.collected.looks is not None:
            coverage |= {"resources": resources(self.rows, self.rows.collected.looks)}
        if short := stores(self.rows):
            coverage |= {"stores": short}
        obstacles = [self.rows.named(text) for text in (*self.rows.completed.obstacles, *self.rows.completed.problems)]
        of_program = self.threads(DRIVER)  # it is not rolled back, whichever of its threads acts
        unknown = [text for text in (*uncovered, *self.rows.collected.apart) if text not in of_program]
        return coverage, obstacles + obstacles_of(self.rows.collected, unknown)

    def _unexplained(self) -> list[dict[str, Any]]:
        """Waits that have lasted for long, and of which it cannot be told what ends them; at most `unexplained_waits`."""
        until = self.rows.collected.header.started_at - LONG_S
        found = [
            (machine, LongWait(one.wait.waiting_since, one.wait.call_site, one.wait.what or NO_CALL))
            for machine, waits in self.rows.waits_of.items()
            for one in waits
            if one.wait.objects and one.wait.waiting_since <= until and not one.wait.is_ready and _has_the_rest(one)
        ]
        recorded = self.rows.collected.recorded.items()
        found += [(name, wait) for name, one in recorded for wait in one.long_waits if not self._may_come(wait.calls)]
        found += [
            (machine, LongWait(one.wait.waiting_since, one.wait.call_site, f"in a task of its own for {replies}"))
            for machine, waits in self.rows.waits_of.items()
            if machine != DRIVER and any(one.wait.is_local for one in waits)
            for one in waits
            if one.wait.call_id is None and one.wait.waiting_since <= until and (replies := self._stuck_replies(one))
        ]
        for one, since in self.rows.collected.delayed_replies:
            whose = ", ".join(map(self.rows.shown, one.on_machines))
            found.append((one.machine, LongWait(since, one.wait.call_site, f"for the reply of {whose}, {_ENDED}")))
        return [
            {
                "machine": self.rows.shown(machine),
                "call_site": self.rows.place(wait.call_site),
                "since": datetime.fromtimestamp(wait.since, UTC).isoformat(),
                "what": self.rows.named(self._with_machine(wait.what)),
            }
            for machine, wait in found[: LIMITS.unexplained_waits]
        ]

    def _with_machine(self, what: str) -> str:
        """What a wait is for, with the machine of the process at the other end."""
        before, of, pid = what.partition(OF_PROCESS)
        names = [name for name, facts in self.rows.collected.facts.items() if of and str(facts.get("pid")) == pid]
        return f"{before} of {self.rows.shown(names[0])}" if len(names) == 1 else what

    def _unbegun(self) -> list[dict[str, Any]]:
        """One row for each caller (None: of a constructor), target and method; the first of them."""
        since: dict[tuple[str | None, str, str], float] = {}
        for channel, number, at in self.rows.collected.delayed_calls:
            is_birth = number == CONSTRUCTOR and number not in channel.tasks
            source, method = (
                (None, "") if is_birth else (self.rows.shown(channel.source), channel.in_flight[number].method)
            )
            key = source, self.rows.shown(channel.target), method
            since[key] = min(at, since.get(key, at))
        return [
            {"source": source, "target": target, "method": method, "since": datetime.fromtimestamp(at, UTC).isoformat()}
            for (source, target, method), at in itertools.islice(since.items(), LIMITS.unexplained_waits)
        ]

    def _stuck_replies(self, resolved: ResolvedWait) -> str:
        """What a task of an actor's own waits for, for a person; "" if it goes on by itself, or one may act whom that needs."""
        if resolved.wait.is_callback or resolved.wait.may_act or resolved.is_satisfied is not False:
            return ""
        acts = self._acts(resolved.on_machines, {resolved.machine})
        return "" if acts else f"replies of {', '.join(resolved.on_machines)}"

    def _may_come(self, calls: Iterable[str]) -> bool:
        """Whether one acts that such calls need: who runs them, or any plain task, behind which there may be room for them."""
        machines = self.rows.completed.machines.items()
        is_room = any(is_task(name) and one.status == "active" for name, one in machines)
        return self._acts((parsed(call).target for call in calls), set(), unbegun=is_room)

    def _acts(self, names: Iterable[str], seen: set[str], *, unbegun: bool = True) -> bool:
        """Whether one of these machines acts, or one that it waits for; `unbegun`: whether one does that has not begun."""
        to_look = [*names]
        while to_look:
            if (name := to_look.pop()) in seen:
                continue
            seen.add(name)
            one = self.rows.completed.machines.get(name)
            if unbegun if one is None else one.status == "active":
                return True
            to_look += [on for wait in self.rows.waits_of.get(name, ()) for on in wait.on_machines]
        return False

    def _happened(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """With people's names, classes and places."""
        told = {**one, "machine": self.rows.shown(one["machine"]), "class": self._class(one["machine"])}
        told |= {name: datetime.fromtimestamp(one[name], UTC).isoformat() for name in ("at", "began") if name in one}
        if "call_site" in one:
            told["call_site"] = self.rows.place(one["call_site"])
        if one["kind"] == "poll":
            told["call_id"] = None if one["call_id"] is None else self.rows.run_id(one["call_id"])
            if any(self.rows.is_known_elsewhere(by["machine"]) for by in one["asked"]):
                told["counters"] = None  # who else may change it is not known
            told["asked"] = list(map(self._polled, one["asked"]))
            waits = self.rows.waits_of.get(one["machine"], ()) if one.get("is_wait") else ()
            for wait in (by for by in waits if by.wait.may_act and by.wait.call_id == one["call_id"]):
                told["is_bounded"] |= self.rows.acts_unasked(wait.machine)
                told["is_service"] = self.rows.is_service(wait, self._asked)
                rows = list(self.rows.local_rows({}, wait)) if wait.wait.is_local else []
                for by in told["asked"]:
                    by["calls"] += [{"machine": row["on_machine"], "call_id": row["on_call_id"]} for row in rows]
        if "passed_through" in one:
            told["passed_through"] = [
                {"machine": self.rows.shown(by["machine"]), "method": f"{self._class(by['machine'])}.{by['method']}"}
                for by in one["passed_through"]
            ]
        if "lost" in one:
            told["lost"] = [{"method": by["method"], "caller": self.rows.shown(by["machine"])} for by in one["lost"]]
        return told

    @cached_property
    def _asked(self) -> set[str]:
        """The calls of which polls ask Ray for the replies."""
        polls = [one for one in self.rows.collected.happened if one["kind"] == "poll"]
        return {call for one in polls for by in one["asked"] for call in by["calls"]}

    def _polled(self, by: Mapping[str, Any]) -> dict[str, Any]:
        """What a poll asks an actor, or Ray."""
        machine = by["machine"]
        about = {"machine": self.rows.shown(machine), "class": self._class(machine)} if machine else {"class": ""}
        calls = [
            {"machine": self.rows.shown(parsed(call).target), "call_id": self.rows.call_id(call)}
            for call in by["calls"]
        ]
        return {**by, **about, "call_site": self.rows.place(by["call_site"]), "calls": calls}

    def _member(self, one: Mapping[str, Any]) -> dict[str, Any]:
        """A rank of a group, with people's names, places and times."""
        call, machine = one.get("call"), one["machine"]
        told = {**one, "machine": self.rows.shown(parsed_target(call) if call and is_worker(machine) else machine)}
        if "operation" in one:
            until = one["until"]
            told["call"] = call if call in (None, DRIVER) else self.rows.run_id(call)
            told["call_site"] = self.rows.place(one["call_site"])
            told["since"] = datetime.fromtimestamp(one["since"], UTC).isoformat()
            told["among"] = list(one["among"])
            told["until"] = None if until == math.inf else datetime.fromtimestamp(until, UTC).isoformat()
        return told

    def _class(self, machine: str) -> str:
        return str(self.rows.collected.facts.get(machine, {}).get("class") or class_in(machine))

    def _ended_by(self) -> dict[str, list[str] | None]:
        """By machine that is blocked: who may kill it, or cancel what it runs; None: anything that acts.

        So it is of one inside a placement group: with the group it ends, and who has that is not followed.
        """
        blocked = {name: one for name, one in self.rows.own.items() if one.status == "blocked" and name != DRIVER}
        grouped = {name for name, one in blocked.items() if one.held is not None and in_a_group(one.held)}
        return {self.rows.shown(name): None if name in grouped else by(self.rows, name) for name in blocked}

    def _of_libraries(self) -> list[str]:
        """Actors of Ray's own libraries, whose states are not recorded unless they are wanted."""
        machines = self.rows.own.items()
        own = [(name, one) for name, one in machines if name != DRIVER and not is_worker(name)]
        return [self.rows.shown(name) for name, one in own if one.has_state and one.state is None]

    def uncovered(self) -> list[str]:
        """What could act without our seeing it; the watcher's list, less what the processes' own evidence removes."""
        workers = [name for name in self.rows.completed.machines if is_worker(name) and name not in self.rows.own]
        tasks = [name for name in self.rows.own if is_task(name)]
        names = [
            *(name for name in self.rows.own if name not in tasks),
            *(name for name in workers if name in self.rows.collected.recorded),
            *(name for name in self.rows.collected.recorded if name in self.rows.hosted),
        ]  # a driver's threads, too
        names.sort(key=self._waits_for_anything, reverse=True)  # what could end such a wait is told first
        recorded = [self.rows.collected.recorded.get(name) for name in names]
        found = list(self.rows.collected.header.uncovered)
        for host in self.rows.collected.hosted:
            found += self._threads_of(host.threads, host.host)
            found += [f"who calls actors from a thread of {host.host}"] if host.has_strays else []
        if any(one is None or one.loose.given for one in (*recorded, *self.rows.collected.hosted)):
            found.append("plain tasks that hold handles or refs")
        for name, one in zip(names, recorded, strict=True):
            if one is not None and one.was_starting:
                found.append(f"what {self.rows.shown(name)} was starting")
            if one is not None and one.background:
                found.append(f"{one.background} of {self.rows.shown(name)}")
            found += self.threads(name)
        found += [
            self.rows.named(text)
            for text in self.rows.completed.obstacles
            if text.endswith("while the snapshot was open")
        ]
        found += self._untold_generators()
        callers = [self.rows.shown(one.machine) for one in self.rows.own.values() if _has_unknown_calls(one)]
        found += [f"who called {name} without a header" for name in callers]
        return found

    def _waits_for_anything(self, machine: str) -> bool:
        """Whether one of its calls waits for what is not known."""
        waits = [resolved.wait for resolved in self.rows.waits_of.get(machine, ())]
        return any(wait.calls == (None,) and not wait.may_act for wait in waits)

    def threads(self, machine: str) -> list[str]:
        """A machine's threads that may act; a parked one counts if another thread, or a reply, may wake it."""
        one = self.rows.collected.recorded.get(machine)
        return [] if one is None else self._threads_of(one.threads, self.rows.shown(machine))

    def _threads_of(self, threads: Threads, name: str) -> list[str]:
        woken = () if self.rows.is_still else threads.parked
        return [f"thread {thread} of {name}" for thread in (*threads.acting, *woken)]

    def _parked_threads(self) -> dict[str, list[str]]:
        """By machine of which a call waits to be woken: the threads that wait, too, in the app's own code."""
        recorded = self.rows.collected.recorded.items()
        local = {name: one for name, one in recorded if any(wait.is_local for wait in one.report.waits)}
        found = {
            self.rows.shown(name): [text for text in one.threads.parked if rank_of(_file_of(text)) == USERS]
            for name, one in local.items()
        }
        return {name: texts[: LIMITS.listed] for name, texts in found.items() if texts}

    def _primitives(self) -> dict[str, str]:
        """By call (by machine, of a wait of no call): the primitive that it waits on, or the function of a library that it is
        in; at most `named_primitives`."""
        found: dict[str, str] = {}
        for report in self.rows.own.values():
            for call, site in self.rows.sites_of(report).items():
                found[self.rows.run_id(call)] = split_place(site)[1]
            for wait in report.waits:
                name = self.rows.shown(report.machine) if wait.call_id is None else self.rows.run_id(wait.call_id)
                found[name] = (
                    ("" if wait.objects else wait.what) or split_place(wait.call_site)[1] or found.get(name, "")
                )
        named = {name: what for name, what in found.items() if what}
        return dict(itertools.islice(named.items(), LIMITS.named_primitives))

    def _untold_generators(self) -> Iterable[str]:
        """Generators that may be held at a `yield` where it is not known whether anything can let them go on."""
        machines = self.rows.completed.machines
        for resolved in self.rows.completed.waits:
            acts = any(name in machines and machines[name].status == "active" for name in resolved.on_machines)
            if resolved.wait.at_yield and resolved.is_satisfied is None and not acts:
                report = machines[resolved.machine]
                methods = [call.method for call in report.calls if call.call_id == resolved.wait.call_id]
                shown = self.rows.shown(resolved.machine)
                name = shown if is_task(resolved.machine) else f"{shown}.{methods[0]}"
                yield f"who takes the items of the generator {name} ({self.rows.place(resolved.wait.call_site)})"


def _file_of(thread: str) -> str:
    """ "/app.py" of "plan_0 (/app.py:21, in queue.Queue.get)"."""
    return thread.rpartition(" (")[2].partition(", in ")[0].rpartition(":")[0]


def _has_the_rest(one: ResolvedWait) -> bool:
    """Whether each call that it waits for beside objects is answered."""
    answers = zip(one.wait.calls, one.answers, strict=True)
    return not one.wait.owed and all(answer for call, answer in answers if call is not None)


def _has_unknown_calls(report: MachineReport) -> bool:
    return any(call.caller is None and not call.call_id.startswith(ANYBODY) for call in report.calls)
