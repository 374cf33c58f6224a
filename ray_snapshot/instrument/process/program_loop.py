"""An event loop that the app itself runs in the main thread (`asyncio.run(main())`): all waits there as its tasks do.

So in a driver, a plain task, a method of an actor that is not asynchronous. Nothing is known of such a loop beforehand, so an
`await` on it counts as one that something else there may overtake. That is taken back where the loop has nothing to run: each
task awaits a reply, or another task of the loop, and no timer is set. Then who runs it goes on as soon as any of these replies
comes, and not before. Used under the lock of the process.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.coroutines import awaiting, may_go_on, parked_sites, running_loop
from ray_snapshot.protocol.calls import CallWait, MachineReport
from ray_snapshot.runtime.here import frames_of_threads


class ProgramLoop:
    """It stays empty where nothing is awaited so, and of async actors, whose loop is Ray's."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop on which something was awaited last."""
        self.waits: dict[int, bool] = {}
        """The waits that tasks of the loop are in; of each, whether it ends with its replies alone."""
        self.blocking: int | None = None
        """The wait that blocks the loop, if the main thread is in a `ray.get` meanwhile."""
        self.is_held = False
        """Whether the main thread waits for a diagnosis, between two steps of the loop."""

    def begin_wait(self, wait_id: int, *, is_certain: bool) -> None:
        """A task of the main thread's loop waits; another thread's is nothing of the program's loop."""
        if threading.current_thread() is threading.main_thread():
            self.loop = running_loop()
            self.waits[wait_id] = is_certain

    def block(self, wait_id: int) -> None:
        """This thread begins a blocking wait: if it is the main one, no task goes on meanwhile."""
        if threading.current_thread() is threading.main_thread():
            self.blocking = wait_id

    def end_wait(self, wait_id: int) -> None:
        """A wait of either kind is over."""
        self.waits.pop(wait_id, None)
        if self.blocking == wait_id:
            self.blocking = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """The loop's thread stands still inside, in a callback."""
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False

    def to_ask(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which the machine is to be recorded; None if that is to be done at once.

        It is the one that waits now for something to run; while it runs something, the machine acts.
        """
        loop = self.loop
        if not self.waits or self.blocking is not None or self.is_held or loop is None or not loop.is_running():
            return None
        is_idle = _selects() if isinstance(loop, asyncio.BaseEventLoop) else asyncio.current_task(loop) is None
        return loop if is_idle else None

    def resolved(self, report: MachineReport) -> MachineReport:
        """The report, with what the program waits for as its tasks tell it."""
        mine = [wait for wait in report.waits if wait.wait_id in self.waits]
        self.waits = {wait.wait_id: self.waits[wait.wait_id] for wait in mine}  # others have ended with their calls
        if not mine:
            return report
        rest = tuple(wait for wait in report.waits if wait.wait_id not in self.waits)
        if self.blocking is not None:
            return _with(report, rest)
        if not self._is_between_steps() or self._goes_on():
            return report
        parents, sites = awaiting(self.loop), parked_sites(self.loop)
        found = [
            replace(wait, may_act=not self.waits[wait.wait_id], call_site=parents.get(wait.wait_id, wait.call_site))
            for wait in mine
        ]
        parked = [replace(mine[0], on=(), k=1, may_act=False, is_local=True, call_site=sites[0])] if sites else []
        return _with(report, (*rest, *found, *parked))

    def background(self) -> str:
        """What may act on the loop besides its tasks, of which it cannot be told when; "" if nothing."""
        if not self.waits or self.blocking is not None or not self._is_between_steps() or self._goes_on():
            return ""
        found = loops.pending(self.loop)
        if found is None:
            kind = type(self.loop)
            return f"the event loop ({kind.__module__}.{kind.__qualname__}, whose timers cannot be seen)"
        return "sockets on the loop" if found.has_sockets else ""

    def _is_between_steps(self) -> bool:
        if self.loop is None:
            return False
        return self.is_held or running_loop() is self.loop

    def _goes_on(self) -> bool:
        """Whether anything on the loop will go on, whatever replies come."""
        found = loops.pending(self.loop)
        if found is not None and (found.timers or (found.has_callbacks and not self.is_held)):
            return True  # what is due while it is held is the end of the program, for which it was not waiting
        return any(may_go_on(task) for task in asyncio.all_tasks(self.loop))


def _with(report: MachineReport, waits: tuple[CallWait, ...]) -> MachineReport:
    waiting = {wait.call_id for wait in waits}
    runs_on = any(call.call_id not in waiting for call in report.calls)
    is_active = runs_on or any(wait.may_act or wait.is_ready for wait in waits)
    return replace(report, waits=waits, status="active" if is_active else "blocked")


def _selects() -> bool:
    """Whether the main thread waits in a selector, as asyncio's loops do when there is nothing to run."""
    frame = frames_of_threads().get(threading.main_thread().ident or 0)
    return frame is not None and frame.f_globals.get("__name__") == "selectors"


def was_interrupted() -> Any:
    """The `asyncio.Runner` of this thread that cancels its program for a Ctrl-C; None if none does."""
    runner = getattr(getattr(signal.getsignal(signal.SIGINT), "func", None), "__self__", None)
    return runner if getattr(runner, "_interrupt_count", 0) > 0 else None
