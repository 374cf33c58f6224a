"""What watched processes have not been told yet: nothing can call their threads, so each asks for its commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Leave, ProcessCommand


@dataclass(slots=True)
class Outbox:
    """The commands for one process that it has not asked for yet."""

    commands: list[ProcessCommand] = field(default_factory=list)
    first: int = 0
    """How many were told before those in `commands`."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Outboxes:
    """The outboxes of one watcher's processes; everything runs on the watcher's event loop."""

    def __init__(self) -> None:
        self.boxes: dict[str, Outbox] = {}
        self.is_closing = False
        self.fault = ""
        """The fault of ours that has ended the watching, for a person."""

    def open(self, machine: str) -> None:
        """A process joins: it is told what comes from now on."""
        self.boxes[machine] = Outbox()

    def drop(self, machine: str) -> None:
        """A process is gone, or takes part no more: then its poll is answered, which Ray would wait for before it ends it."""
        box = self.boxes.pop(machine, None)
        if box is not None:
            box.changed.set()

    def tell(self, machine: str, command: ProcessCommand, *, is_urgent: bool = True) -> None:
        """Tell a process; what only frees its memory is told with the next command, or when its poll ends."""
        box = self.boxes.get(machine)
        if box is not None:
            box.commands.append(command)
            if is_urgent or len(box.commands) > LIMITS.put_off_commands:
                box.changed.set()

    def tell_each(self, machines: Iterable[str], command: ProcessCommand, *, is_urgent: bool = True) -> None:
        """Give a command to each of these machines; see `tell`."""
        for machine in [*machines]:
            self.tell(machine, command, is_urgent=is_urgent)

    async def after(self, machine: str, seen: int) -> tuple[int, list[ProcessCommand]]:
        """What a process must do, behind the first `seen`, which are forgotten, and how many there were in all; waits.

        One that has left may ask once more, for its thread did so just then: it is not kept, for Ray ends no process before.
        """
        box = self.boxes.get(machine)
        if box is None:
            return seen, [Leave(self.fault)]
        del box.commands[: max(0, seen - box.first)]
        box.first = seen
        if not self.is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIMITS.watcher_poll_s):
                    await box.changed.wait()
        box.changed.clear()
        if self.is_closing:
            self.boxes.pop(machine, None)
            box.commands.append(Leave(self.fault))
        return seen + len(box.commands), list(box.commands)

    async def close(self) -> None:
        """Have every process leave; answers when each has been told so, or past `watcher_end_s`.

        Who ends the watcher does so behind this: Ray may crash in an asynchronous actor that it ends while calls come, and
        says so on the program's output.
        """
        self.is_closing = True
        for box in self.boxes.values():
            box.changed.set()
        deadline = time.monotonic() + LIMITS.watcher_end_s
        while self.boxes and time.monotonic() < deadline:
            await asyncio.sleep(LIMITS.heard_look_s)

    async def heard_by_others(self, machine: str, living: Collection[str]) -> None:
        """Answers when all other processes that live have obeyed what they were told so far, or past `heard_s`.

        A new incarnation's constructor begins behind this, and nothing can call it before that has ended: so what a sender
        takes for lost when it hears of the restart has never gone to the new one.
        """
        others = [(name, box) for name, box in self.boxes.items() if name != machine]
        told = [(name, box, box.first + len(box.commands)) for name, box in others]
        deadline = time.monotonic() + LIMITS.heard_s
        while time.monotonic() < deadline and any(
            box.first < until and self.boxes.get(name) is box and name in living for name, box, until in told
        ):
            await asyncio.sleep(LIMITS.heard_look_s)

    async def have_heard(self, machines: Iterable[str], seconds: float) -> bool:
        """Whether each of these processes obeys, within so many seconds, what it was told so far.

        Those that are gone for good are left out; one that has started again has not heard what the one before was told.
        """
        told = [(name, box, box.first + len(box.commands)) for name in machines if (box := self.boxes.get(name))]
        for _, box, until in told:
            if box.first < until:
                box.changed.set()
        deadline = time.monotonic() + seconds
        while True:
            missing = [(here, box) for name, box, until in told if box.first < until and (here := self.boxes.get(name))]
            if not missing:
                return True
            if any(here is not box for here, box in missing) or time.monotonic() >= deadline:
                return False
            await asyncio.sleep(LIMITS.heard_look_s)
