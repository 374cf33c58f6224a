"""Where machines of a host wait: for answers, inside their actions, and at full mailboxes."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any

from ray_snapshot.errors import (
    MailboxFullError,
    RaySnapshotError,
)
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host_recording import Recorder
from ray_snapshot.runtime.host_state import Performance
from ray_snapshot.runtime.replies import settle

HELD_LOOKS = 20
"""How often a machine that is held is looked at, within the time that it may be."""


class Waiting(Recorder):
    """See the module."""

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

    def _answer(
        self, machine: Machine, method: str, calls: tuple[str, ...], result: Any, error: Exception | None
    ) -> None:
        """A called method is over: its callers are told, with the colour that this host has now."""
        outcome = self.replies.outcome(machine.name, method, result, error)
        with self.lock:
            outcome.colour = self.core.colour_of(machine)
            self.replies.give(machine.name, calls, outcome)

    def reply_to(self, call_id: str, machine: str) -> Future[Any]:
        """What will hold the result of a call; an error at once if nobody will give one."""
        with self.lock:
            found = self.replies.of(call_id, machine)
            if self.failure is not None:
                settle(found, self.failure)
            elif machine in self.core.machines and self.core.machines[machine].is_stopped:
                self.replies.refuse(machine, self.core.colour_of(self.core.machines[machine]))
            return found

    def stop_with(self, error: RaySnapshotError) -> None:
        with self.lock:
            super().stop_with(error)
            self.notices.give_up()
            self.replies.fail(error)

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
