"""The machines of one host that call watched actors: each has a ledger for its calls, which turns red with the host."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.calls import CallLedger, MachineReport
from ray_snapshot.protocol.turning import Turning


class Ledgers:
    """`life`: which life of its host this is; with it a machine of a new host is another caller than its namesake before."""

    __slots__ = ("host", "known", "life", "others", "turning")

    def __init__(self, host: str, turning: Turning, life: int = 0) -> None:
        self.host = host
        self.turning = turning
        self.life = life
        self.known: dict[str, CallLedger] = {}
        self.others: dict[str, int] = {}
        """Incarnations of actors that are not in their first."""

    def of(self, machine: str) -> CallLedger:
        """The ledger of a machine; begun, if there is none yet.

        Raises `ProtocolError` where the colour is no single number: a header could not carry it.
        """
        if not isinstance(self.turning.colour, int):
            raise ProtocolError(f"the machines of {self.host} cannot call watched actors under these colours")
        ledger = self.known.get(machine)
        if ledger is None:
            ledger = CallLedger(machine, incarnation=self.life, turning=self.turning, others=self.others)
            self.known[machine] = ledger
        return ledger

    def begin_with(self, others: Mapping[str, int]) -> None:
        """The incarnations that actors have; before any ledger is begun."""
        self.others = dict(others)

    def target_died(self, actor: str) -> None:
        """An actor is gone for good."""
        for ledger in self.known.values():
            ledger.target_died(actor)

    def target_restarted(self, actor: str, incarnation: int) -> None:
        """An actor has this incarnation now."""
        self.others[actor] = max(incarnation, self.others.get(actor, 0))
        for ledger in self.known.values():
            ledger.target_restarted(actor, incarnation)

    def seen(self) -> list[tuple[CallLedger, MachineReport]]:
        """Everything as it is in the instant before the host turns red."""
        return [(ledger, ledger.seen(None)) for ledger in self.known.values()]

    def turned(self, numbers: Iterable[int], seen: Iterable[tuple[CallLedger, MachineReport]]) -> None:
        """The host has turned red for these numbers, of those that are wanted."""
        recorded = tuple(numbers)
        for ledger, report in seen:
            ledger.turned(recorded, report)

    def reports(self, number: int) -> tuple[MachineReport, ...]:
        """What the ledgers recorded for a number."""
        return tuple(ledger.report(number) for ledger in self.known.values() if number in ledger.open)

    def close(self, number: int) -> None:
        """Nothing more is wanted of a number."""
        for ledger in self.known.values():
            ledger.close(number)

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        return tuple(ledger.fingerprint() for _, ledger in sorted(self.known.items()))


class NoLedgers(Ledgers):
    """Under barriers: the machines of a host turn red one by one, and a call's header has the colour of its process."""

    __slots__ = ()

    def of(self, machine: str) -> CallLedger:
        """Refused."""
        raise ProtocolError(f"{machine} cannot call watched actors under a barrier protocol", machine=machine)
