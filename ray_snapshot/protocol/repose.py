"""The driver in repose: a party that does nothing is not asked; its last report stands until it says that it acts again.

The driver of a program that waits would report the same of each snapshot: a command, a report, and a marker to each host.
So it says with a report that it does nothing from here on (`Repose.offer`), and from then on acts only once the service has
heard of it (`Repose.begin_rousing`). Between the two the service reports for it (`StandIn`), with the counts that it has told.

    driver  -> service   a report, and: in repose from here on             Repose.offer, StandIn.take
    service              reports for the driver; hosts take it that its markers have come
    driver  -> service   roused; waits for the answer                      Repose.begin_rousing, StandIn.rouse
    service -> driver    `Missed`: the last number, and what is pending
    driver               turns red for all of these, then acts             Repose.roused

Assumed: the two things that the driver says may overtake each other (Ray's calls do), commands to it come in order, and each
is answered, or its sender hears that the service is gone, and with it whoever has stood in. The rules:

1. *Told first.* The driver acts, or looks otherwise, only behind an answer of the service to this repose.
2. *No old word.* A report says how often the driver was roused, and how often the service has ended a repose: one that comes
   behind the word that it is over brings none.
3. *Red before it acts.* Whatever was reported for it is outside of what it does next: it turns red for the last number first.
   So its state at all these cuts is the one it had in repose, and no host that has recorded one of them gets anything white
   from it: its marker on each link has come, as it were, with the request.
4. *All has arrived.* It offers repose only if nothing of what it has sent is on its way, or would be sent by itself (a timer, a
   name that is being looked up).
5. *Nothing is owed twice or never.* Of what is pending when it is roused the service says what nobody has reported.

The service may also end it, to tell the driver something that changes it (a channel, a rollback): then `Missed` goes before
that as a command (`StandIn.end`, `Repose.ended`). Imports the standard library only; `tests/protocol/test_repose.py` tries
every order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Said = tuple[int, int]
"""What a report says of repose: how often the driver has been roused, and how often the service has ended a repose."""


@dataclass(frozen=True, slots=True)
class Missed:
    """What a driver must know that is in repose no more."""

    last: int
    """The highest number given out: it turns red for it, and all below."""
    pending: tuple[int, ...] = ()
    owed: tuple[int, ...] = ()
    """Those pending that have not been reported for the driver: it does so itself."""
    ends: int = 0
    """How often the service has ended a repose."""


class Repose:
    """The driver's side."""

    __slots__ = ("acts", "ends", "is_on", "is_rousing", "reported", "turn")

    def __init__(self) -> None:
        self.is_on = False
        self.is_rousing = False
        """Whether it is about to act, and the service has not answered yet."""
        self.turn = 0
        """How often it has been roused."""
        self.ends = 0
        self.acts = 0
        """How often it has done anything that a report might show."""
        self.reported: int | None = None
        """The `acts` that its last report showed, if that has said all there is to say; None if it has not."""

    def offer(self, *, is_still: bool) -> Said | None:
        """A report is made: what it is to say of repose, None if nothing. `is_still`: rule 4, and nothing speaks against it.

        Twice the same is to be reported first: who acts now and then would only be asked more often.
        """
        if not self.is_on:
            was, self.reported = self.reported, self.acts if is_still else None
            self.is_on = is_still and not self.is_rousing and was == self.acts
        return (self.turn, self.ends) if self.is_on and not self.is_rousing else None

    def begin_rousing(self) -> int:
        """The driver is about to act: the turn that the service must be told, before it does."""
        self.is_rousing = True
        self.turn += 1
        return self.turn

    def roused(self) -> None:
        """The service knows, or is gone: the driver acts."""
        self.is_on = self.is_rousing = False
        self.reported = None

    def ended(self, ends: int) -> None:
        """The service has said that it is over. (Who is rousing still gets an answer, and offers nothing before that.)"""
        self.is_on = False
        self.ends = ends
        self.reported = None


class StandIn:
    """The service's side: what it reports for the driver."""

    __slots__ = ("ends", "report", "turn")

    def __init__(self) -> None:
        self.report: Any = None
        """The driver's last report, while it is in repose; else None."""
        self.turn = 0
        """How often it has been roused, as far as is known here."""
        self.ends = 0

    def take(self, report: Any, said: Said | None) -> None:
        """The driver has reported, and said this of repose."""
        if said is not None and said[0] >= self.turn and said[1] == self.ends:
            self.report = report

    def rouse(self, turn: int) -> None:
        """The driver acts again."""
        self.turn = max(self.turn, turn)
        self.report = None

    def end(self) -> int:
        """The driver is about to be told what ends a repose, of which a report may be on its way; returns `Missed.ends`."""
        self.report = None
        self.ends += 1
        return self.ends
