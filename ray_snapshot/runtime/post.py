"""A process's part in a run: the host core, one lock around it, and the transport of batches over Ray.

Hosts (`host.HostPost`) and the driver (`driver.DriverPost`) are posts. Whoever sends puts its message on a link under the
lock; if fewer than `WINDOW` batches of that link are on their way, a batch leaves at once, else the messages gather until
one has been delivered: a lone message is not delayed, and a busy link sends a few large batches. Deliveries are awaited on
the process's event loop, never by a thread.

Order does not matter to the transport: batches are numbered, and the receiver puts them in order.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayError

from ray_snapshot.errors import RaySnapshotError, SettingError, UnknownMachineError
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.links import Batch
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import as_error, first_line
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.payload import ATOMS, isolate
from ray_snapshot.runtime.tracing import Tracer

LONGEST_TIMER_S = 1e9


class Sent(NamedTuple):
    """A message of the driver, or a timer, as it is remembered."""

    target: str
    kind: str
    method: str
    payload: Any
    due: float | None


class Created(NamedTuple):
    """A creation by the driver, as it is remembered."""

    child: str
    host: str
    payload: Any
    class_name: str


class StopAsked(NamedTuple):
    """A machine that the driver has stopped, as it is remembered."""

    machine: str


WINDOW = 2
"""Batches of one link that may be on their way; the rest gathers meanwhile."""


class Post(ABC):
    """What hosts and the driver have in common."""

    def __init__(self, run_id: str, host: str, service: Any, *, spawn_timeout: float) -> None:
        self.run_id = run_id
        self.host = host
        self.service = service
        self.spawn_timeout = spawn_timeout
        self.lock = threading.RLock()
        self.loop: asyncio.AbstractEventLoop
        self.core: HostCore
        self.generation = 0
        """Of the whole system: how often it has been rolled back, by everybody's count."""
        self.failure: RaySnapshotError | None = None
        self.is_closing = False
        self.is_rolling = False
        """Whether the system is being rolled back, and this post is still there to wait for it (the driver's)."""
        self.recovers = False
        """Whether the system goes on by itself when a process of it dies."""
        self.handles: dict[str, Any] = {}
        """Ray actor handles of the other hosts."""
        self.fetching: dict[str, list[Batch]] = {}
        """Batches for hosts whose actor handle is being asked for."""
        self.calls = waits.CallBook()
        self.call_count = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.shipping = 0
        """Parts of the trace that are on their way."""
        self.trace_turn = asyncio.Lock()
        """Of the parts of the trace, each is there before the next leaves: what a crash leaves has no holes."""
        self.journal: list[Any] | None = None
        """What the driver has sent since the last snapshot that is kept, where it must be sent again after a recovery."""
        self.tracer: Tracer | None = None
        """Logs every action, if the system is to be traced."""

    # ---- who acts -------------------------------------------------------------------------------------------------

    @abstractmethod
    def acting(self) -> Machine:
        """The machine on whose behalf this thread sends; raises `NotAMachineError`."""

    def hold_back(self, machine: Machine) -> None:  # noqa: B027 - not every post has something to do here
        """The machine has gone over a channel's bound: where it must wait at once, it waits here."""

    @property
    def is_retired(self) -> bool:
        """Whether the system has been rolled back, and this post with its machines belongs to the past."""
        return False

    # ---- sending --------------------------------------------------------------------------------------------------

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """See `MethodSender.send`."""
        machine = self.acting()
        channel = machine.outputs.get((handle._name, MAIL))
        for item in args:
            if type(item) not in ATOMS:
                payload = isolate(machine.name, handle._name, method, args, kwargs)
                break
        else:
            payload = isolate(machine.name, handle._name, method, args, kwargs) if kwargs else args
        with self.lock:
            if self.failure is not None or self.is_closing or self.is_rolling:
                self.check()
            if channel is None:
                self._learn(handle)
                channel = self.core.channel(machine, handle._name, MAIL)
            self.core.send_on(channel, method, payload, time.time())
            if self.tracer is not None:
                self.tracer.sent(channel, method, payload, self.core.colour_of(machine))
            if self.journal is not None:
                self.journal.append((self.core.colour_of(machine), Sent(channel.target, MAIL, method, payload, None)))
            link = channel.link
            if link is not None:
                if link.in_flight < WINDOW:
                    self.flush()
            elif channel.mailbox is None:
                self._look_up()
        if machine.over:
            self.hold_back(machine)

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """See `MethodSender.send_after`."""
        machine = self.acting()
        if not (isinstance(seconds, (int, float)) and 0 <= seconds <= LONGEST_TIMER_S):
            raise SettingError(
                f"send_after({seconds!r}, ...): the first argument is how many seconds from now, 0 to {LONGEST_TIMER_S:g}"
            )
        payload = isolate(machine.name, handle._name, method, args, kwargs)
        now = time.time()
        with self.lock:
            self.check()
            machine = self.acting()
            self._learn(handle)
            channel = self.core.set_timer(machine, handle._name, method, (now + seconds, payload), now, now + seconds)
            number, core = channel.sent, self.core
            if self.journal is not None:
                sent = Sent(channel.target, TIMER, method, payload, now + seconds)
                self.journal.append((core.colour_of(machine), sent))
            if self.tracer is not None:
                self.tracer.sent(channel, method, (now + seconds, payload), self.core.colour_of(machine), seconds)
        self.loop.call_soon_threadsafe(self.loop.call_later, seconds, self._fire, core, channel, number)

    def _fire(self, core: HostCore, channel: Any, number: int) -> None:
        try:
            with self.lock:
                if core is not self.core:  # of an older generation
                    return
                core.fire(channel, number)
                self._look_up()
                self.flush()
                self.wake()
        except Exception as error:  # a fault of ours, on the event loop: nobody else would hear of it
            self.fail(as_error(error))

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """See `MethodSender.remote`: the request travels like mail, the result is an ordinary ObjectRef."""
        machine = self.acting()
        payload = isolate(machine.name, handle._name, method, args, kwargs)
        self.check()
        host = self._place_of(handle)
        with self.lock:
            self.check()
            machine = self.acting()
            self.call_count += 1
            call_id = f"{self.host}/{self.call_count}"
            if host != self.host:
                self.core.places.setdefault(handle._name, host)
            channel = self.core.send(machine, handle._name, CALL, method, (call_id, payload), time.time())
            if self.tracer is not None:
                self.tracer.sent(channel, method, (call_id, payload), self.core.colour_of(machine))
            self.flush()
            self.wake()
            generation = self.generation
        ref = self.actor(host).reply.remote(call_id, handle._name, generation)
        self.calls.add(ref, handle._name, call_id)
        if machine.over:
            self.hold_back(machine)
        return ref

    def check(self) -> None:
        """Raise what stopped the system, if anything did."""
        if self.failure is not None:
            self.tell(self.failure)
            raise self.failure.with_traceback(None)  # or each time it is raised makes it longer

    def tell(self, error: RaySnapshotError) -> None:  # noqa: B027 - not every post has something to do here
        """This error is about to be raised to the program."""

    def wake(self) -> None:  # noqa: B027 - not every post has something to do here
        """There may be something to do on this host."""

    # ---- where machines live --------------------------------------------------------------------------------------

    def _learn(self, handle: MachineHandle) -> None:
        place = handle._host
        if place is not None and place != self.host and handle._name not in self.core.places:
            self.core.places[handle._name] = place

    def _look_up(self) -> None:
        names = self.core.take_unresolved()
        if names:
            self.loop.call_soon_threadsafe(self._start, self._resolve(names))

    async def _resolve(self, names: list[str]) -> None:
        """Ask the directory for names until all are there or the bound is over."""
        core = self.core
        places = await self.service.locate.remote(names, self.spawn_timeout)
        with self.lock:
            if self.is_closing or core is not self.core:
                return
            for name, host in places.items():
                self.core.resolve(name, host)
            self.flush()
            self.wake()
        missing = [name for name in names if name not in places]
        if missing:
            senders = {channel.owner.name for name in missing for channel in self.core.unresolved.get(name, ())}
            self.fail(
                UnknownMachineError(
                    f"no machine {missing[0]!r} was spawned within {self.spawn_timeout:g} s, but"
                    f" {', '.join(sorted(senders)[:3])} sent to it: check the name, or spawn it first",
                    machine=missing[0],
                )
            )

    def _place_of(self, handle: MachineHandle) -> str:
        """The host of a machine; waits up to `spawn_timeout` for it to be spawned."""
        name = handle._name
        with self.lock:
            if name in self.core.machines and self.host != "driver":
                return self.host
            place = self.core.places.get(name) or handle._host
        if place is None:
            place = self._locate(name)
        if place is None:
            raise UnknownMachineError(
                f"no machine {name!r} was spawned within {self.spawn_timeout:g} s (spawn_timeout); check the name",
                machine=name,
            )
        return str(place)

    def _locate(self, name: str) -> str | None:
        """Wait for a machine to be spawned; a tracked wait, so that other machines of this host can act meanwhile."""
        try:
            found: dict[str, str] = ray.get(self.service.locate.remote([name], self.spawn_timeout))
        except RayError as error:
            raise as_error(error) from None
        return found.get(name)

    def actor(self, host: str) -> Any:
        """The Ray actor of a host."""
        found = self.handles.get(host)
        if found is None:
            found = self.handles[host] = waits.answer_of(self.service.actor_of.remote(host))[0]
        return found

    # ---- transport ------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Carry out what may be carried now; called under the lock."""
        if self.is_retired:
            return
        for target, batch in self.core.take_batches(WINDOW):
            self._carry(target, batch)

    def _carry(self, target: str, batch: Batch) -> None:
        actor = self.handles.get(target)
        if actor is None:
            waiting = self.fetching.setdefault(target, [])
            waiting.append(batch)
            if len(waiting) == 1:
                self.loop.call_soon_threadsafe(self._start, self._fetch(target))
            return
        ref = actor.deliver.remote(pickle.dumps(batch, protocol=5), self.generation)
        self.loop.call_soon_threadsafe(self._start, self._delivered(ref, target, self.core, self.generation))

    async def _fetch(self, target: str) -> None:
        core = self.core
        (actor,) = await self.service.actor_of.remote(target)
        with self.lock:
            if core is not self.core:
                return
            self.handles[target] = actor
            for batch in self.fetching.pop(target, ()):
                self._carry(target, batch)

    def _start(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self.recovers and isinstance(error, RayActorError):  # whose death it is, others see; all are rolled back
            return
        self.fail(as_error(error))

    async def _delivered(self, ref: Any, target: str, core: HostCore, generation: int) -> None:
        try:
            acknowledgements = await ref
        except RayActorError as error:
            await self.service.lost.remote(target, first_line(error), generation)
            return
        with self.lock:
            if core is not self.core:  # this batch was of an older generation
                return
            self.core.outputs[target].in_flight -= 1
            for index, accepted in acknowledgements or ():
                self.core.acknowledge(target, index, accepted)
            self.flush()
            if acknowledgements:
                self.wake()

    # ---- the trace ------------------------------------------------------------------------------------------------

    def write_out_trace(self) -> None:
        """Ship what is over of a full trace, and wait for it, so that it never grows faster than it is written.

        Called between actions, never on the event loop, without the lock: whoever acts waits for what it has done.
        """
        if self.tracer is None or not self.tracer.is_full or self.is_closing:
            return
        with self.lock:
            self.shipping += 1
        try:
            asyncio.run_coroutine_threadsafe(self._write_out(self.tracer), self.loop).result()
        except RayError as error:
            self.fail(as_error(error))
        except CancelledError:  # the process leaves the run
            pass
        finally:
            with self.lock:
                self.shipping -= 1

    async def _write_out(self, tracer: Tracer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)  # to be cancelled at the end
        try:
            async with self.trace_turn:
                with self.lock:
                    entries = tracer.take()
                shipped = await self.loop.run_in_executor(None, tracer.shipped, entries)
                if shipped is not None:
                    await self.service.trace.remote(shipped)
        finally:
            self.tasks.discard(task)

    def rest_of_trace(self) -> bytes | None:
        """Every action that was not shipped, those that are not over included; the last of this process's trace."""
        if self.tracer is None:
            return None
        with self.lock:
            return self.tracer.shipped(self.tracer.take(everything=True))

    # ---- failure --------------------------------------------------------------------------------------------------

    def fail(self, error: RaySnapshotError) -> None:
        """Stop the whole system, with this reason."""
        if self.failure is None and not self.is_closing:
            self.stop_with(error)
            self.service.fail.remote(error, self.generation)

    def stop_with(self, error: RaySnapshotError) -> None:
        """Something has stopped the system: nothing is sent or accepted any more."""
        self.failure = self.failure or error
        self.wake()
