"""The action threads of a host, of which the one that holds the floor runs one action after the other."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import Creation, HostCore, Machine
from ray_snapshot.protocol.mailbox import CALL, MAIL, METHOD, Mailbox, Message, end_of
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.actions import Actions
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.held import HeldWatch
from ray_snapshot.runtime.host.notices import HOOK, Notice, Notices
from ray_snapshot.runtime.host.recorder import Recorder
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.host.unchanged import Unchanged
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping


class Stops:
    """Machines that the driver has stopped, until what it had sent them before has been accepted; under the host's lock."""

    def __init__(self) -> None:
        self.asked: deque[tuple[str, int]] = deque()
        """(machine, how many of the driver's messages come before that)."""

    def ask(self, machine: str, count: int) -> None:
        """The driver has stopped a machine behind so many messages of its own."""
        self.asked.append((machine, count))

    def take(self, core: HostCore) -> str | None:
        """The next machine to stop: it has accepted what comes before its stop, or waits for the rest of a join in it.
        None if there is none."""
        for machine, count in self.asked:
            mail = core.machine(machine).inbox.mailboxes.get(end_of(DRIVER, MAIL))
            if not count or (mail is not None and (mail.accepted >= count or _waits_for_a_join(mail, count))):
                self.asked.remove((machine, count))
                return machine
        return None


def _waits_for_a_join(mail: Mailbox, count: int) -> bool:
    """Whether so many messages are there, and the next of them waits for the rest of its join."""
    inbox = mail.owner
    return mail.arrived >= count and mail.queue[0][METHOD] in inbox.ports and mail not in inbox.ready


@dataclass(eq=False)
class Runner:
    """Chooses at each boundary what comes next."""

    member: Membership
    core: HostCore
    stage: Stage
    floor: Floor
    carrier: Carrier
    trace: TraceShipping
    recorder: Recorder
    held: HeldWatch
    notices: Notices
    actions: Actions
    unchanged: Unchanged
    enter: Callable[[], None]
    """Called first in each action thread."""
    stop_machine: Callable[[Machine], None]
    abroad: Abroad | None = None
    stops: Stops = field(default_factory=Stops)
    threads: list[threading.Thread] = field(default_factory=list)
    """Action threads, some of which may have ended."""

    @property
    def is_acting(self) -> bool:
        """Whether an action thread is alive; once the floor is closed, such a thread is inside an action."""
        return any(thread.is_alive() for thread in self.threads)

    def new_thread(self) -> None:
        """Another thread looks for work, as soon as the floor is free."""
        runner = threading.Thread(target=self._run, name="ray-snapshot-actions", daemon=True)
        self.threads = [*(thread for thread in self.threads if thread.is_alive()), runner]
        runner.start()

    def _run(self) -> None:
        self.enter()
        with self.member.lock:
            alive = self.floor.take()
        last: Machine | None = None
        try:
            while alive:
                with self.member.lock:
                    work = self._next(last)
                if work is None:
                    return
                if isinstance(work, Creation):
                    last = self.actions.construct(work)
                else:
                    last = self.actions.notify(work) if isinstance(work, Notice) else self.actions.perform(*work)
                if self.trace.tracer is not None:
                    self.trace.write_out()
        except Exception as error:  # a fault of ours; the system must not go on half
            self.member.fail(_internal(error))

    def _next(self, last: Machine | None) -> Creation | Notice | tuple[Machine, list[tuple[Mailbox, Message]]] | None:  # noqa: PLR0912 - one branch per thing to do; a call each would cost every message
        """The boundary: what happens between two actions, and what comes next; None when the host closes."""
        core, floor, stage, tracer = self.core, self.floor, self.stage, self.trace.tracer
        core.acting = None
        if last is not None and self.abroad is not None:
            self.abroad.ended(last)
        if last is not None and tracer is not None:
            tracer.end(last.name)
        if last is not None and last.over:
            core.end_action(last)
            if last.is_held:
                self.held.add(last)
        while not floor.is_closed:
            if floor.returning:
                floor.give()
                floor.take()
                continue
            if core.must_record:
                self.recorder.record()
            if core.copying.uncopied:
                self.recorder.copy_slice()
            if self.stops.asked and (due := self.stops.take(core)) is not None:
                self.stop_machine(core.machine(due))
                continue
            if core.must_flush:
                self.carrier.flush()
            if self.member.failure is None:
                if self.notices.due and (notice := self._notice()) is not None:
                    return notice
                work = core.next_birth() or core.next_action()
                if work is not None:
                    # Under the lock that accepted it: a recording without a boundary must find the action here.
                    stage.action = action = None if isinstance(work, Creation) else (work[0], *work[1][0])
                    if action is not None:
                        self.unchanged.changed(action[0].name)
                    if action is not None and type(action[1].end) is tuple and action[1].kind == CALL:
                        self.actions.replies.answering[action[0].name] = (action[2][3][0],)
                    if tracer is not None and not isinstance(work, Creation):
                        tracer.accepted(work[0].name, work[1], core.colour_of(work[0]))
                    stage.began = time.time()
                    return work
            stage.action = HERE.machine = None
            if core.copying.uncopied:
                floor.pause(self.recorder.pause_s)
            else:
                self.carrier.flush()
                floor.idle()
        return None

    def _notice(self) -> Notice | None:
        """The machine to be told at this boundary that a snapshot is kept; under the lock."""
        notice = self.notices.next(self.core.machines)
        if notice is not None:
            machine = self.core.machine(notice.machine)
            self.core.begin_action(machine)
            self.unchanged.changed(machine.name)
            message = (0, 0, HOOK, (), 0.0, self.core.colour_of(machine))
            self.stage.action = (machine, Mailbox(machine.name, MAIL, machine.inbox), message)
            self.stage.began = time.time()
        return notice


def _internal(error: Exception) -> RaySnapshotError:
    text = "".join(traceback.format_exception(error))
    return RaySnapshotError(f"a host's action thread failed: {named(error)}\n{text}")
