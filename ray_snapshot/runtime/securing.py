"""The driver sees to it that a snapshot that is kept can be gone back to, whoever dies; then it forgets what is in it.

Snapshots do not come in the order of their numbers: what is gone back to only moves forward. It moves together with what the
service goes back to: what the driver has sent is forgotten only once the service has agreed. Runs on the event loop of the
driver's post.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray.exceptions import RayActorError

from ray_snapshot.runtime.attending import Attendant
from ray_snapshot.runtime.memory import Base

if TYPE_CHECKING:
    from ray_snapshot.runtime.driver import DriverPost

Kept = tuple[int, str, int]
"""(number, id, generation) of a snapshot that is kept."""


class Securing:
    """See the module."""

    def __init__(self, post: DriverPost, attendant: Attendant) -> None:
        self.post = post
        self.attendant = attendant
        self.waiting: list[Kept] = []
        """Nobody has seen to these yet."""
        self.is_busy = False

    def kept(self, number: int, snapshot_id: str) -> None:
        """The service says that a snapshot is kept; under the lock of the post."""
        self.waiting.append((number, snapshot_id, self.post.generation))
        if not self.is_busy:
            self.is_busy = True
            self.post._start(self._work())

    async def _work(self) -> None:
        try:
            while self.waiting:
                found, self.waiting = self.waiting, []
                await self._secure_newest(found)
        finally:
            self.is_busy = False

    async def _secure_newest(self, found: list[Kept]) -> None:
        post, memory = self.post, self.attendant.memory
        newest = number, snapshot_id, generation = max(found, key=lambda item: (item[2], item[0]))
        is_wanted = memory.wants(number)
        copy = await self.attendant.checkpoint(snapshot_id) if is_wanted and memory.keeps_copy else None
        with post.lock:
            is_late = generation != post.generation or post.is_rolling
            is_safe = not is_late and (copy is not None or not (is_wanted and memory.keeps_copy))
            if is_safe and is_wanted:
                memory.move_to(Base(snapshot_id, number, copy))
        if not is_safe:
            for lost_number, lost_id, of_generation in found:
                post.service.secured.remote(lost_id, lost_number, of_generation, is_safe=False)
        elif await self._is_accepted(newest):
            with post.lock:
                memory.former = None
                post.forget_before(number)

    async def _is_accepted(self, newest: Kept) -> bool:
        """Whether the service goes back to this snapshot from now on, and not, just now, behind it.

        If it dies instead of answering it may have told so to others: then nothing is forgotten, and the next one is told to.
        """
        number, snapshot_id, generation = newest
        try:
            found: bool = await self.post.service.secured.remote(snapshot_id, number, generation, is_safe=True)
            return found
        except RayActorError:
            return False
