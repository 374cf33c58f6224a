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
from typing import Any, cast

from ray_snapshot import redaction
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import (
    HostDiedError,
    MachineFailedError,
    NotAMachineError,
    RaySnapshotError,
    RolledBackError,
    UnknownMethodError,
)
from ray_snapshot.names import DRIVER, check_machine_name
from ray_snapshot.protocol.host import Creation, Machine
from ray_snapshot.protocol.mailbox import CALL, MAIL, METHOD, TIMER, Mailbox, Message
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.classes import packed
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.faults import as_error, named
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host_copying import told
from ray_snapshot.runtime.host_state import HostConfig
from ray_snapshot.runtime.host_waiting import Waiting
from ray_snapshot.runtime.notices import HOOK, Notice, check_listener
from ray_snapshot.runtime.payload import isolate, opened, recorded_args

BROKEN_S = 60.0
"""How long an action that was cut short by the loss of a host waits for the system to be rolled back."""


_OWN_FOLDER = os.path.dirname(__file__)
_LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen ")
"""Where an error may come from that somebody's own statement has caused."""


GC_THRESHOLD = (50_000, 20, 50)
"""Messages are tuples, made by the hundred thousand and free of cycles: Python's default would walk them every 700."""


class HostPost(Waiting):
    """A host's part in the run."""

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
                if isinstance(work, Creation):
                    last = self._construct(work)
                else:
                    last = self._tell(work) if isinstance(work, Notice) else self._perform(*work)
                if self.tracer is not None:
                    self.write_out_trace()
        except Exception as error:  # a fault of ours; the system must not go on half
            self.fail(_internal(error))

    def _next(self, last: Machine | None) -> Creation | Notice | tuple[Machine, list[tuple[Mailbox, Message]]] | None:  # noqa: PLR0912 - one branch per thing to do; a call each would cost every message
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
            if self.to_stop and (due := self._due_to_stop()) is not None:
                self.stop_machine(core.machine(due))
                continue
            if core.must_flush:
                self.flush()
            if self.failure is None:
                if self.notices.due and (notice := self._notice()) is not None:
                    return notice
                work = core.next_birth() or core.next_action()
                if work is not None:
                    # Under the lock that accepted it: who records without a boundary must find the action here.
                    self.action = None if isinstance(work, Creation) else (work[0], *work[1][0])
                    if self.action is not None and self.action[1].kind == CALL:
                        self.replies.answering[self.action[0].name] = (self.action[2][3][0],)
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
                self.replies.answering[machine.name] = calls
            method = getattr(machine.body, name, None)
            if method is None:
                raise self._no_such_method(machine, name, mailbox.source)
            if redaction.is_active:
                redaction.met(name, *opened(payload))
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
            if redaction.is_active:
                redaction.met("__init__", args, kwargs)
            body.__init__(*args, **kwargs)
        except BaseException as error:
            if self.tracer is not None:
                self.tracer.raised(machine.name, error)
            self._failed(machine, "__init__", creation.creator, payload, error)
        with self.lock:
            self.check_ports(machine)
            self.action = HERE.machine = None
            self.construct_count += 1
            self.core.resume(machine)
        return machine

    def _notice(self) -> Notice | None:
        """Who is to be told that a snapshot is kept, at this boundary; under the lock."""
        notice = self.notices.next(self.core.machines)
        if notice is not None:
            machine = self.core.machine(notice.machine)
            self.core.begin_action(machine)
            message = (0, 0, HOOK, (), 0.0, self.core.colour_of(machine))
            self.action = (machine, Mailbox(machine.name, MAIL, machine.inbox), message)
            self.action_began = time.time()
        return notice

    def _tell(self, notice: Notice) -> Machine:
        """Tell a machine that a snapshot is kept; like an action, but nobody's: what it sends is an error."""
        machine = self.core.machine(notice.machine)
        HERE.machine = None
        try:
            notice.tell(machine.body)
        except BaseException as error:
            self._failed(machine, HOOK, "the service", (), error)
        notice.settle()
        return machine

    async def told(self, number: int, snapshot_id: str | None) -> None:
        """A snapshot is kept (None: it never will be); answers when every machine that wants to know it has been told.

        Raises what stops them.
        """
        with self.lock:
            if snapshot_id is None:
                self.notices.forget(number)
                return
            found = self.notices.add(number, snapshot_id)
            if self.failure is not None or self.is_closing:
                self.notices.give_up()
            self.floor.wake()
        for notice in found:
            await asyncio.wrap_future(notice.done)
        if self.failure is not None:  # they may not have been told
            raise self.failure.with_traceback(None)

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
        message = to_json(recorded_args(payload, method)[0]).text[:500]
        site, said = _raised_at(error), told(error, machine.body)
        self.fail(
            MachineFailedError(
                f"{machine.name}.{method} raised {type(error).__name__}: {said}{f' at {site}' if site else ''}"
                f" (message from {source}, args {message})",
                machine=machine.name,
                method=method,
                message=message,
                source=source,
                traceback=redaction.scrubbed("".join(traceback.format_exception(error))),
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

    # ---- spawning and stopping ------------------------------------------------------------------------------------

    def spawn_here(
        self, creator: Machine, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None
    ) -> MachineHandle:
        """Create a machine on this host, on behalf of one of its machines."""
        key, blob = packed(kind)
        kind = getattr(kind, "machine_class", kind)
        check_listener(kind, is_checkpointing=self.config.checkpoint)
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

    def _due_to_stop(self) -> str | None:
        """A machine that the driver has stopped, and that has accepted what comes before that, or waits for more."""
        for name, count in self.to_stop:
            inbox = self.core.machine(name).inbox
            mail = inbox.mailboxes.get((DRIVER, MAIL))
            if not count or (mail is not None and (mail.accepted >= count or _waits_for_a_join(mail, count))):
                self.to_stop.remove((name, count))
                return name
        return None

    def stop_machine(self, machine: Machine) -> None:
        """The machine stops behind the current action."""
        with self.lock:
            self.core.stop(machine)
            colour = self.core.colour_of(machine)
            self.replies.refuse(machine.name, colour)
            self.service.stopped.remote([machine.name], colour, self.generation)

    # ---- life -----------------------------------------------------------------------------------------------------

    def retire(self, error: RolledBackError) -> None:
        """Stop acting for good: the system is rolled back, and another post takes the place of this one.

        An action that is under way cannot be stopped; but nothing that it sends, calls, creates or answers from now on
        leaves this post, and where it waits or sends it gets this error.
        """
        with self.lock:
            self.is_closing = True
            self.failure = error
            self.notices.give_up()
            self.floor.close()
            self.replies.fail(error)
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


def _waits_for_a_join(mail: Mailbox, count: int) -> bool:
    """Whether so many messages are there, and the next of them waits for the rest of its join."""
    inbox = mail.owner
    return mail.arrived >= count and mail.queue[0][METHOD] in inbox.ports and mail not in inbox.ready


def _is_data(body: Any, name: str) -> bool:
    """Whether the object has an attribute of this name that is no method."""
    found = inspect.getattr_static(body, name, None)
    return found is not None and not callable(found) and not isinstance(found, classmethod)


def _is_of_a_lost_host(error: BaseException | None) -> bool:
    """Whether an error is there because a host is gone, or because the others have been rolled back already."""
    while error is not None:
        if isinstance(error, (HostDiedError, RolledBackError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _raised_at(error: BaseException) -> str | None:
    """ "file:line" of the statement that raised, or that called the library which did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN_FOLDER)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else None


def _internal(error: Exception) -> RaySnapshotError:
    text = redaction.scrubbed("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    return RaySnapshotError(f"a host's action thread failed: {named(error)}\n{text}")


__all__ = ["HostConfig", "HostPost"]
