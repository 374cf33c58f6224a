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
import pickle
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

import ray

from ray_snapshot.encoding import Encoded, to_json
from ray_snapshot.errors import (
    MachineFailedError,
    MailboxFullError,
    NotAMachineError,
    RaySnapshotError,
    UnknownMethodError,
)
from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.host import Creation, HostCore, Machine, Recording
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Mailbox, Message
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.classes import ClassStore, packed
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.floor import Floor
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.here import HERE, call_site_of
from ray_snapshot.runtime.payload import isolate, opened
from ray_snapshot.runtime.post import Post
from ray_snapshot.runtime.reply import Reply, marked
from ray_snapshot.runtime.report import BodyCopy, host_payload, late_payload

COPY_SLICE_S = 0.001
"""How long machines are copied in one go between two actions."""

GUARD_S = 0.02
"""How often the guard looks, while a snapshot is open."""

SWITCH_INTERVAL_S = 0.001
"""Python's thread switch interval in hosts: how long an action thread may keep the event loop waiting."""


GC_THRESHOLD = (50_000, 20, 50)
"""Messages are tuples, made by the hundred thousand and free of cycles: Python's default would walk them every 700."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is told at its birth."""

    run_id: str
    host: str
    colour: int
    open_at_birth: tuple[int, ...]
    mailbox_bound: int
    send_timeout: float
    spawn_timeout: float


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

    @property
    def call_id(self) -> str | None:
        return self.action[2][3][0] if self.action[1].kind == CALL else None


class HostPost(Post):
    """A host's part in the run."""

    def __init__(self, config: HostConfig, service: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(config.run_id, config.host, service, spawn_timeout=config.spawn_timeout)
        self.config = config
        self.loop = loop
        self.core = HostCore(
            config.host,
            protocol=ChandyLamport(born=config.colour),
            copy_body=self.copy_body,
            bound=config.mailbox_bound,
            polled=("driver",),
            open_at_birth=config.open_at_birth,
        )
        self.floor = Floor(self.lock)
        self.classes = ClassStore()
        self.shipped: set[tuple[str, str]] = set()
        self.calls: dict[Any, tuple[str, str]] = {}
        self.replies: dict[str, asyncio.Future[Any]] = {}
        self.action: tuple[Machine, Mailbox, Message] | None = None
        """The action that the holder of the floor is in, or has just left; a plain tuple, because there is one for every message."""
        self.action_began = 0.0
        self.suspended: dict[str, Performance] = {}
        self.held_since: dict[str, float] = {}
        self.forced: Machine | None = None
        self.recorded_at: dict[int, float] = {n: time.time() for n in config.open_at_birth}
        self.reported: set[int] = set()
        self.deadlines: dict[int, float] = {}
        self.markers: dict[int, int] = {}
        self.copier = ThreadPoolExecutor(1, thread_name_prefix="report")
        self.is_guarding = False
        self.is_closing = False
        self.is_stopped = threading.Event()
        self.driver_credit = asyncio.Event()

    def start(self) -> None:
        """Begin to act."""
        POSTS[self.run_id] = self
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*GC_THRESHOLD)
        self._new_runner()

    # ---- the action threads ---------------------------------------------------------------------------------------

    def _new_runner(self) -> None:
        threading.Thread(target=self._run, name="actions", daemon=True).start()

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
        except Exception as error:  # a fault of ours; the system must not go on half
            self.fail(_internal(error))

    def _next(self, last: Machine | None) -> Creation | tuple[Machine, list[tuple[Mailbox, Message]]] | None:
        """The boundary: what happens between two actions, and what comes next; None when the host closes."""
        core, floor = self.core, self.floor
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
            if core.must_flush:
                self.flush()
            if self.failure is None:
                work = core.next_birth() or core.next_action()
                if work is not None:
                    return work
            if not core.uncopied:
                self.action = HERE.machine = None
                self.flush()
                floor.idle()
        return None

    def _perform(self, machine: Machine, taken: list[tuple[Mailbox, Message]]) -> Machine:
        mailbox, message = taken[0]
        self.action = (machine, mailbox, message)
        self.action_began = time.time()
        HERE.machine = machine
        call_id = None
        name, payload = message[2], message[3]
        try:
            if mailbox.kind != MAIL:
                call_id, payload = _unwrapped(mailbox.kind, payload)
            if len(taken) > 1:
                name, payload = self._joined(machine, taken)
            method = getattr(machine.body, name, None)
            if method is None:
                raise self._no_such_method(machine, name, mailbox.source)
            if type(payload) is tuple:
                result = method(*payload)
            else:
                args, kwargs = opened(payload)
                result = method(*args, **kwargs)
            if call_id is not None:
                self._answer(call_id, result, None)
        except Exception as error:
            if call_id is not None:
                self._answer(call_id, None, error)
            else:
                self._failed(machine, name, mailbox.source, payload, error)
        return machine

    def _no_such_method(self, machine: Machine, name: str, source: str) -> UnknownMethodError:
        return UnknownMethodError(
            f"{machine.name} ({type(machine.body).__name__}) has no method {name!r}; {source} sent it",
            machine=machine.name,
            method=name,
        )

    def _joined(self, machine: Machine, taken: list[tuple[Mailbox, Message]]) -> tuple[str, tuple[Any, ...]]:
        ports = tuple(message[2] for _, message in taken)
        values = []
        for mailbox, message in taken:
            args, kwargs = opened(_unwrapped(mailbox.kind, message[3])[1])
            values.append(args[0] if len(args) == 1 and not kwargs else args)
        return self.classes.joins[type(machine.body)][ports], tuple(values)

    def _construct(self, creation: Creation) -> Machine:
        key, blob, payload = creation.payload
        try:
            if blob is not None:
                self.classes.add(key, blob)
            kind = self.classes.get(key)
            body: Any = cast(Any, kind).__new__(kind)
        except Exception as error:
            self._failed(self.core.machine(creation.child), "__new__", creation.creator, payload, error)
            return self.core.machine(creation.child)
        with self.lock:
            machine = self.core.machine(creation.child)
            machine.is_suspended = True  # not to act before its constructor is done
            self.core.born(creation.child, body, tuple(self.classes.joins[kind]))
            attach(body, Context(self, machine))
        HERE.machine = machine
        self.action = (machine, Mailbox(creation.creator, MAIL, machine.inbox), (0, 0, "__init__", payload, 0.0, creation.colour))
        self.action_began = time.time()
        try:
            args, kwargs = opened(payload)
            body.__init__(*args, **kwargs)
        except Exception as error:
            self._failed(machine, "__init__", creation.creator, payload, error)
        self.action = None
        HERE.machine = None
        with self.lock:
            self.core.resume(machine)
        return machine

    def _failed(self, machine: Machine, method: str, source: str, payload: Any, error: Exception) -> None:
        """An action raised: the system stops, and says where."""
        if isinstance(error, RaySnapshotError) and method != "__init__" and isinstance(error, UnknownMethodError):
            self.fail(error)
            return
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = to_json(list(opened(payload)[0])).text[:500]
        self.fail(
            MachineFailedError(
                f"{machine.name}.{method} raised {type(error).__name__}: {error} (message from {source}, args {message})",
                machine=machine.name,
                method=method,
                message=message,
                source=source,
                traceback=text,
            )
        )

    def acting(self) -> Machine:
        machine = HERE.machine
        if machine is None or HERE.post is not self:
            raise NotAMachineError(
                f"a thread of host {self.host} that is in no action tried to send: only a machine's own actions send"
            )
        return machine

    def wake(self) -> None:
        with self.lock:
            self.floor.wake()

    # ---- held back by full mailboxes ------------------------------------------------------------------------------

    def _held(self, machine: Machine) -> None:
        since = self.held_since[machine.name] = time.time()
        self.loop.call_soon_threadsafe(self.loop.call_later, self.config.send_timeout, self._held_too_long, machine, since)

    def _held_too_long(self, machine: Machine, since: float) -> None:
        with self.lock:
            if not machine.is_held or self.held_since.get(machine.name) != since or self.is_closing:
                return
            target = machine.over[0].target
        self.fail(
            MailboxFullError(
                f"{machine.name} was held at the full mailbox of {target} for {self.config.send_timeout:g} s"
                f" ({self.config.mailbox_bound} messages not accepted): make {target} accept faster, send less,"
                " or raise mailbox_bound or send_timeout",
                machine=machine.name,
                target=target,
                seconds=self.config.send_timeout,
            )
        )

    # ---- calls and waits ------------------------------------------------------------------------------------------

    def called(self, ref: Any, target: str, call_id: str) -> None:
        self.calls[ref] = (target, call_id)

    @property
    def performing(self) -> Performance | None:
        """The action that the holder of the floor is in."""
        action = self.action
        return None if action is None else Performance(action, self.action_began)

    def _answer(self, call_id: str, result: Any, error: Exception | None) -> None:
        colour = self.core.colour
        outcome = Reply(self.run_id, colour, result) if error is None else marked(error, self.run_id, colour)
        self.loop.call_soon_threadsafe(self._set_reply, call_id, outcome)

    def reply_of(self, call_id: str) -> asyncio.Future[Any]:
        """The future that the call's result goes into; whoever comes first makes it."""
        found = self.replies.get(call_id)
        if found is None:
            found = self.replies[call_id] = self.loop.create_future()
        return found

    def _set_reply(self, call_id: str, outcome: Any) -> None:
        self.reply_of(call_id).set_result(outcome)

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        if HERE.is_waiting:
            HERE.heard = colour if HERE.heard is None else max(HERE.heard, colour)
            return
        with self.lock:
            self.core.note(colour)
            if self.core.must_record:
                self._record_without_boundary()

    def begin_wait(self, wait: waits.TrackedWait) -> Performance | None:
        """The machine of this thread begins to wait inside its action: the floor goes to the others."""
        with self.lock:
            performance = self.performing
            if performance is None:
                return None
            performance.wait = wait
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
            self.floor.take_back()
            if HERE.heard is not None:
                self.core.note(HERE.heard)
            if self.core.must_record:
                self._record()
            self.core.resume(machine)
            self.suspended.pop(machine.name, None)
            self.action, self.action_began = performance.action, performance.began

    # ---- spawning and stopping ------------------------------------------------------------------------------------

    def spawn_here(
        self, creator: Machine, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None
    ) -> MachineHandle:
        """Create a machine on this host, on behalf of one of its machines."""
        key, blob = packed(kind)
        payload = isolate(creator.name, kind.__name__, "__init__", args, kwargs)
        names = None if name is None else [check_machine_name(name)]
        (child,) = waits.raw_get(self.service.claim.remote(kind.__name__, 1, names, [self.host]))
        with self.lock:
            self.core.create(creator.name, child, self.host, (key, blob, payload), time.time())
        return handle_of(self.run_id, child, self.host)

    def stop_machine(self, machine: Machine) -> None:
        """The machine stops behind the current action."""
        with self.lock:
            self.core.stop(machine)
        self.service.stopped.remote([machine.name])

    # ---- recording ------------------------------------------------------------------------------------------------

    def _record(self) -> None:
        """Turn red, at a boundary."""
        numbers = self.core.boundary()
        now = time.time()
        for number in numbers:
            self.recorded_at[number] = now
            self.markers[number] = len(self.core.outputs)
        self.flush()
        self._guard_soon()
        if not self.core.uncopied:
            self._report_what_is_copied()

    def _record_without_boundary(self) -> None:
        """Turn red in the middle of an action: that machine is recorded as active, without a state."""
        self.forced = self.performing.machine if self.performing else None
        self._record()
        if self.forced is not None:
            self.core._copy_if_due(self.forced)
        self.forced = None

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
                self.reported.add(number)
                self.loop.call_soon_threadsafe(self._start, self._report(recording))

    def report_if_born_red(self, number: int) -> None:
        """A host that was born red has nothing to record: it says so at once."""
        recording = self.core.open.get(number)
        if recording is not None and recording.is_copied and number not in self.reported:
            self.reported.add(number)
            self._start(self._report(recording))

    async def _report(self, recording: Recording) -> None:
        number = recording.number
        payload = await self.loop.run_in_executor(
            self.copier, host_payload, self.host, recording, self.recorded_at.get(number, time.time()), 1, self.markers.get(number, 0)
        )
        await self.service.report.remote(payload)

    def report_late(self) -> None:
        """Send on what white messages have arrived since the report; on the event loop, under the lock."""
        for number, recording in self.core.open.items():
            if recording.late or recording.late_creations:
                late, recording.late = recording.late, []
                creations, recording.late_creations = recording.late_creations, []
                self._start(self._send_late(number, late, creations))

    async def _send_late(self, number: int, late: list[Any], creations: list[Creation]) -> None:
        payload = await self.loop.run_in_executor(self.copier, late_payload, self.host, number, late, creations)
        await self.service.report.remote(payload)

    def copy_body(self, machine: Machine) -> BodyCopy:
        """What the snapshot holds of a machine; called by the core, under the lock, at most once per machine and instant."""
        body = machine.body
        class_name = type(body).__name__
        if machine is self.forced and self.performing is not None:
            site = call_site_of(self._action_thread())
            call = self._call_row(self.performing, site)
            return BodyCopy(class_name, "active", None, calls=[call], obstacle=f"inside {self.performing.method} at {site}")
        performance = self.suspended.get(machine.name)
        found = BodyCopy(class_name, "passive", None)
        if performance is not None and performance.wait is not None:
            self._describe_wait(found, performance, performance.wait)
        elif machine.is_stopped:
            found.status = "stopped"
        elif machine.is_held:
            self._describe_held(found, machine)
        self._copy_state(found, body)
        return found

    def _copy_state(self, found: BodyCopy, body: Any) -> None:
        try:
            found.state = to_json(body.snapshot_state())
            if found.status == "passive":
                wait = body.waiting_for()
                if wait is not None:
                    _describe(found, wait)
                elif body.is_active():
                    found.status = "active"
        except Exception as error:  # the user's hook; the snapshot goes on and says so
            found.obstacle = f"a hook raised {type(error).__name__}: {error}"
            text = to_json({"$error": found.obstacle}).text
            found.state = found.state or Encoded(text, True, len(text))

    def _describe_held(self, found: BodyCopy, machine: Machine) -> None:
        since = int(self.held_since.get(machine.name, time.time()) * 1e6)
        targets = tuple(dict.fromkeys(channel.target for channel in machine.over))
        found.status = "blocked"
        found.short_wait = ("all", len(targets), targets)
        found.waits = [
            {"alternative": 0, "k": len(targets), "on_machine": name, "satisfied": False, "waiting_since": since}
            for name in targets
        ]
        found.calls = [{"method": "(held at a full mailbox)", "holds_slot": True, "started_at": since}]

    def _describe_wait(self, found: BodyCopy, performance: Performance, wait: waits.TrackedWait) -> None:
        found.calls = [self._call_row(performance, wait.call_site)]
        if wait.timeout is not None or wait.has_foreign:
            found.status = "active"
            return
        found.status = "blocked"
        names = tuple(dict.fromkeys(name for name, _ in wait.on))
        mode = "all" if wait.k >= len(wait.on) else "any" if wait.k == 1 else "k_of_n"
        found.short_wait = (mode, wait.k, names)
        since = int(wait.since * 1e6)
        found.waits = [
            {"alternative": 0, "k": wait.k, "on_machine": name, "on_call_id": call_id, "waiting_since": since}
            for name, call_id in wait.on
        ]

    def _call_row(self, performance: Performance, site: str | None) -> dict[str, Any]:
        return {
            "call_id": performance.call_id,
            "caller": performance.source,
            "method": performance.method,
            "holds_slot": True,
            "call_site": site,
        }

    def _action_thread(self) -> int:
        return self.floor.holder or 0

    # ---- the guard ------------------------------------------------------------------------------------------------

    def expect(self, number: int, timeout: float) -> None:
        """A snapshot is asked for: it must be recorded here within half its timeout."""
        self.deadlines[number] = time.time() + timeout / 2
        self._guard_soon()

    def _guard_soon(self) -> None:
        if not self.is_guarding:
            self.is_guarding = True
            self.loop.call_soon_threadsafe(self._start, self._guard())

    async def _guard(self) -> None:
        """While a snapshot is open here: help where an action is long."""
        try:
            while not self.is_closing:
                await asyncio.sleep(GUARD_S)
                with self.lock:
                    if not self.core.must_record and not self.core.uncopied:
                        return
                    if self.core.must_record and self._is_overdue():
                        self._record_without_boundary()
                    if self.core.uncopied and self.performing is not None:
                        self._copy_slice()
        finally:
            self.is_guarding = False

    def _is_overdue(self) -> bool:
        due = [when for number, when in self.deadlines.items() if self.core.protocol.is_white(self.core.colour, number)]
        return bool(due) and time.time() > min(due)

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        for table in (self.recorded_at, self.deadlines, self.markers):
            table.pop(number, None)
        self.reported.discard(number)

    def close(self) -> None:
        """Stop acting."""
        with self.lock:
            self.is_closing = True
            self.floor.close()
        POSTS.pop(self.run_id, None)
        self.close_pump(self.tasks)


def _unwrapped(kind: str, payload: Any) -> tuple[str | None, Any]:
    """(call id, arguments) of what a message of this kind carries."""
    if kind == CALL:
        call_id, payload = payload
        return call_id, payload
    return None, payload[1] if kind == TIMER else payload


def _describe(found: BodyCopy, wait: Any) -> None:
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


class Host:
    """The Ray actor; asynchronous, so that any number of replies and controls can be awaited at once."""

    def __init__(self, config: HostConfig, service: Any) -> None:
        waits.install()
        self.post = HostPost(config, service, asyncio.get_event_loop())
        self.post.start()

    async def ready(self) -> str:
        """The host's name, once it acts."""
        return self.post.host

    async def deliver(self, blob: bytes) -> list[tuple[int, int]]:
        """A batch of a link; answers with acknowledgements for a source that cannot be called."""
        post = self.post
        batch = pickle.loads(blob)
        with post.lock:
            core = post.core
            core.arrive(batch)
            if core.open:
                post.report_late()
            if core.must_record:
                post._guard_soon()
            post.floor.wake()
            polled = core.polled_acknowledgements.get(batch[0])
            if not polled:
                return []
            acknowledgements = list(polled.items())
            polled.clear()
            return acknowledgements

    async def credit(self, source: str) -> list[tuple[int, int]]:
        """Acknowledgements for a source that cannot be called, as soon as there are any; empty after a second."""
        for _ in range(200):
            with self.post.lock:
                polled = self.post.core.polled_acknowledgements.get(source)
                if polled:
                    found = list(polled.items())
                    polled.clear()
                    return found
            await asyncio.sleep(0.005)
        return []

    async def reply(self, call_id: str) -> Any:
        """The result of a call that came over a link."""
        outcome = await self.post.reply_of(call_id)
        del self.post.replies[call_id]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def control(self, commands: list[tuple[Any, ...]]) -> None:
        """What the coordinator says, in order."""
        post = self.post
        with post.lock:
            for command in commands:
                _obey(post, command)
            post.flush()
            post.floor.wake()

    async def channels(self) -> list[tuple[str, str]]:
        """Every channel that leaves a machine of this host: (source, target)."""
        with self.post.lock:
            machines = list(self.post.core.machines.values())
            return [(machine.name, target) for machine in machines for target, _ in machine.outputs]

    async def doing(self) -> tuple[str, str, str | None, float] | None:
        """The action that is under way: (machine, method, call site, seconds); None between actions."""
        with self.post.lock:
            found = self.post.performing
            if found is None:
                return None
            return found.machine.name, found.method, call_site_of(self.post._action_thread()), time.time() - found.began

    async def close(self) -> None:
        """Stop acting; the process stays until it is killed."""
        self.post.close()


def _obey(post: HostPost, command: tuple[Any, ...]) -> None:
    match command:
        case ("request", number, timeout):
            post.core.request(number)
            post.expect(number, timeout)
            post.report_if_born_red(number)
        case ("close", number):
            post.core.close(number)
            post.forget(number)
        case ("abort", number):
            post.core.abort(number)
            post.forget(number)
        case ("stopped", names):
            post.core.stopped.update(names)
        case ("stop", name):
            post.stop_machine(post.core.machine(name))
        case ("connect", source, target):
            post.core.channel(post.core.machine(source), target, "mail")
            post._look_up()
        case ("failed", error):
            post.failure = post.failure or error


HostActor = ray.remote(Host)
