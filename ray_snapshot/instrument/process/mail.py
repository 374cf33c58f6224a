"""What a process asks of the part of it that sends to machines of hosts (`crossing.sending`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ray_snapshot.runtime.rows import MailPart
    from ray_snapshot.runtime.waits import CallBook


class Mail(Protocol):
    """What a watched process sends to machines of hosts; it has recorded when the ledger has. Used under the lock."""

    calls: CallBook

    def turn(self) -> tuple[int, ...]:
        """Turn red for what is due; returns the numbers, rising."""

    def part(self, number: int) -> MailPart | None:
        """What was recorded for a number; None if that is reported elsewhere."""

    def learn_stopped(self, names: Iterable[str], colour: int) -> None:
        """Machines have stopped, on a host of this colour."""

    def leave(self) -> None:
        """There are no machines any more."""

    def pause(self) -> None:
        """The app is to go back: nothing is sent until `resume`."""

    def load(self, generation: int, share: bytes | None) -> bool:
        """All has gone back, and the ledger has begun anew; whether this goes on beside it.

        `share`: a pickled `planning.Share`.
        """

    def resume(self) -> None:
        """All go on."""
