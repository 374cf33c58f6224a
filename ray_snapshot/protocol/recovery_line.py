"""What a recovering system goes back to: its recovery line, which the service, the driver and the analyst move together.

A *recovery line* is the consistent cut that a system rolls back to when something fails (Randell 1975; Elnozahy, Alvisi, Wang
and Johnson 2002). Here it is a snapshot whose checkpoint is kept. The service decides on it; the driver, which everything
ends with, remembers it for those that die, and keeps a *journal* of what it has sent since (a sender's log); the analyst keeps
the checkpoints. Any of them but the driver may die at any moment. What they say of snapshot n, in this order:

    analyst -> service   n is kept
    service -> driver    kept n                    ServiceLine.outcome: not known yet, so the driver is asked
    driver  -> analyst   a copy of n, please       DriverLine.must_fetch, where no history keeps it; Retention.lend
    driver               n is my base              DriverLine.secure; those before are `former`
    driver  -> service   secured n                 ServiceLine.secured: from now on no party goes back behind n, or no
    service -> analyst   pin n                     Retention.pin
    service -> driver    agreed                    DriverLine.agreed; `outside`: the journal is cut at n. If nothing comes the
                                                   driver asks again (DriverLine.asks_again)

When the program asks for a restore, the driver first gets a copy of that snapshot (DriverLine.seek).

Assumed: what one party tells another comes in order, or is lost with one of the two; between different pairs anything may
overtake anything. Numbers rise (`Coordinator`), a rollback is a generation of its own (`rollback`). The rules:

1. *Forward only.* Snapshots do not come in the order of their numbers; one that is behind the line is kept, and moves nothing.
2. *One generation.* What was kept in a generation that is being left, or has been, moves nothing: it is part of no past.
3. *The driver first.* The service goes back to n only once the driver could tell so to its next life.
4. *Nothing is forgotten before the service agrees:* it may be going back to `former` just now, or die before it has answered.
5. *What may be gone back to is held:* the analyst evicts nothing that is pinned, was lent since, or is being gone back to.
6. *The driver's word counts.* A new life of the service goes back to the driver's base, and gives out numbers behind all that
   the driver had let the one before give out.

Generations and `is_rolling` are inputs. Imports the standard library only; `tests/worlds/rollback` tries every order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

BLOCK = 64
"""Numbers of snapshots that the driver lets the service give out at a time."""

MOST_REFUSED = 100

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot that the analyst keeps, and the generation in which the service said so."""

    number: int
    snapshot_id: str
    generation: int


@dataclass(slots=True)
class Base:
    """A snapshot that the system can go back to, whichever process dies."""

    snapshot_id: str
    number: int
    """Its number, if it is of this run; else 0."""
    checkpoint: Any = None
    """What a restore needs of it, where no history keeps that."""


# ---- the service ----------------------------------------------------------------------------------------------------------


class Agreement(Enum):
    """The service's answer to the driver, which has secured a snapshot."""

    NO = "no"
    """The driver must forget nothing."""
    ALREADY = "already"
    """The line is there, or further."""
    MOVED = "moved"
    """The line is there from now on: it is to be pinned."""

    @property
    def is_agreed(self) -> bool:
        """Whether no party goes back behind that snapshot."""
        return self is not Agreement.NO


class ServiceLine:
    """What the system goes back to, as the service decides it."""

    def __init__(self) -> None:
        self.snapshot_id: str | None = None
        self.number = 0
        self.refused: deque[int] = deque(maxlen=MOST_REFUSED)
        """Snapshots that were lost with an analyst before they could be made sure."""

    def outcome(self, number: int, of_generation: int, generation: int, *, is_rolling: bool) -> bool | None:
        """Whether no party goes back behind this snapshot, which is kept; None as long as that is for the driver to say."""
        if of_generation != generation or is_rolling:
            return False
        if self.number >= number:  # or it was overtaken
            return True
        return False if number in self.refused else None

    def secured(self, found: KeptSnapshot, generation: int, *, is_rolling: bool, is_safe: bool) -> Agreement:
        """The driver has made sure of a snapshot (or, not `is_safe`, could not)."""
        if not is_safe:
            self.refused.append(found.number)
        if not is_safe or found.generation != generation or is_rolling:
            return Agreement.NO
        if found.number <= self.number:
            return Agreement.ALREADY
        self.snapshot_id, self.number = found.snapshot_id, found.number
        return Agreement.MOVED

    def went_back(self, snapshot_id: str, number: int) -> None:
        """The program has had this snapshot restored, or the driver has told a new life of the service: the line is there."""
        self.snapshot_id, self.number = snapshot_id, number


class Allowance:
    """The service's side of the numbers: up to which it may give them out."""

    def __init__(self, *, is_bounded: bool, block: int = BLOCK) -> None:
        self.block = block
        self.most: float = block if is_bounded else math.inf
        self.more: tuple[int, int] | None = None
        """(number, place in the driver's log) of what the driver has been asked to let us give out."""

    def wanted(self, last: int) -> int | None:
        """Up to which number the driver is to be asked, when half of a block is left; None while there are enough."""
        return int(self.most) + self.block if self.more is None and last + self.block // 2 > self.most else None

    def asked(self, number: int, place: int) -> None:
        """The driver will find that in its log, at this place."""
        self.more = number, place

    def obeyed(self, count: int) -> None:
        """The driver has obeyed so many commands: what was among them it has noted."""
        if self.more is not None and self.more[1] <= count:
            self.most, self.more = self.more[0], None

    def take_over(self, numbers: int) -> int:
        """A new life: a block behind what the driver had let the one before give out; returns the last number of that."""
        self.most, self.more = numbers + self.block, None
        return numbers


# ---- the driver -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class DriverLine:
    """What the driver remembers of it, for a process that is started anew."""

    keeps_copy: bool = False
    """Whether checkpoints are kept here, for there is no history."""
    life: int = 0
    """How many services have been told something."""
    analyst_life: int = 0
    block: int = BLOCK
    numbers: int = BLOCK
    """No number of a snapshot that is higher has been given out."""
    base: Base | None = None
    former: tuple[Base, ...] = ()
    """Those before, the newest last, as long as the service has not said that it does not go back to them any more."""

    sought: Base | None = None
    """What the program wants to have restored, or wanted last and did not get."""

    def wants(self, number: int) -> bool:
        """Whether a snapshot of this number is further than what is gone back to, or the copy of that is missing."""
        base = self.base
        if base is None or number > base.number:
            return True
        return number == base.number and self.keeps_copy and base.checkpoint is None

    def must_fetch(self, found: KeptSnapshot) -> bool:
        """Whether the analyst is to be asked for a copy before this snapshot can be secured."""
        return self.keeps_copy and self.wants(found.number)

    def secure(self, found: KeptSnapshot, checkpoint: Any, lent_by: int, generation: int, *, is_rolling: bool) -> bool:
        """Make sure of a snapshot, with the copy that was to be fetched; False if it is too late, or the copy is lost.

        `lent_by`: the life of the analyst that was asked for it. If another has begun meanwhile it was not told of this one.
        """
        if found.generation != generation or is_rolling:
            return False
        if not self.wants(found.number):
            return True
        if self.keeps_copy and (checkpoint is None or lent_by != self.analyst_life):
            return False
        self.move_to(Base(found.snapshot_id, found.number, checkpoint))
        return True

    def move_to(self, base: Base) -> None:
        """A later snapshot is what to go back to, if the service agrees; until it does, all before are needed, too.

        It may have agreed to any of them, and its answer was lost.
        """
        self.former = self.former if self.base is None else (*self.former, self.base)
        self.base = base

    def asks_again(self, found: KeptSnapshot, generation: int, *, is_rolling: bool) -> bool:
        """Whether a service that has not answered is asked once more: a sink may wait to hear of this snapshot.

        If it has died the next one says no, or everybody is told to go back first.
        """
        return found.generation == generation and not is_rolling

    def agreed(self) -> None:
        """The service does not go back behind the base any more."""
        self.former = ()

    def went_back(self, snapshot_id: str, number: int) -> None:
        """All go on from this snapshot: whichever process dies now, it is what to go back to."""
        known = (base for base in self.bases() if base.snapshot_id == snapshot_id)
        self.base, self.former = next(known, Base(snapshot_id, number)), ()
        if self.sought is not None and self.sought.snapshot_id == snapshot_id:
            self.sought = None

    def must_seek(self, snapshot_id: str) -> bool:
        """Whether the analyst is to be asked for a copy before this snapshot, which the program has chosen, is restored."""
        return self.keeps_copy and self._copied(snapshot_id) is None

    def seek(self, found: Base, lent_by: int) -> bool:
        """Hold what is to be restored, so that it can be, whichever process dies meanwhile; False if its copy is lost."""
        known = self._copied(found.snapshot_id)
        if not self.keeps_copy:
            return True
        if known is None and (found.checkpoint is None or lent_by != self.analyst_life):
            return False
        self.sought = known or found
        return True

    def _copied(self, snapshot_id: str) -> Base | None:
        known = (base for base in self.bases() if base.snapshot_id == snapshot_id and base.checkpoint is not None)
        return next(known, None)

    def uncopied(self) -> Base | None:
        """The base, if its copy is still to be fetched."""
        return self.base if self.keeps_copy and self.base is not None and self.base.checkpoint is None else None

    def copies(self) -> list[Any]:
        """The checkpoints that are kept here: what an analyst that is started anew is told."""
        return [base.checkpoint for base in self.bases() if base.checkpoint is not None]

    def bases(self) -> list[Base]:
        """What the service may go back to, as far as is known here."""
        return [base for base in (self.sought, *self.former, self.base) if base is not None]

    def next_life(self) -> tuple[int, int]:
        """(which life of the service begins, the highest number that may have been given out); it gets a block behind that."""
        self.life += 1
        given, self.numbers = self.numbers, self.numbers + self.block
        return self.life, given


def newest(found: Iterable[KeptSnapshot]) -> KeptSnapshot:
    """Of snapshots that are kept, the one that matters: of the last generation, the last."""
    return max(found, key=lambda one: (one.generation, one.number))


def outside(
    journal: Iterable[tuple[int, Item]], number: int, stays: Callable[[Item], bool] = lambda _: False
) -> list[tuple[int, Item]]:
    """Of what the driver has sent, each with its colour then, what is not in snapshot `number`; and what always `stays`.

    The rest need not be kept once the service agrees to that snapshot, nor be sent again behind it.
    """
    return [entry for entry in journal if entry[0] >= number or stays(entry[1])]


def sent_again(
    journal: Iterable[tuple[int, Item]], again_from: int | None, stays: Callable[[Item], bool] = lambda _: False
) -> list[tuple[int, Item]]:
    """What the driver sends once more when all have gone back to snapshot `again_from`.

    None: the program has asked for a restore; it knows, and nothing is sent again.
    """
    return [] if again_from is None else outside(journal, again_from, stays)


# ---- the analyst ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Retention:
    """Which checkpoints must stay in memory."""

    pinned: set[str] = field(default_factory=set)
    """What the system goes back to, as far as the analyst knows."""
    lent: list[str] = field(default_factory=list)
    """What the driver has got copies of since, in its order: the system may go back to it soon, or does so already."""
    planned: set[str] = field(default_factory=set)
    """What is being gone back to."""

    def pin(self, snapshot_id: str) -> None:
        """From now on the system goes back to this snapshot, and not behind it."""
        self.pinned = {snapshot_id}
        if snapshot_id in self.planned:  # the system is there; else a pin of before has come
            self.planned.clear()
        if snapshot_id in self.lent:
            self.lent = self.lent[self.lent.index(snapshot_id) + 1 :]

    def lend(self, snapshot_id: str) -> None:
        """The driver gets a copy; that what it got before is pinned may come later than this."""
        self.lent.append(snapshot_id)

    def plan(self, snapshot_id: str) -> None:
        """The system is about to go back to this snapshot; it is read again if anything fails meanwhile."""
        self.planned.add(snapshot_id)

    def recall(self, snapshot_id: str) -> None:
        """An analyst that has died had kept this one, and the system may go back to it."""
        self.pinned.add(snapshot_id)

    def loose(self, kept: Collection[str], beside: int) -> list[str]:
        """Of what is kept, in its order, what may be let go of: neither held nor among the last `beside` of the others."""
        held = {*self.pinned, *self.lent, *self.planned}
        return [snapshot_id for snapshot_id in kept if snapshot_id not in held][:-beside]
