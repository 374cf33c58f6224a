"""What a service goes through, as far as its parts must agree on it: open, closing, failed; and changes to wait for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from ray_snapshot.errors import ProtocolError, RaySnapshotError, SystemNotRunningError

_Args = ParamSpec("_Args")
_T = TypeVar("_T")


def notice(method: Callable[_Args, Coroutine[Any, Any, _T]]) -> Callable[_Args, Coroutine[Any, Any, _T | None]]:
    """A method by which a service is told something: a fault of ours in it stops the service, and the caller gets None."""

    @functools.wraps(method)
    async def noticed(*args: _Args.args, **kwargs: _Args.kwargs) -> _T | None:
        try:
            return await method(*args, **kwargs)
        except Exception as error:
            if isinstance(error, RaySnapshotError) and not isinstance(error, ProtocolError):
                raise  # a refusal
            args[0].course.fault(error)  # type: ignore[attr-defined]
            return None

    return noticed


class Course:
    """The course of one service; everything runs on its event loop."""

    def __init__(self, system: str, on_fault: Callable[[BaseException], None]) -> None:
        self.system = system
        self.on_fault = on_fault
        """Called with faults of ours."""
        self.opened = asyncio.Event()
        """Set once the service may work: if it may have several lives, the driver must first say which one this is."""
        self.failure: RaySnapshotError | None = None
        self.is_closing = False
        self.changed = asyncio.Condition()
        self.tasks: set[asyncio.Task[Any]] = set()

    def check(self) -> None:
        """Raise what has stopped the system, or that it was closed."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # or each time it is raised makes it longer
        if self.is_closing:
            raise SystemNotRunningError(f"system {self.system} was closed", system=self.system)

    async def notify(self) -> None:
        """Wake those that wait in `change`: something has changed."""
        async with self.changed:
            self.changed.notify_all()

    async def change(self, timeout: float) -> bool:
        """Wait for a change, up to `timeout` seconds; False if there was none."""
        if timeout <= 0:
            return False
        async with self.changed:
            try:
                async with asyncio.timeout(timeout):
                    await self.changed.wait()
            except TimeoutError:
                return False
        return True

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start work that nothing waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self.ended(task)

    def ended(self, task: asyncio.Task[Any]) -> None:
        """A task is over that nothing waits for."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fault(error)

    def fault(self, error: BaseException) -> None:
        """A fault of ours: it stops the service, unless that ends already."""
        if not self.is_closing:
            self.on_fault(error)
