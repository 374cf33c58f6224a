"""The service of a system: one asynchronous Ray actor that coordinates and collects, and knows where machines live.

Numbers, deadlines and completeness are `ray_snapshot.protocol`'s; this file carries its effects out: asks hosts to record,
gathers their payloads, and hands what is complete to the analyst and to whoever asked; these put the snapshot together, for
here it would keep the reports of others waiting. The driver cannot be called: what it must know waits in a log that it polls.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from ray_snapshot.errors import (
    DuplicateMachineError,
    HostDiedError,
    RaySnapshotError,
    RolledBackError,
    SnapshotAbortedError,
    SystemNotRunningError,
    UnknownMachineError,
    UnreachableMachineError,
)
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import BARRIERS, OBSERVER
from ray_snapshot.protocol.collector import AbortedSnapshot, Answer, HostReport
from ray_snapshot.protocol.coordinator import Coordinator, reachable, reached
from ray_snapshot.runtime.assembly import Collected, SnapshotHeader
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.handing_over import HandOver
from ray_snapshot.runtime.memory import BLOCK, Allowance, Recollection
from ray_snapshot.runtime.recovery import Recovery
from ray_snapshot.runtime.report import HostPayload
from ray_snapshot.runtime.telling import Telling

POLL_S = 10.0
"""How long an unanswered long poll is held."""

MOST_UNJUDGED = 100
"""Snapshots that somebody asks for are taken however slow the detectors are, until so many wait for them: a bound of memory."""

LAST_S = 0.1
"""How soon a last snapshot is taken once more if it cannot be restored."""

LAZY_S = 1.0
"""How long a host may go without hearing that a snapshot is complete, which only frees memory."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service is told at its birth."""

    system: str
    run_id: str
    protocol: str
    most_open: int
    snapshot_timeout: float
    checkpoint: bool = False
    recover: bool = False
    most_failures: int = 5
    failures_within: float = 60.0
    start_timeout: float = 120.0


@dataclass(slots=True)
class Collection:
    """A snapshot that is being collected."""

    header: SnapshotHeader
    timeout: float
    done: asyncio.Future[Any]
    is_driver_asked: bool
    unasked: list[str] = field(default_factory=list)
    """Hosts that the observers ask once they have recorded themselves."""
    is_hurried: bool = False
    """Whether half of the time is over, and hosts have been told to record in the middle of an action."""
    payloads: list[HostPayload] = field(default_factory=list)

    @property
    def half_time(self) -> float:
        """When half of the time is over."""
        return self.header.started_at + self.timeout / 2


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
        self.sources: set[str] = set()
        """Machines whose role says that barriers are injected there, whatever is connected to them."""
        self.forward: dict[str, set[str]] = {}
        """Declared channels that close no cycle among themselves: barriers align on them. Targets by source."""
        self.collections: dict[int, Collection] = {}
        self.driver_log: list[tuple[Any, ...]] = []
        """What the driver has not obeyed yet."""
        self.driver_obeyed = 0
        self.changed = asyncio.Condition()
        self.failure: RaySnapshotError | None = None
        self.clock: asyncio.Task[None] | None = None
        self.skipped = 0
        self.completed: deque[int] = deque(maxlen=10_000)
        """The numbers of the latest snapshots that were completed."""
        self.lazily: dict[str, list[tuple[Any, ...]]] = {}
        """Per host: what it need not know at once, told with the next command, or within `LAZY_S`."""
        self.lazy_until = 0.0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.handing_over: set[asyncio.Task[Any]] = set()
        """Snapshots on their way to the analyst."""
        self.in_line: dict[int, Collected] = {}
        """Complete snapshots, by number, that wait for those with lower numbers that may still be completed."""
        self.traces: list[bytes] = []
        """Rows of the trace that have come with reports, not yet handed to the analyst."""
        self.telling = Telling(self)
        self.handing = HandOver(analyst, is_again=config.recover)
        self.life = 0
        self.opened = asyncio.Event()
        """Not before the driver has said which life of the service this is, where it may have several."""
        self.allowance = Allowance(is_bounded=config.recover)
        self.is_closing = False
        self.declared: list[tuple[str, str, str | None]] = []
        """(source, target, port) of every channel declared, in order."""
        self.awaited: list[tuple[str, str]] = []
        """(target, source) of the declared channels that barriers align on."""
        self.unclaimed: set[str] = set()
        """Names that are restored, and that the program has not spawned yet."""
        self.recovery = Recovery(self)
        self._background(self._reap())
        if not config.recover:
            self.opened.set()
            self._background(self._watch(analyst, "analyst"))

    # ---- the life of the service ----------------------------------------------------------------------------------

    async def open(self, analyst: list[Any]) -> None:
        """The first life begins; `analyst`: wrapped (as an argument of its constructor Ray would not keep it for the next)."""
        self._open(analyst)

    async def reopen(self, found: Recollection) -> int:
        """A later life begins: the whole system goes back to the last snapshot that the driver knows to be kept.

        Returns which life this is: an earlier one if the driver has heard that the service died, and it has not.
        """
        if self.opened.is_set():
            return self.life
        self.life = found.life
        self.coordinator.last = found.numbers
        self.allowance.most = found.numbers + BLOCK
        self.actors = {host: wrapped[0] for host, wrapped in found.actors.items()}
        self.sources.update(found.sources)
        self.unclaimed.update(found.unclaimed)
        for host, actor in self.actors.items():
            self.coordinator.register(host)
            self._background(self._watch(actor, host, found.incarnations.get(host, 0)))
        for source, target, port in found.declared:
            self._declare(source, target, port)
        if found.every is not None:
            await self.start_clock(found.every)
        self.recovery.resume(found)
        self._open(found.analyst)
        return self.life

    def _open(self, analyst: list[Any]) -> None:
        self.analyst = self.handing.analyst = analyst[0]
        self.opened.set()
        if self.config.recover:
            self._background(self.handing.begin())
            self._background(self.handing.attend())

    # ---- hosts and names ------------------------------------------------------------------------------------------

    async def may_be_claimed_again(self, names: list[str]) -> None:
        """Machines that are restored from a checkpoint: the program may spawn each once, and gets what was restored."""
        self.unclaimed.update(names)

    async def register(self, host: str, actor: list[Any], config: Any = None, options: Any = None) -> None:
        """A host joins; it is asked for every snapshot that is pending. `options`: what Ray was asked for it.

        A host whose config is not known is not replaced when it dies.
        """
        await self.opened.wait()
        self.actors[host] = actor[0]
        self.recovery.joined(host, config, options)
        self._tell(host, ("welcome", self.coordinator.register(host), self.coordinator.last))
        if self.failure is not None:
            self._tell(host, ("failed", self.failure))
        self._background(self._watch(actor[0], host))
        await self._notify()

    async def replaced(self, host: str, incarnation: int, actor: list[Any]) -> None:
        """The driver has started another process in the place of one that was gone."""
        await self.opened.wait()
        self.actors[host] = actor[0]
        self._background(self._watch(actor[0], host, incarnation))
        self.recovery.replaced(host, incarnation)

    async def actor_of(self, host: str) -> list[Any]:
        """The Ray actor of a host, wrapped so that it travels as a handle; names may be known before their host is."""
        await self.opened.wait()
        deadline = time.monotonic() + POLL_S
        while host not in self.actors:
            if not await self._change(deadline - time.monotonic()):
                raise HostDiedError(f"{host} of system {self.config.system} did not come up", host=host, machines=[])
        return [self.actors[host]]

    async def _watch(self, actor: Any, host: str, incarnation: int = 0) -> None:
        try:
            await actor.watched.remote()
        except RayActorError as error:
            await self.gone(host, first_line(error), incarnation)

    async def lost(self, host: str, reason: str, generation: int | None = None) -> None:
        """A process of the system is gone, as somebody of that generation has noticed: everybody hears of it."""
        await self.opened.wait()
        if generation is None or generation == self.recovery.generation:
            await self.gone(host, reason, self.recovery.incarnation(host))

    async def gone(self, host: str, reason: str, incarnation: int) -> None:
        """This life of a process has ended: the system is rolled back, if it may be, or else fails."""
        if self.is_closing or self.failure is not None:
            return
        error = self.lost_host(host, reason)
        if not self.recovery.lost(host, incarnation, error):
            await self.fail(error)

    def lost_host(self, host: str, reason: str) -> HostDiedError:
        """The error that names a host that is gone, and what it carried."""
        machines = self._machines_on(host)
        what = f"{host} with {_listed(machines)}" if machines else f"the {host}" if host == "analyst" else host
        return HostDiedError(f"{what} of system {self.config.system} is gone: {reason}", host=host, machines=machines)

    def _machines_on(self, host: str) -> list[str]:
        return [name for name, place in self.places.items() if place == host]

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

        `generation`: of whoever asks; raises `RolledBackError` if it is of the past.
        """
        await self.opened.wait()
        self.recovery.check(generation)
        again = self.unclaimed if is_driver else set()
        if names is None:
            names = []
            while len(names) < count:
                name = f"{class_name}-{self.counters.get(class_name, 0)}"
                self.counters[class_name] = self.counters.get(class_name, 0) + 1
                if name not in self.places or name in again:
                    names.append(name)
        taken = next((name for name in names if name in self.places and name not in again), None)
        if taken is not None or len(set(names)) < len(names):
            taken = taken or next(name for name in names if names.count(name) > 1)
            raise DuplicateMachineError(
                f"a machine {taken!r} already exists in {self.config.system}; names are unique", machine=taken
            )
        self.places.update((n, host) for n, host in zip(names, hosts, strict=True) if n not in self.places)
        self.unclaimed.difference_update(names)
        self.sources.update(names if role == "source" else ())
        await self._notify()
        return names

    async def locate(self, names: list[str], timeout: float) -> dict[str, str]:
        """Where machines live; waits up to `timeout` seconds for those that do not exist yet, and leaves out the rest.

        Raises what stopped the system, rather than wait for what will never be spawned.
        """
        await self.opened.wait()
        deadline = time.monotonic() + timeout
        while not all(name in self.places for name in names) and not self.is_closing:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            left = deadline - time.monotonic()
            if left <= 0 or not await self._change(left):
                break
        return {name: self.places[name] for name in names if name in self.places}

    async def stopped(self, names: list[str], colour: int, generation: int) -> None:
        """Machines have stopped, on a host of this colour: everybody is told, and sending to them is an error from now on."""
        await self.opened.wait()
        if generation != self.recovery.generation:
            return
        self._broadcast(("stopped", names, colour))
        await self._notify()

    async def connect(self, source: str, target: str, port: str | None = None, site: str | None = None) -> None:
        """Declare the channel from `source` to `target` beforehand, and that it serves that port; `site`: who says so."""
        await self.opened.wait()
        for name in (source, target):
            if name not in self.places:
                raise UnknownMachineError(
                    f"connect({source!r}, {target!r}): no machine {name!r} was spawned", machine=name
                )
        if self._declare(source, target, port):
            await self._control(target, ("await", target, source))
        if source != DRIVER:
            await self._control(source, ("connect", source, target))
        elif target != DRIVER:
            self._tell(DRIVER, ("connect", target, self.places[target]))
            await self._notify()
        if port is not None and target != DRIVER:
            await self._control(target, ("port", target, port, source, site))

    def _declare(self, source: str, target: str, port: str | None) -> bool:
        """Note a declared channel; whether barriers align on it."""
        self.declared.append((source, target, port))
        aligns = self.config.protocol in BARRIERS and self._is_forward(source, target) and target != DRIVER
        if aligns:
            self.awaited.append((target, source))
        return aligns

    async def _control(self, machine: str, command: tuple[Any, ...]) -> None:
        await self.actors[self.places[machine]].control.remote([command], self.recovery.generation)

    def _is_forward(self, source: str, target: str) -> bool:
        """Whether barriers align on this declared channel: it closes no cycle, and leads to no source."""
        if target in self.sources or source in reached(self.forward, [target]):
            return False
        self.forward.setdefault(source, set()).add(target)
        return True

    # ---- snapshots ------------------------------------------------------------------------------------------------

    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:
        """Take a snapshot; returns it (None if not waited for). Raises what the docstring of `System.snapshot` says."""
        await self.opened.wait()
        self._check()
        timeout = self.config.snapshot_timeout if timeout is None else timeout
        first = await self._hosts_of(initiators) if initiators else list(self.coordinator.hosts)
        self._check()
        number = await self._slot(timeout) if wait else self._start(timeout)
        if number is None:
            return None
        if self.config.protocol in BARRIERS and DRIVER not in first:
            first = [*first, DRIVER]  # it is a source: nothing is sent to it
        collection = self._begin(number, initiators, timeout, DRIVER in first)
        if self.config.protocol == OBSERVER:
            collection.unasked = [host for host in self.coordinator.hosts if host not in first]
            collection.is_driver_asked = True
        await self._request(number, first)
        if not wait:
            collection.done.add_done_callback(lambda done: done.exception())
            return number
        return await collection.done

    async def last_snapshot(self, seconds: float) -> None:
        """A process is about to leave: answers when a snapshot has been taken that can be restored, or after so long."""
        with suppress(TimeoutError, RaySnapshotError):
            await asyncio.wait_for(self._take_last(seconds), seconds)

    async def _take_last(self, seconds: float) -> None:
        while True:
            header = (await self.snapshot([], seconds)).header
            await self.handed_over(header.snapshot_id)
            if not self.config.checkpoint:
                return
            if await self.handing.is_kept(header.snapshot_id):
                while self.config.recover and self.recovery.base_number < header.number:
                    await self._change(1.0)
                return
            await asyncio.sleep(LAST_S)  # somebody waits inside an action, most likely

    async def _slot(self, timeout: float) -> int:
        """A number, as soon as fewer snapshots are pending than may be; raises past `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while (number := self._start(timeout, MOST_UNJUDGED)) is None:
            if not await self._change(deadline - time.monotonic()):
                raise SnapshotAbortedError(
                    f"{len(self.coordinator.pending)} snapshots of {self.config.system} were pending for {timeout:g} s, the"
                    " most there may be; raise most_open, or take them less often",
                    snapshot_id=None,
                    reason="too many snapshots are open",
                    machine=None,
                    call_site=None,
                )
            self._check()
        return number

    def _start(self, timeout: float, most_unjudged: int | None = None) -> int | None:
        """A number; None if too many snapshots are pending, or not evaluated yet (the analyst takes a few at a time).

        `most_unjudged`: how many may wait for the analyst; by default (of the clock) `most_open`.
        """
        most = self.config.most_open if most_unjudged is None else most_unjudged
        has_number = self.coordinator.last < self.allowance.most
        if (more := self.allowance.wanted(self.coordinator.last)) is not None:
            self._tell(DRIVER, ("numbers", more))
            self.allowance.asked(more, self.driver_obeyed + len(self.driver_log))
        if len(self.handing_over) + len(self.in_line) >= most or self.recovery.is_rolling or not has_number:
            return None
        return self.coordinator.start(time.time(), timeout)

    async def begin_snapshot(self) -> int | None:
        """Start a snapshot without waiting for it; its number, or None if there can be none now."""
        try:
            number: int | None = await self.snapshot([], None, wait=False)
        except RaySnapshotError:  # the system has failed or was closed, and says so elsewhere
            return None
        return number

    async def _request(self, number: int, hosts: list[str]) -> None:
        for host in hosts:
            self._tell(host, ("request", number))
        self.collections[number].header.control_messages += len(hosts)
        await self._notify()

    def _begin(self, number: int, initiators: list[str], timeout: float, is_driver_asked: bool) -> Collection:
        config = self.config
        header = SnapshotHeader(number, config.system, config.run_id, config.protocol, list(initiators), time.time())
        header.is_kept, header.restored_from = config.checkpoint, self.recovery.restored_from
        header.generation = self.recovery.generation
        done = asyncio.get_running_loop().create_future()
        self.collections[number] = found = Collection(header, timeout, done, is_driver_asked)
        return found

    async def _hosts_of(self, initiators: list[str]) -> list[str]:
        """The hosts that record first; raises if markers from them would not reach every host.

        The driver is no target of any channel. If it is no initiator it is asked when all others have reported.
        """
        for name in initiators:
            if name not in self.places:
                raise UnknownMachineError(f"initiator {name!r} is no machine of {self.config.system}", machine=name)
        first = list(dict.fromkeys(self.places[name] for name in initiators))
        if DRIVER in first or self.config.protocol == OBSERVER:  # it has a link to every host; observers ask all
            return first
        edges = [
            edge
            for found in await asyncio.gather(*(a.channels.remote() for a in self.actors.values()))
            for edge in found
        ]
        hosts = {(self.places.get(source, source), self.places.get(target, target)) for source, target in edges}
        missed = set(self.actors) - reachable(hosts, first)
        if missed:
            machines = sorted(name for name, host in self.places.items() if host in missed)
            raise UnreachableMachineError(
                f"markers from {', '.join(initiators)} find no channel to {_listed(machines)}: name more initiators, declare"
                " the channel with system.connect(...), or leave initiators out",
                machines=machines,
            )
        return first

    async def report(self, payload: HostPayload) -> None:
        """A host's part, or white messages that arrived after it."""
        number = payload.number
        if payload.trace is not None:  # whatever becomes of the snapshot
            self.traces.append(payload.trace)
        answer = self.coordinator.report(number, payload.counts)
        collection = self.collections.get(number)
        if collection is None or answer is not Answer.SUCCESS:
            return
        collection.payloads.append(payload)
        if payload.listens:
            collection.header.listeners.append(payload.counts.host)
        collection.header.control_messages += 1 + (payload.markers if isinstance(payload.counts, HostReport) else 0)
        if self.coordinator.completed(number) is None:
            await self._ask_the_rest(number, collection)
            return
        del self.collections[number]
        self.completed.append(number)
        self._tell_lazily(("close", number))
        collection.header.control_messages += len(self.coordinator.hosts)
        collection.header.completed_at = time.time()
        reported = {found.counts.host for found in collection.payloads}
        collection.header.uncovered = [f"host {host}" for host in self.coordinator.hosts if host not in reported]
        found = Collected(collection.header, [payload.part for payload in collection.payloads])
        if not collection.done.done():
            collection.done.set_result(found)
        sections = tuple(payload.checkpoint for payload in collection.payloads if payload.checkpoint is not None)
        self.in_line[number] = replace(found, checkpoints=sections)
        self._advance()
        await self._notify()

    async def _ask_the_rest(self, number: int, collection: Collection) -> None:
        """Whom a report that completes nothing is the sign to ask; nothing may follow this: others report meanwhile."""
        if collection.unasked:
            unasked, collection.unasked = collection.unasked, []
            await self._request(number, unasked)
        elif self.coordinator.pending[number].awaited == {DRIVER} and not collection.is_driver_asked:
            collection.is_driver_asked = True
            await self._request(number, [DRIVER])

    def _advance(self, *, is_last_call: bool = False) -> None:
        """Hand over what is complete in the order of numbers: verdicts are heard in that order.

        Whoever records a snapshot has recorded all earlier ones, so these will be complete in a moment, or be given up.
        """
        lowest = min(self.coordinator.pending, default=None)
        for number in sorted(self.in_line):
            if lowest is None or number < lowest or is_last_call:
                self._hand_over(self._tell_analyst(self.in_line.pop(number)))

    def _hand_over(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.handing_over.add(task)
        task.add_done_callback(self.handing_over.discard)

    async def _tell_analyst(self, found: Collected) -> None:
        try:
            await self.handing.give(replace(found, traces=self._take_traces()))
            if found.checkpoints and (self.config.recover or found.header.listeners):
                is_kept = await self.handing.is_kept(found.header.snapshot_id)
                self.telling.noted(found.header, await self.recovery.note(found.header, is_kept))
        except RayActorError as error:
            await self.lost("analyst", first_line(error))
        await self._notify()

    async def committed(self, snapshot_id: str) -> None:
        """Answers when a snapshot can be restored, and who wants to know it has been told; raises if that will not be."""
        await self.opened.wait()
        await self.handed_over(snapshot_id)
        is_told = await self.telling.outcome(snapshot_id)
        if is_told is None and not self.config.recover:  # nobody wants to know it
            is_told = await self.handing.is_kept(snapshot_id)
        if not is_told:
            self._check()
            raise RolledBackError(f"the system was rolled back behind snapshot {snapshot_id}", snapshot_id=snapshot_id)

    def _take_traces(self) -> tuple[bytes, ...]:
        traces, self.traces = self.traces, []
        return tuple(traces)

    async def trace(self, shipped: bytes) -> None:
        """Rows of the trace that came with no report; answers when the analyst has them."""
        await self.analyst.add_trace.remote([shipped])

    async def rest_of_trace(self) -> tuple[bytes, ...]:
        """What came with reports and was not handed on."""
        return self._take_traces()

    async def _reap(self) -> None:
        """Hurry what is past half of its time, and give up what is past its deadline."""
        while True:
            await asyncio.sleep(0.05)
            now = time.time()
            if self.lazily and now > self.lazy_until:
                self._broadcast()
                await self._notify()
            for given_up in self.coordinator.expire(now):
                self._hand_over(self._abort(given_up))
            late = [
                number
                for number, found in self.collections.items()
                if number in self.coordinator.pending and not found.is_hurried and now > found.half_time
            ]
            for number in late:
                self.collections[number].is_hurried = True
                for host in self.coordinator.pending[number].awaited:
                    self._tell(host, ("overdue", number))
            if late:
                await self._notify()

    async def _abort(self, given_up: AbortedSnapshot) -> None:
        collection = self.collections.pop(given_up.number)
        self._advance()
        self._broadcast(("abort", given_up.number))
        await self._notify()
        header = collection.header
        header.completed_at = time.time()
        header.abort_reason = given_up.reason
        for host in given_up.awaited[:3]:
            if header.abort_machine is None:
                await self._blame(header, host)
        error = SnapshotAbortedError(
            f"snapshot {header.snapshot_id} was given up: {header.abort_reason}",
            snapshot_id=header.snapshot_id,
            reason=header.abort_reason,
            machine=header.abort_machine,
            call_site=header.abort_call_site,
        )
        _give_up(collection, error)
        await self._tell_analyst(Collected(header, []))

    async def _blame(self, header: SnapshotHeader, host: str) -> None:
        """Ask a host that did not report what it is doing, for a second."""
        if host not in self.actors or self.failure is not None:
            return
        try:
            doing = await asyncio.wait_for(_wrapped(self.actors[host].doing.remote()), timeout=1.0)
        except (TimeoutError, RayError):
            header.abort_reason = (
                f"{header.abort_reason}: {host} with {_listed(self._machines_on(host))} does not answer"
            )
            return
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
        while True:
            due = max(due + every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if await self.begin_snapshot() is None:
                self.skipped += 1

    async def last_number(self) -> int:
        """The highest number given out."""
        await self.opened.wait()
        return self.coordinator.last

    async def completed_after(self, number: int) -> int:
        """How many snapshots with higher numbers have been completed (of the latest 10,000)."""
        return sum(found > number for found in self.completed)

    async def settle(self, timeout: float) -> RaySnapshotError | None:
        """Stop the clock, wait up to `timeout` seconds until no snapshot is pending, and until the analyst has them all."""
        if self.clock is not None:
            self.clock.cancel()
        deadline = time.monotonic() + timeout
        while (busy := [*(found.done for found in self.collections.values()), *self.handing_over]) and (
            left := deadline - time.monotonic()
        ) > 0:
            await asyncio.wait(busy, timeout=left)
        self._advance(is_last_call=True)
        if self.handing_over:
            await asyncio.wait(self.handing_over, timeout=1.0)
        return self.failure

    # ---- rollback -------------------------------------------------------------------------------------------------

    async def restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        """Roll the whole system back; answers when it goes on. See `Recovery.restore`."""
        await self.opened.wait()
        self._check()
        await self.recovery.restore(snapshot_id, claimed, classes)

    async def recoverable(self, snapshot_id: str, timeout: float) -> None:
        """Answers when the system could go back to this snapshot, the first one, by itself."""
        await self.opened.wait()
        await self.recovery.recoverable(snapshot_id, timeout)

    async def rolled(self, host: str, step: int, generation: int) -> None:
        """A host has done a step of a rollback."""
        await self.opened.wait()
        self.recovery.acknowledged(host, step, generation)

    async def secured(self, snapshot_id: str, number: int, generation: int, *, is_safe: bool) -> None:
        """The driver has made sure that the system can go back to this snapshot, whoever dies; or could not."""
        await self.opened.wait()
        self.recovery.secured(snapshot_id, number, generation, is_safe=is_safe)
        await self._notify()

    async def handed_over(self, snapshot_id: str) -> None:
        """Answers when the analyst has this snapshot, if it is on its way there."""
        if any(found.header.snapshot_id == snapshot_id for found in self.in_line.values()):
            self._advance(is_last_call=True)
        while self.handing_over:
            await asyncio.wait(self.handing_over)

    def give_up_all(self, reason: str) -> None:
        """The system is rolled back: snapshots that are pending never will be completed."""
        self.lazily.clear()
        self.telling.give_up()
        for number in list(self.coordinator.pending):
            self._hand_over(self._abort(replace(self.coordinator.abort(number, reason), awaited=())))

    # ---- everybody ------------------------------------------------------------------------------------------------

    async def commands(self, obeyed: int) -> list[tuple[Any, ...]]:
        """What the driver must do, behind the first `obeyed`, which are forgotten; waits for it."""
        del self.driver_log[: obeyed - self.driver_obeyed]
        self.driver_obeyed = obeyed
        self.allowance.obeyed(obeyed)
        deadline = time.monotonic() + POLL_S
        while not self.driver_log and not self.is_closing:
            if not await self._change(deadline - time.monotonic()):
                break
        return list(self.driver_log)

    async def fail(self, error: RaySnapshotError, generation: int | None = None) -> None:
        """Something stops the system, unless that is of a generation (of whoever says so) that has been left behind."""
        if generation is not None:
            await self.opened.wait()
        if self.failure is None and generation in (None, self.recovery.generation):
            self.failure = error
            self._broadcast(("failed", error))
            self.recovery.failed(error)
            for number in list(self.coordinator.pending):
                self._hand_over(self._abort(self.coordinator.abort(number, f"the system failed: {error}")))
            await self._notify()

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        return {
            "system": self.config.system,
            "run_id": self.config.run_id,
            "hosts": len(self.actors),
            "machines": len(self.places),
            "snapshots": self.coordinator.last,
            "pending": len(self.coordinator.pending),
            "skipped": self.skipped,
            "generation": self.recovery.generation,
            "rolling": self.recovery.is_rolling or not self.opened.is_set(),
            "goes_back_to": None if self.recovery.base is None else self.recovery.base.snapshot_id,
            "failed": None if self.failure is None else str(self.failure),
        }

    async def watched(self) -> None:
        """Never answers: who waits for it hears at once that this process is gone."""
        await asyncio.get_running_loop().create_future()

    async def analyst_of(self) -> list[Any]:
        """The system's analyst, wrapped."""
        return [self.analyst]

    async def close(self) -> None:
        """No more snapshots and no more long polls; hosts stop acting."""
        self.is_closing = True
        for actor in self.actors.values():
            actor.close.remote()
        await self._notify()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # or each time it is raised makes it longer
        if self.is_closing:
            raise SystemNotRunningError(f"system {self.config.system} was closed", system=self.config.system)

    def _tell(self, host: str, *commands: tuple[Any, ...]) -> None:
        commands = (*self.lazily.pop(host, ()), *commands)
        if host == DRIVER:
            self.driver_log.extend(commands)
        elif commands:
            self.actors[host].control.remote(list(commands), self.recovery.generation)

    def _tell_lazily(self, command: tuple[Any, ...]) -> None:
        """Tell everybody, but make no call for it."""
        if not self.lazily:
            self.lazy_until = time.time() + LAZY_S
        for host in (DRIVER, *self.actors):
            self.lazily.setdefault(host, []).append(command)

    def _broadcast(self, *commands: tuple[Any, ...]) -> None:
        for host in (DRIVER, *self.actors):
            self._tell(host, *commands)

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            fault = RaySnapshotError(f"the service of {self.config.system} failed: {type(error).__name__}: {error}")
            self._hand_over(self.fail(fault))

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


def _give_up(collection: Collection, error: RaySnapshotError) -> None:
    if not collection.done.done():
        collection.done.set_exception(error)
        collection.done.exception()  # somebody has looked at it, even if nobody waits


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "no machines"


async def _wrapped(ref: Any) -> Any:
    return await ref


ServiceActor = ray.remote(Service)
