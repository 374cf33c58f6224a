"""What a host answers the service that has asked it for a snapshot: its report, where that is small.

An answer spares a call of Ray's; a large one would go through the object store, so it goes by a call.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.pieces import PIECE

LINK_BYTES = 100
"""What the counts of a link take in a report, or less."""


class Answers:
    """Who waits for the report of which snapshot; on the event loop."""

    def __init__(self) -> None:
        self.awaited: dict[int, asyncio.Future[HostPayload | None]] = {}

    def asked(self, number: int) -> asyncio.Future[HostPayload | None]:
        """The service asks for this snapshot; whoever has asked before is answered nothing."""
        self.give(number, None)
        found = self.awaited[number] = asyncio.get_running_loop().create_future()
        return found

    def give(self, number: int, payload: HostPayload | None) -> bool:
        """Answer with this, or with nothing; returns whether somebody waits for it."""
        found = self.awaited.pop(number, None)
        if found is None or found.done():
            return False
        found.set_result(payload)
        return True

    def nothing(self) -> None:
        """No report is an answer any more."""
        for number in [*self.awaited]:
            self.give(number, None)


def is_small(payload: HostPayload) -> bool:
    """Whether Ray would send a host's first report with the reply, not through the object store."""
    counts: Any = payload.counts
    links = len(counts.sent) + len(counts.accepted) + len(counts.in_flight)
    size = len(payload.part) + len(payload.checkpoint or b"")
    return size + LINK_BYTES * links <= PIECE
