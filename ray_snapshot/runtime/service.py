"""The service of a system: one asynchronous Ray actor that coordinates and collects, and knows where machines live.

Numbers, deadlines and completeness are `ray_snapshot.protocol`'s; this file carries its effects out: asks hosts to record,
gathers their payloads, assembles the snapshot (in a thread, so that reports of others are not kept waiting) and hands it
to the analyst. The driver cannot be called: what it must know waits in a log that it polls.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ray

from ray_snapshot.errors import (
    DuplicateMachineError,
    RaySnapshotError,
    SnapshotAbortedError,
    SystemNotRunningError,
    UnknownMachineError,
    UnreachableMachineError,
)
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.collector import AbortedSnapshot, HostReport
from ray_snapshot.protocol.coordinator import Coordinator, reachable
from ray_snapshot.runtime.assembly import SnapshotHeader, aborted, assemble
from ray_snapshot.runtime.report import HostPayload

POLL_S = 10.0
"""How long an unanswered long poll is held."""

NAMESPACE = "ray-snapshot"
"""The Ray namespace of all services."""

PREFIX = "system:"


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service is told at its birth."""

    system: str
    run_id: str
    protocol: str
    most_open: int
    snapshot_timeout: float


@dataclass(slots=True)
class Collection:
    """A snapshot that is being collected."""

    header: SnapshotHeader
    timeout: float
    done: asyncio.Future[Any]
    payloads: list[HostPayload] = field(default_factory=list)


class Service:
    """See the module."""

    def __init__(self, config: ServiceConfig, analyst: Any) -> None:
        self.config = config
        self.analyst = analyst
        self.coordinator = Coordinator(most_open=config.most_open)
        self.coordinator.register(DRIVER)
        self.actors: dict[str, Any] = {}
        self.places: dict[str, str] = {DRIVER: DRIVER}
        self.counters: dict[str, int] = {}
        self.collections: dict[int, Collection] = {}
        self.driver_log: list[tuple[Any, ...]] = []
        self.changed = asyncio.Condition()
        self.failure: RaySnapshotError | None = None
        self.clock: asyncio.Task[None] | None = None
        self.skipped = 0
        self.assembler = ThreadPoolExecutor(1, thread_name_prefix="assemble")
        self.reaper = asyncio.get_event_loop().create_task(self._reap())
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_closing = False

    # ---- hosts and names ------------------------------------------------------------------------------------------

    async def register(self, host: str, actor: list[Any]) -> None:
        """A host joins; it is asked for every snapshot that is pending."""
        self.actors[host] = actor[0]
        for number in self.coordinator.register(host):
            self._tell(host, ("request", number, self._left(number)))
        await self._notify()

    async def actor_of(self, host: str) -> list[Any]:
        """The Ray actor of a host, wrapped so that it travels as a handle."""
        return [self.actors[host]]

    async def claim(self, class_name: str, count: int, names: list[str] | None, hosts: list[str]) -> list[str]:
        """Take `count` names (made from the class's name if none are given), one per host named; all or none."""
        if names is None:
            names = []
            while len(names) < count:
                name = f"{class_name}-{self.counters.get(class_name, 0)}"
                self.counters[class_name] = self.counters.get(class_name, 0) + 1
                if name not in self.places:
                    names.append(name)
        taken = next((name for name in names if name in self.places), None)
        if taken is not None or len(set(names)) < len(names):
            taken = taken or next(name for name in names if names.count(name) > 1)
            raise DuplicateMachineError(f"a machine {taken!r} already exists in {self.config.system}; names are unique", machine=taken)
        self.places.update(zip(names, hosts, strict=True))
        await self._notify()
        return names

    async def locate(self, names: list[str], timeout: float) -> dict[str, str]:
        """Where machines live; waits up to `timeout` seconds for those that do not exist yet, and leaves out the rest."""
        deadline = time.monotonic() + timeout
        while not all(name in self.places for name in names) and not self.is_closing:
            left = deadline - time.monotonic()
            if left <= 0 or not await self._change(left):
                break
        return {name: self.places[name] for name in names if name in self.places}

    async def stopped(self, names: list[str]) -> None:
        """Machines have stopped; everybody is told, so that sending to them is an error from now on."""
        self._broadcast(("stopped", names))
        await self._notify()

    async def connect(self, source: str, target: str) -> None:
        """Declare the channel from `source` to `target` beforehand."""
        for name in (source, target):
            if name not in self.places:
                raise UnknownMachineError(f"connect({source!r}, {target!r}): no machine {name!r} was spawned", machine=name)
        if self.places[source] != DRIVER:
            await self.actors[self.places[source]].control.remote([("connect", source, target)])

    # ---- snapshots ------------------------------------------------------------------------------------------------

    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:
        """Take a snapshot; returns it (None if not waited for). Raises what the docstring of `System.snapshot` says."""
        self._check()
        timeout = self.config.snapshot_timeout if timeout is None else timeout
        first = await self._hosts_of(initiators) if initiators else list(self.coordinator.hosts)
        number = self.coordinator.start(time.time(), timeout)
        if number is None:
            if wait:
                raise SnapshotAbortedError(
                    f"{len(self.coordinator.pending)} snapshots of {self.config.system} are pending, the most there may be;"
                    " wait for one, or raise most_open",
                    reason="too many snapshots are open",
                )
            return None
        collection = self._begin(number, initiators, timeout)
        for host in first:
            self._tell(host, ("request", number, timeout))
        collection.header.control_messages += len(first)
        await self._notify()
        if not wait:
            collection.done.add_done_callback(lambda done: done.exception())
            return number
        return await collection.done

    def _begin(self, number: int, initiators: list[str], timeout: float) -> Collection:
        config = self.config
        header = SnapshotHeader(number, config.system, config.run_id, config.protocol, list(initiators), time.time())
        done = asyncio.get_running_loop().create_future()
        self.collections[number] = found = Collection(header, timeout, done)
        return found

    async def _hosts_of(self, initiators: list[str]) -> list[str]:
        """The hosts that record first; raises if markers from them would not reach every host."""
        for name in initiators:
            if name not in self.places:
                raise UnknownMachineError(f"initiator {name!r} is no machine of {self.config.system}", machine=name)
        first = list(dict.fromkeys(self.places[name] for name in initiators))
        edges = [edge for found in await asyncio.gather(*(a.channels.remote() for a in self.actors.values())) for edge in found]
        hosts = {(self.places.get(source, source), self.places.get(target, target)) for source, target in edges}
        missed = set(self.actors) - reachable(hosts, first)
        if missed:
            machines = sorted(name for name, host in self.places.items() if host in missed)
            raise UnreachableMachineError(
                f"markers from {', '.join(initiators)} reach no channel to {', '.join(machines[:5])}: name more initiators,"
                " declare the channel with system.connect(...), or leave initiators out",
                machines=machines,
            )
        return [*first, *([DRIVER] if DRIVER not in first else [])]

    async def report(self, payload: HostPayload) -> None:
        """A host's part, or white messages that arrived after it."""
        number = payload.number
        self.coordinator.report(number, payload.counts)
        collection = self.collections.get(number)
        if collection is None:
            return
        collection.payloads.append(payload)
        collection.header.control_messages += 1 + (payload.markers if isinstance(payload.counts, HostReport) else 0)
        completed = self.coordinator.completed(number)
        if completed is None:
            return
        del self.collections[number]
        self._broadcast(("close", number))
        collection.header.control_messages += len(self.coordinator.hosts)
        collection.header.completed_at = time.time()
        await self._notify()
        loop = asyncio.get_running_loop()
        try:
            snapshot = await loop.run_in_executor(self.assembler, assemble, collection.header, collection.payloads)
        except Exception as error:
            collection.done.set_exception(error)
            raise
        self.analyst.add.remote(snapshot)
        if not collection.done.done():
            collection.done.set_result(snapshot)

    async def _reap(self) -> None:
        """Give up what is past its deadline."""
        while True:
            await asyncio.sleep(0.05)
            for given_up in self.coordinator.expire(time.time()):
                self._background(self._abort(given_up))

    async def _abort(self, given_up: AbortedSnapshot) -> None:
        collection = self.collections.pop(given_up.number)
        self._broadcast(("abort", given_up.number))
        await self._notify()
        header = collection.header
        header.completed_at = time.time()
        header.abort_reason = given_up.reason
        for host in given_up.awaited[:3]:
            await self._blame(header, host)
        self.analyst.add.remote(aborted(header))
        error = SnapshotAbortedError(
            f"snapshot {header.snapshot_id} was given up: {header.abort_reason}",
            snapshot_id=header.snapshot_id,
            reason=header.abort_reason,
            machine=header.abort_machine,
            call_site=header.abort_call_site,
        )
        if not collection.done.done():
            collection.done.set_exception(error)
            collection.done.exception()

    async def _blame(self, header: SnapshotHeader, host: str) -> None:
        """Ask a host that did not report what it is doing, for a second."""
        if host not in self.actors or header.abort_machine is not None:
            return
        try:
            doing = await asyncio.wait_for(_wrapped(self.actors[host].doing.remote()), timeout=1.0)
        except Exception:
            doing = None
        if doing is not None:
            machine, method, site, seconds = doing
            header.abort_machine, header.abort_call_site = machine, site
            header.abort_reason = f"{header.abort_reason}: {machine} has been in {method} at {site} for {seconds:.1f} s"

    async def start_clock(self, every: float) -> None:
        """Take a snapshot every `every` seconds from now on."""
        if self.clock is None:
            self.clock = asyncio.get_running_loop().create_task(self._tick(every))

    async def _tick(self, every: float) -> None:
        due = time.monotonic()
        while self.failure is None and not self.is_closing:
            due = max(due + every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if await self.snapshot([], None, wait=False) is None:
                self.skipped += 1

    async def last_number(self) -> int:
        """The highest number given out."""
        return self.coordinator.last

    async def settle(self, timeout: float) -> None:
        """Stop the clock and wait until no snapshot is pending, up to `timeout` seconds."""
        if self.clock is not None:
            self.clock.cancel()
        pending = [collection.done for collection in self.collections.values()]
        if pending:
            await asyncio.wait(pending, timeout=timeout)

    # ---- everybody ------------------------------------------------------------------------------------------------

    async def commands(self, seen: int) -> list[tuple[Any, ...]]:
        """What the driver must know, behind the first `seen`; waits for it."""
        deadline = time.monotonic() + POLL_S
        while len(self.driver_log) <= seen and not self.is_closing:
            if not await self._change(deadline - time.monotonic()):
                break
        return self.driver_log[seen:]

    async def fail(self, host: str, error: RaySnapshotError) -> None:
        """Something on `host` stops the system."""
        if self.failure is None:
            self.failure = error
            self._broadcast(("failed", error))
            for number in list(self.coordinator.pending):
                self._background(self._abort(self.coordinator.abort(number, f"the system failed: {error}")))
            await self._notify()

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        return {
            "system": self.config.system,
            "run_id": self.config.run_id,
            "hosts": len(self.actors),
            "machines": len(self.places) - 1,
            "snapshots": self.coordinator.last,
            "pending": len(self.coordinator.pending),
            "failed": None if self.failure is None else str(self.failure),
        }

    async def analyst_of(self) -> list[Any]:
        """The system's analyst, wrapped."""
        return [self.analyst]

    async def close(self) -> None:
        """No more snapshots, and no more long polls."""
        self.is_closing = True
        await self._notify()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_closing:
            raise SystemNotRunningError(f"system {self.config.system} was closed", system=self.config.system)

    def _left(self, number: int) -> float:
        return max(0.1, self.coordinator.deadlines[number] - time.time())

    def _tell(self, host: str, *commands: tuple[Any, ...]) -> None:
        if host == DRIVER:
            self.driver_log.extend(commands)
        else:
            self.actors[host].control.remote(list(commands))

    def _broadcast(self, *commands: tuple[Any, ...]) -> None:
        for host in (DRIVER, *self.actors):
            self._tell(host, *commands)

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _change(self, timeout: float) -> bool:
        """Wait for a change, up to `timeout` seconds; False if there was none."""
        if timeout <= 0:
            return False
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait(), timeout)
            except TimeoutError:
                return False
        return True


async def _wrapped(ref: Any) -> Any:
    return await ref


ServiceActor = ray.remote(Service)
