"""What somebody asks the processes of an app through its watcher: where they are. They answer in seconds, or not at all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from ray_snapshot.protocol.commands import TellStacks
from ray_snapshot.protocol.tasks import is_worker

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.stacks import Stack
    from ray_snapshot.instrument.watcher.processes import Processes

ANSWER_S = 3.0
"""How long the processes may take; what a process does not tell by then is left out."""

MOST_WORKERS = 20
"""So many workers are asked of which it is not known what they run."""


class Questions:
    """Those of one watcher; everything runs on its event loop."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.numbers = itertools.count(1)
        self.answers: dict[int, dict[str, list[Stack]]] = {}
        """By question that is open."""
        self.changed = asyncio.Event()

    async def stacks(self, shown: Collection[str], *, with_locals: bool) -> dict[str, list[Stack]]:
        """By the name for people of each process that answers, of those that run machines of these names."""
        roster, living = self.processes.roster, self.processes.parties.machines
        asked = {name for name in living if roster.name_of(name) in shown}
        if len(asked) < len(shown):  # plain tasks, which workers run
            asked |= set(itertools.islice(filter(is_worker, living), MOST_WORKERS))
        number = next(self.numbers)
        self.answers[number] = {}
        for machine in asked:
            self.processes.tell(machine, TellStacks(number, with_locals))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all(number, asked & self.processes.outboxes.boxes.keys()), ANSWER_S)
        return {roster.name_of(machine): told for machine, told in self.answers.pop(number).items()}

    async def _all(self, number: int, asked: Collection[str]) -> None:
        while not self.answers[number].keys() >= set(asked):
            await self.changed.wait()
            self.changed.clear()

    def told(self, question: int, machine: str, found: list[Stack]) -> None:
        """A process has answered; it may be too late."""
        if question in self.answers:
            words = self.processes.roster.in_words
            self.answers[question][machine] = [one._replace(call=one.call and words(one.call)) for one in found]
            self.changed.set()
