"""A watched actor (or the driver) that sends to machines of hosts: a core beside its ledger, which turns red with that.

The core hosts no machine but the sender, and nothing is sent to it by mail. It is never held at a full mailbox: an actor that
its machine waits for would be held by us, and not by its own doing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ray.exceptions import RayError

from ray_snapshot.errors import MachineStoppedError, RaySnapshotError, SystemNotRunningError
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.here import class_in
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import sender_name
from ray_snapshot.parts.refilling import Sent, refill
from ray_snapshot.parts.reporting import report
from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.checkpointing import SavedMessage, payload_of
from ray_snapshot.runtime.collected import JoinedSystem
from ray_snapshot.runtime.handles import POSTS, MachineHandle
from ray_snapshot.runtime.rows import MailPart
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.post import Post

UNBOUNDED = 2**62
"""More messages than any channel ever carries."""


class ActorPost(Post):
    """A watched actor's part in a system of machines."""

    def __init__(self, process: Process, run_id: str, joined: JoinedSystem) -> None:
        self.sender = sender_name(process.machine, process.ledger.incarnation)
        loop, generation = asyncio.new_event_loop(), process.reloading.loaded
        member = Membership(run_id, self.sender, process.watcher, loop, generation=generation, lock=process.lock)
        core = core_for(
            joined.protocol,
            self.sender,
            turning=process.ledger.turning,
            copy_body=lambda machine: None,  # noqa: ARG005 - its ledger has the state
            bound=UNBOUNDED,
        )
        core.born(self.sender, self)
        core.acting = None  # each of its sends is an action
        super().__init__(member, core, spawn_timeout=joined.spawn_timeout, tracer=None)
        self.process = process
        self.carrier.is_deaf = True
        self.places.is_tracked = False
        self.life = joined.life
        self.recorded: dict[int, MailPart] = {}
        self.stopping: list[str] = []
        """Machines that have stopped, on hosts that are redder than this process."""
        core.learn_stopped(joined.stopped)
        CONNECTION.before_end.append(self._leave_with_process)
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-mail", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        loop = self.member.loop
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    # ---- sending -------------------------------------------------------------------------------------------------------

    def acting(self) -> Machine:
        self.process.take_in()
        return self.core.machines[self.sender]

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with self._by_its_class():
            super().send(handle, method, args, kwargs)

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        with self._by_its_class():
            super().send_after(seconds, handle, method, args, kwargs)

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._by_its_class():
            return super().call(handle, method, args, kwargs)

    @contextmanager
    def _by_its_class(self) -> Iterator[None]:
        """An error names this actor by its class: the program does not know its name between processes."""
        try:
            yield
        except MachineStoppedError as error:
            text = str(error).replace(self.sender, class_in(self.process.machine))
            raise MachineStoppedError(text, machine=error.machine) from None

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        self.process.heard(colour)

    # ---- as its process meets it (`process.Mail`) ------------------------------------------------------------------------

    def turn(self) -> tuple[int, ...]:
        """Turn red for what is due; returns the numbers, rising."""
        core = self.core
        numbers = core.boundary()
        while core.copy_next():
            pass
        for number in [number for number in numbers if number in core.open]:
            found = MailPart(self.life)
            found.counts = report(core.host, core.open[number], found)
            self.recorded[number] = found
            core.close(number)
        core.learn_stopped(self.stopping)
        self.stopping.clear()
        self.carrier.flush()
        return numbers

    def part(self, number: int) -> MailPart | None:
        """What was recorded for a number; once."""
        return self.recorded.pop(number, None)

    def learn_stopped(self, names: Iterable[str], colour: int) -> None:
        """Machines have stopped, on a host of this colour: sending to them is an error once this process has recorded that."""
        if self.process.ledger.hear(colour):
            self.stopping += names
        else:
            self.core.learn_stopped(names)

    def _see_off(self) -> None:
        """Wait, not for long, until what was sent has arrived."""
        deadline = time.monotonic() + LIMITS.last_mail_s
        while self._is_carrying() and not self.member.is_closing and time.monotonic() < deadline:
            time.sleep(0.001)

    def _is_carrying(self) -> bool:
        links = self.core.outputs.values()
        return bool(self.carrier.fetching) or any(link.in_flight or link.messages for link in links)

    def leave(self) -> None:
        """There are no machines any more."""
        self._end(RaySnapshotError("the machines of this system have ended"))

    def _leave_with_process(self) -> None:
        self._see_off()
        self._end(RaySnapshotError("this process ends"))
        self.thread.join(LIMITS.last_mail_s)

    def _end(self, error: RaySnapshotError) -> None:
        with suppress(ValueError):  # the process ends
            CONNECTION.before_end.remove(self._leave_with_process)
        self.member.is_closing = True
        self.member.failure = self.member.failure or error
        POSTS.pop(self.member.run_id, None)
        asyncio.run_coroutine_threadsafe(self.member.end(), self.member.loop)

    def pause(self) -> None:
        """The app is to go back."""
        self.member.is_rolling = True

    def load(self, generation: int, share: bytes | None) -> bool:  # noqa: ARG002 - nothing of the past is of use
        """False: this actor's next life gets another when it sends."""
        self._end(self.process.reloading.refusal())
        return False

    def resume(self) -> None:
        """All go on."""
        self.member.is_rolling = False

    def check(self) -> None:
        """Also raise `RolledBackError` while the app goes back."""
        super().check()
        if self.member.is_rolling:
            raise self.process.reloading.refusal()


_opening = threading.Lock()


def open_post(process: Process, run_id: str) -> Post | None:
    """This actor's part in the run of its watch; None if no system of machines has joined that."""
    with _opening:
        if run_id in POSTS:
            return POSTS[run_id]
        joined = _joined_system(process)
        if joined is None or joined.run_id != run_id:
            return None
        with process.lock:
            if run_id in POSTS:
                return POSTS[run_id]
            if process.mail is not None or process.is_closed:  # of a system that has ended meanwhile
                return None
            return _opened(process, joined)


def _opened(process: Process, joined: JoinedSystem) -> ActorPost:
    post = ActorPost(process, joined.run_id, joined)
    process.send_with(post)
    POSTS[joined.run_id] = post
    return post


def send_again(process: Process, joined: JoinedSystem, messages: Iterable[SavedMessage]) -> None:
    """The app has gone back: send what was in flight, before anything else is sent; under the lock."""
    post = _opened(process, joined)
    again = (
        Sent(post.sender, target, kind, method, payload_of(payload), sent_at)
        for _, target, kind, _, method, payload, _, sent_at in messages
    )
    refill(post.core, {}, (), again)
    post.places.look_up()
    post.carrier.flush()


def _joined_system(process: Process) -> JoinedSystem | None:
    """What the watcher says of the machines; raises `SystemNotRunningError` if it says nothing."""
    try:
        reply = CONNECTION.use(lambda: process.watcher.joined_system.remote(process.machine).future())
        found: JoinedSystem | None = None if reply is None else reply.result(LIMITS.machines_answer_s)
    except (TimeoutError, RayError) as error:
        raise SystemNotRunningError(
            f"nothing can be sent to machines: what watches {process.system.partition(':')[0]} does not answer"
            f" ({type(error).__name__})",
            system=None,
        ) from None
    return found
