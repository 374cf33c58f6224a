"""The host: a Ray actor that carries machines.

Threads: Ray's event loop (arrivals, control, replies; never runs user methods) and the action threads, of which one at a
time holds the floor and runs one atomic action after the other. The core is touched only under the post's lock. A
snapshot is recorded by the thread that holds the floor, at the boundary between two actions; machines are copied between
actions. A guard on the event loop steps in where an action is long: it copies the other machines, and past half the
snapshot's timeout it turns the host red in the middle of the action, without a copy of that machine's state.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sysconfig
import threading
import time
import traceback
from collections import deque
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from ray_snapshot import redaction
from ray_snapshot.encoding import Encoded, to_json
from ray_snapshot.errors import (
    HostDiedError,
    MachineFailedError,
    MachineStoppedError,
    MailboxFullError,
    NotAMachineError,
    RaySnapshotError,
    RolledBackError,
    UnknownMethodError,
    UnpicklableMessageError,
)
from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.host import Creation, Machine, Recording
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Mailbox, Message
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.assembly import warm_up
from ray_snapshot.runtime.checkpointing import late_section, pickled_state, section_of
from ray_snapshot.runtime.classes import ClassStore, packed
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.faults import as_error, text_of
from ray_snapshot.runtime.floor import Floor
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.here import HERE, call_site_of
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.payload import isolate, opened, recorded_args
from ray_snapshot.runtime.post import Post
from ray_snapshot.runtime.reply import RaisedError, Reply
from ray_snapshot.runtime.report import BodyCopy, Facts, HostPayload, host_payload, late_payload
from ray_snapshot.runtime.tracing import Tracer
from ray_snapshot.shapes import shape_of
from ray_snapshot.waits import Wait

COPY_SLICE_S = 0.001
"""How long machines are copied in one go between two actions."""

HELD_LOOKS = 20
"""How often a machine that is held is looked at, within the time that it may be."""

MARKERS_S = 0.005
"""How long a report waits for the last markers, so that it holds all white messages and is the only one."""

LATE_S = 0.02
"""How long white messages behind a report are gathered while markers are missing."""

BROKEN_S = 60.0
"""How long an action that was cut short by the loss of a host waits for the system to be rolled back."""

GUARD_S = 0.02
"""How often the guard looks, while a snapshot is open."""


_OWN_FOLDER = os.path.dirname(__file__)
_LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen ")
"""Where an error may come from that somebody's own statement has caused."""


GC_THRESHOLD = (50_000, 20, 50)
"""Messages are tuples, made by the hundred thousand and free of cycles: Python's default would walk them every 700."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is told at its birth."""

    run_id: str
    host: str
    colour: int
    open_at_birth: tuple[int, ...]
    protocol: str
    alignment_timeout: float | None
    mailbox_bound: int
    send_timeout: float
    spawn_timeout: float
    import_path: tuple[str, ...]
    trace: str | None = None
    """Whether to log every action: then the name by which the driver's `__main__` can be imported."""
    redacted: tuple[str, ...] = ()
    """Names of fields that are never recorded."""
    checkpoint: bool = False
    """Whether to keep what a restore needs with every snapshot."""
    recover: bool = False
    """Whether the system goes back to its last snapshot when a host dies."""
    generation: int = 0
    """Of whoever made the host."""
    incarnation: int = 0


@dataclass(slots=True)
class Performance:
    """An action that somebody wants to know of."""

    action: tuple[Machine, Mailbox, Message]
    began: float
    wait: waits.TrackedWait | None = None

    @property
    def machine(self) -> Machine:
        return self.action[0]

    @property
    def method(self) -> str:
        return self.action[2][2]

    @property
    def source(self) -> str:
        return self.action[1].source


class HostPost(Post):
    """A host's part in the run."""

    def __init__(
        self,
        config: HostConfig,
        service: Any,
        loop: asyncio.AbstractEventLoop,
        classes: ClassStore | None = None,
    ) -> None:
        super().__init__(config.run_id, config.host, service, spawn_timeout=config.spawn_timeout)
        self.config = config
        self.generation = config.generation
        self.loop = loop
        self.core = core_for(
            config.protocol,
            config.host,
            born=config.colour,
            barriers={"clock": time.monotonic, "on_open": self._bound_alignment},
            copy_body=self.copy_body,
            bound=config.mailbox_bound,
            polled=("driver",),
            open_at_birth=config.open_at_birth,
        )
        self.tracer = None if config.trace is None else Tracer(config.run_id, config.host, config.trace)
        self.floor = Floor(self.lock)
        self.classes = classes or ClassStore()
        self.shipped: set[tuple[str, str]] = set()
        self.replies: dict[str, tuple[str, Future[Any]]] = {}
        """By call id: the machine that was called, and where the result goes; gone once the result has been fetched."""
        self.sources: dict[str, dict[str, tuple[str, ...]]] = {}
        """By machine and port: who is declared to send to it."""
        self.declared_at: dict[tuple[str, str], str | None] = {}
        """Where the program has declared a port first."""
        self.answering: dict[str, tuple[str, ...]] = {}
        """By machine: the calls that its current action answers."""
        self.action: tuple[Machine, Mailbox, Message] | None = None
        """The action that the holder of the floor is in, or has just left; a plain tuple, for there is one a message."""
        self.action_began = 0.0
        self.suspended: dict[str, Performance] = {}
        self.held_since: dict[str, float] = {}
        self.is_watching_held = False
        self.forced: Machine | None = None
        self.to_stop: deque[str] = deque()
        """Machines that the driver has stopped, to be carried out at the next boundary."""
        self.recorded_at: dict[int, float] = {n: time.time() for n in config.open_at_birth}
        self.reported: set[int] = set()
        self.overdue: set[int] = set()
        """Snapshots that this host must record now, in the middle of an action if need be."""
        self.copier = ThreadPoolExecutor(1, thread_name_prefix="report")
        self.is_guarding = False
        self.construct_count = 0
        self.warming = threading.Thread(target=warm_up, name="warm-up", daemon=True)
        self.threads: list[threading.Thread] = []
        """Action threads, some of which may have ended."""
        self.timers: list[tuple[Any, int, float]] = []
        """Restored, to be set when the host starts: (channel, number, seconds left)."""
        self.is_broken = False
        """An action was cut short because a host is gone: what it leaves behind is in no snapshot."""

    def start(self) -> None:
        """Begin to act."""
        POSTS[self.run_id] = self
        gc.set_threshold(*GC_THRESHOLD)
        self._new_runner()
        self.warming.start()

    # ---- the action threads ---------------------------------------------------------------------------------------

    def _new_runner(self) -> None:
        runner = threading.Thread(target=self._run, name="actions", daemon=True)
        self.threads = [*(thread for thread in self.threads if thread.is_alive()), runner]
        runner.start()

    def _run(self) -> None:
        HERE.post = self
        with self.lock:
            alive = self.floor.take()
        last: Machine | None = None
        try:
            while alive:
                with self.lock:
                    work = self._next(last)
                if work is None:
                    return
                last = self._construct(work) if isinstance(work, Creation) else self._perform(*work)
                if self.tracer is not None:
                    self.write_out_trace()
        except Exception as error:  # a fault of ours; the system must not go on half
            self.fail(_internal(error))

    def _next(self, last: Machine | None) -> Creation | tuple[Machine, list[tuple[Mailbox, Message]]] | None:  # noqa: PLR0912 - one branch per thing to do; a call each would cost every message
        """The boundary: what happens between two actions, and what comes next; None when the host closes."""
        core, floor = self.core, self.floor
        core.acting = None
        if last is not None and self.tracer is not None:
            self.tracer.end(last.name)
        if last is not None and last.over:
            core.end_action(last)
            if last.is_held:
                self._held(last)
        while not floor.is_closed:
            if floor.returning:
                floor.give()
                floor.take()
                continue
            if core.must_record:
                self._record()
            if core.uncopied:
                self._copy_slice()
            if self.to_stop:
                self.stop_machine(core.machine(self.to_stop.popleft()))
                continue
            if core.must_flush:
                self.flush()
            if self.failure is None:
                work = core.next_birth() or core.next_action()
                if work is not None:
                    # Under the lock that accepted it: who records without a boundary must find the action here.
                    self.action = None if isinstance(work, Creation) else (work[0], *work[1][0])
                    if self.action is not None and self.action[1].kind == CALL:
                        self.answering[self.action[0].name] = (self.action[2][3][0],)
                    if self.tracer is not None and not isinstance(work, Creation):
                        self.tracer.accepted(work[0].name, work[1], core.colour_of(work[0]))
                    self.action_began = time.time()
                    return work
            if not core.uncopied:
                self.action = HERE.machine = None
                self.flush()
                floor.idle()
        return None

    def _perform(self, machine: Machine, taken: list[tuple[Mailbox, Message]]) -> Machine:
        mailbox, message = taken[0]
        HERE.machine = machine
        calls: tuple[str, ...] = ()
        name, payload = message[2], message[3]
        try:
            if len(taken) > 1:
                calls, name, payload = self._joined(machine, taken)
            elif mailbox.kind != MAIL:
                calls, payload = _unwrapped(mailbox.kind, payload)
            if calls:
                self.answering[machine.name] = calls
            method = getattr(machine.body, name, None)
            if method is None:
                raise self._no_such_method(machine, name, mailbox.source)
            if type(payload) is tuple:
                result = method(*payload)
            else:
                args, kwargs = opened(payload)
                result = method(*args, **kwargs)
            if calls:
                self._answer(machine, name, calls, result, None)
        except BaseException as error:  # sys.exit() too: an action that does not end leaves a machine half changed
            if self.tracer is not None:
                self.tracer.raised(machine.name, error)
            if calls and isinstance(error, Exception):
                self._answer(machine, name, calls, None, error)
            else:
                self._failed(machine, name, mailbox.source, payload, error)
        return machine

    def _no_such_method(self, machine: Machine, name: str, source: str) -> UnknownMethodError:
        return UnknownMethodError(
            f"{machine.name} ({type(machine.body).__name__}) has no method {name!r}; {source} sent it",
            machine=machine.name,
            method=name,
        )

    def _joined(
        self, machine: Machine, taken: list[tuple[Mailbox, Message]]
    ) -> tuple[tuple[str, ...], str, tuple[Any, ...]]:
        ports = tuple(message[2] for _, message in taken)
        values: list[Any] = []
        calls: tuple[str, ...] = ()
        for mailbox, message in taken:
            answered, payload = _unwrapped(mailbox.kind, message[3])
            args, kwargs = opened(payload)
            values.append(args[0] if len(args) == 1 and not kwargs else args)
            calls += answered
        if self.tracer is not None:
            self.tracer.acts_as(machine.name, self.classes.joins[type(machine.body)][ports])
        return calls, self.classes.joins[type(machine.body)][ports], tuple(values)

    def _construct(self, creation: Creation) -> Machine:
        key, blob, payload = creation.payload
        try:
            if blob is not None:
                self.classes.add(key, blob)
            kind = self.classes.get(key)
            body: Any = cast(Any, kind).__new__(kind)
        except BaseException as error:
            self._failed(self.core.machine(creation.child), "__new__", creation.creator, payload, error)
            return self.core.machine(creation.child)
        with self.lock:
            machine = self.core.machine(creation.child)
            machine.is_suspended = True  # not to act before its constructor is done
            self.core.born(creation.child, body, tuple(self.classes.joins[kind]))
            attach(body, Context(self, machine))
            mailbox = Mailbox(creation.creator, MAIL, machine.inbox)
            self.action = (machine, mailbox, (0, 0, "__init__", payload, 0.0, creation.colour))
            if self.tracer is not None:
                self.tracer.born(creation.creator, creation.child, kind, payload, self.core.colour_of(machine))
        HERE.machine = machine
        try:
            args, kwargs = opened(payload)
            body.__init__(*args, **kwargs)
        except BaseException as error:
            if self.tracer is not None:
                self.tracer.raised(machine.name, error)
            self._failed(machine, "__init__", creation.creator, payload, error)
        with self.lock:
            self._check_ports(machine)
            self.action = HERE.machine = None
            self.construct_count += 1
            self.core.resume(machine)
        return machine

    def constructed(self) -> int:
        """How many machines have been constructed here, those included that wait in their constructor.

        No machine counts before this process can report at once: the first snapshot would wait for that.
        """
        if self.warming.is_alive():
            return 0
        with self.lock:
            return self.construct_count + sum(item.method == "__init__" for item in self.suspended.values())

    def _failed(self, machine: Machine, method: str, source: str, payload: Any, error: BaseException) -> None:
        """An action raised: the system stops, and says where."""
        if self.config.recover and _is_of_a_lost_host(error):
            self.is_broken = True  # the system is about to be rolled back
            self.stop_with(RolledBackError(f"{machine.name}.{method} needed a host that is gone", snapshot_id=None))
            self.loop.call_soon_threadsafe(self.loop.call_later, BROKEN_S, self._nobody_has_died, as_error(error))
            return
        if isinstance(error, UnknownMethodError) and error.machine == machine.name:
            self.fail(error)
            return
        if isinstance(error, TypeError) and _is_data(machine.body, method):
            self.fail(self._no_such_method(machine, method, source))
            return
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = to_json(recorded_args(payload, method)[0]).text[:500]
        site, told = _raised_at(error), _told(error, machine.body)
        self.fail(
            MachineFailedError(
                f"{machine.name}.{method} raised {type(error).__name__}: {told}{f' at {site}' if site else ''}"
                f" (message from {source}, args {message})",
                machine=machine.name,
                method=method,
                message=message,
                source=source,
                traceback=text,
            )
        )

    def _nobody_has_died(self, error: RaySnapshotError) -> None:
        """An action was cut short because of a host that is gone, and the system was not rolled back."""
        if not self.is_retired:
            self.service.fail.remote(error, self.generation)

    def acting(self) -> Machine:
        machine = HERE.machine
        if machine is None or HERE.post is not self:
            if HERE.post is not None and HERE.post.is_retired:
                HERE.post.check()
            raise NotAMachineError(
                f"a thread of host {self.host} that is in no action tried to send: only a machine's own actions send"
            )
        return machine

    def wake(self) -> None:
        with self.lock:
            self.floor.wake()

    # ---- held back by full mailboxes ------------------------------------------------------------------------------

    def _held(self, machine: Machine) -> None:
        self.held_since[machine.name] = time.time()
        if not self.is_watching_held:
            self.is_watching_held = True
            self.loop.call_soon_threadsafe(self._start, self._watch_held())

    async def _watch_held(self) -> None:
        """While a machine is held: none may be for longer than `send_timeout`."""
        while True:
            await asyncio.sleep(self.config.send_timeout / HELD_LOOKS)
            with self.lock:
                held = {name: since for name, since in self.held_since.items() if self.core.machines[name].is_held}
                self.held_since = held
                self.is_watching_held = bool(held)
            if not held:
                return
            first = min(held, key=held.__getitem__)
            if time.time() - held[first] > self.config.send_timeout:
                self.fail(self._held_too_long(self.core.machines[first]))
                return

    def _held_too_long(self, machine: Machine) -> MailboxFullError:
        with self.lock:
            target = machine.over[0].target if machine.over else "another machine"
        return MailboxFullError(
            f"{machine.name} was held at the full mailbox of {target} for {self.config.send_timeout:g} s"
            f" ({self.config.mailbox_bound} messages not accepted): make {target} accept faster, send less,"
            " or raise mailbox_bound or send_timeout",
            machine=machine.name,
            target=target,
            seconds=self.config.send_timeout,
        )

    # ---- calls and waits ------------------------------------------------------------------------------------------

    @property
    def performing(self) -> Performance | None:
        """The action that the holder of the floor is in."""
        action = self.action
        return None if action is None else Performance(action, self.action_began)

    def _answer(
        self, machine: Machine, method: str, calls: tuple[str, ...], result: Any, error: Exception | None
    ) -> None:
        """A called method is over: its callers are told, with the colour that this host has now."""
        outcome = self._outcome(machine, method, result, error)
        with self.lock:
            outcome.colour = self.core.colour_of(machine)
            self.answering.pop(machine.name, None)
            for call_id in calls:
                _settle(self._reply(call_id, machine.name), outcome)

    def _outcome(self, machine: Machine, method: str, result: Any, error: Exception | None) -> Reply | RaisedError:
        if error is None:
            try:
                return Reply(self.run_id, None, result)
            except Exception as fault:
                error = UnpicklableMessageError(
                    f"{machine.name}.{method} returned what cannot be pickled ({type(fault).__name__}: {text_of(fault)});"
                    " return plain values, or what pickle can rebuild",
                    machine=machine.name,
                    method=method,
                )
        return RaisedError(self.run_id, None, error)

    def _reply(self, call_id: str, machine: str) -> Future[Any]:
        """Where the result of a call goes; whoever comes first makes it. Under the lock."""
        return self.replies.setdefault(call_id, (machine, Future()))[1]

    def reply_to(self, call_id: str, machine: str) -> Future[Any]:
        """What will hold the result of a call; an error at once if nobody will give one."""
        with self.lock:
            found = self._reply(call_id, machine)
            if self.failure is not None:
                _settle(found, self.failure)
            elif machine in self.core.machines and self.core.machines[machine].is_stopped:
                self._refuse_calls(machine)
            return found

    def _refuse_calls(self, name: str) -> None:
        """A machine has stopped: nobody answers what it has not accepted."""
        accepted = self.answering.get(name, ())
        for call_id, (machine, reply) in self.replies.items():
            if machine == name and call_id not in accepted:
                error = MachineStoppedError(f"{name} has stopped; it did not accept the call", machine=name)
                colour = self.core.colour_of(self.core.machines[name])
                _settle(reply, RaisedError(self.run_id, colour, error))

    def stop_with(self, error: RaySnapshotError) -> None:
        with self.lock:
            super().stop_with(error)
            for _, reply in self.replies.values():
                _settle(reply, error)

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        if HERE.is_waiting:
            HERE.heard = colour if HERE.heard is None else max(HERE.heard, colour)
            return
        with self.lock:
            self.core.note(colour, HERE.machine)
            if self.core.must_record:
                self._record_without_boundary()

    def begin_wait(self, wait: waits.TrackedWait) -> Performance | None:
        """The machine of this thread begins to wait inside its action: the floor goes to the others."""
        with self.lock:
            if self.is_retired:
                self.check()
            performance = self.performing
            if performance is None:
                return None
            performance.wait = wait
            if self.tracer is not None:
                self.tracer.waited(performance.machine.name, wait.call_site)
            self.suspended[performance.machine.name] = performance
            self.action = None
            self.core.suspend(performance.machine)
            HERE.is_waiting = True
            HERE.heard = None
            self.flush()
            self.floor.give()
            if self.floor.spare == 0:
                self._new_runner()
        return performance

    def end_wait(self, performance: Performance | None) -> None:
        """The wait is over: the floor comes back at a boundary, and what the reply was red for is recorded first."""
        if performance is None:
            return
        machine = performance.machine
        with self.lock:
            HERE.is_waiting = False
            if self.is_retired:
                self.check()
            self.floor.take_back()
            if self.is_retired:
                self.check()
            if HERE.heard is not None:
                self.core.note(HERE.heard, machine)
            if self.core.must_record:
                self._record()
            self.core.resume(machine)
            self.core.acting = machine
            self.suspended.pop(machine.name, None)
            self.action, self.action_began = performance.action, performance.began

    # ---- declared inputs ------------------------------------------------------------------------------------------

    def declare(self, target: str, port: str, source: str, site: str | None = None) -> None:
        """`source` sends to that port of a machine of this host. Under the lock."""
        ports = self.sources.setdefault(target, {})
        self.declared_at.setdefault((target, port), site)
        ports[port] = tuple(dict.fromkeys((*ports.get(port, ()), source)))
        machine = self.core.machines.get(target)
        if machine is not None and machine.body is not None and not machine.is_suspended:
            self._check_ports(machine)

    def _check_ports(self, machine: Machine) -> None:
        joined = {port for ports in self.classes.joins[type(machine.body)] for port in ports}
        for port in self.sources.get(machine.name, ()):
            if port not in joined and not callable(getattr(machine.body, port, None)):
                self.fail(
                    UnknownMethodError(
                        f"connect(..., {machine.name!r}, port={port!r}): {type(machine.body).__name__} has no port and no"
                        f" method {port!r} (declared at {self.declared_at[machine.name, port] or 'an unknown place'})",
                        machine=machine.name,
                        method=port,
                    )
                )

    def _inputs(self, machine: Machine) -> Inputs | None:
        """By what its declared inputs say what the machine waits for; None if it says so itself, or cannot hold half a join."""
        sources = self.sources.get(machine.name)
        joins = self.classes.joins[type(machine.body)]
        says_so = getattr(machine.body.waiting_for, "__func__", None) is not SnapshotMixin.waiting_for
        if says_so or (sources is None and not joins):
            return None
        if sources is None:
            return _undeclared(type(machine.body).__qualname__, tuple(joins.items()))
        return Inputs(tuple(joins), dict(sources), tuple(joins.values()))

    # ---- spawning and stopping ------------------------------------------------------------------------------------

    def spawn_here(
        self, creator: Machine, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None
    ) -> MachineHandle:
        """Create a machine on this host, on behalf of one of its machines."""
        key, blob = packed(kind)
        kind = getattr(kind, "machine_class", kind)
        payload = isolate(creator.name, kind.__name__, "__init__", args, kwargs)
        names = None if name is None else [check_machine_name(name)]
        claim = self.service.claim.remote(kind.__name__, 1, names, [self.host], None, self.generation)
        (child,) = waits.answer_of(claim)
        with self.lock:
            self.check()
            self.core.create(creator.name, child, self.host, (key, blob, payload), time.time())
            if self.tracer is not None:
                self.tracer.created(creator.name, child, kind, payload, self.core.colour_of(creator))
        return handle_of(self.run_id, child, self.host)

    def stop_machine(self, machine: Machine) -> None:
        """The machine stops behind the current action."""
        with self.lock:
            self.core.stop(machine)
            self._refuse_calls(machine.name)
            self.service.stopped.remote([machine.name], self.core.colour_of(machine), self.generation)

    # ---- recording ------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        """Turn red, at a boundary."""
        numbers = self.core.boundary()
        now = time.time()
        for number in numbers:
            if number in self.core.open:
                self.recorded_at[number] = now
        self.flush()
        self._guard_soon()
        if not self.core.uncopied:
            self._report_what_is_copied()

    def _record_without_boundary(self) -> None:
        """Turn red in the middle of an action: that machine is recorded as active, without a state."""
        action = self.performing
        self.forced = None if action is None else action.machine
        self._record()
        if self.forced is not None:
            self.core._copy_if_due(self.forced)
        self.core.acting, self.forced = self.forced, None
        self.flush()  # its barriers must not wait for the end of the action
        if not self.core.uncopied:
            self._report_what_is_copied()

    def _copy_slice(self) -> None:
        until = time.perf_counter() + COPY_SLICE_S
        while self.core.copy_next():
            if time.perf_counter() > until:
                return
        self._report_what_is_copied()

    def _report_what_is_copied(self) -> None:
        self.core.copy_next()
        for number, recording in self.core.open.items():
            if recording.is_copied and number not in self.reported:
                self.loop.call_soon_threadsafe(self.report_soon, recording)

    def report_soon(self, recording: Recording) -> None:
        """Report what is copied; with what is late, if the markers come soon (a second report costs more than the wait)."""
        with self.lock:
            if recording.has_markers:
                self._report_now(recording)
            else:
                self.loop.call_later(MARKERS_S, self._report_now, recording)

    def report_if_born_red(self, number: int) -> None:
        """A host that was born red has nothing to record: it says so at once."""
        recording = self.core.open.get(number)
        if recording is not None and recording.is_copied:
            self._report_now(recording)

    def _report_now(self, recording: Recording) -> None:
        with self.lock:
            if recording.number in self.reported or recording.number not in self.core.open:
                return
            self.reported.add(recording.number)
            self._start(self._send(host_payload, recording, *_taken(recording)))

    def report_late(self) -> None:
        """See to what white messages have arrived; on the event loop, under the lock."""
        for recording in self.core.open.values():
            if not recording.is_copied:
                continue
            if recording.number not in self.reported:
                if recording.has_markers:
                    self._report_now(recording)
            elif recording.late or recording.late_creations:
                if recording.has_markers:
                    self._report_rest(recording)
                else:
                    self.loop.call_later(LATE_S, self._report_rest, recording)

    def _report_rest(self, recording: Recording) -> None:
        with self.lock:
            late, creations = _taken(recording)
            if late or creations:
                self._start(self._send(late_payload, recording, late, creations))

    async def _send(self, build: Any, recording: Recording, late: list[Any], creations: list[Creation]) -> None:
        payload = await self.loop.run_in_executor(self.copier, self._payload, build, recording, late, creations)
        if self.is_broken or self.is_retired:
            return
        if self.tracer is not None:
            await self._report_with_trace(payload, self.tracer)
        else:
            await self.service.report.remote(payload)

    def _payload(self, build: Any, recording: Recording, late: list[Any], creations: list[Creation]) -> HostPayload:
        at = self.recorded_at.get(recording.number, time.time())
        facts = Facts(at, recording.marker_count)
        found: HostPayload
        if not self.config.checkpoint:
            found = build(self.host, recording, facts, late, creations)
            return found
        if build is late_payload:
            section = late_section(self.host, at, late, creations)
        else:
            section = section_of(self.host, recording, at, self.classes.blobs, late, creations)
        facts = replace(facts, obstacles=section.obstacles)
        found = build(self.host, recording, facts, late, creations)
        return replace(found, checkpoint=section.dumps())

    async def _report_with_trace(self, payload: HostPayload, tracer: Tracer) -> None:
        """The report takes along what was traced since the last one: every white action is among it."""
        with self.lock:
            self.shipping += 1
        try:
            async with self.trace_turn:
                with self.lock:
                    entries = tracer.take()
                trace = await self.loop.run_in_executor(self.copier, tracer.shipped, entries)
                await self.service.report.remote(replace(payload, trace=trace))
        finally:
            with self.lock:
                self.shipping -= 1

    def copy_body(self, machine: Machine) -> BodyCopy:
        """What the snapshot holds of a machine; called by the core, under the lock, at most once per machine and instant."""
        acting, HERE.machine = HERE.machine, None  # hooks look; they must not send
        try:
            return self._copied(machine)
        finally:
            HERE.machine = acting

    def _copied(self, machine: Machine) -> BodyCopy:
        class_name = type(machine.body).__name__
        action = self.performing
        if machine is self.forced and action is not None:
            site = call_site_of(self._action_thread())
            calls = self._call_rows(action, site)
            obstacle = f"inside {action.method} at {site}"
            return BodyCopy(class_name, "active", None, calls=calls, obstacle=obstacle, recorded_at=self._instant())
        performance = self.suspended.get(machine.name)
        found = BodyCopy(class_name, "passive", None, recorded_at=self._instant())
        if performance is not None and performance.wait is not None:
            self._describe_wait(found, performance, performance.wait)
            if self.config.checkpoint:
                found.obstacle = f"inside {performance.method} at {performance.wait.call_site}, where it waits"
        elif machine.is_stopped:
            found.status = "stopped"
        elif machine.is_held:
            self._describe_held(found, machine)
        wrong = _ask_hooks(found, machine.body, self.classes if self.config.checkpoint else None)
        if wrong is not None:
            self._wrong_hook(machine, wrong)
        if found.status == "passive":
            found.inputs = self._inputs(machine)
        return found

    def _instant(self) -> float | None:
        """When this machine turns red, if it does so by itself: now."""
        return time.time() if isinstance(self.core, BarrierCore) else None

    def _wrong_hook(self, machine: Machine, text: str) -> None:
        """A hook answered with what it may not: a mistake in the program, which would otherwise look like activity."""
        self.fail(
            MachineFailedError(
                f"{machine.name} ({type(machine.body).__name__}): {text}",
                machine=machine.name,
                method="waiting_for",
                message=None,
                source=None,
                traceback="",
            )
        )

    def _describe_held(self, found: BodyCopy, machine: Machine) -> None:
        since = int(self.held_since.get(machine.name, time.time()) * 1e6)
        targets = tuple(dict.fromkeys(channel.target for channel in machine.over))
        found.status = "blocked"
        found.short_wait = ("all", len(targets), targets)
        common = {"alternative": 0, "k": len(targets), "bound": self.core.bound, "waiting_since": since}
        found.waits = [{"on_machine": name, **common} for name in targets]
        found.calls = [{"method": "(held at a full mailbox)", "holds_slot": True, "started_at": since}]

    def _describe_wait(self, found: BodyCopy, performance: Performance, wait: waits.TrackedWait) -> None:
        found.calls = self._call_rows(performance, wait.call_site)
        if wait.may_act:
            found.status = "active"
            return
        found.status = "blocked"
        found.short_wait = wait.short_form
        found.waits = wait.rows()

    def _call_rows(self, performance: Performance, site: str | None) -> list[dict[str, Any]]:
        """The action that a machine is in: one row, or one for each call that it answers."""
        common = {
            "caller": performance.source,
            "method": performance.method,
            "holds_slot": True,
            "call_site": site,
            "started_at": int(performance.began * 1e6),
        }
        return [{"call_id": call_id, **common} for call_id in self.answering.get(performance.machine.name) or (None,)]

    def _action_thread(self) -> int:
        return self.floor.holder or 0

    # ---- the guard ------------------------------------------------------------------------------------------------

    def hurry(self, number: int) -> None:
        """Half of a snapshot's time is over: record it now."""
        self.overdue.add(number)
        if isinstance(self.core, BarrierCore) and number in self.core.open:
            self.core.force(number)
        self._guard_soon()

    def _bound_alignment(self, number: int) -> None:
        """Bound the patience with inputs whose barriers do not come, from when this host has heard of the number."""
        if self.config.alignment_timeout is not None:
            self.loop.call_soon_threadsafe(
                self.loop.call_later, self.config.alignment_timeout, self._turn_unaligned, number
            )

    def _turn_unaligned(self, number: int) -> None:
        with self.lock:
            if isinstance(self.core, BarrierCore) and number in self.core.open:
                self.core.force(number)
                self._guard_soon()
                self.floor.wake()

    def _guard_soon(self) -> None:
        if not self.is_guarding:
            self.is_guarding = True
            self.loop.call_soon_threadsafe(self._start, self._guard())

    async def _guard(self) -> None:
        """While a snapshot is open here: help where an action is long."""
        while not self.is_closing:
            await asyncio.sleep(GUARD_S)
            with self.lock:
                if not self.core.must_record and not self.core.uncopied:
                    self.is_guarding = False
                    return
                if self.core.must_record and self._is_overdue():
                    self._record_without_boundary()
                if self.core.uncopied and self.performing is not None:
                    self._copy_slice()
                    self.flush()

    def _is_overdue(self) -> bool:
        return any(not self.core.is_recorded(number) for number in self.overdue)

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self.recorded_at.pop(number, None)
        self.reported.discard(number)
        self.overdue.discard(number)

    @property
    def is_retired(self) -> bool:
        return self.is_closing and self.failure is not None

    def retire(self, error: RolledBackError) -> None:
        """Stop acting for good: the system is rolled back, and another post takes the place of this one.

        An action that is under way cannot be stopped; but nothing that it sends, calls, creates or answers from now on
        leaves this post, and where it waits or sends it gets this error.
        """
        with self.lock:
            self.is_closing = True
            self.failure = error
            self.floor.close()
            for _, reply in self.replies.values():
                _settle(reply, error)
        for task in list(self.tasks):
            task.cancel()
        self.copier.shutdown(wait=False)

    @property
    def is_acting(self) -> bool:
        """Whether a thread is inside an action."""
        return any(thread.is_alive() for thread in self.threads)

    def arm(self) -> None:
        """Set the restored timers, look for names that restored messages go to, and send what was in flight."""
        with self.lock:
            for channel, number, left in self.timers:
                self.loop.call_later(left, self._fire, self.core, channel, number)
            self.timers = []
            self._look_up()
            self.flush()
            self.floor.wake()

    def close(self) -> None:
        """Stop acting."""
        with self.lock:
            self.is_closing = True
            self.floor.close()
        POSTS.pop(self.run_id, None)
        for task in list(self.tasks):
            task.cancel()


def _unwrapped(kind: str, payload: Any) -> tuple[tuple[str, ...], Any]:
    """(ids of the calls that it is, arguments) of what a message of this kind carries."""
    if kind == CALL:
        call_id, payload = payload
        return (call_id,), payload
    return (), payload[1] if kind == TIMER else payload


def _taken(recording: Recording) -> tuple[list[Any], list[Creation]]:
    """The white messages and creations that have come since the last report. Under the lock."""
    late, recording.late = recording.late, []
    creations, recording.late_creations = recording.late_creations, []
    return late, creations


def _is_data(body: Any, name: str) -> bool:
    """Whether the object has an attribute of this name that is no method."""
    found = inspect.getattr_static(body, name, None)
    return found is not None and not callable(found) and not isinstance(found, classmethod)


def _settle(reply: Future[Any], outcome: Any) -> None:
    """The first outcome counts."""
    with suppress(InvalidStateError):
        reply.set_result(outcome)


def _keep(found: BodyCopy, body: Any, state: Any, classes: ClassStore) -> None:
    """Pickle the state for a restore, or say why there will be none."""
    blob, obstacle = pickled_state(state)
    if blob is not None:
        found.kept = classes.keys[type(body)], blob
    found.obstacle = found.obstacle or obstacle


def _is_of_a_lost_host(error: BaseException | None) -> bool:
    """Whether an error is there because a host is gone, or because the others have been rolled back already."""
    while error is not None:
        if isinstance(error, (HostDiedError, RolledBackError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _ask_hooks(found: BodyCopy, body: Any, classes: ClassStore | None) -> str | None:
    """What the machine says of itself; returns what is wrong with an answer, if it is no answer at all.

    A hook that raises stops nothing: it is an obstacle, and the machine may act.
    """
    try:
        state = body.snapshot_state()
        found.state = to_json(state)
        found.shape = shape_of(type(body), state)
        if classes is not None:
            _keep(found, body, state, classes)
    except Exception as error:
        found.obstacle = f"snapshot_state raised {type(error).__name__}: {_told(error, body)}"
        text = to_json({"$error": found.obstacle}).text
        found.state = Encoded(text, True, len(text))
    if found.status != "passive":
        return None
    try:
        wait = body.waiting_for()
        if isinstance(wait, Wait):
            _describe(found, wait)
        elif wait is not None:
            found.obstacle = f"waiting_for() returned {_shown(wait)}, which is no wait"
            found.status = "active"
            return f"{found.obstacle}: return rs.all_of(...), rs.any_of(...), rs.at_least(k, ...) or None"
        elif body.is_active():
            found.status = "active"
    except Exception as error:
        found.obstacle = f"waiting_for or is_active raised {type(error).__name__}: {_told(error, body)}"
        found.status = "active"
    return None


def _shown(value: Any) -> str:
    """What a hook returned, for an error."""
    try:
        return redaction.scrubbed(repr(value)[:200])
    except Exception:  # the user's __repr__
        return f"an object of {type(value).__name__}"


def _told(error: BaseException, body: Any) -> str:
    """An error's text as it may be recorded: without what the machine keeps secret."""
    if redaction.is_active:
        to_json(getattr(body, "__dict__", None))  # so that its secrets are known, whatever raised
    return redaction.scrubbed(text_of(error))


def _raised_at(error: BaseException) -> str | None:
    """ "file:line" of the statement that raised, or that called the library which did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN_FOLDER)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else None


def _describe(found: BodyCopy, wait: Wait) -> None:
    found.status = "blocked"
    found.short_wait = wait.short_form
    found.waits = [
        {"alternative": position, "k": alternative.k, "on_machine": name}
        for position, alternative in enumerate(wait.alternatives)
        for name in alternative.on
    ]


def _internal(error: Exception) -> RaySnapshotError:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return RaySnapshotError(f"a host's action thread failed: {type(error).__name__}: {error}\n{text}")


@lru_cache(256)
def _undeclared(_: str, joins: tuple[tuple[tuple[str, ...], str], ...]) -> Inputs:
    """The joins of a class, one object for all its machines, so that it is pickled once."""
    return Inputs(tuple(ports for ports, _ in joins), {}, tuple(method for _, method in joins))
