"""The event loop of an async actor: which calls run and wait on it, and what else may act there.

Used under the lock of the process; reads coroutines between two steps of their loop (`coroutines`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from ray_snapshot.instrument.process import other_loops
from ray_snapshot.instrument.process.coroutines import (
    awaited_itself,
    background,
    current_task,
    first_seen,
    forget_wait,
    frames_of,
    is_tracked,
    last_before,
    note_wait,
    parked_at,
    resolved,
    running_loop,
    site_of,
    task_behind,
    timers_of,
)
from ray_snapshot.instrument.process.handed import HandedWork, Look, ThreadWait, executed
from ray_snapshot.instrument.process.primitives import Primitives
from ray_snapshot.protocol.calls import CallLedger, MachineReport
from ray_snapshot.runtime.here import frames_of_threads


class ActorLoop:
    """Of an actor that is not asynchronous it stays empty, as of a driver."""

    def __init__(self) -> None:
        self.is_async = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that runs every call, as far as is known."""
        self.thread: int | None = None
        """The thread of that loop."""
        self.has_many_loops = False
        """Whether there are others: concurrency groups have loops of their own."""
        self.is_blocked = False
        """Whether the loop sits in a blocking `ray.get`."""
        self.coroutines: dict[str, tuple[Any, Any]] = {}
        """By call: the asyncio task that runs it, and the method's own coroutine."""
        self.wait_tasks: dict[int, Any] = {}
        """By wait: the asyncio task that is in it."""
        self.in_threads: dict[int, tuple[Any, Sequence[Any]]] = {}
        """By wait for the work of an executor's thread, while something is recorded: the future, and the thread's refs."""
        self._blocking_call: str | None = None

    def meet(self) -> None:
        """A call begins on the loop of this thread."""
        loop = running_loop()
        if self.loop is None and loop is not None:
            self.loop, self.thread = loop, threading.get_ident()
        self.has_many_loops |= loop is not None and loop is not self.loop

    def follow(self, call_id: str, coroutine: Any) -> None:
        """This coroutine is the call's own."""
        self.coroutines[call_id] = current_task(), coroutine

    def site_of(self, call_id: str | None) -> str:
        """Where ("file:line") the coroutine of a call is; "" if it has none."""
        found = self.coroutines.get(call_id) if call_id is not None else None
        return "" if found is None else site_of(found[1]) or ""

    def begin_wait(self, wait_id: int) -> None:
        """The task of this thread waits."""
        self.wait_tasks[wait_id] = current_task()

    def block(self, call_id: str | None) -> None:
        """This thread begins a blocking wait: if it is the loop's, all calls stand still."""
        if self._is_here():
            self.is_blocked, self._blocking_call = True, call_id

    def in_a_step(self, ledger: CallLedger, threads: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """The calls in the middle of a step now, outside of Ray's waits, each with its loop's thread: coroutines, and methods
        that are not async. Of a thread one, or none for certain."""
        calls: dict[int, list[str]] = {}
        for call, running in ledger.running.items():
            thread = threads.get(call)
            if thread is None or (self.is_blocked and thread == self.thread):
                continue
            is_plain = call not in self.coroutines
            if (is_plain or self.has_many_loops) and running.waits:
                continue  # else it may be another task of the call that waits
            if is_plain or getattr(self.coroutines[call][1], "cr_running", False):
                calls.setdefault(thread, []).append(call)
        return ((those[0], thread) for thread, those in calls.items() if len(those) == 1)

    @contextmanager
    def standing_still(self, call_id: str | None) -> Iterator[None]:
        """This call blocks the loop outside of Ray's calls while the block lasts; None: none does."""
        before = self.is_blocked, self._blocking_call
        if call_id is not None:
            self.is_blocked, self._blocking_call = True, call_id
        try:
            yield
        finally:
            self.is_blocked, self._blocking_call = before

    def unblock(self) -> None:
        """This thread's blocking wait is over."""
        if self._is_here():
            self.is_blocked = False

    @property
    def blocking_call(self) -> str | None:
        """The call that blocks the loop, and with it all others."""
        return self._blocking_call if self.is_blocked and not self.has_many_loops else None

    def occupied_by(self, ledger: CallLedger, threads: Mapping[str, int], until: float) -> str | None:
        """The call of a method that is not async and has run on the loop since before `until`: meanwhile no other goes on."""
        if self.thread is None or self.has_many_loops:
            return None
        here = (call for call, thread in self.in_a_step(ledger, threads) if thread == self.thread)
        plain = (call for call in here if call not in self.coroutines)
        return next((call for call in plain if ledger.running[call].started_at <= until), None)

    def is_between_steps(self) -> bool:
        """Whether no coroutine can be in the middle of a step now."""
        if self.loop is None or self.has_many_loops:
            return False
        return self.is_blocked or running_loop() is self.loop

    def to_ask(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which the actor is to be recorded; None if that is to be done at once."""
        return None if self.is_blocked else self.loop

    def park(self, ledger: CallLedger, now: float, sites: dict[str, str], handed: HandedWork) -> list[int]:
        """Note as waits the calls that await something of their own loop, and where; returns the waits.

        Only a later call to this actor can end that, or a thread, task or timer of the app's own, which the report tells of.
        A call that awaits the work of a thread that is in a `ray.get`, or a coroutine on the loop of a thread, awaits the same
        replies. Where these are not all, what ends its wait is not known.
        """
        frames = frames_of_threads()
        by_thread = executed(frames) if handed.waits else {}
        waits_of_threads = {one: handed.waits[by_thread[one]] for one in by_thread if by_thread[one] in handed.waits}
        found: list[int] = []
        primitives, timers = Primitives(self._all_coroutines()), timers_of(self.loop)
        look = cache(lambda: Look(handed.waits))
        for call_id, (task, coroutine) in self.coroutines.items():
            running = ledger.running.get(call_id)
            is_free = running is not None and not running.waits and not timers[id(task)]  # else a timeout ends it
            site = parked_at(task, coroutine) if is_free else None
            if site is not None:
                sites[call_id], what = site, primitives.of(frames_of(coroutine))
                since = first_seen(task, now)
                found.append(ledger.wait(call_id, (), 1, since, call_site=site, is_local=True, what=what))
            elif running is not None and not running.waits:
                for future in awaited_itself(task):
                    elsewhere = None if is_tracked(future) else task_behind(future)
                    wait = waits_of_threads.get(future) if elsewhere is None else handed.behind(elsewhere, look())
                    if wait is not None:
                        found.append(self._await_thread(ledger, call_id, future, wait))
                    elif elsewhere is not None and not other_loops.goes_on(elsewhere, frames):
                        found.append(self._park_elsewhere(ledger, call_id, task, now, sites))
        return found

    def _park_elsewhere(self, ledger: CallLedger, call_id: str, task: Any, now: float, sites: dict[str, str]) -> int:
        """A call awaits a task on the loop of a thread that awaits something of that loop, or what is not known."""
        last = last_before(task)
        site = parked_at(last, last.get_coro())
        if site is None:
            sites[call_id] = self.site_of(call_id)
            return ledger.wait(call_id, (None,), 1, first_seen(task, now), call_site=sites[call_id])
        sites[call_id] = site
        primitives = Primitives(one.get_coro() for one in asyncio.all_tasks(last.get_loop()))
        what = primitives.of(frames_of(last.get_coro()))
        return ledger.wait(call_id, (), 1, first_seen(last, now), call_site=site, is_local=True, what=what)

    def _await_thread(self, ledger: CallLedger, call_id: str, future: Any, wait: ThreadWait) -> int:
        site = wait.call_site or self.site_of(call_id)
        about = (wait.on, wait.k, max(wait.since, ledger.running[call_id].started_at))
        noted = ledger.wait(call_id, *about, call_site=site, raises=wait.raises, keeps_cpu=True)
        note_wait(future, noted)
        tasks = asyncio.all_tasks(self.loop)
        self.wait_tasks[noted] = next((one for one in tasks if getattr(one, "_fut_waiter", None) is future), None)
        self.in_threads[noted] = future, wait.refs
        return noted

    def unpark(self, wait_id: int) -> None:
        """A wait that `park` has noted is a note no more."""
        if wait_id in self.in_threads:
            forget_wait(self.in_threads.pop(wait_id)[0])
            self.wait_tasks.pop(wait_id, None)

    def _all_coroutines(self) -> Iterator[Any]:
        yield from (coroutine for _, coroutine in self.coroutines.values())
        yield from (task.get_coro() for task in asyncio.all_tasks(self.loop))

    def background(self, asking: Collection[str | None], timed: Mapping[str | None, Sequence[Any]]) -> str:
        """What may act on the loop besides calls; "" if nothing can, as where a call blocks it. `asking`: calls that only
        ask; `timed`: the tasks by which each waits with a timeout."""
        if not self.is_async or self.blocking_call is not None:
            return ""
        if self.has_many_loops:
            return "tasks and timers on the loops"
        calls = [*(task for task, _ in self.coroutines.values()), *self.wait_tasks.values()]
        asleep = [task for call, (task, _) in self.coroutines.items() if call in asking]
        asleep += [task for call in asking for task in timed.get(call, ())]
        return "" if self.loop is None else background(self.loop, calls, asleep)

    def resolved(self, report: MachineReport) -> MachineReport:
        """The report, with what its calls wait for as their coroutines tell it."""
        if not self.is_async:
            return report
        found = resolved(report, self.coroutines, self.wait_tasks, self.loop)
        mine = [wait for wait in found.waits if wait.call_id == self.blocking_call]
        if self.blocking_call is None or not mine or any(wait.may_act or wait.is_ready for wait in mine):
            return found
        return replace(found, status="blocked")  # no other call goes on meanwhile, whatever timers are set

    def begin_anew(self) -> None:
        """The process was rolled back: nothing runs."""
        self.coroutines.clear()
        self.wait_tasks.clear()

    def _is_here(self) -> bool:
        return self.loop is not None and running_loop() is self.loop
