"""What the parts of a process share: the run, the lock, the event loop, and whether this process still takes part."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.faults import as_error


@dataclass(eq=False)
class Membership:
    """A process's membership in a run; whatever two of its parts must agree on is here."""

    run_id: str
    host: str
    service: Any
    loop: asyncio.AbstractEventLoop
    _: KW_ONLY
    generation: int = 0
    """The generation of the whole system: how often it has been rolled back."""
    recovers: bool = False
    """Whether the system goes on by itself when a process of it dies."""
    lock: Any = None
    """Of the watched process that this is, too; else one of its own."""
    failure: RaySnapshotError | None = None
    is_closing: bool = False
    is_rolling: bool = False
    """Whether the system is being rolled back, and this process waits for it (the driver's)."""
    is_retired: bool = False
    """Whether the system has been rolled back, so that the generation of this object is past."""
    on_wake: Callable[[], None] = lambda: None
    """Called when there may be something to do; under the lock."""
    on_stop: list[Callable[[RaySnapshotError], None]] = field(default_factory=list)
    """Called when something has stopped the system; under the lock, possibly more than once."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.may_be_undone = self.recovers
        """Whether an action that is cut short because others go back already is no failure: it will be undone."""
        self.lock = self.lock or threading.RLock()

    async def report(self, payload: HostPayload) -> None:
        """Give a report to the service."""
        await self.service.report.remote(payload)

    # ---- work on the event loop -----------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; on the event loop. What it raises stops the system."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def start_soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the event loop; from any thread. What it raises stops the system."""
        self.loop.call_soon_threadsafe(self.start, work)

    def later(self, seconds: float, act: Callable[..., object], *args: Any) -> None:
        """Call something on the event loop; from any thread."""
        self.loop.call_soon_threadsafe(self.loop.call_later, seconds, act, *args)

    def cancel(self) -> None:
        """Give up all that was started."""
        for task in [*self.tasks]:
            task.cancel()

    async def end(self) -> None:
        """Give up all that runs on an event loop of our own, and stop that."""
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.recovers and isinstance(error, RayActorError):  # others see whose death it is; all are rolled back
            return
        self.fail(as_error(error))

    # ---- failure --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Note that there may be something to do here."""
        with self.lock:
            self.on_wake()

    def fail(self, error: RaySnapshotError) -> None:
        """Stop the whole system, with this reason."""
        if self.failure is None and not self.is_closing:
            self.stop_with(error)
            self.service.fail.remote(error, self.generation)

    def stop_with(self, error: RaySnapshotError) -> None:
        """Something has stopped the system: nothing is sent or accepted any more."""
        with self.lock:
            self.failure = self.failure or error
            self.on_wake()
            for told in self.on_stop:
                told(error)
