"""Machines that are held at full mailboxes: none may be for longer than `send_timeout`."""

from __future__ import annotations

import asyncio
import time

from ray_snapshot.errors import MailboxFullError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.transport.membership import Membership


class HeldWatch:
    """Looks after those machines of one host, as long as there are any."""

    def __init__(self, member: Membership, core: HostCore, stage: Stage, send_timeout: float) -> None:
        self.member = member
        self.core = core
        self.stage = stage
        self.send_timeout = send_timeout
        self.is_watching = False

    def add(self, machine: Machine) -> None:
        """From now on this machine is held; under the lock."""
        self.stage.held_since[machine.name] = time.time()
        if not self.is_watching:
            self.is_watching = True
            self.member.start_soon(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.send_timeout / LIMITS.held_looks)
            with self.member.lock:
                held = {name: at for name, at in self.stage.held_since.items() if self.core.machines[name].is_held}
                self.stage.held_since = held
                self.is_watching = bool(held)
            if not held:
                return
            first = min(held, key=held.__getitem__)
            if time.time() - held[first] > self.send_timeout:
                self.member.fail(self._held_too_long(self.core.machines[first]))
                return

    def _held_too_long(self, machine: Machine) -> MailboxFullError:
        with self.member.lock:
            target = machine.over[0].target if machine.over else "another machine"
        return MailboxFullError(
            f"{machine.name} was held at the full mailbox of {target} for {self.send_timeout:g} s"
            f" ({self.core.bound} messages not accepted): make {target} accept faster, send less,"
            " or raise mailbox_bound or send_timeout",
            machine=machine.name,
            target=target,
            seconds=self.send_timeout,
        )
