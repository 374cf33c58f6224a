"""A host's part in the run, put together."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ray_snapshot.errors import NotAMachineError, RaySnapshotError, RolledBackError
from ray_snapshot.first_array import warm_up
from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.choosing import BARRIERS, core_for
from ray_snapshot.protocol.copying import Asked, Group
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.classes import ClassStore, packed
from ray_snapshot.runtime.context import Context
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.actions import Actions
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.copier import Copier
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.held import HeldWatch
from ray_snapshot.runtime.host.notices import Notices, check_listener, listens
from ray_snapshot.runtime.host.ports import Ports
from ray_snapshot.runtime.host.recorder import Recorder
from ray_snapshot.runtime.host.replies import Replies, settle
from ray_snapshot.runtime.host.reporter import Reporter
from ray_snapshot.runtime.host.runner import Runner
from ray_snapshot.runtime.host.stage import Performance, Stage
from ray_snapshot.runtime.host.waiting import Waiting
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.report import BodyCopy
from ray_snapshot.runtime.tracing import Tracer, came_of
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.post import Post, Timer

GC_THRESHOLD = (50_000, 20, 50)
"""Messages are tuples, made by the hundred thousand and free of cycles: Python's default would walk them every 700."""


class HostPost(Post):
    """A host's post for one generation: after a rollback the host gets a new one."""

    def __init__(
        self,
        config: HostConfig,
        service: Any,
        loop: asyncio.AbstractEventLoop,
        classes: ClassStore | None = None,
    ) -> None:
        member = Membership(
            config.run_id, config.host, service, loop, generation=config.generation, recovers=config.recover
        )
        tracer = None if config.trace is None else Tracer(config.run_id, config.host, config.trace)
        self.config = config
        self.classes = classes or ClassStore()
        self.stage = stage = Stage()
        self.floor = floor = Floor(member.lock)
        self.ports = Ports(self.classes)
        self.replies = Replies(config.run_id)
        self.notices = Notices()
        self.copier = copier = Copier(config, member, stage, floor, self.classes, self.ports, self.replies)
        core = core_for(
            config.protocol,
            config.host,
            born=config.colour,
            barriers={"clock": time.monotonic, "on_open": self._opened},
            copy_body=copier.copy,
            copy_bodies=copier.copy_all,
            copy_group=self._copy_group,
            is_lasting=None if config.protocol in BARRIERS else self._may_rest,
            bound=config.mailbox_bound,
            polled=("driver",),
            open_at_birth=config.open_at_birth,
            life=config.life + config.generation,  # neither ever falls: no two of its hosts' lives are numbered alike
        )
        super().__init__(member, core, spawn_timeout=config.spawn_timeout, tracer=tracer)
        self.held = HeldWatch(member, core, stage, config.send_timeout)
        reports = ThreadPoolExecutor(1, "ray-snapshot-report")
        self.at_rest = at_rest = AtRest(member, core, copier.unchanged, reports)
        self.reporter = Reporter(
            config, member, core, stage, self.trace, self.classes, self.notices, at_rest, copier.meter, reports
        )
        self.recorder = Recorder(
            member, core, stage, floor, self.carrier, at_rest, self.reporter, copier.meter, config.alignment_timeout
        )
        self.actions = Actions(
            member, core, stage, self.classes, self.ports, self.replies, tracer, lambda machine: Context(self, machine)
        )
        self.runner = Runner(
            member, core, stage, floor, self.carrier, self.trace, self.recorder, self.held, self.notices, self.actions,
            copier.unchanged, self._enter, self.stop_machine,
        )  # fmt: skip
        self.waiting = Waiting(member, core, stage, floor, self.carrier, self.recorder, tracer, self.runner.new_thread)
        self.warming = threading.Thread(target=warm_up, name="ray-snapshot-warm-up", daemon=True)
        self.abroad: Abroad | None = None
        self.timers: list[Timer] = []
        """Restored timers, to be set when the host starts."""
        member.on_wake = floor.wake
        member.on_stop.append(self._has_stopped)

    def join(self, abroad: Abroad) -> None:
        """Watched actors are part of the system; before the host starts."""
        self.is_joined = self.member.may_be_undone = True
        self.abroad = self.waiting.abroad = self.runner.abroad = abroad
        self.recorder.abroad = self.reporter.abroad = self.copier.abroad = abroad

    def _may_rest(self, machine: Machine, copy: BodyCopy) -> bool:
        kind: type = type(machine.body)
        if self.config.checkpoint and listens(kind):  # its object is touched behind each snapshot that is kept
            return False
        return self.at_rest.may_rest(machine, copy)

    def _copy_group(self, machines: Sequence[Machine], may_rest: Asked | None) -> Group | None:
        return self.copier.copy_group(machines, may_rest if self.at_rest.rows.has_room else None)

    def _opened(self, number: int) -> None:
        """Under barriers: this host has heard of a snapshot, and may align for so long from now on."""
        self.recorder.bound_alignment(number)

    def _enter(self) -> None:
        HERE.post = self

    def _has_stopped(self, error: RaySnapshotError) -> None:
        self.notices.give_up()
        self.replies.fail(error)

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to act."""
        POSTS[self.member.run_id] = self
        gc.set_threshold(*GC_THRESHOLD)
        if self.abroad is not None:
            self.abroad.call_again()
        self.runner.new_thread()
        self.warming.start()

    def arm(self) -> None:
        """Set the restored timers, look for names that restored messages go to, and send what was in flight."""
        with self.member.lock:
            self.set_again(self.timers)
            self.timers = []
            self.places.look_up()
            self.carrier.flush()
            self.floor.wake()

    def constructed(self) -> int:
        """How many machines have been constructed here, those included that wait in their constructor.

        No machine counts before this process can report at once: the first snapshot would wait for that.
        """
        if self.warming.is_alive():
            return 0
        with self.member.lock:
            return self.actions.construct_count + self.stage.constructing()

    def retire(self, error: RolledBackError) -> None:
        """Stop acting for good: the system is rolled back, and another post takes the place of this one.

        An action that is under way cannot be stopped; but nothing that it sends, calls, creates or answers from now on
        leaves this post, and where it waits or sends it gets this error.
        """
        with self.member.lock:
            self.member.is_closing = self.member.is_retired = True
            self.member.failure = error
            self._has_stopped(error)
            self.floor.close()
        self.member.cancel()
        self.reporter.shut_down()

    def close(self) -> None:
        """Stop acting."""
        with self.member.lock:
            self.member.is_closing = True
            self.member.is_retired = self.member.failure is not None
            self.floor.close()
        self.member.loop.call_soon_threadsafe(self.reporter.answers.nothing)
        POSTS.pop(self.member.run_id, None)
        self.member.cancel()

    # ---- for machines, in an action thread ------------------------------------------------------------------------

    def acting(self) -> Machine:
        machine = HERE.machine
        if machine is None or HERE.post is not self:
            if HERE.post is not None and HERE.post.member.is_retired:
                HERE.post.check()
            raise NotAMachineError(
                f"a thread of host {self.member.host} that is in no action tried to send: only a machine's own actions send"
            )
        return machine

    def begin_wait(self, wait: waits.TrackedWait) -> Performance | None:
        """The machine of this thread begins to wait inside its action."""
        with self.member.lock:
            if self.member.is_retired:
                self.check()
            return self.waiting.begin(wait)

    def end_wait(self, performance: Performance | None) -> None:
        """The wait is over."""
        if performance is None:
            return
        is_traced = self.trace.tracer is not None
        came = came_of(performance.wait) if is_traced and performance.wait is not None else None
        with self.member.lock:
            HERE.is_waiting = False
            if self.member.is_retired:
                self.check()
            self.floor.take_back()
            if self.member.is_retired:
                self.check()
            self.waiting.end(performance, came)

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        self.waiting.heard(colour)

    def spawn_here(
        self, creator: Machine, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None
    ) -> MachineHandle:
        """Create a machine on this host, on behalf of one of its machines."""
        member, tracer = self.member, self.trace.tracer
        key, blob = packed(kind)
        kind = getattr(kind, "machine_class", kind)
        check_listener(kind, is_checkpointing=self.config.checkpoint)
        payload = isolate(creator.name, kind.__name__, "__init__", args, kwargs)
        names = None if name is None else [check_machine_name(name)]
        claim = member.service.claim.remote(kind.__name__, 1, names, [member.host], None, member.generation)
        (child,) = waits.answer_of(claim)
        with member.lock:
            self.check()
            self.core.create(creator.name, child, member.host, (key, blob, payload), time.time())
            if tracer is not None:
                tracer.created(creator.name, child, kind, payload, self.core.colour_of(creator))
        return handle_of(member.run_id, child, member.host)

    def stop_machine(self, machine: Machine) -> None:
        """The machine stops behind the current action."""
        member = self.member
        with member.lock:
            self.core.stop(machine)
            colour = self.core.colour_of(machine)
            self.replies.refuse(machine.name, colour)
            member.service.stopped.remote([machine.name], colour, member.generation)

    # ---- for the Ray actor, on its event loop ---------------------------------------------------------------------

    def declare(self, target: str, port: str, source: str, site: str | None = None) -> None:
        """`source` sends to that port of a machine of this host; under the lock. The system stops if it has no such port."""
        self.ports.declare(target, port, source, site)
        self.copier.unchanged.changed(target)
        machine = self.core.machines.get(target)
        if machine is not None:
            self.core.copying.wake(machine)
        if machine is None or machine.body is None or machine.is_suspended:
            return
        if (wrong := self.ports.wrong(machine)) is not None:
            self.member.fail(wrong)

    def reply_to(self, call_id: str, machine: str) -> Future[Any]:
        """What will hold the result of a call; an error at once if nothing will give one."""
        with self.member.lock:
            found = self.replies.of(call_id, machine)
            if self.member.failure is not None:
                settle(found, self.member.failure)
            elif machine in self.core.machines and self.core.machines[machine].is_stopped:
                self.replies.refuse(machine, self.core.colour_of(self.core.machines[machine]))
            return found

    async def notify(self, number: int, snapshot_id: str | None) -> None:
        """A snapshot is kept (None: it never will be); answers when every machine that wants to know it has been told.

        Raises what stops them.
        """
        member = self.member
        with member.lock:
            if snapshot_id is None:
                self.notices.forget(number)
                return
            found = self.notices.add(number, snapshot_id)
            if member.failure is not None or member.is_closing:
                self.notices.give_up()
            self.floor.wake()
        for notice in found:
            await asyncio.wrap_future(notice.done)
        if member.failure is not None:  # they may not have been told
            raise member.failure.with_traceback(None)
