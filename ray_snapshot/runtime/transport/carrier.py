"""Batches of a process's links, carried over Ray.

A message is put on a link under the lock; if fewer than `link_batches` batches of that link are on their way, a batch leaves at
once, else the messages gather until one has been delivered: a lone message is not delayed, and a busy link sends a few large
batches. Deliveries are awaited on the process's event loop, never by a thread. Order does not matter: batches are numbered,
and the receiver puts them in order.
"""

from __future__ import annotations

import pickle
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.links import Batch
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.pieces import cut
from ray_snapshot.runtime.transport.membership import Membership


class Carrier:
    """Carries the batches of one process's core."""

    def __init__(self, member: Membership, core: HostCore) -> None:
        self.member = member
        self.core = core
        self.actors: dict[str, Any] = {}
        """Ray actor handles of the other hosts."""
        self.fetching: dict[str, list[Batch]] = {}
        """Batches for hosts whose actor handle is being asked for."""
        self.is_deaf = False
        """Whether no host can call this process: then it gets acknowledgements in the answers to its batches."""

    def begin(self, core: HostCore) -> None:
        """Another generation: what is on its way for an older core is dropped when it comes back."""
        self.core = core
        self.fetching.clear()

    def actor(self, host: str) -> Any:
        """The Ray actor of a host; asks for it if need be."""
        found = self.actors.get(host)
        if found is None:
            found = self.actors[host] = waits.answer_of(self.member.service.actor_of.remote(host))[0]
        return found

    def flush(self) -> None:
        """Carry what may be carried now; called under the lock."""
        if self.member.is_retired:
            return
        for target, batch in self.core.take_batches(LIMITS.link_batches):
            self._carry(target, batch)

    def _carry(self, target: str, batch: Batch) -> None:
        member, actor = self.member, self.actors.get(target)
        if actor is None:
            waiting = self.fetching.setdefault(target, [])
            waiting.append(batch)
            if len(waiting) == 1:
                member.start_soon(self._fetch(target))
            return
        ref = actor.deliver.remote(member.generation, self.is_deaf, *cut(pickle.dumps(batch, protocol=5)))
        member.start_soon(self._delivered(ref, target, self.core, member.generation))

    async def _fetch(self, target: str) -> None:
        core = self.core
        (actor,) = await self.member.service.actor_of.remote(target)
        with self.member.lock:
            if core is not self.core:
                return
            self.actors[target] = actor
            for batch in self.fetching.pop(target, ()):
                self._carry(target, batch)

    async def _delivered(self, ref: Any, target: str, core: HostCore, generation: int) -> None:
        member = self.member
        try:
            acknowledgements = await ref
        except RayActorError as error:
            await member.service.lost.remote(target, first_line(error), generation)
            return
        with member.lock:
            if core is not self.core:  # this batch was of an older generation
                return
            core.outputs[target].in_flight -= 1
            for index, accepted in acknowledgements or ():
                core.acknowledge(target, index, accepted)
            self.flush()
            if acknowledgements:
                member.wake()
