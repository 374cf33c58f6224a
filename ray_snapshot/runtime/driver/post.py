"""The driver's part in the run, put together: what it sends, what the coordinator says to it, and its generations."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Protocol, assert_never

from ray.exceptions import RayActorError

from ray_snapshot.errors import HostDiedError, RaySnapshotError, SettingError, SystemNotRunningError
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
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.mailbox import MAIL, end_of
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
from ray_snapshot.runtime.driver.attending import Attendant
from ray_snapshot.runtime.driver.holding import Holding
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.driver.program import Program
from ray_snapshot.runtime.driver.recorder import DriverRecorder
from ray_snapshot.runtime.driver.securing import Securing
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.fitting import check_fits
from ray_snapshot.runtime.handles import POSTS, MachineHandle, forget_places
from ray_snapshot.runtime.planning import Share, opened_share
from ray_snapshot.runtime.restoring import refill
from ray_snapshot.runtime.tracing import Tracer, came_of
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.post import Created, Post, StopAsked, Timer


def _check(handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if the message does not fit its method, as far as the driver knows: it knows the classes that it has
    spawned."""
    if handle._kind is not None:
        check_fits(handle._kind, handle._name, method, args, kwargs)


class Beside(Protocol):
    """The driver's part in a watch; `instrument.process.process.Process` is it, and says what each does."""

    lock: Any
    ledger: Any

    def send_with(self, mail: Any) -> None: ...
    def turn_red(self, *, is_forced: bool) -> None: ...
    def heard(self, colour: int) -> None: ...
    def take_in(self) -> None: ...
    def stay_alone(self) -> None: ...
    def rest(self) -> AbstractContextManager[None]: ...


class DriverPost(Post):
    """The driver's post: one for all generations, for the program keeps using it."""

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
        beside: Beside | None = None,
        generation: int = 0,
    ) -> None:
        """`beside`: the driver's part in the watch that the system has joined; `generation`: of that."""
        lock = None if beside is None else beside.lock
        loop, recovers = asyncio.new_event_loop(), attendant is not None
        member = Membership(run_id, DRIVER, service, loop, generation=generation, recovers=recovers, lock=lock)
        self.beside = beside
        self.protocol, self.mailbox_bound = protocol, mailbox_bound
        self.program = Program(member.lock, checkpoint=checkpoint)
        tracer = None if trace is None else Tracer(run_id, DRIVER, trace)
        super().__init__(member, self._new_core(born=None), spawn_timeout=spawn_timeout, tracer=tracer)
        self.recorder = DriverRecorder(member, self.carrier, self.trace, checkpoint=checkpoint)
        if beside is not None:
            self.is_joined = True
            self.recorder.turn = lambda is_forced: beside.turn_red(is_forced=is_forced)
            with beside.lock:
                beside.send_with(self)
        self.holding = Holding(member, self.carrier, self.program, send_timeout, self.check)
        self.rollback = RollbackHost()
        self.on_rollback: Callable[[Share], None] = lambda _: None
        """Called with every share that is loaded: it says which hosts there are now."""
        self.timers: list[Timer] = []
        self.stops: list[tuple[str, int]] = []
        """(machine, messages sent to it before that) of machines to be stopped once more when the system goes on."""
        self.attendant = attendant
        """Sets service and analyst to work again, if the system recovers by itself; else None."""
        if attendant is not None:
            self.journal = []
            self.securing = Securing(self, attendant)
        self.on_replaced: Callable[[str, Any], None] = lambda *_: None
        """Called with the name and the actor of a host that takes the place of another."""
        self.is_dropping = False
        """Whether the system will be restored when it starts: then what the program sends before is dropped."""
        self.dropped = 0
        self._raised: set[str] = set()
        """Keys of errors that were raised to the program: these are not raised again at the end."""
        member.on_wake = self.holding.changed.notify_all
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-driver", daemon=True)
        POSTS[run_id] = self
        self.thread.start()

    def _new_core(self, born: int | None) -> HostCore:
        """A core for each generation: nothing of an older one is in it."""
        core = core_for(
            self.protocol,
            DRIVER,
            born=born,
            barriers={"clock": time.monotonic},
            copy_body=self.program.copy,
            bound=self.mailbox_bound,
            turning=None if self.beside is None else self.beside.ledger.turning,
        )
        core.born(DRIVER, self)
        core.acting = None  # each of its sends is an action
        return core

    @property
    def me(self) -> Machine:
        """The driver, as a machine of the current generation."""
        return self.core.machines[DRIVER]

    def _run(self) -> None:
        loop = self.member.loop
        asyncio.set_event_loop(loop)
        self.member.start(self._obey_commands())
        if self.attendant is not None:
            self.member.start(self._attend(self.attendant))
        loop.run_forever()
        loop.close()

    # ---- sending --------------------------------------------------------------------------------------------------

    def acting(self) -> Machine:
        self.program.acts()
        if self.beside is not None:
            self.beside.take_in()
        return self.me

    def hold_back(self, machine: Machine) -> None:
        self.holding.hold_back(machine)

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        _check(handle, method, args, kwargs)
        if self.is_dropping:
            self.dropped += 1
            return
        with self.member.lock:  # what is sent in one generation must not be numbered in the next
            if self.member.is_rolling:
                self.check()
            super().send(handle, method, args, kwargs)
        if self.trace.tracer is not None:
            self.trace.write_out()

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
        if self.member.is_closing:
            raise SystemNotRunningError("the system was closed: send inside its `with` block", system=None)
        if self.member.is_rolling and threading.current_thread() is not self.thread:
            self.holding.await_others()

    @property
    def failure(self) -> RaySnapshotError | None:
        """What has stopped the system."""
        return self.member.failure

    def raises(self, error: RaySnapshotError) -> None:
        self._raised.add(_key(error))

    def has_raised(self, error: RaySnapshotError) -> bool:
        """Whether the program has met this error."""
        return _key(error) in self._raised

    # ---- waits ----------------------------------------------------------------------------------------------------

    def begin_wait(self, wait: waits.TrackedWait) -> tuple[int | None, waits.TrackedWait]:
        """This thread of the program begins to wait."""
        if wait.may_act:
            return None, wait
        return self.program.begin_wait(wait), wait

    def end_wait(self, begun: tuple[int | None, waits.TrackedWait]) -> None:
        """The wait is over; what the program does next may follow from what came."""
        thread, wait = begun
        self.program.end_wait(thread)
        tracer = self.trace.tracer
        if tracer is None or not wait.on or self.member.is_closing:
            return
        came = came_of(wait)
        with self.member.lock:
            tracer.waited_outside(DRIVER, wait, came, self.core.colour_of(self.me))
        self.trace.write_out()

    def rest(self) -> AbstractContextManager[None]:
        """Inside `wait_for`: this thread of the program sends nothing until something holds."""
        return self.program.rest() if self.beside is None else self._rest_all(self.beside)

    @contextmanager
    def _rest_all(self, beside: Beside) -> Iterator[None]:
        with beside.rest(), self.program.rest():
            yield

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        if self.beside is not None:  # by a thread of Ray's perhaps, which must not wait here
            self.beside.heard(colour)
            return
        with self.member.lock:
            self.core.note(colour, self.me)
            self.recorder.record()

    # ---- as the driver's part in the watch meets it (`Beside`) -----------------------------------------------------

    def turn(self) -> tuple[int, ...]:
        """Turn red for what is due, with that; returns the numbers, rising."""
        return self.recorder.boundary()

    def part(self, number: int) -> None:
        """None: it reports by itself."""

    def learn_stopped(self, names: Iterable[str], colour: int) -> None:
        """The service tells the driver's own."""

    def leave(self) -> None:
        """The system sees to its own end."""

    def pause(self) -> None:
        """The app is to go back: the program waits where it sends."""
        self.member.is_rolling = True

    def load(self, generation: int, share: bytes | None) -> bool:
        """True: the program keeps this post; the core is another."""
        self._leave_generation(generation)
        self._load(opened_share(share))
        return True

    def resume(self) -> None:
        """All go on."""
        self.member.is_rolling = False
        self.member.loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        with self.member.lock:
            if not self.member.is_rolling:  # else another restore has begun meanwhile
                self._go_on()

    # ---- commands -------------------------------------------------------------------------------------------------

    async def _obey_commands(self) -> None:
        obeyed = 0
        while True:
            try:
                commands = await self.member.service.commands.remote(obeyed)
            except RayActorError as error:
                if await self._is_another_service(error):
                    obeyed = 0
                continue
            with self.member.lock:
                for command in commands:
                    self._obey(command)
                self.recorder.record()
            obeyed += len(commands)

    async def _is_another_service(self, error: RayActorError) -> bool:
        """Whether another service goes on in the place of one that died; raises `HostDiedError` if none does."""
        if self.attendant is None or self.member.is_closing or self.member.failure is not None:
            raise HostDiedError(f"the system's service is gone: {first_line(error)}", host="service", machines=[])
        try:
            return await self.attendant.service_again(error, self.member.lock)
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
                self.recorder.forget(number)
            case Abort(number):
                self.core.abort(number)
                self.recorder.forget(number)
            case OpenDriverChannel(target, host):
                self.core.resolve(target, host)
                self.core.channel(self.me, target, MAIL)
                self.carrier.flush()
            case Stopped(names, colour):
                self.core.note(colour)
                self.recorder.record()
                self.core.learn_stopped(names)
                self.holding.changed.notify_all()
            case Fail(error):
                self.member.stop_with(error)
            case Roll(asked, share):
                self._roll(asked, share)
            case Secure() | Seek() | Allow() | Replace():
                if self.attendant is not None:
                    self._attend_to(command, self.attendant.memory)
            case _:
                assert_never(command)

    def _attend_to(self, command: Secure | Seek | Allow | Replace, memory: Memory) -> None:
        """Obey a command that only the driver of a system that recovers gets."""
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
        from ray_snapshot.runtime.host.actor import HostActor

        config, options = memory.births[host]
        config = replace(config, incarnation=incarnation, generation=NO_GENERATION, open_at_birth=())
        actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self.member.service)
        memory.actors[host], memory.incarnations[host] = actor, incarnation
        self.on_replaced(host, actor)
        self.member.service.replaced.remote(host, incarnation, [actor])

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
                    self.member.service.rolled.remote(DRIVER, int(done.step), done.generation)
                case StartAccepting():
                    self._go_on()
                case Acknowledge(step, generation):
                    self.member.service.rolled.remote(DRIVER, int(step), generation)

    def _leave_generation(self, generation: int) -> None:
        self.member.is_rolling = True
        self.member.generation = generation
        self.calls.undo()
        self.recorder.reported.clear()
        self.carrier.begin(self._new_core(born=None))

    def _load(self, share: Share) -> None:
        forget_places(self.member.run_id, share.aliases)
        if self.attendant is not None:
            known = self.attendant.memory.aliases
            known += [run for run in share.aliases if run not in known]
        self.carrier.begin(self._new_core(born=share.last))
        self.carrier.actors.update((host, wrapped[0]) for host, wrapped in share.actors.items())
        self.timers = refill(self.core, share)
        if self.attendant is not None:
            self.attendant.memory.went_back(share.snapshot_id, share.number)
        self.stops = []
        self._send_again(share)
        self.core.learn_stopped(share.stopped)
        self.me.over = []  # no thread is inside a send
        self.on_rollback(share)

    def forget_before(self, number: int) -> None:
        """What was sent before snapshot `number` is in it, and need not be sent again.

        A stop is no message: it may have come to its host behind the snapshot. Whether it is in there the share says.
        """
        if self.journal is not None:
            self.journal = outside(self.journal, number, _is_stop)

    def _send_again(self, share: Share) -> None:
        """After a recovery: the program has gone on, so what it sent outside the cut is sent once more, in its order.

        After a restore that the program asked for, nothing is sent again: the program knows that it went back.
        """
        if self.journal is None:
            return
        again, self.journal, now = sent_again(self.journal, share.again_from, _is_stop), [], time.time()
        for _, item in again:
            if isinstance(item, Created):
                self.core.create(DRIVER, item.child, item.host, item.payload, now)
                claim = (item.class_name, 1, [item.child], [item.host], None, self.member.generation, True)
                self.member.service.claim.remote(*claim)
            elif isinstance(item, StopAsked):
                if item.machine in share.stopped:
                    continue
                mail = self.me.outputs.get(end_of(item.machine, MAIL))
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
        self.member.is_rolling = False
        self.set_again(self.timers)
        self.timers = []
        self.places.look_up()
        self.carrier.flush()
        for name, count in self.stops:
            self.member.start(self._stop_again(name, Stop(name, self.core.colour, count), self.member.generation))
        self.stops = []
        self.holding.changed.notify_all()
        if self.attendant is not None and (base := self.attendant.memory.uncopied()) is not None:
            self._obey(Secure(base.number, base.snapshot_id))

    async def _stop_again(self, name: str, command: Stop, generation: int) -> None:
        """Stop a machine behind what was sent to it; if its host dies meanwhile this is done again."""
        places = await self.member.service.locate.remote([name], self.places.spawn_timeout)
        if name not in places:
            return  # the machine that had spawned it has not done so again
        (actor,) = await self.member.service.actor_of.remote(places[name])
        await actor.control.remote([command], generation)

    def stopped(self, name: str, generation: int) -> bool:
        """A machine has been told to stop; False if the system was rolled back meanwhile, so that it must be told again."""
        with self.member.lock:
            if generation != self.member.generation:
                return False
            self.core.learn_stopped([name])
            if self.journal is not None:
                self.journal.append((self.core.colour_of(self.me), StopAsked(name)))
            return True

    # ---- life -----------------------------------------------------------------------------------------------------

    def run(self, work: Any) -> Future[Any]:
        """Run a coroutine on the driver's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.member.loop)

    def close(self) -> None:
        """Leave the run."""
        with self.member.lock:
            self.member.is_closing = True
            if self.beside is not None:
                self.beside.stay_alone()
            if self.attendant is not None:
                self.attendant.is_closing = True
            self.holding.changed.notify_all()
        POSTS.pop(self.member.run_id, None)
        self.run(self.member.end())
        self.thread.join(timeout=5)


def _is_stop(item: Any) -> bool:
    """Whether a remembered item is a stop: that is no message, so no number says on which side of a snapshot it is."""
    return isinstance(item, StopAsked)


def _key(error: RaySnapshotError) -> str:
    """A text that is equal for errors with one cause: several places notice that a process is gone, each in other
    words."""
    return type(error).__name__ if isinstance(error, HostDiedError) else str(error)
