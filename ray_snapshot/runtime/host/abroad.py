"""What a host asks of its machines' calls of watched actors, where both are one system; `instrument.crossing` fulfils it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.collected import MachineCalls
from ray_snapshot.runtime.planning import Again
from ray_snapshot.runtime.waits import TrackedWait


class Abroad(Protocol):
    """Everything happens under the host's lock."""

    @property
    def is_making(self) -> bool:
        """Whether a machine is making an actor: its call is numbered, and not in a ledger yet, so this is no boundary."""

    def begin_wait(self, machine: Machine, wait: TrackedWait) -> int | None:
        """A machine begins to wait inside its action, for actors too; returns what `end_wait` takes."""

    def colour_of(self, wait: TrackedWait) -> int:
        """The colour that came with the error in which a wait has ended."""

    def end_wait(self, machine: Machine, wait_id: int, wait: TrackedWait) -> None:
        """The wait is over; what its reply was red for has been recorded."""

    def ended(self, machine: Machine) -> None:
        """An action of a machine is over."""

    def recorded(self, numbers: Iterable[int]) -> None:
        """The host has just turned red for these."""

    def part(self, number: int) -> MachineCalls:
        """What was recorded for a number; once."""

    def forget(self, number: int) -> None:
        """Nothing is wanted of a number."""

    def keep(self, machine: Machine, state: Any) -> tuple[bytes | None, str | None]:
        """(a machine's state as bytes in which names stand for handles of actors, None), or (None, why there are none)."""

    def is_named(self, machine: Machine) -> bool:
        """Whether there are such names in what was last kept of a machine."""

    def load(self, again: Again | None) -> None:
        """The host goes back; before any state is opened."""

    def opened(self, blob: bytes) -> Any:
        """The state that was kept."""

    def call_again(self) -> None:
        """Make the calls that were in flight; before any machine acts."""
