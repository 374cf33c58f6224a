"""Snapshots: asking all parties to record, gathering what they report, and handing on what is complete, or given up."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ray.exceptions import ActorDiedError, RayActorError, RayError

from ray_snapshot.errors import (
    SnapshotAbortedError,
    UnknownMachineError,
    UnreachableMachineError,
)
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, listed
from ray_snapshot.protocol.choosing import BARRIERS, OBSERVER
from ray_snapshot.protocol.collector import Answer, HostReport
from ray_snapshot.protocol.commands import Abort, Allow, Close, Overdue, Request
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator, reachable
from ray_snapshot.protocol.recovery_line import Allowance
from ray_snapshot.runtime.collected import Collected, HostPayload, SnapshotHeader
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory
from ray_snapshot.runtime.service.handing_over import HandOver
from ray_snapshot.runtime.service.line import Line
from ray_snapshot.runtime.service.orders import Orders
from ray_snapshot.runtime.service.recovery import Recovery
from ray_snapshot.runtime.service.telling import Telling

PAST_S = 0.001
"""So long after one."""


@dataclass(slots=True)
class Collection:
    """A snapshot that is being collected."""

    header: SnapshotHeader
    timeout: float
    done: asyncio.Future[Any]
    is_hurried: bool = False
    """Half of the time is over: those that have not reported were told to record in the middle of an action."""
    is_driver_asked: bool = False
    unasked: list[str] = field(default_factory=list)
    """Hosts that the observers ask once they have recorded themselves."""
    payloads: list[HostPayload] = field(default_factory=list)

    @property
    def half_time(self) -> float:
        """When half of the time is over."""
        return self.header.started_at + self.timeout / 2

    def add(self, payload: HostPayload) -> None:
        """A part of it."""
        self.payloads.append(payload)
        self.header.spent(payload.counts.host, payload.cpu_s)
        if payload.listens:
            self.header.listeners.append(payload.counts.host)
        self.header.control_messages += 1 + (payload.markers if isinstance(payload.counts, HostReport) else 0)

    def complete(self, found: Any) -> None:
        """All is there: `found` is what the program gets that waits for the snapshot."""
        if not self.done.done():
            self.done.set_result(found)

    def give_up(self) -> None:
        """The header says why: the program that waits gets that as `SnapshotAbortedError`."""
        header = self.header
        error = SnapshotAbortedError(
            f"snapshot {header.snapshot_id} was given up: {header.abort_reason}",
            snapshot_id=header.snapshot_id,
            reason=header.abort_reason,
            machine=header.abort_machine,
            call_site=header.abort_call_site,
        )
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # looked at, even if nothing waits


def sections_of(payloads: list[HostPayload]) -> tuple[bytes, ...]:
    """What hosts keep for a restore."""
    return tuple(payload.checkpoint for payload in payloads if payload.checkpoint is not None)


class Others(Protocol):
    """Parties of a system that are no hosts: the processes of a watched app, if there is one."""

    async def prepare(self) -> Any:
        """Called just before a number is given out; what it returns `begun` gets. Raises `SnapshotAbortedError`."""

    def begun(self, header: SnapshotHeader, prepared: Any) -> None:
        """A snapshot has begun: ask them to record."""

    def hurry(self, number: int, awaited: set[str]) -> None:
        """Half of the time is over: these are to record in the middle of an action."""

    def over(self, number: int, *, is_complete: bool) -> None:
        """A snapshot is complete, or given up."""

    def found(self, header: SnapshotHeader, completed: CompletedSnapshot, payloads: list[HostPayload]) -> Any:
        """All that the snapshot is put together from; `payloads`: of the hosts and their driver."""

    async def settled(self, collected: Any) -> Any:
        """The same, with what can be told only when everybody has recorded; called more than once."""

    async def given(self, collected: Any) -> None:
        """The analyst has a complete snapshot."""

    def in_words(self, text: str) -> str:
        """A text with names for people in place of those that processes have."""


class NoOthers:
    """There are hosts only."""

    async def prepare(self) -> None:
        """Nothing is to be prepared."""

    def begun(self, header: SnapshotHeader, prepared: Any) -> None:
        """Nothing else is asked."""

    def hurry(self, number: int, awaited: set[str]) -> None:
        """Nothing else is told."""

    def over(self, number: int, *, is_complete: bool) -> None:
        """Nothing else is told."""

    def found(self, header: SnapshotHeader, completed: CompletedSnapshot, payloads: list[HostPayload]) -> Collected:  # noqa: ARG002 - counts have done their work
        """What the hosts have reported."""
        return Collected(header, [payload.part for payload in payloads], checkpoints=sections_of(payloads))

    async def settled(self, collected: Any) -> Any:
        """It is all there."""
        return collected

    async def given(self, collected: Any) -> None:
        """Nothing else waits for it."""

    def in_words(self, text: str) -> str:
        """The text as it is."""
        return text


@dataclass(eq=False)
class Collecting:
    """Takes the snapshots of one service; `lost` is called when the analyst is gone for good, `others` are no hosts."""

    config: ServiceConfig
    course: Course
    directory: Directory
    orders: Orders
    coordinator: Coordinator
    allowance: Allowance
    handing: HandOver
    telling: Telling
    recovery: Recovery
    lost: Callable[[str, str], Awaitable[None]]
    others: Others
    took: Callable[[float], None] = lambda _: None
    """Told of each complete snapshot: the processor time of the party that spent most on it."""
    collections: dict[int, Collection] = field(default_factory=dict)
    """By number: the snapshots that are being collected."""
    looks_at: float = 0.0
    """When `reap` looks next, in seconds since 1970."""
    is_sooner: asyncio.Event = field(default_factory=asyncio.Event)
    traces: list[bytes] = field(default_factory=list)
    """Rows of the trace that have come with reports, not yet handed to the analyst."""

    def __post_init__(self) -> None:
        self.protocol = self.config.protocol
        self.line = Line(self._tell_analyst, self.course.ended)
        self.gave_up: Callable[[float], None] = self.took
        """The same of one that was given up."""
        self.orders.on_lazy, self.orders.asked = self._will_be_due, self._hear

    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:
        """Take a snapshot; returns it (None if not waited for). Raises what the docstring of `System.snapshot` says."""
        self.course.check()
        timeout = self.config.snapshot_timeout if timeout is None else timeout
        first = await self._hosts_of(initiators) if initiators else list(self.coordinator.hosts)
        self.course.check()
        number, prepared = await self._numbered(timeout, wait=wait)
        if number is None:
            return None
        if self.protocol in BARRIERS and DRIVER not in first:
            first = [*first, DRIVER]  # it is a source: nothing is sent to it
        collection = self.begin(number, initiators, timeout, DRIVER in first)
        if self.protocol == OBSERVER:
            collection.unasked = [host for host in self.coordinator.hosts if host not in first]
            collection.is_driver_asked = True
        self.others.begun(collection.header, prepared)
        await self._request(number, first)
        self.look(number)
        if not wait:
            collection.done.add_done_callback(lambda done: done.exception())
            return number
        return await self.others.settled(await collection.done)

    async def take_last(self, seconds: float) -> str:
        """Take snapshots until one can be restored; returns its id."""
        while True:
            header: SnapshotHeader = (await self.snapshot([], seconds)).header
            await self.handed_over(header.snapshot_id)
            if not self.config.checkpoint:
                return header.snapshot_id
            if await self.handing.is_kept(header.snapshot_id):
                while self.config.recover and self.recovery.line.number < header.number:
                    await self.course.change(1.0)
                return header.snapshot_id
            await asyncio.sleep(LIMITS.last_again_s)  # a machine waits inside an action, most likely

    def progress(self) -> list[dict[str, Any]]:
        """Of each snapshot that is being taken: how many parties have reported, and how many have not."""
        return [
            {
                "number": number,
                "started_at": found.header.started_at,
                "reported": pending.reported,
                "lacking": len(pending.lacking()),
            }
            for number, found in self.collections.items()
            if (pending := self.coordinator.pending.get(number)) is not None
        ]

    # ---- numbers, and which hosts record first -----------------------------------------------------------------------

    async def _numbered(self, timeout: float, *, wait: bool) -> tuple[int | None, Any]:
        """A number, as soon as fewer snapshots are pending than may be, and what the others have prepared.

        Raises past `timeout` seconds; None at once if it need not `wait`.
        """
        deadline = time.monotonic() + timeout
        most = LIMITS.unjudged_snapshots if wait else self.config.most_open
        while True:
            prepared = None if self._is_full(most) else await self.others.prepare()
            self.course.check()
            number = self.start(timeout, most)
            if number is not None or not wait:
                return number, prepared
            if not await self.course.change(deadline - time.monotonic()):
                raise SnapshotAbortedError(
                    f"{len(self.coordinator.pending)} snapshots of {self.config.system} were pending for {timeout:g} s, the"
                    " most there may be; raise most_open, or take them less often",
                    snapshot_id=None,
                    reason="too many snapshots are open",
                    machine=None,
                    call_site=None,
                )
            self.course.check()

    def _is_full(self, most: int) -> bool:
        """Whether so many wait for the analyst, or as many are pending as may be."""
        return len(self.line) >= most or len(self.coordinator.pending) >= self.coordinator.most_open

    def start(self, timeout: float, most_unjudged: int) -> int | None:
        """A number; None if too many snapshots are pending, or wait for the analyst (which takes a few at a time)."""
        has_number = self.coordinator.last < self.allowance.most
        if (more := self.allowance.wanted(self.coordinator.last)) is not None:
            self.orders.to_driver(Allow(more))
            self.allowance.asked(more, self.orders.driver_told)
        if len(self.line) >= most_unjudged or self.recovery.is_rolling or not has_number:
            return None
        return self.coordinator.start(time.time(), timeout)

    async def _request(self, number: int, hosts: list[str]) -> None:
        """Ask these to record."""
        for host in hosts:
            self.orders.to(host, Request(number))
        if number in self.collections:
            self.collections[number].header.control_messages += len(hosts)
        await self.course.notify()

    def begin(self, number: int, initiators: list[str], timeout: float, is_driver_asked: bool) -> Collection:
        config = self.config
        header = SnapshotHeader(number, config.system, config.run_id, self.protocol, list(initiators), time.time())
        header.is_kept, header.restored_from = config.checkpoint, self.recovery.restored_from
        header.generation = self.recovery.generation
        done = asyncio.get_running_loop().create_future()
        self.collections[number] = found = Collection(header, timeout, done, is_driver_asked=is_driver_asked)
        self._will_be_due(found.half_time)
        return found

    async def _hosts_of(self, initiators: list[str]) -> list[str]:
        """The hosts that record first; raises if markers from them would not reach every host.

        The driver is no target of any channel. If it is no initiator it is asked when all others have reported.
        """
        for name in initiators:
            if name not in self.directory.places:
                raise UnknownMachineError(f"initiator {name!r} is no machine of {self.config.system}", machine=name)
        first = list(dict.fromkeys(self.directory.places[name] for name in initiators))
        if DRIVER in first or self.protocol == OBSERVER:  # it has a link to every host; observers ask all
            return first
        edges = [
            edge
            for found in await asyncio.gather(*(a.channels.remote() for a in self.directory.actors.values()))
            for edge in found
        ]
        hosts = {
            (self.directory.places.get(source, source), self.directory.places.get(target, target))
            for source, target in edges
        }
        missed = set(self.directory.actors) - reachable(hosts, first)
        if missed:
            machines = sorted(name for name, host in self.directory.places.items() if host in missed)
            raise UnreachableMachineError(
                f"markers from {', '.join(initiators)} find no channel to {listed(machines)}: name more initiators, declare"
                " the channel with system.connect(...), or leave initiators out",
                machines=machines,
            )
        return first

    # ---- reports -----------------------------------------------------------------------------------------------------

    async def report(self, payload: HostPayload) -> None:
        """A host's part, or white messages that arrived after it."""
        number = payload.number
        if payload.trace is not None:  # whatever becomes of the snapshot
            self.traces.append(payload.trace)
        if not self.orders.has_driver:  # of a system that has ended, in a watch that goes on
            return
        answer = self.coordinator.report(number, payload.counts, () if payload.calls is None else payload.calls.reports)
        collection = self.collections.get(number)
        if collection is None or answer is not Answer.SUCCESS:
            return
        collection.add(payload)
        if not self.look(number):
            await self._ask_the_rest(number, collection)

    def _hear(self, host: str, number: int, answer: Awaitable[HostPayload | None]) -> None:
        """A host has been asked: take its report, if that comes as the answer."""
        self.course.background(self._heard(host, number, answer))

    async def _heard(self, host: str, number: int, answer: Awaitable[HostPayload | None]) -> None:
        try:
            found = await answer
        except ActorDiedError:  # others say so
            return
        except RayError as error:  # the report may have been in it, and does not come again
            self.abort_one(number, f"the answer of {host} has not come: {first_line(error)}")
            return
        if found is not None:
            await self.report(found)

    def look(self, number: int) -> bool:
        """Complete the snapshot if nothing of it is missing; returns whether it is over."""
        try:
            return self._look(number)
        except Exception as error:  # a fault of ours gives up all that are pending
            self.course.fault(error)
            return True

    def _look(self, number: int) -> bool:
        completed = self.coordinator.completed(number)
        if completed is None:
            return number not in self.collections
        collection = self.collections[number]
        header, payloads = collection.header, collection.payloads
        header.completed_at = time.time()
        self.took(max(header.cpu_s.values(), default=0.0))
        reported = {found.counts.host for found in payloads}
        header.uncovered = [f"host {host}" for host in self.coordinator.hosts if host not in reported]
        found = self.others.found(header, completed, payloads)
        self.orders.to_all_lazily(Close(number))
        self.others.over(number, is_complete=True)
        header.control_messages += len(self.coordinator.hosts)
        del self.collections[number]
        collection.complete(found)
        self.line.put(number, found)
        self._advance()
        self.course.background(self.course.notify())
        return True

    async def _ask_the_rest(self, number: int, collection: Collection) -> None:
        """Ask the hosts, or the driver, that were to be asked after this report, which has not completed the snapshot.

        The caller must do nothing after this: other reports come in meanwhile."""
        if collection.unasked:
            unasked, collection.unasked = collection.unasked, []
            await self._request(number, unasked)
        elif self.coordinator.pending[number].counts.awaited == {DRIVER} and not collection.is_driver_asked:
            collection.is_driver_asked = True
            await self._request(number, [DRIVER])

    def _advance(self) -> None:
        self.line.advance(min(self.coordinator.pending, default=None))

    async def _tell_analyst(self, found: Collected) -> None:
        try:
            found = await self.others.settled(found)
            await self.handing.give(replace(found, traces=self.take_traces()))
            await self.others.given(found)
            if (self.config.recover or found.header.listeners) and found.checkpoints:
                is_shown = bool(found.header.listeners)  # sinks publish it
                is_kept = await self.handing.is_kept(found.header.snapshot_id, is_listed=is_shown)
                self.telling.noted(found.header, await self.recovery.note(found.header, is_kept))
        except RayActorError as error:
            await self.lost("analyst", first_line(error))
        await self.course.notify()

    async def handed_over(self, snapshot_id: str) -> None:
        """Answers when the analyst has this snapshot, if it is on its way there; what comes later is not waited for."""
        if self.line.holds(snapshot_id):
            self.line.advance(None)
        await self.line.handed_over()

    def take_traces(self) -> tuple[bytes, ...]:
        """The parts of the trace that came with reports and were not handed on yet; they count as handed on now."""
        traces, self.traces = self.traces, []
        return tuple(traces)

    # ---- what is given up --------------------------------------------------------------------------------------------

    async def reap(self) -> None:
        """Hurry what is past half of its time, and give up what is past its deadline."""
        while True:
            await self._until_due()
            now = time.time()
            if self.orders.is_due(now):
                self.orders.to_all()
                await self.course.notify()
            for given_up in self.coordinator.expire(now):
                self.line.begin(self.abort(given_up))
            late = [
                number
                for number, found in self.collections.items()
                if number in self.coordinator.pending and not found.is_hurried and now > found.half_time
            ]
            for number in late:
                self.collections[number].is_hurried = True
                pending = self.coordinator.pending[number]
                for host in pending.counts.awaited:
                    self.orders.to(host, Overdue(number))
                self.others.hurry(number, pending.calls.awaited)
            if late:
                await self.course.notify()

    async def _until_due(self) -> None:
        """Wait until something is past its time, and not a moment longer if that is sooner than was known."""
        now, times = time.time(), [one.half_time for one in self.collections.values() if not one.is_hurried]
        if (deadline := self.coordinator.next_deadline()) is not None:
            times.append(deadline)
        if self.orders.lazily:
            times.append(self.orders.lazy_until)
        self.looks_at = max(now + LIMITS.deadline_look_s, min(times, default=math.inf) + PAST_S)
        self.is_sooner.clear()
        with suppress(TimeoutError):
            left = None if math.isinf(self.looks_at) else self.looks_at - now
            async with asyncio.timeout(left):
                await self.is_sooner.wait()

    def _will_be_due(self, at: float) -> None:
        """Something will be due then, in seconds since 1970."""
        if at < self.looks_at:
            self.is_sooner.set()

    async def abort(self, given_up: AbortedSnapshot) -> None:
        """Tell all hosts, the driver and the analyst that a snapshot will never be complete."""
        collection = self.collections.pop(given_up.number, None)
        if collection is None:
            return
        self._advance()
        self.orders.to_all(Abort(given_up.number))
        self.others.over(given_up.number, is_complete=False)
        await self.course.notify()
        header = collection.header
        header.completed_at = time.time()
        self.gave_up(max(header.cpu_s.values(), default=0.0))
        header.abort_reason = self.others.in_words(given_up.reason)
        for host in given_up.awaited[:3]:
            if header.abort_machine is None:
                await self._blame(header, host)
        collection.give_up()
        await self._tell_analyst(Collected(header, []))

    async def _blame(self, header: SnapshotHeader, host: str) -> None:
        """Ask a host that did not report what it is doing, for a second."""
        if host not in self.directory.actors or self.course.failure is not None:
            return
        try:
            async with asyncio.timeout(1.0):
                doing = await self.directory.actors[host].doing.remote()
        except (TimeoutError, RayError):
            machines = listed(self.directory.machines_on(host)) or "no machines"
            header.abort_reason = f"{header.abort_reason}: {host} with {machines} does not answer"
            return
        if doing is not None:
            machine, method, site, seconds = doing
            header.abort_machine, header.abort_call_site = machine, site
            header.abort_reason = f"{header.abort_reason}: {machine} has been in {method} at {site} for {seconds:.1f} s"

    def give_up_all(self, reason: str) -> None:
        """The system is rolled back: snapshots that are pending never will be completed."""
        self.orders.lazily.clear()
        self.telling.give_up()
        self.abort_all(reason, is_blamed=False)

    def abort_all(self, reason: str, *, is_blamed: bool = True) -> None:
        """Give up what is pending; `is_blamed`: those that have not reported are asked what they do."""
        for number in list(self.collections):
            self.abort_one(number, reason, is_blamed=is_blamed)

    def abort_one(self, number: int, reason: str, *, is_blamed: bool = False) -> None:
        """Give up one snapshot, if it is being collected; `is_blamed`: see `abort_all`."""
        if number in self.coordinator.pending:
            found = self.coordinator.abort(number, reason)
        elif number in self.collections:  # a fault of ours came behind its last report
            found = AbortedSnapshot(number, reason, ())
        else:
            return
        self.line.begin(self.abort(found if is_blamed else replace(found, awaited=())))
