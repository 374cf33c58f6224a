"""The driver program's part in a run: a machine named `driver`, in a process that nobody can call.

A thread of its own runs an event loop: it awaits deliveries, asks the coordinator for commands (a long poll) and records.
The driver's sends are its actions, so it is at a boundary whenever the lock is free. Its program state is its own: a
snapshot holds its channels, its status and what it waits for, but no state.

The program may have several threads. It is active as long as one that has sent something does not rest: in `wait_for`
(then it is passive), or in `ray.get` or at a full mailbox (then it is blocked).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, assert_never

from ray.exceptions import RayActorError

from ray_snapshot.errors import (
    HostDiedError,
    MailboxFullError,
    RaySnapshotError,
    RolledBackError,
    SettingError,
    SystemNotRunningError,
)
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.commands import (
    Abort,
    Allow,
    Close,
    DriverCommand,
    Fail,
    OpenDriverChannel,
    Overdue,
    Replace,
    Request,
    Roll,
    Secure,
    Seek,
    Stop,
    Stopped,
)
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.protocol.recovery_line import outside, sent_again
from ray_snapshot.protocol.rollback import (
    NO_GENERATION,
    Acknowledge,
    Asked,
    LoadFinished,
    LoadStates,
    RollbackHost,
    StartAccepting,
    StopAccepting,
)
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.attending import Attendant
from ray_snapshot.runtime.checkpointing import section_of
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.fitting import check_fits
from ray_snapshot.runtime.handles import POSTS, MachineHandle, forget_places
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.memory import Memory
from ray_snapshot.runtime.post import Created, Post, StopAsked
from ray_snapshot.runtime.report import BodyCopy, Facts, HostPayload, host_payload, late_payload
from ray_snapshot.runtime.restoring import Share, opened_share, refill, set_timers
from ray_snapshot.runtime.securing import Securing
from ray_snapshot.runtime.tracing import Tracer

CREDIT_S = 0.5
"""How often a driver that is held at a full mailbox looks whether something has stopped the system."""


def _check(handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise at once what is known not to fit: the driver knows the classes of the machines that it has spawned."""
    if handle._kind is not None:
        check_fits(handle._kind, handle._name, method, args, kwargs)


@dataclass(slots=True)
class Held:
    """A thread of the driver is held at full mailboxes."""

    targets: tuple[str, ...]
    since: float
    bound: int

    @property
    def short_form(self) -> tuple[str, int, tuple[str, ...]]:
        return "all", len(self.targets), self.targets

    def rows(self, alternative: int) -> list[dict[str, Any]]:
        common = {
            "alternative": alternative,
            "k": len(self.targets),
            "bound": self.bound,
            "waiting_since": int(self.since * 1e6),
        }
        return [{"on_machine": name, **common} for name in self.targets]


class DriverPost(Post):
    """See the module."""

    def __init__(
        self,
        run_id: str,
        service: Any,
        *,
        protocol: str,
        mailbox_bound: int,
        send_timeout: float,
        spawn_timeout: float,
        trace: str | None = None,
        checkpoint: bool = False,
        attendant: Attendant | None = None,
    ) -> None:
        super().__init__(run_id, DRIVER, service, spawn_timeout=spawn_timeout)
        self.send_timeout = send_timeout
        self.protocol, self.mailbox_bound, self.checkpoint = protocol, mailbox_bound, checkpoint
        self.rollback = RollbackHost()
        self.on_rollback: Callable[[Share], None] = lambda _: None
        """Told of every share that is loaded: which hosts there are now."""
        self.timers: list[tuple[Any, int, float]] = []
        self.stops: list[tuple[str, int]] = []
        """(machine, messages sent to it before that) of what is to be stopped once more when the system goes on."""
        self.attendant = attendant
        """Where the system goes on by itself when something dies."""
        self.recovers = attendant is not None
        if attendant is not None:
            self.journal = []
            self.securing = Securing(self, attendant)
        self.on_replaced: Callable[[str, Any], None] = lambda *_: None
        """Told of a host that takes the place of another."""
        self.is_dropping = False
        """Whether the system is to be restored when it starts: what is sent before belongs to no past that will be."""
        self.dropped = 0
        self._begin(born=None)
        self.reported: set[int] = set()
        self.tracer = None if trace is None else Tracer(run_id, DRIVER, trace)
        self.reports: deque[Any] = deque(maxlen=100)
        """Reports with a part of the trace, that may be on their way."""
        self.senders = {threading.get_ident()}
        """Threads that act for the driver: the one that opened the system, and whoever has sent something."""
        self.resting: dict[int, waits.TrackedWait | Held | None] = {}
        """Threads that wait; None: in `wait_for`."""
        self._told: set[str] = set()
        """Errors that the program has been told of: what it has caught is not raised again at the end."""
        self.credit = threading.Condition(self.lock)
        self.polling: set[str] = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-driver", daemon=True)
        POSTS[run_id] = self
        self.thread.start()

    def _begin(self, born: int | None) -> None:
        """A core of its own for each generation: nothing of an older one is in it."""
        self.core = core_for(
            self.protocol,
            DRIVER,
            born=born,
            barriers={"clock": time.monotonic},
            copy_body=self.copy_body,
            bound=self.mailbox_bound,
        )
        self.me = self.core.born(DRIVER, self)
        self.core.acting = None  # each of its sends is an action

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._start(self._obey_commands())
        if self.attendant is not None:
            self._start(self._attend(self.attendant))
        self.loop.run_forever()
        self.loop.close()

    def acting(self) -> Machine:
        thread = threading.get_ident()
        if thread not in self.senders:
            with self.lock:
                self.senders.add(thread)
        return self.me

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        _check(handle, method, args, kwargs)
        if self.is_dropping:
            self.dropped += 1
            return
        with self.lock:  # what is sent in one generation must not be numbered in the next
            if self.is_rolling:
                self.check()
            super().send(handle, method, args, kwargs)
        if self.tracer is not None:
            self.write_out_trace()

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        _check(handle, method, args, kwargs)
        if self.is_dropping:
            self.dropped += 1
            return
        super().send_after(seconds, handle, method, args, kwargs)

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _check(handle, method, args, kwargs)
        if self.is_dropping:
            raise SettingError(
                f"{handle._name}.{method}.remote(...) before start(), in a system that is being restored: its machines are not"
                " there yet; call behind start(), or `if not system.restored`"
            )
        return super().call(handle, method, args, kwargs)

    def check(self) -> None:
        super().check()
        if self.is_closing:
            raise SystemNotRunningError("the system was closed: send inside its `with` block", system=None)
        if self.is_rolling:
            self._await_the_others()

    def _await_the_others(self) -> None:
        """While the system is being rolled back the driver's program waits, where it sends."""
        if threading.current_thread() is self.thread:
            return
        deadline = time.monotonic() + self.send_timeout
        with self.lock:
            while self.is_rolling and not self.is_closing and self.failure is None:
                self.credit.wait(min(CREDIT_S, max(0.0, deadline - time.monotonic())))
                if self.is_rolling and time.monotonic() >= deadline:
                    raise RolledBackError(
                        f"the system has been rolled back for {self.send_timeout:g} s, and goes on being",
                        snapshot_id=None,
                    )
        self.check()

    def tell(self, error: RaySnapshotError) -> None:
        self._told.add(_key(error))

    def was_told(self, error: RaySnapshotError) -> bool:
        """Whether the program has met this error."""
        return _key(error) in self._told

    # ---- commands -------------------------------------------------------------------------------------------------

    async def _obey_commands(self) -> None:
        obeyed = 0
        while True:
            try:
                commands = await self.service.commands.remote(obeyed)
            except RayActorError as error:
                if await self._is_another_service(error):
                    obeyed = 0
                continue
            with self.lock:
                for command in commands:
                    self._obey(command)
                self._record()
            obeyed += len(commands)

    async def _is_another_service(self, error: RayActorError) -> bool:
        """Whether another service goes on in the place of one that died; raises `HostDiedError` if none does."""
        if self.attendant is None or self.is_closing or self.failure is not None:
            raise HostDiedError(f"the system's service is gone: {first_line(error)}", host="service", machines=[])
        try:
            return await self.attendant.service_again(error, self.lock)
        except RaySnapshotError as fault:
            raise self.attendant.fail(fault) from None

    async def _attend(self, attendant: Attendant) -> None:
        try:
            await attendant.attend_analyst()
        except Exception as error:
            raise attendant.fail(error) from None

    def _obey(self, command: DriverCommand) -> None:
        match command:
            case Request(number) | Overdue(number):
                self.core.request(number)
            case Close(number):
                self.core.close(number)
                self.reported.discard(number)
            case Abort(number):
                self.core.abort(number)
                self.reported.discard(number)
            case OpenDriverChannel(target, host):
                self.core.resolve(target, host)
                self.core.channel(self.me, target, MAIL)
                self.flush()
            case Stopped(names, colour):
                self.core.note(colour)
                self._record()
                self.core.learn_stopped(names)
                self.credit.notify_all()
            case Fail(error):
                self.stop_with(error)
            case Roll(asked, share):
                self._roll(asked, share)
            case Secure() | Seek() | Allow() | Replace():
                if self.attendant is not None:
                    self._attend_to(command, self.attendant.memory)
            case _:
                assert_never(command)

    def _attend_to(self, command: Secure | Seek | Allow | Replace, memory: Memory) -> None:
        """What the driver of a system that recovers must remember or do."""
        match command:
            case Secure(number, snapshot_id):
                self.securing.kept(number, snapshot_id)
            case Seek(number, snapshot_id):
                self.securing.seek(number, snapshot_id)
            case Allow(most):
                memory.numbers = most
            case Replace(host, incarnation):
                self._replace(memory, host, incarnation)
            case _:
                assert_never(command)

    def _replace(self, memory: Memory, host: str, incarnation: int) -> None:
        """Start another process in the place of one that is gone; under the lock."""
        from ray_snapshot.runtime.host_actor import HostActor

        config, options = memory.births[host]
        config = replace(config, incarnation=incarnation, generation=NO_GENERATION, open_at_birth=())
        actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self.service)
        memory.actors[host], memory.incarnations[host] = actor, incarnation
        self.on_replaced(host, actor)
        self.service.replaced.remote(host, incarnation, [actor])

    def _roll(self, asked: Asked, share: bytes | None) -> None:
        """A step of a rollback; under the lock."""
        for effect in self.rollback.step(asked):
            match effect:
                case StopAccepting():
                    self._leave_generation(asked.generation)
                case LoadStates():
                    self._load(opened_share(share))
                    (done,) = self.rollback.step(LoadFinished(asked.generation))
                    assert isinstance(done, Acknowledge)
                    self.service.rolled.remote(DRIVER, int(done.step), done.generation)
                case StartAccepting():
                    self._go_on()
                case Acknowledge(step, generation):
                    self.service.rolled.remote(DRIVER, int(step), generation)

    def _leave_generation(self, generation: int) -> None:
        self.is_rolling = True
        self.generation = generation
        self.calls.undo()
        self.fetching.clear()
        self.reported.clear()
        self._begin(born=None)

    def _load(self, share: Share) -> None:
        forget_places(self.run_id, share.aliases)
        if self.attendant is not None:
            known = self.attendant.memory.aliases
            known += [run for run in share.aliases if run not in known]
        self._begin(born=share.last)
        self.handles.update((host, wrapped[0]) for host, wrapped in share.actors.items())
        refill(self.core, share)
        self.timers = set_timers(self.core, share)
        if self.attendant is not None:
            self.attendant.memory.went_back(share.snapshot_id, share.number)
        self.stops = []
        self._send_again(share)
        self.core.learn_stopped(share.stopped)
        self.me.over.clear()  # nobody is inside a send
        self.on_rollback(share)

    def forget_before(self, number: int) -> None:
        """What was sent before snapshot `number` is in it, and need not be sent again.

        A stop is no message: it may have come to its host behind the snapshot. Whether it is in there the share says.
        """
        if self.journal is not None:
            self.journal = outside(self.journal, number, _is_stop)

    def _send_again(self, share: Share) -> None:
        """After a recovery: the program has gone on, so what it sent outside the cut is sent once more, in its order.

        After a restore that the program asked for nothing is: it knows.
        """
        if self.journal is None:
            return
        again, self.journal, now = sent_again(self.journal, share.again_from, _is_stop), [], time.time()
        for _, item in again:
            if isinstance(item, Created):
                self.core.create(DRIVER, item.child, item.host, item.payload, now)
                claim = (item.class_name, 1, [item.child], [item.host], None, self.generation, True)
                self.service.claim.remote(*claim)
            elif isinstance(item, StopAsked):
                if item.machine in share.stopped:
                    continue
                mail = self.me.outputs.get((item.machine, MAIL))
                self.stops.append((item.machine, 0 if mail is None else mail.sent))
            elif item.due is None:
                self.core.send(self.me, item.target, item.kind, item.method, item.payload, now)
            else:
                due = max(now, item.due)
                channel = self.core.set_timer(self.me, item.target, item.method, (due, item.payload), now, due)
                self.timers.append((channel, channel.sent, due - now))
            self.journal.append((self.core.colour_of(self.me), item))
        self.core.learn_stopped([name for name, _ in self.stops])

    def _go_on(self) -> None:
        self.is_rolling = False
        for channel, number, left in self.timers:
            self.loop.call_later(left, self._fire, self.core, channel, number)
        self.timers = []
        self._look_up()
        self.flush()
        for name, count in self.stops:
            self._start(self._stop_again(name, Stop(name, self.core.colour, count), self.generation))
        self.stops = []
        self.credit.notify_all()
        if self.attendant is not None and (base := self.attendant.memory.uncopied()) is not None:
            self._obey(Secure(base.number, base.snapshot_id))

    async def _stop_again(self, name: str, command: Stop, generation: int) -> None:
        """Stop a machine behind what was sent to it; if its host dies meanwhile this is done again."""
        places = await self.service.locate.remote([name], self.spawn_timeout)
        if name not in places:
            return  # who had spawned it has not done so again
        (actor,) = await self.service.actor_of.remote(places[name])
        await actor.control.remote([command], generation)

    def stopped(self, name: str, generation: int) -> bool:
        """A machine has been told to stop; False if the system was rolled back meanwhile, so that it must be told again."""
        with self.lock:
            if generation != self.generation:
                return False
            self.core.learn_stopped([name])
            if self.journal is not None:
                self.journal.append((self.core.colour_of(self.me), StopAsked(name)))
            return True

    def await_next(self, generation: int) -> None:
        """Wait until the system has left this generation; raises `RolledBackError` past `send_timeout`."""
        deadline = time.monotonic() + self.send_timeout
        with self.lock:
            while self.generation == generation and not self.is_closing and self.failure is None:
                if (left := deadline - time.monotonic()) <= 0:
                    raise RolledBackError(
                        f"the system is being rolled back, and was not within {self.send_timeout:g} s", snapshot_id=None
                    )
                self.credit.wait(min(CREDIT_S, left))
        self.check()

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        with self.lock:
            self.core.note(colour, self.me)
            self._record()

    def _record(self) -> None:
        if self.core.must_record or self.core.uncopied:
            self.core.boundary()
            while self.core.copy_next():
                pass
            self.flush()
        for number, recording in self.core.open.items():
            if number not in self.reported and recording.copies:
                self.reported.add(number)
                facts = Facts(time.time(), recording.marker_count)
                section = None
                if self.checkpoint:
                    section = section_of(DRIVER, recording, facts.recorded_at, {}, (), ())
                    facts = replace(facts, obstacles=section.obstacles)
                payload = host_payload(DRIVER, recording, facts)
                self._report(payload if section is None else replace(payload, checkpoint=section.dumps()))
        for recording in self.core.open.values():
            if recording.late:
                late, recording.late = recording.late, []
                self.service.report.remote(late_payload(DRIVER, recording, Facts(0.0, 0), late, ()))

    def _report(self, payload: HostPayload) -> None:
        if self.tracer is not None:
            payload = replace(payload, trace=self.tracer.shipped(self.tracer.take()))
        ref = self.service.report.remote(payload)
        if self.tracer is not None:
            self.reports.append(ref)

    def copy_body(self, machine: Machine) -> BodyCopy:  # noqa: ARG002 - there is only one
        """The driver has no state of its own in a snapshot."""
        found = BodyCopy("driver", "active", None)
        alive = {thread.ident for thread in threading.enumerate()}
        acting = [thread for thread in self.senders if thread in alive]
        if not all(thread in self.resting for thread in acting):
            return found
        blocking = [rest for rest in map(self.resting.get, acting) if rest is not None]
        found.status = "blocked" if blocking else "passive"
        for alternative, rest in enumerate(blocking):
            found.waits += rest.rows(alternative)
            site = getattr(rest, "call_site", None)
            found.calls.append({"method": "(the driver's program)", "holds_slot": True, "call_site": site})
        if len(blocking) == 1:
            found.short_wait = blocking[0].short_form
        calls = [rest.call_site for rest in blocking if isinstance(rest, waits.TrackedWait)]
        if calls and self.checkpoint:
            found.obstacle = f"it waits inside its script, at {calls[0]}"
        return found

    # ---- waits ----------------------------------------------------------------------------------------------------

    def begin_wait(self, wait: waits.TrackedWait) -> int | None:
        """This thread begins to wait; with a timeout, or for something foreign, it stays active."""
        if wait.may_act:
            return None
        thread = threading.get_ident()
        with self.lock:
            self.resting[thread] = wait
        HERE.is_waiting = True
        return thread

    def end_wait(self, thread: int | None) -> None:
        """The wait is over."""
        if thread is not None:
            HERE.is_waiting = False
            with self.lock:
                self.resting.pop(thread, None)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Inside `wait_for`: this thread sends nothing until something holds."""
        thread = threading.get_ident()
        with self.lock:
            self.resting[thread] = None
        try:
            yield
        finally:
            with self.lock:
                self.resting.pop(thread, None)

    # ---- full mailboxes -------------------------------------------------------------------------------------------

    def hold_back(self, machine: Machine) -> None:
        """Wait until every channel is under its bound again; raises `MailboxFullError` past the bound in time."""
        deadline = time.monotonic() + self.send_timeout
        thread, since = threading.get_ident(), time.time()
        with self.lock:
            try:
                while machine.over and machine is self.me and (left := deadline - time.monotonic()) > 0:
                    self.check()
                    self.resting[thread] = Held(
                        tuple(dict.fromkeys(channel.target for channel in machine.over)), since, self.core.bound
                    )
                    self._poll_credit(machine)
                    self.credit.wait(min(left, CREDIT_S))
                if machine.over and machine is self.me:
                    raise self._held_too_long(machine)
            finally:
                self.resting.pop(thread, None)

    def _held_too_long(self, machine: Machine) -> MailboxFullError:
        target = machine.over[0].target
        machine.over.clear()
        return MailboxFullError(
            f"the driver was held at the full mailbox of {target} for {self.send_timeout:g} s: its message is sent, but not"
            " accepted; send less, or raise mailbox_bound or send_timeout",
            machine=DRIVER,
            target=target,
            seconds=self.send_timeout,
        )

    def _poll_credit(self, machine: Machine) -> None:
        for channel in machine.over:
            host = channel.link.target if channel.link is not None else None
            if host is not None and host in self.handles and host not in self.polling:
                self.polling.add(host)
                self.loop.call_soon_threadsafe(self._start, self._ask_credit(host))

    async def _ask_credit(self, host: str) -> None:
        core = self.core
        try:
            accepted = await self.handles[host].credit.remote(DRIVER, self.generation)
        except RayActorError:
            return  # who watches the host says so
        finally:
            self.polling.discard(host)
        with self.lock:
            if core is not self.core:
                return
            for index, count in accepted:
                self.core.acknowledge(host, index, count)
            self.credit.notify_all()

    def wake(self) -> None:
        with self.lock:
            self.credit.notify_all()

    # ---- for the system -------------------------------------------------------------------------------------------

    def run(self, work: Any) -> Future[Any]:
        """Run a coroutine on the driver's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Leave the run."""
        with self.lock:
            self.is_closing = True
            if self.attendant is not None:
                self.attendant.is_closing = True
            self.credit.notify_all()
        POSTS.pop(self.run_id, None)
        self.run(self._leave())
        self.thread.join(timeout=5)

    async def _leave(self) -> None:
        awaited = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in awaited:
            task.cancel()
        await asyncio.gather(*awaited, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)


def _is_stop(item: Any) -> bool:
    """A stop is no message: no number says on which side of a snapshot it is."""
    return isinstance(item, StopAsked)


def _key(error: RaySnapshotError) -> str:
    """The same for the same cause: that a process is gone is noticed in several places, and said in several ways."""
    return type(error).__name__ if isinstance(error, HostDiedError) else str(error)
