"""Where the driver's program is held: at full mailboxes, and while the system is being rolled back.

A host acknowledges what it has accepted in answers to deliveries; a driver that is held sends none, so it asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ray.exceptions import RayActorError

from ray_snapshot.errors import MailboxFullError, RolledBackError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.driver.program import Held, Program
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership


class Holding:
    """Holds the threads of the driver's program; `check` raises what has stopped the system."""

    def __init__(
        self,
        member: Membership,
        carrier: Carrier,
        program: Program,
        send_timeout: float,
        check: Callable[[], None],
    ) -> None:
        self.member = member
        self.carrier = carrier
        self.program = program
        self.send_timeout = send_timeout
        self.check = check
        self.changed = threading.Condition(member.lock)
        """Notified when something that a held thread waits for may have come."""
        self.polling: set[str] = set()
        """Hosts that have been asked what they have accepted, and have not answered yet."""

    # ---- full mailboxes -------------------------------------------------------------------------------------------

    def hold_back(self, machine: Machine) -> None:
        """Wait until every channel is under its bound again; raises `MailboxFullError` past the bound in time.

        A driver of an older generation is not held: nothing of what it has sent is waited for any more.
        """
        deadline = time.monotonic() + self.send_timeout
        thread, since = threading.get_ident(), time.time()
        with self.member.lock:
            try:
                while self._is_held(machine) and (left := deadline - time.monotonic()) > 0:
                    self.check()
                    targets = tuple(dict.fromkeys(channel.target for channel in machine.over))
                    self.program.resting[thread] = Held(targets, since, self.carrier.core.bound)
                    self._poll_credit(machine)
                    self.changed.wait(min(left, LIMITS.held_driver_look_s))
                if self._is_held(machine):
                    raise self._held_too_long(machine)
            finally:
                self.program.resting.pop(thread, None)

    def _is_held(self, machine: Machine) -> bool:
        return bool(machine.over) and machine is self.carrier.core.machines.get(DRIVER)

    def _held_too_long(self, machine: Machine) -> MailboxFullError:
        target = machine.over[0].target
        machine.over = []
        return MailboxFullError(
            f"the driver was held at the full mailbox of {target} for {self.send_timeout:g} s: its message is sent, but not"
            " accepted; send less, or raise mailbox_bound or send_timeout",
            machine=DRIVER,
            target=target,
            seconds=self.send_timeout,
        )

    def _poll_credit(self, machine: Machine) -> None:
        for channel in machine.over:
            host = channel.link.target if channel.link is not None else None
            if host is not None and host in self.carrier.actors and host not in self.polling:
                self.polling.add(host)
                self.member.start_soon(self._ask_credit(host))

    async def _ask_credit(self, host: str) -> None:
        core = self.carrier.core
        try:
            accepted = await self.carrier.actors[host].credit.remote(DRIVER, self.member.generation)
        except RayActorError:
            return  # the service watches the host, and says so
        finally:
            self.polling.discard(host)
        with self.member.lock:
            if core is not self.carrier.core:
                return
            for index, count in accepted:
                core.acknowledge(host, index, count)
            self.changed.notify_all()

    # ---- rollbacks ------------------------------------------------------------------------------------------------

    def await_others(self) -> None:
        """Wait, where the program sends, as long as the system is being rolled back."""
        member, deadline = self.member, time.monotonic() + self.send_timeout
        with member.lock:
            while member.is_rolling and not member.is_closing and member.failure is None:
                self.changed.wait(min(LIMITS.held_driver_look_s, max(0.0, deadline - time.monotonic())))
                if member.is_rolling and time.monotonic() >= deadline:
                    raise RolledBackError(
                        f"the system has been rolled back for {self.send_timeout:g} s, and goes on being",
                        snapshot_id=None,
                    )
        self.check()

    def await_next(self, generation: int) -> None:
        """Wait until the system has left this generation; raises `RolledBackError` past `send_timeout`."""
        member, deadline = self.member, time.monotonic() + self.send_timeout
        with member.lock:
            while member.generation == generation and not member.is_closing and member.failure is None:
                if (left := deadline - time.monotonic()) <= 0:
                    raise RolledBackError(
                        f"the system is being rolled back, and was not within {self.send_timeout:g} s", snapshot_id=None
                    )
                self.changed.wait(min(LIMITS.held_driver_look_s, left))
        self.check()
