"""The sending end of one channel of calls: the numbers that were given out, and the log of those whose fate is not known.

The other end is `acceptance`; `calls` has the rules. Imports nothing of Ray.
"""

from __future__ import annotations

from ray_snapshot.protocol.acceptance import Errors, told
from ray_snapshot.protocol.call_messages import CONSTRUCTOR, OutReport, Sent


class SentLog:
    """Calls to one target, by number; every number below `floor` has ended, as far as their sender can tell."""

    __slots__ = ("errors", "floor", "fresh_from", "last", "log", "sent_count", "settled_count", "target_incarnation")

    def __init__(self, target_incarnation: int) -> None:
        self.last = 0
        self.floor = 1
        self.sent_count = 0
        self.settled_count = 0
        self.target_incarnation = target_incarnation
        self.fresh_from = 0
        """Calls from this number on were sent to the incarnation that the target has now."""
        self.log: dict[int, Sent] = {}
        self.errors: Errors | None = None

    def add(self, sent: Sent) -> int:
        """Log a call; returns its number."""
        number = self.last = self.last + 1
        self.sent_count += 1
        self.log[number] = sent
        return number

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was sent here yet, so that the target may be created."""
        return self.floor != CONSTRUCTOR and not self.sent_count

    def create(self, sent: Sent) -> None:
        """Log the constructor call, which has a number of its own."""
        self.floor = CONSTRUCTOR
        self.sent_count += 1
        self.log[CONSTRUCTOR] = sent

    def end(self, number: int) -> bool:
        """The fate of `number` is known; False if it was known before."""
        if self.log.pop(number, None) is None:
            return False
        while self.floor <= self.last and self.floor not in self.log:
            self.floor += 1
        return True

    def settle(self, number: int) -> None:
        """The call ended without acceptance, as far as its sender can tell."""
        self.settled_count += self.end(number)
        self.errors = self.errors or Errors()
        self.errors.add(number)

    def settle_all(self) -> None:
        """So did every call that is not known to be accepted: the target is gone for good."""
        for number in list(self.log):
            self.settle(number)

    def restarted(self, incarnation: int, before: int | None) -> None:
        """The target has this incarnation now: calls below `before` (None: all so far) that are not retried have ended."""
        if incarnation <= self.target_incarnation:
            return
        self.target_incarnation = incarnation
        self.fresh_from = self.last + 1 if before is None else before
        for number, sent in list(self.log.items()):
            if not sent.is_retried and number < self.fresh_from:
                self.settle(number)

    def report(self, target: str) -> OutReport:
        """Everything as it is now."""
        about = self.sent_count, self.settled_count, self.last, dict(self.log), self.target_incarnation, self.fresh_from
        return OutReport(target, *about, *told(self.errors))
