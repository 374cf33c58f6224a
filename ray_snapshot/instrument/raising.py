"""What is done about a deadlock that stands: the program's waits end in `DeadlockError`, or those of one call of it, or the
program ends.

Only when it has outlasted a grace, and nothing that can act could break it by itself: a watchdog with a handle may kill one of
its members, or cancel what that runs. Nothing is killed here; an error unwinds, and drops handles as errors do.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import DeadlockError
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.ending import FIRED
from ray_snapshot.instrument.guard import ours
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.settings import spec_of
from ray_snapshot.stderr import say
from ray_snapshot.verdicts import Detector, Verdict
from ray_snapshot.views.report import deadlock_report

if TYPE_CHECKING:
    from ray_snapshot.instrument.watching import Watch

BREAK_S = 10.0
"""How long the watcher may take to tell a process."""

UNWIND_S = 5.0
"""So long a call that has been told may stay in its core, on a busy machine, before another one of it is told."""


@dataclass(slots=True)
class _Core:
    """One core, for as long as verdicts in a row have it."""

    machines: frozenset[str]
    calls: frozenset[str]
    """Of its members, or their machines."""
    since: float = field(default_factory=time.monotonic)


class Raiser:
    """Hears every verdict of a watch; in the thread of its subscribers."""

    def __init__(self, watch: Watch, *, has_reporter: bool, end: Callable[[], object]) -> None:
        """`has_reporter`: whether somebody else prints what is found; `end`: ends the program."""
        settings = watch.settings
        self.has_reporter = has_reporter
        self.end = end
        self.watch = watch
        self.how = settings.on_deadlock
        self.grace = settings.deadlock_grace
        self.victim = settings.victim
        self.names = self.names_in(watch.detectors)
        self.cores: list[_Core] = []
        self.tried: dict[str, float] = {}
        """Calls of the cores that stand: until when one that was told may yet end; 0 for one that gets no error."""
        self.done_until = 0
        """What was done about a deadlock, only snapshots behind this one can show."""
        self.said: set[Hashable] = set()
        self.timer: threading.Timer | None = None
        self.is_ending = False
        self.title: Callable[[], str] = lambda: watch.name
        """What errors call the program."""
        self.narrow: Callable[[Verdict], Verdict] = lambda verdict: verdict
        """The part of a deadlock that counts: tests leave stuck actors behind."""
        self.on_raise: Callable[[DeadlockError], None] = lambda _: None
        """Called when waits of the program end in an error."""

    @staticmethod
    def names_in(detectors: Iterable[Detector]) -> set[str]:
        """Those that find deadlocks."""
        return {one.name for one in detectors if (spec_of(one) or {}).get("type") == "deadlock"}

    def hear(self, number: int, verdict: Verdict) -> None:
        """A verdict on snapshot `number`."""
        if verdict.detector in self.names:
            found = self.narrow(verdict) if verdict.holds else verdict
            self._follow(found)
            if self.cores and not self.is_ending:
                self._consider(number, found)

    def _follow(self, verdict: Verdict) -> None:
        """Note which cores stand. A core may grow; one that shares a call with an earlier one is the same."""
        known, self.cores = self.cores, []
        for names in verdict.evidence.get("cores", ()) if verdict.holds else ():
            machines = frozenset(names)
            members = [one for one in verdict.evidence["members"] if one["machine"] in machines]
            calls = frozenset(one.get("call") or one["machine"] for one in members)
            since = min((core.since for core in known if core.calls & calls), default=time.monotonic())
            self.cores.append(_Core(machines, calls, since))
        if not self.cores:
            self.tried.clear()

    def _consider(self, number: int, verdict: Verdict) -> None:
        now = time.monotonic()
        concerned = [core for core in self.cores if DRIVER in core.machines] or self.cores
        left = max(core.since + self.grace - now for core in concerned)
        if left > 0:
            self._look_again(left)
        elif by := verdict.evidence.get("may_be_broken_by"):
            doing = "the program is not ended" if self.how == "exit" else "nothing is raised"
            if (
                self.how == "exit" or self.victim is not None or _has_program(verdict)
            ):  # else it would get no error anyway
                about = frozenset().union(*(core.machines for core in concerned))
                self._say_once(about, f"{doing}: the deadlock may yet be broken by {', '.join(by)}")
        elif number <= self.done_until:
            return
        elif self.how == "exit":
            self._end(verdict)
        else:
            self._raise(number, verdict)

    def _look_again(self, seconds: float) -> None:
        """A snapshot when the grace is over: the clock may be slow."""
        if seconds < math.inf and (self.timer is None or not self.timer.is_alive()):
            self.timer = threading.Timer(seconds, lambda: ours(self._begin_snapshot))
            self.timer.name, self.timer.daemon = "ray-snapshot-grace", True
            self.timer.start()

    def _begin_snapshot(self) -> None:
        if not self.watch.is_closed:
            CONNECTION.use(self.watch._service.begin_snapshot.remote)

    def _raise(self, number: int, verdict: Verdict) -> None:
        error = deadlock_error(verdict, self.title())
        if self.victim is not None and self._break_one(number, verdict, error):
            return
        if _has_program(verdict):
            told = self.watch.process.condemn(number, None, error)
            if told.ended:
                self.on_raise(error)
            elif told.spared:
                text = "nothing more is raised: the program waits for the same again and again"
                self._say_once(text, text)

    # ---- a call of the core -----------------------------------------------------------------------------------------

    def _break_one(self, number: int, verdict: Verdict, error: DeadlockError) -> bool:
        """Whether the youngest call of the core has been told to end in the error; the next one gets it if that is no help."""
        members, ends = self._left(verdict)
        while members:
            chosen = max(members, key=lambda one: str(one.get("since", "")))
            name = f"{chosen['machine']}.{chosen['method']}()"
            told = self._told(number, chosen["call"], error)
            if told is None:
                return True  # a later verdict may come in time
            refusal, self.done_until = told
            members.remove(chosen)
            self.tried[chosen["call"]] = 0.0 if refusal else time.monotonic() + UNWIND_S
            if refusal is None:
                self._look_again(UNWIND_S)
                place = f" ({chosen['call_site']})" if chosen["call_site"] else ""
                say(f"ray-snapshot: to break the deadlock, DeadlockError is raised in {name}{place}")
                return True
            say(f"ray-snapshot: not raised in {name}: {refusal}")
        return ends

    def _left(self, verdict: Verdict) -> tuple[list[dict[str, Any]], bool]:
        """The members that may be told, and whether there is a core of which one that was told is still about to end."""
        members, now = verdict.evidence["members"], time.monotonic()
        ending = {one["machine"] for one in members if self.tried.get(one.get("call", ""), 0.0) > now}
        kept = {name for core in verdict.evidence["cores"] if not ending.isdisjoint(core) for name in core}
        tried = {"", *self.tried}
        return [one for one in members if one["machine"] not in kept and one.get("call", "") not in tried], bool(kept)

    def _told(self, number: int, call: str, error: DeadlockError) -> tuple[str | None, int] | None:
        """As `Watcher.condemn`; None also if the watcher does not answer: the watching may be over."""
        reply = CONNECTION.use(lambda: self.watch._service.condemn.remote(number, call, error).future())
        with suppress(Exception):
            answer: tuple[str | None, int] | None = None if reply is None else reply.result(BREAK_S)
            return answer
        return None

    # ---- the end ----------------------------------------------------------------------------------------------------

    def _end(self, verdict: Verdict) -> None:
        self.is_ending = True
        if not self.has_reporter:
            say(f"ray-snapshot: {deadlock_error(verdict, self.title())}")
        say(f"ray-snapshot: the deadlock stands: the program ends, with exit code {FIRED}")
        self.end()

    def _say_once(self, about: Hashable, text: str) -> None:
        if about not in self.said:
            self.said.add(about)
            say(f"ray-snapshot: {text}")


def _has_program(verdict: Verdict) -> bool:
    records = (*verdict.evidence["members"], *verdict.evidence["stuck_behind"])
    return any(record["machine"] == DRIVER for record in records)


def deadlock_error(verdict: Verdict, system: str) -> DeadlockError:
    """What a wait ends in that is stuck as this verdict says."""
    text = deadlock_report(verdict.evidence, system, verdict.snapshot_id).removeprefix("ray-snapshot: ")
    return DeadlockError(text, verdict=verdict, evidence=verdict.evidence, snapshot_id=verdict.snapshot_id)
