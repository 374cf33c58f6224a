"""Machines that the driver has stopped, until what it had sent them before has been accepted."""

from __future__ import annotations

from collections import deque

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL, METHOD, Mailbox, end_of


class Stops:
    """The stops that the machines of one host wait for; under its lock."""

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
