"""How a process's part of the trace gets to the service: with each report, and in between when much has gathered."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Executor
from dataclasses import replace

from ray.exceptions import RayActorError, RayError, RayTaskError

from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.faults import as_error
from ray_snapshot.runtime.tracing import Tracer
from ray_snapshot.runtime.transport.membership import Membership


class TraceShipping:
    """Ships the trace of one process; without a tracer there is nothing to ship."""

    def __init__(self, member: Membership, tracer: Tracer | None) -> None:
        self.member = member
        self.tracer = tracer
        """Logs every action, if the system is to be traced."""
        self.under_way = 0
        """Parts that are on their way."""
        self.turn = asyncio.Lock()
        """Held while a part is on its way: each has arrived before the next leaves, so that a crash leaves no holes."""

    async def report(self, payload: HostPayload, executor: Executor) -> None:
        """A report, and with it what was traced since the last one: every white action is among it."""
        member, tracer = self.member, self.tracer
        if tracer is None:
            await member.report(payload)
            return
        with member.lock:
            self.under_way += 1
        try:
            async with self.turn:
                with member.lock:
                    entries = tracer.take()
                try:
                    trace = await member.loop.run_in_executor(executor, tracer.shipped, entries)
                    await member.service.report.remote(replace(payload, trace=trace))
                except (RayActorError, RayTaskError):  # it may have arrived
                    raise
                except Exception:
                    with member.lock:
                        tracer.put_back(entries)
                    raise
        finally:
            with member.lock:
                self.under_way -= 1

    def write_out(self) -> None:
        """Ship what is over of a full trace, and wait for it, so that it never grows faster than it is written.

        Called between actions, never on the event loop, without the lock: the thread that acts waits for what it has done.
        """
        member, tracer = self.member, self.tracer
        if tracer is None or not tracer.is_full or member.is_closing:
            return
        with member.lock:
            self.under_way += 1
        try:
            asyncio.run_coroutine_threadsafe(self._write_out(tracer), member.loop).result()
        except RayError as error:
            member.fail(as_error(error))
        except CancelledError:  # the process leaves the run
            pass
        finally:
            with member.lock:
                self.under_way -= 1

    async def _write_out(self, tracer: Tracer) -> None:
        member, task = self.member, asyncio.current_task()
        assert task is not None
        member.tasks.add(task)  # to be cancelled at the end
        try:
            async with self.turn:
                with member.lock:
                    entries = tracer.take()
                shipped = await member.loop.run_in_executor(None, tracer.shipped, entries)
                if shipped is not None:
                    await member.service.trace.remote(shipped)
        finally:
            member.tasks.discard(task)

    def rest(self) -> bytes | None:
        """Every action that was not shipped, those that are not over included; the last of this process's trace."""
        if self.tracer is None:
            return None
        with self.member.lock:
            return self.tracer.shipped(self.tracer.take(everything=True))
