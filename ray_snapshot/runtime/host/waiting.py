"""Machines of a host that wait inside their actions for a reply, and what the host hears from replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ray_snapshot.protocol.host import HostCore
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.recorder import Recorder
from ray_snapshot.runtime.host.stage import Performance, Stage
from ray_snapshot.runtime.tracing import Tracer
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership


@dataclass(eq=False)
class Waiting:
    """Tracked waits (`runtime.waits`) of one host's machines."""

    member: Membership
    core: HostCore
    stage: Stage
    floor: Floor
    carrier: Carrier
    recorder: Recorder
    tracer: Tracer | None
    new_runner: Callable[[], None]
    """Starts another action thread, for when no other thread looks for work."""
    abroad: Abroad | None = None

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        if HERE.is_waiting:
            HERE.heard = colour if HERE.heard is None else max(HERE.heard, colour)
            return
        with self.member.lock:
            self.core.note(colour, HERE.machine)
            if self.core.must_record:
                self.recorder.record_without_boundary()

    def begin(self, wait: waits.TrackedWait) -> Performance | None:
        """The machine of this thread begins to wait inside its action: the floor goes to the others; under the lock."""
        performance = self.stage.performing
        if performance is None:
            return None
        performance.wait = wait
        if self.tracer is not None:
            self.tracer.waits(performance.machine.name, wait)
        if wait.calls and self.abroad is not None:
            performance.wait_id = self.abroad.begin_wait(performance.machine, wait)
        self.stage.suspend(performance)
        self.core.suspend(performance.machine)
        HERE.is_waiting = True
        HERE.heard = None
        self.carrier.flush()
        self.floor.give()
        if self.floor.spare == 0:
            self.new_runner()
        return performance

    def end(self, performance: Performance, came: str | None = None) -> None:
        """The floor has come back at a boundary: what the reply was red for is recorded first; under the lock.

        `came`: what is logged of the wait, if the system is traced.
        """
        machine = performance.machine
        wait, abroad = performance.wait, self.abroad
        if HERE.heard is not None:
            self.core.note(HERE.heard, machine)
        if abroad is not None and wait is not None and wait.error is not None:
            self.core.note(abroad.colour_of(wait))
        if self.core.must_record:
            self.recorder.record()
        if abroad is not None and wait is not None and performance.wait_id is not None:
            abroad.end_wait(machine, performance.wait_id, wait)
        self.core.resume(machine)
        self.core.acting = machine
        if self.tracer is not None and came is not None:
            self.tracer.waited(machine.name, came, self.core.colour_of(machine))
        self.stage.resume(performance)
