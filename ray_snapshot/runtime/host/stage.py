"""Which machine acts on a host, and which wait inside an action; everything here happens under the host's lock."""

from __future__ import annotations

from dataclasses import dataclass

from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.mailbox import Mailbox, Message
from ray_snapshot.runtime.waits import TrackedWait

Action = tuple[Machine, Mailbox, Message]
"""A plain tuple, for there is one a message."""


@dataclass(slots=True)
class Performance:
    """An action that a machine is in the middle of: since when, and what it waits for, if it waits."""

    action: Action
    began: float
    wait: TrackedWait | None = None
    wait_id: int | None = None
    """What the machine's ledger calls that wait, if it is for watched actors too."""

    @property
    def machine(self) -> Machine:
        return self.action[0]

    @property
    def method(self) -> str:
        return self.action[2][2]

    @property
    def source(self) -> str:
        return self.action[1].source


class Stage:
    """The actions of one host's machines, in one generation."""

    def __init__(self) -> None:
        self.action: Action | None = None
        """The action that the holder of the floor is in, or has just left."""
        self.began = 0.0
        self.suspended: dict[str, Performance] = {}
        """By machine: actions that wait inside."""
        self.held_since: dict[str, float] = {}
        """Machines that are held at a full mailbox."""
        self.forced: Machine | None = None
        """The machine that is being recorded in the middle of its action."""
        self.is_broken = False
        """An action was cut short because a host is gone: what it leaves behind is in no snapshot."""

    @property
    def performing(self) -> Performance | None:
        """The action that the holder of the floor is in."""
        action = self.action
        return None if action is None else Performance(action, self.began)

    def suspend(self, performance: Performance) -> None:
        """This action waits inside."""
        self.suspended[performance.machine.name] = performance
        self.action = None

    def resume(self, performance: Performance) -> None:
        """Its wait is over: the holder of the floor is in it again."""
        self.suspended.pop(performance.machine.name, None)
        self.action, self.began = performance.action, performance.began

    def constructing(self) -> int:
        """How many constructors wait inside."""
        return sum(item.method == "__init__" for item in self.suspended.values())
