"""What has happened in a watched app before a snapshot: deaths, restarts, failed threads and children, unread errors.

Kept over snapshots, the newest `happened_items` of each; told in the coverage (`happened`); `detectors.happened` has the words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.instrument.deaths import Life, in_words, is_meant
from ray_snapshot.instrument.process.ended_children import EndedChild
from ray_snapshot.instrument.process.ended_threads import EndedThread
from ray_snapshot.instrument.process.failures import PROCESS, Raised
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, is_actor
from ray_snapshot.protocol.calls import RunningCall, parsed

if TYPE_CHECKING:
    from ray_snapshot.protocol.call_collector import CompletedCallSnapshot


class Restarts:
    """Those of one actor."""

    def __init__(self, now: float) -> None:
        self.first = now
        self.count = 0
        self.latest: list[float] = []

    def add(self, now: float) -> None:
        """It joins again."""
        self.count += 1
        self.latest = [*self.latest[-LIMITS.looping_restarts :], now]

    def go_on(self, now: float) -> bool:
        """Whether it may be restarted once more, as it was before."""
        lately = [at for at in self.latest if now - at <= LIMITS.restarts_s]
        if len(lately) < LIMITS.looping_restarts:
            return False
        longest = max(after - before for before, after in pairwise(lately))
        return now - lately[-1] <= 2 * longest + LIMITS.restarts_spare_s


class Summary(NamedTuple):
    """What there was from the beginning of a watch to its end."""

    snapshots: int
    """Those that were completed."""
    restarts: int
    """Of all actors together."""
    unread: list[tuple[str, int, str]]
    """Of each call whose error was unread in the last snapshot: Ray's id of it, the process that raised, and a sentence."""


class Incidents:
    """Of one watched app. Machines have their names between processes."""

    def __init__(self) -> None:
        self.raised: dict[str, tuple[str, Raised]] = {}
        """By call: the machine that raised, and the error."""
        self.unread_calls: list[str] = []
        """Calls whose errors were unread in the latest snapshot."""
        self.ended_threads: set[tuple[str, EndedThread]] = set()
        """With the machine of each."""
        self.read: dict[str, None] = {}
        """Errors that were read, by Ray's ids of calls; the latest last."""
        self.passed_on: dict[str, Collection[str | None]] = {}
        """By process: machines of which it has passed on refs to replies, so that others may have read these; None: of any."""
        self.read_before: set[str] = set()
        """Processes of which all errors were read by the snapshot before: some of these it may not have told yet."""
        self.at: dict[str, tuple[str, str]] = {}
        """Where an actor that was started again was last, since it began: method and line."""
        self.ended_at: dict[str, list[tuple[str, str]]] = {}
        """The same when it has ended, the latest last."""
        self.restarts: dict[str, Restarts] = {}
        self.pids: dict[str, int] = {}
        """The process before the one that an actor has now."""
        self.causes: dict[int, str] = {}
        """By process that has ended: why."""
        self.running: dict[str, tuple[RunningCall, ...]] = {}
        """By actor that may be started again: its calls in the latest snapshot that it was in."""
        self.died_in: dict[str, tuple[RunningCall, ...]] = {}
        """Of an actor that was started again: its calls in the latest snapshot before that."""

    def joined(self, machine: str, before: Mapping[str, Any] | None, now: float) -> None:
        """A process joins; `before`: what was known of the one before it. What that one had to run again, this one runs."""
        again = [key for key, (name, one) in self.raised.items() if name == machine and one.is_retried]
        for key in again:
            del self.raised[key]
        if (where := self.at.pop(machine, None)) is not None:
            self.ended_at[machine] = [*self.ended_at.get(machine, ()), where][-LIMITS.compared_ends :]
        if before is not None:
            restarts = self.restarts.setdefault(machine, Restarts(now))
            restarts.add(now)
            self.pids[machine] = int(before.get("pid") or 0)
            self.died_in[machine] = self.running.pop(machine, ())

    @property
    def unknown(self) -> set[int]:
        """Processes of which it was not asked yet why they have ended."""
        return {pid for pid in self.pids.values() if pid and pid not in self.causes}

    def note(self, reports: Mapping[str, ProcessReport]) -> None:
        """The reports of a snapshot."""
        for machine, one in reports.items():
            self.raised |= {raised.call_id: (machine, raised) for raised in one.raised}
            self.ended_threads |= {(machine, ended) for ended in one.ended_threads}
            self.passed_on[machine] = [None] if one.passed_on is None else one.passed_on
        if len(self.ended_threads) > LIMITS.happened_items:
            self.ended_threads = {*sorted(self.ended_threads, key=lambda of: of[1].at)[-LIMITS.happened_items :]}
        told = {key for one in reports.values() for key in one.read}
        of_processes = {key for key in told if key.startswith(PROCESS)}
        self.read |= dict.fromkeys(told - of_processes)
        read = self.read.keys() | of_processes | self.read_before
        self.read_before = of_processes
        until = max((one.read_forgotten for one in reports.values()), default=0.0)
        for key, (_, raised) in [*self.raised.items()]:
            if raised.at <= until or read & {raised.task, f"{PROCESS}{raised.pid}"}:
                del self.raised[key]
                self.read.pop(raised.task, None)
                self.read[raised.task] = None
        for old in sorted(self.raised, key=lambda key: self.raised[key][1].at)[: -LIMITS.happened_items]:
            del self.raised[old]
        while len(self.read) > LIMITS.happened_read:
            del self.read[next(iter(self.read))]

    def unread(self, calls: CompletedCallSnapshot, now: float) -> Iterator[dict[str, Any]]:
        """Unread errors of calls whose caller is watched, and errors of calls that Ray retries."""
        running = {call.call_id.partition("#")[0] for report in calls.machines.values() for call in report.calls}
        for call_id, (machine, one) in self.raised.items():
            is_over = call_id not in running and not (one.is_retried and now - one.at < LONG_S)
            source = parsed(call_id).source
            is_kept = source in calls.machines and machine not in self.passed_on.get(source, ())
            is_unread = is_over and is_kept and None not in self.passed_on.get(source, ())
            if is_unread or (not is_over and one.times >= LIMITS.looping_restarts):
                about = {"method": one.method, "error": one.error, "call_site": one.call_site, "count": one.times}
                about["is_retried"] = not is_over
                self.unread_calls += [call_id] * is_unread
                yield {"kind": "raised", "machine": machine, "at": one.at, **about}

    def deaths(
        self, lives: Mapping[str, Life], keys: Mapping[str, str], reports: Mapping[str, ProcessReport]
    ) -> Iterator[dict[str, Any]]:
        """Actors that have died, but for those that were meant to and had got through nothing in which others wait.

        `keys`: machines by their keys in Ray.
        """
        passed: dict[str, list[tuple[str, str]]] = {}
        for name, one in reports.items():
            for source, method in one.passed_through:
                passed.setdefault(source, []).append((name, method))
        for key, life in lives.items():
            machine = keys.get(key)
            if not life.is_dead or machine is None:
                continue
            through = [{"machine": to, "method": method} for to, method in passed.get(machine, ())]
            if through or not is_meant(life.cause):
                at, cause = life.changed_s, in_words(life.cause)
                yield {"kind": "died", "machine": machine, "at": at, "cause": cause, "passed_through": through}

    def restarted(
        self, lives: Mapping[str, Life], keys: Mapping[str, str], calls: CompletedCallSnapshot
    ) -> Iterator[dict[str, Any]]:
        """Actors that live, but whose process has died: why, and which of its calls neither run again nor are waited for."""
        machines = {keys.get(key, "") for key, life in lives.items() if not life.is_dead} & self.died_in.keys()
        known = {*calls.open_calls(), *(call for one in calls.waits for call in one.wait.calls)} if machines else ()
        for machine in machines:
            lost = [one for one in self.died_in[machine] if one.caller and one.call_id.partition("#")[0] not in known]
            cause, restarts = self.causes.get(self.pids[machine], ""), self.restarts[machine]
            if lost or not is_meant(cause):
                about = {"at": restarts.latest[-1], "count": restarts.count, "cause": in_words(cause)}
                calls_there = [{"method": one.method, "machine": one.caller} for one in lost]
                yield {"kind": "restarted", "machine": machine, **about, "lost": calls_there}

    def loops(
        self, lives: Mapping[str, Life], keys: Mapping[str, str], calls: CompletedCallSnapshot, now: float
    ) -> Iterator[dict[str, Any]]:
        """Actors that are started again and again."""
        awaited = {parsed(call).target for one in calls.waits for call in one.wait.calls if call is not None}
        for key, life in lives.items():
            machine = keys.get(key)
            restarts = None if machine is None else self.restarts.get(machine)
            if machine is None or restarts is None or not restarts.go_on(now):
                continue
            if life.is_dead or life.restarts < LIMITS.looping_restarts:
                continue
            ends, oldest = self.ended_at.get(machine, []), self._waited_for(machine, calls)
            seen = [end for end in ends if end[0]]
            method, site = seen[-1] if seen else (oldest, "")
            times = sum(end[0] == method for end in ends)
            yield {
                "kind": "restarting",
                "machine": machine,
                "at": restarts.latest[-1],
                "began": restarts.first,
                "count": restarts.count,
                "method": method,
                "call_site": site,
                "is_awaited": bool(oldest) or machine in awaited,
                "is_seen": bool(seen),
                "is_each": times == len(ends) > 1,
                "of_ends": [times, len(ends)],
                "cause": in_words(cause) if (cause := self.causes.get(self.pids.get(machine, 0))) else "",
            }

    def _waited_for(self, machine: str, calls: CompletedCallSnapshot) -> str:
        """The method of the oldest call to it that has not ended; "" if there is none."""
        report = calls.machines.get(machine)
        found = [(call.started_at, call.method) for call in report.calls] if report is not None else []
        sent = [one.in_flight for one in calls.channels if one.target == machine]
        found += [(call.sent_at, call.method) for one in sent for call in one.values()]
        return min(found)[1] if found else ""

    def summary(self, snapshots: int, in_words: Callable[[str], str]) -> Summary:
        """Of the whole watch."""
        unread = [self.raised[call] for call in self.unread_calls if call in self.raised]
        told = [(one.task, one.pid, in_words(f"{name}.{one.method} raised {one.error}")) for name, one in unread]
        return Summary(snapshots, sum(one.count for one in self.restarts.values()), told)

    def told(
        self,
        calls: CompletedCallSnapshot,
        reports: Mapping[str, ProcessReport],
        lives: Mapping[str, Life],
        keys: Mapping[str, str],
        now: float,
        *,
        is_covered: bool,
    ) -> tuple[dict[str, Any], ...]:
        """All that has happened, the newest first. `is_covered`: whether no process could have read an error unseen."""
        self.note(reports)
        self.unread_calls.clear()
        ended = [(name, one.recorded_at, child) for name, one in reports.items() for child in _told_children(one)]
        loops = list(self.loops(lives, keys, calls, now))
        looping = {one["machine"] for one in loops}
        kinds: list[Iterable[dict[str, Any]]] = [
            self.deaths(lives, keys, reports),
            loops,
            (one for one in self.restarted(lives, keys, calls) if one["machine"] not in looping),
            self.unread(calls, now) if is_covered else (),
            ({"kind": "child_ended", "machine": name, "at": at, **child._asdict()} for name, at, child in ended),
            ({"kind": "thread_ended", "machine": name, **one._asdict()} for name, one in self.ended_threads),
        ]
        self.running |= {name: one.calls for name, one in calls.machines.items() if is_actor(name)}
        for name in {keys.get(key, "") for key, life in lives.items() if life.is_dead}:
            self.running.pop(name, None)
            self.died_in.pop(name, None)
        newest = [sorted(those, key=_age)[: LIMITS.happened_items] for those in kinds]
        return tuple(sorted(itertools.chain(*newest), key=_age))


def _told_children(report: ProcessReport) -> Iterator[EndedChild]:
    """Children that ended badly, and those that are gone since they were seen while something waited that waits still."""
    first = min((one.since for one in report.long_waits), default=math.inf)
    return (one for one in report.ended_children if one.how or one.seen_at >= first)


def _age(one: Mapping[str, Any]) -> float:
    return -float(one["at"])
