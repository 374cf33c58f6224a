"""What somebody asks the processes of an app through its watcher: where they are. They answer in seconds, or not at all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import TellStacks
from ray_snapshot.protocol.tasks import is_worker

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.stacks import Stack
    from ray_snapshot.instrument.watcher.outboxes import Outboxes
    from ray_snapshot.instrument.watcher.roster import Roster


class Questions:
    """Those of one watcher; everything runs on its event loop."""

    def __init__(self, roster: Roster, outboxes: Outboxes) -> None:
        self.roster = roster
        self.outboxes = outboxes
        self.numbers = itertools.count(1)
        self.answers: dict[int, dict[str, list[Stack]]] = {}
        """By question that is open."""
        self.changed = asyncio.Event()

    async def stacks(self, shown: Collection[str], *, with_locals: bool) -> dict[str, list[Stack]]:
        """By the name for people of each process that answers, of those that run machines of these names."""
        listening = list(self.outboxes.boxes)
        asked = {name for name in listening if self.roster.name_of(name) in shown}
        if len(asked) < len(shown):  # plain tasks, which workers run
            asked |= set(itertools.islice(filter(is_worker, listening), LIMITS.asked_workers))
        number = next(self.numbers)
        self.answers[number] = {}
        self.outboxes.tell_each(asked, TellStacks(number, with_locals))
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMITS.stacks_answer_s):
                await self._all(number, asked)
        return {self.roster.name_of(machine): told for machine, told in self.answers.pop(number).items()}

    async def _all(self, number: int, asked: Collection[str]) -> None:
        while not self.answers[number].keys() >= set(asked):
            await self.changed.wait()
            self.changed.clear()

    def told(self, question: int, machine: str, found: list[Stack]) -> None:
        """A process has answered; it may be too late."""
        if question in self.answers:
            self.answers[question][machine] = [self._in_words(one) for one in found]
            self.changed.set()

    def _in_words(self, one: Stack) -> Stack:
        cells = self.roster.facts.get(DRIVER, {}).get("cells", {})
        frames = tuple(frame._replace(file=cells.get(frame.file, frame.file)) for frame in one.frames)
        return one._replace(call=one.call and self.roster.in_words(one.call), frames=frames)
