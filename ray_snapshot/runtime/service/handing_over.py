"""How the service hands snapshots to the analyst: in line, and again to the analyst that takes the place of one that died.

What has been handed over is kept until the analyst says that it is done with for good: committed, if there is a history, and
handed out, if there are subscribers. Nothing is kept without `recover`: then the system ends with its analyst.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.runtime.collected import Collected

LOOK_S = 0.05
"""How often an analyst that is being started anew is asked."""


class HandOver:
    """What one service has given to its analysts. Everything runs on the service's event loop."""

    def __init__(self, analyst: Any, *, is_again: bool) -> None:
        self.analyst = analyst
        self.is_again = is_again
        """Whether another analyst takes the place of one that dies."""
        self.session: str | None = None
        self.given = 0
        """How many places have been given in this session."""
        self.unfinished: dict[int, Collected] = {}
        """By place: what would have to be handed over again."""
        self.beginning: asyncio.Task[None] | None = None
        self.is_there = asyncio.Event()
        if not is_again:
            self.is_there.set()

    async def give(self, found: Collected) -> None:
        """Hand a snapshot over; answers when the analyst has room for more. Raises `RayActorError` if it is gone for good."""
        await self.is_there.wait()
        self.given += 1
        if not self.is_again:
            await self.analyst.add.remote(found, self.given)
            return
        self.unfinished[self.given] = found
        session = self.session
        if not await self._added(session, self.given, found, again=False):
            await self.another(session)

    async def is_kept(self, snapshot_id: str, *, is_listed: bool = False) -> bool:
        """Whether this snapshot, which has been handed over, can be restored; `is_listed`: by another program, too."""
        while True:
            session = self.session
            try:
                found: bool = await self.analyst.is_kept.remote(snapshot_id, is_listed=is_listed)
                return found
            except RayActorError:
                if not self.is_again:
                    raise
                await self.another(session)

    async def begin(self) -> None:
        """The analyst is there for the first time, or anew: it gets all that is not done with, in its order."""
        self.is_there.clear()
        while True:
            try:
                self.session = await self.analyst.begin_session.remote()
                break
            except RayActorError:
                await asyncio.sleep(LOOK_S)
        again, self.unfinished = list(self.unfinished.values()), {}
        self.given = len(again)
        self.unfinished.update(enumerate(again, 1))
        self.is_there.set()
        session = self.session
        for place, found in list(self.unfinished.items()):
            if not await self._added(session, place, found, again=True):
                await self.another(session)
                return

    async def attend(self) -> None:
        """For as long as the service is open: notice that the analyst has died, though nothing is handed over."""
        while True:
            await self.is_there.wait()
            session = self.session
            try:
                await self.analyst.watched.remote()
            except RayActorError:
                await self.another(session)

    async def _added(self, session: str | None, place: int, found: Collected, *, again: bool) -> bool:
        """Whether the analyst of this session has taken a snapshot."""
        try:
            finished = await self.analyst.add.remote(found, place, session, again=again)
        except RayActorError:
            return False
        if finished is None or session != self.session:
            return False
        for done in [place for place in self.unfinished if place <= finished]:
            del self.unfinished[done]
        return True

    async def another(self, session: str | None) -> None:
        """The analyst of this session is gone; answers when another has got what was not done with."""
        if self.session == session and self.is_there.is_set():
            self.is_there.clear()
            # A task of its own: the coroutine that waits for it may be cancelled.
            self.beginning = asyncio.get_running_loop().create_task(self.begin())
        while self.session == session or not self.is_there.is_set():
            await asyncio.sleep(LOOK_S)
