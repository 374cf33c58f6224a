"""The driver makes sure that the system can go back to a kept snapshot, whichever process dies; then it forgets what it
sent before that snapshot.

What is decided, `protocol.recovery_line` decides, for both sides. Runs on the event loop of the driver's post.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ray.exceptions import RayActorError

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.recovery_line import Base, KeptSnapshot, newest
from ray_snapshot.runtime.driver.attending import Attendant

if TYPE_CHECKING:
    from ray_snapshot.runtime.driver.post import DriverPost


class Securing:
    """Takes copies of what is kept, and agrees with the service on what to go back to; of one driver."""

    def __init__(self, post: DriverPost, attendant: Attendant) -> None:
        self.post = post
        self.attendant = attendant
        self.waiting: list[KeptSnapshot] = []
        """Kept snapshots that `_work` has not dealt with yet."""
        self.is_busy = False

    def kept(self, number: int, snapshot_id: str) -> None:
        """The service says that a snapshot is kept; under the lock of the post."""
        self.waiting.append(KeptSnapshot(number, snapshot_id, self.post.member.generation))
        if not self.is_busy:
            self.is_busy = True
            self.post.member.start(self._work())

    def seek(self, number: int, snapshot_id: str) -> None:
        """The service is about to restore a snapshot that the program has chosen."""
        self.post.member.start(self._seek(number, snapshot_id))

    async def _seek(self, number: int, snapshot_id: str) -> None:
        post, memory = self.post, self.attendant.memory
        lent_by = memory.analyst_life
        copy = await self.attendant.checkpoint(snapshot_id) if memory.must_seek(snapshot_id) else None
        with post.member.lock:
            is_held = memory.seek(Base(snapshot_id, number, copy), lent_by)
        while not (post.member.is_closing or post.member.failure is not None):
            try:
                await post.member.service.sought.remote(snapshot_id, is_held)
                return
            except RayActorError:  # it has not heard, and waits; another service takes no notice
                await asyncio.sleep(LIMITS.again_s)

    async def _work(self) -> None:
        try:
            while self.waiting:
                found, self.waiting = self.waiting, []
                await self._secure_newest(found)
        finally:
            self.is_busy = False

    async def _secure_newest(self, found: list[KeptSnapshot]) -> None:
        post, memory, last = self.post, self.attendant.memory, newest(found)
        lent_by = memory.analyst_life
        copy = await self.attendant.checkpoint(last.snapshot_id) if memory.must_fetch(last) else None
        with post.member.lock:
            is_safe = memory.secure(last, copy, lent_by, post.member.generation, is_rolling=post.member.is_rolling)
        if not is_safe:
            for lost in found:
                post.member.service.secured.remote(lost.snapshot_id, lost.number, lost.generation, is_safe=False)
        elif await self._is_accepted(last):
            with post.member.lock:
                memory.agreed()
                post.forget_before(last.number)

    async def _is_accepted(self, found: KeptSnapshot) -> bool:
        """Whether the service has agreed to go back to this snapshot from now on, and no further.

        If it dies instead of answering it may have told so to others: then nothing is forgotten, and the next one is told to.
        If it has only not heard the question it is asked again.
        """
        while True:
            try:
                is_accepted: bool = await self.post.member.service.secured.remote(
                    found.snapshot_id, found.number, found.generation, is_safe=True
                )
                return is_accepted
            except RayActorError:
                await asyncio.sleep(LIMITS.again_s)
            if not self._asks_again(found):
                return False

    def _asks_again(self, found: KeptSnapshot) -> bool:
        post, memory = self.post, self.attendant.memory
        with post.member.lock:
            is_over = post.member.is_closing or post.member.failure is not None
            return not is_over and memory.asks_again(found, post.member.generation, is_rolling=post.member.is_rolling)
