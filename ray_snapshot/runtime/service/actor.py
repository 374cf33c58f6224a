"""What others may call of a service: its Ray actor, put together of its parts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ray

from ray_snapshot.errors import RaySnapshotError, RolledBackError, UnknownMachineError
from ray_snapshot.glances import Totals
from ray_snapshot.names import DRIVER
from ray_snapshot.pace import Every
from ray_snapshot.protocol.commands import (
    AwaitInput,
    DeclarePort,
    DriverCommand,
    Fail,
    OpenChannel,
    OpenDriverChannel,
    Stopped,
)
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.recovery_line import Allowance
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.driver.memory import Recollection
from ray_snapshot.runtime.faults import with_place
from ray_snapshot.runtime.service.clock import Clock
from ray_snapshot.runtime.service.collecting import Collecting, NoOthers, Others
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.course import Course, notice
from ray_snapshot.runtime.service.directory import Directory
from ray_snapshot.runtime.service.handing_over import HandOver
from ray_snapshot.runtime.service.hosts import Hosts
from ray_snapshot.runtime.service.orders import Orders
from ray_snapshot.runtime.service.recovery import Recovery
from ray_snapshot.runtime.service.telling import Telling


class Service:
    """The Ray actor of a system's service; asynchronous, so that any number of calls can wait at once."""

    def __init__(self, config: ServiceConfig, analyst: Any, others: Others | None = None) -> None:
        """`others`: the parties beside hosts; with them there are no hosts, and no driver that sends, before `admit_hosts`."""
        self.config = config
        self.life = 0
        self.course = course = Course(config.system, self._on_fault)
        self.coordinator = coordinator = Coordinator(most_open=config.most_open)
        self.directory = directory = Directory(config.system, config.protocol)
        self.allowance = Allowance(is_bounded=config.recover)
        self.orders = orders = Orders(course, directory, self.allowance, lambda: self.recovery.generation)
        self.handing = HandOver(analyst, is_again=config.recover)
        self.recovery = Recovery(config, course, directory, orders, coordinator, self.handing, self)
        self.telling = Telling(course, directory, self.recovery)
        self.hosts = Hosts(course, directory, orders, coordinator, self.recovery, self.fail)
        self.collecting = Collecting(
            config, course, directory, orders, coordinator, self.allowance, self.handing, self.telling, self.recovery,
            self.lost, others or NoOthers(),
        )  # fmt: skip
        self.clock = Clock(self.begin_snapshot)
        self.collecting.took, self.collecting.gave_up = self.clock.took, self.clock.gave_up
        course.background(self.collecting.reap())
        if others is None:
            self.admit_hosts()
        if not config.recover:
            course.opened.set()
        if others is None and not config.recover:
            self.hosts.watch(analyst, "analyst")

    def admit_hosts(self) -> tuple[int, ...]:
        """From now on there may be hosts, and a driver that sends to their machines; returns what is pending."""
        self.orders.has_driver = True
        return self.coordinator.register(DRIVER)

    def dismiss_hosts(self) -> None:
        """The hosts end, and the driver sends to no machines any more."""
        for actor in self.directory.actors.values():
            actor.close.remote()
        for host in [*self.coordinator.hosts]:
            self.coordinator.leave(host)
        self.directory.clear()
        self.orders.clear()
        self.recovery.begin()

    def _on_fault(self, error: BaseException) -> None:
        fault = RaySnapshotError(f"the service of {self.config.system} failed: {with_place(error)}")
        self.collecting.line.begin(self.fail(fault))  # `settle` waits for it

    async def open(self, analyst: list[Any]) -> None:
        """The first life begins; `analyst`: wrapped (as an argument of its constructor Ray would not keep it for the next)."""
        self._open(analyst)

    async def reopen(self, found: Recollection) -> int:
        """A later life begins: the whole system goes back to the last snapshot that the driver knows to be kept.

        Returns which life this is: an earlier one if the driver has heard that the service died, and it has not.
        """
        if self.course.opened.is_set():
            return self.life
        self.life = found.life
        self.coordinator.last = self.allowance.take_over(found.numbers)
        self.directory.actors.update((host, wrapped[0]) for host, wrapped in found.actors.items())
        self.directory.sources.update(found.sources)
        self.directory.unclaimed.update(found.unclaimed)
        for host, actor in self.directory.actors.items():
            self.coordinator.register(host)
            self.hosts.watch(actor, host, found.incarnations.get(host, 0))
        for source, target, port in found.declared:
            self.directory.declare(source, target, port)
        if found.every is not None:
            await self.start_clock(found.every)
        self.recovery.resume(found)
        self._open(found.analyst)
        return self.life

    def _open(self, analyst: list[Any]) -> None:
        self.handing.analyst = analyst[0]
        self.course.opened.set()
        if self.config.recover:
            self.course.background(self.handing.begin())
            self.course.background(self.handing.attend())

    async def last_number(self) -> int:
        """The highest number given out."""
        await self.course.opened.wait()
        return self.coordinator.last

    # ---- snapshots ---------------------------------------------------------------------------------------------------

    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:
        """Take a snapshot; returns it (None if not waited for). Raises what the docstring of `System.snapshot` says."""
        await self.course.opened.wait()
        return await self.collecting.snapshot(initiators, timeout, wait)

    @notice
    async def begin_snapshot(self) -> int | None:
        """Start a snapshot without waiting for it; its number, or None if there can be none now."""
        try:
            number: int | None = await self.snapshot([], None, wait=False)
        except RaySnapshotError:  # what has failed or was closed says so elsewhere
            return None
        return number

    async def start_clock(self, every: Every) -> None:
        """Take a snapshot every `every` seconds from now on, or as often as that share allows."""
        self.clock.start(every)

    async def set_clock(self, every: Every) -> None:
        """The same, whatever it was before."""
        self.clock.go_at(every)

    async def completed_after(self, number: int) -> int:
        """How many snapshots with higher numbers have been completed (of the latest 10,000)."""
        return self.collecting.line.completed_after(number)

    async def settle(self, timeout: float) -> RaySnapshotError | None:
        """Stop the clock, wait up to `timeout` seconds until no snapshot is pending and the analyst has them all.

        Returns what has stopped the system, if anything has.
        """
        self.clock.stop()
        collections = self.collecting.collections
        await self.collecting.line.settle(lambda: [one.done for one in collections.values()], timeout)
        return self.course.failure

    async def last_snapshot(self, seconds: float) -> str | None:
        """A process is about to leave: takes a snapshot that can be restored; its id, None if there was none in time."""
        with suppress(TimeoutError, RaySnapshotError):
            async with asyncio.timeout(seconds):
                await self.course.opened.wait()
                return await self.collecting.take_last(seconds)
        return None

    @notice
    async def report(self, payload: HostPayload) -> None:
        """A host's part, or white messages that arrived after it."""
        await self.collecting.report(payload)

    @notice
    async def give_up(self, number: int, host: str, reason: str) -> None:
        """A process cannot report its part of a snapshot: without it the snapshot is worth nothing."""
        await self.course.opened.wait()
        if self.orders.has_driver:  # else of a system that has ended, in a watch that goes on
            self.collecting.abort_one(number, f"{host} could not report: {reason}")

    async def trace(self, shipped: bytes) -> None:
        """Rows of the trace that came with no report; answers when the analyst has them."""
        await self.handing.analyst.add_trace.remote([shipped])

    async def rest_of_trace(self) -> tuple[bytes, ...]:
        """What came with reports and was not handed on."""
        return self.collecting.take_traces()

    async def handed_over(self, snapshot_id: str) -> None:
        """Answers when the analyst has this snapshot, if it is on its way there; what comes later is not waited for."""
        await self.collecting.handed_over(snapshot_id)

    # ---- hosts, names and channels -----------------------------------------------------------------------------------

    async def commands(self, obeyed: int) -> list[DriverCommand]:
        """What the driver must do, behind the first `obeyed`, which are forgotten; waits for it."""
        return await self.orders.commands(obeyed)

    async def register(self, host: str, actor: list[Any], config: Any = None, options: Any = None) -> None:
        """A host joins; it is asked for every snapshot that is pending. `options`: what Ray was asked for it.

        A host whose config is not known is not replaced when it dies.
        """
        await self.course.opened.wait()
        await self.hosts.joined(host, actor[0], config, options)

    @notice
    async def replaced(self, host: str, incarnation: int, actor: list[Any]) -> None:
        """The driver has started another process in the place of one that was gone."""
        await self.course.opened.wait()
        self.hosts.replaced(host, incarnation, actor[0])

    async def actor_of(self, host: str) -> list[Any]:
        """The Ray actor of a host, wrapped so that it travels as a handle."""
        await self.course.opened.wait()
        return [await self.hosts.actor_of(host)]

    async def may_be_claimed_again(self, names: list[str]) -> None:
        """Machines that are restored from a checkpoint: the program may spawn each once, and gets what was restored."""
        self.directory.unclaimed.update(names)

    async def claim(
        self,
        class_name: str,
        count: int,
        names: list[str] | None,
        hosts: list[str],
        role: str | None = None,
        generation: int = 0,
        is_driver: bool = False,
    ) -> list[str]:
        """Take `count` names (made from the class's name if none are given), one per host named; all or none.

        `generation`: of the process that asks; raises `RolledBackError` if it is of the past.
        """
        await self.course.opened.wait()
        self.recovery.check(generation)
        found = self.directory.claim(class_name, count, names, hosts, role, is_driver=is_driver)
        await self.course.notify()
        return found

    async def locate(self, names: list[str], timeout: float) -> dict[str, str]:
        """Where those of these machines live that there are; if there is none, waits up to `timeout` seconds for one."""
        await self.course.opened.wait()
        return await self.directory.located(names, timeout, self.course)

    async def connect(self, source: str, target: str, port: str | None = None, site: str | None = None) -> None:
        """Declare the channel from `source` to `target` beforehand, and its port; `site`: the place in the program."""
        await self.course.opened.wait()
        for name in (source, target):
            if name not in self.directory.places:
                raise UnknownMachineError(
                    f"connect({source!r}, {target!r}): no machine {name!r} was spawned", machine=name
                )
        if self.directory.declare(source, target, port):
            await self.orders.to_host_of(target, AwaitInput(target, source))
        if source != DRIVER:
            await self.orders.to_host_of(source, OpenChannel(source, target))
        elif target != DRIVER:
            self.orders.to_driver(OpenDriverChannel(target, self.directory.places[target]))
            await self.course.notify()
        if port is not None and target != DRIVER:
            await self.orders.to_host_of(target, DeclarePort(target, port, source, site))

    @notice
    async def stopped(self, names: list[str], colour: int, generation: int) -> None:
        """Machines have stopped, on a host of this colour: all are told, and sending to them is an error from now on."""
        await self.course.opened.wait()
        if generation != self.recovery.generation:
            return
        self.orders.to_all(Stopped(tuple(names), colour))
        await self.course.notify()

    # ---- what is gone, and what fails --------------------------------------------------------------------------------

    @notice
    async def lost(self, host: str, reason: str, generation: int | None = None) -> None:
        """A process of the system is gone, as another of that generation has noticed: all hear of it."""
        await self.course.opened.wait()
        await self.hosts.lost(host, reason, generation)

    async def gone(self, host: str, reason: str, incarnation: int) -> None:
        """This life of a process has ended."""
        await self.hosts.gone(host, reason, incarnation)

    def give_up_all(self, reason: str) -> None:
        """The system is rolled back: snapshots that are pending never will be completed."""
        self.collecting.give_up_all(reason)

    async def fail(self, error: RaySnapshotError, generation: int | None = None) -> None:
        """Something stops the system, unless that is of a generation that has been left behind."""
        if generation is not None:
            await self.course.opened.wait()
        if self.course.failure is None and generation in (None, self.recovery.generation):
            self.course.failure = error
            self.orders.to_all(Fail(error))
            self.recovery.failed(error)
            self.collecting.abort_all(f"the system failed: {error}")
            await self.course.notify()

    # ---- rollback ----------------------------------------------------------------------------------------------------

    async def restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        """Roll the whole system back; answers when it goes on. See `Recovery.restore`."""
        await self.course.opened.wait()
        self.course.check()
        await self.recovery.restore(snapshot_id, claimed, classes)

    async def recoverable(self, snapshot_id: str, timeout: float) -> None:
        """Answers when the system could go back to this snapshot, the first one, by itself."""
        await self.course.opened.wait()
        await self.recovery.recoverable(snapshot_id, timeout)

    @notice
    async def rolled(self, host: str, step: int, generation: int) -> None:
        """A host has done a step of a rollback."""
        await self.course.opened.wait()
        self.recovery.acknowledged(host, step, generation)

    async def secured(self, snapshot_id: str, number: int, generation: int, *, is_safe: bool) -> bool:
        """The driver has made sure that the system can go back to this snapshot, whichever process dies, or could not.

        Returns whether the system will go back to it."""
        await self.course.opened.wait()
        is_accepted = self.recovery.secured(snapshot_id, number, generation, is_safe=is_safe)
        await self.course.notify()
        return is_accepted

    async def sought(self, snapshot_id: str, is_held: bool) -> None:
        """The driver has a copy of what is to be restored, if it needs one, or could not get it."""
        await self.course.opened.wait()
        self.recovery.held[snapshot_id] = is_held
        await self.course.notify()

    async def is_certain(self, snapshot_id: str, seconds: float) -> bool:
        """Whether the system never goes back behind this snapshot by itself; waits up to `seconds` until that is
        known."""
        await self.course.opened.wait()
        with suppress(TimeoutError):  # shielded: the task that hands it over must not be cancelled
            async with asyncio.timeout(seconds):
                await asyncio.shield(self.collecting.handed_over(snapshot_id))
        base = self.recovery.base
        return snapshot_id in self.telling.certain or (base is not None and base.snapshot_id == snapshot_id)

    async def committed(self, snapshot_id: str) -> None:
        """Answers when a snapshot can be restored, also by another program, and all machines that want to know have
        been told.

        Raises if that will not be.
        """
        await self.course.opened.wait()
        await self.collecting.handed_over(snapshot_id)
        is_told = await self.telling.outcome(snapshot_id)
        if is_told is None:
            is_told = not self.config.recover  # without `recover`: no machine wants to know it
        if not is_told or not await self.handing.is_kept(snapshot_id, is_listed=True):
            self.course.check()
            raise RolledBackError(f"the system was rolled back behind snapshot {snapshot_id}", snapshot_id=snapshot_id)

    # ---- the system --------------------------------------------------------------------------------------------------

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        return {
            "system": self.config.system,
            "run_id": self.config.run_id,
            "hosts": len(self.directory.actors),
            "machines": len(self.directory.places),
            "snapshots": self.coordinator.last,
            "pending": len(self.coordinator.pending),
            "skipped": self.clock.skipped,
            **self.clock.about(),
            "generation": self.recovery.generation,
            "rolling": self.recovery.is_rolling or not self.course.opened.is_set(),
            "goes_back_to": None if self.recovery.base is None else self.recovery.base.snapshot_id,
            "failed": None if self.course.failure is None else str(self.course.failure),
        }

    async def glance(self, origin: str, place: int) -> dict[str, Any]:
        """What `ray-snapshot serve` shows: `about`, the snapshots that are being taken, and those judged behind `place`.

        `open`: `{"number", "started_at" (seconds), "reported", "lacking"}` each, how many parties have reported and have not.
        """
        is_closed = self.course.is_closing  # then the analyst may be gone, while the program still holds this actor
        found: dict[str, Any] = {"history": None, "origin": origin, "totals": Totals(), "last": None, "glances": []}
        if not is_closed:
            found = await self.handing.analyst.glances_after.remote(origin, place)
        about = {
            "is_closed": is_closed,
            "open": self.collecting.progress(),
        }
        return await self.about() | about | found

    async def write_history(self, seconds: float) -> None:
        """Answers when the history lists what was taken so far; raises what keeps it from being written."""
        await self.collecting.line.handed_over()
        if (trouble := await self.handing.analyst.drain.remote(seconds)) is not None:
            raise trouble

    async def roll_back(self, snapshot_id: str, seconds: float) -> None:
        """Roll the whole system back, for somebody who is not the program; answers when it goes on."""
        async with asyncio.timeout(seconds):
            await self.restore(snapshot_id, {}, {})

    async def watched(self) -> None:
        """Never answers: a process that waits for it hears at once that this one is gone."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """No more snapshots and no more long polls; hosts stop acting."""
        self.course.is_closing = True
        self.orders.driver_news.set()
        for actor in self.directory.actors.values():
            actor.close.remote()
        await self.course.notify()


ServiceActor = ray.remote(Service)
