"""What must hold of a recovering system, whichever process dies: judged by what has happened, not by what was decided.

The oracle is told of each message, each snapshot with what it holds, each promise ("nobody goes back behind this one") and
each restore that the program asked for. It looks into the parties as into boxes: which snapshot would be gone back to now,
what the driver would still have to send again, where checkpoints lie. It imports nothing of `protocol`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING

from ray_snapshot.simulation.mail.oracle import OracleError

if TYPE_CHECKING:
    from worlds.rollback.recovering import RecoveringWorld


class Truth:
    """What has happened to one system."""

    def __init__(self) -> None:
        self.expected: list[int] = []
        """Messages of the driver that must be in effect, once each."""
        self.contents: dict[int, tuple[int, ...]] = {}
        """By number of a snapshot: the messages that are in effect in it."""
        self.given: set[int] = set()
        self.promised = 0
        """Nobody goes back behind this snapshot, somebody has been told."""

    # ---- what happens ---------------------------------------------------------------------------------------------

    def gave(self, number: int) -> None:
        """A number was given out."""
        if number in self.given:
            raise OracleError(f"number {number} is used twice")
        self.given.add(number)

    def promise(self, number: int) -> None:
        """Somebody was told that this snapshot is kept."""
        self.promised = max(self.promised, number)

    def restored(self, number: int) -> None:
        """The program has had this snapshot restored: what is not in it never was."""
        self.expected, self.promised = [*self.contents[number]], number

    # ---- what must hold -------------------------------------------------------------------------------------------

    def check_line(self, number: int, journal: Iterable[int]) -> None:
        """This is what would be gone back to now, with what the driver still has."""
        if number < self.promised:
            raise OracleError(f"snapshot {self.promised} was promised, and {number} is gone back to")
        lost = Counter(self.expected) - Counter(self.contents[number]) - Counter(journal)
        if lost:
            raise OracleError(f"going back to snapshot {number} would lose messages {sorted(lost)}")

    def check_loadable(self, number: int, where: Collection[int], at: str) -> None:
        """It must lie somewhere."""
        if number not in where:
            raise OracleError(f"snapshot {number} is gone back to, and {at} it is not: {sorted(where)}")

    def check_end(self, effects: Iterable[int], journal: Iterable[int], line: Collection[int | None]) -> None:
        """Nothing happens any more; `line`: what each party takes for what is gone back to, by now the last snapshot."""
        if sorted(effects) != sorted(self.expected):
            raise OracleError(f"in effect are {sorted(effects)}, and {sorted(self.expected)} were sent")
        if set(line) != {max(self.given)}:
            raise OracleError(f"snapshot {max(self.given)} is kept, and the recovery line stays at {[*line]}")
        useless = Counter(journal) & Counter(self.contents[max(self.given)])
        if useless:
            raise OracleError(f"messages {sorted(useless)} are in the recovery line, and kept for ever")

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that are judged alike."""
        return tuple(self.expected), tuple(sorted(self.contents.items())), max(self.given), self.promised


def check(world: RecoveringWorld) -> None:
    """What would be gone back to now, if somebody died. Raises `OracleError`."""
    truth, driver, service = world.truth, world.driver, world.service
    if service is not None and service.target is not None:
        number = service.target
    else:
        number = _line(world)
        truth.check_line(number, (message for _, message in driver.journal))
    if world.analyst is not None:
        truth.check_loadable(number, world.stored(), "with the analyst")
    else:
        truth.check_loadable(number, world.history | {*driver.line.copies()}, "with the driver")


def _line(world: RecoveringWorld) -> int:
    if world.service is not None:
        return world.service.line.number
    base = world.recollection[2] if world.recollection is not None else world.driver.line.base
    assert base is not None
    return base.number


def check_end(world: RecoveringWorld) -> None:
    """Nothing happens any more. One more snapshot is taken; then everything must be complete and right."""
    if world.service is not None and world.service.noted:
        raise OracleError(f"nobody says whether snapshot {world.service.noted[0][0]} is kept")
    world.left["snapshot"] = 1
    for _ in range(200):
        if not (steps := world.enabled()):
            break
        world.perform(steps[0])
    service, base = world.service, world.driver.line.base
    assert base is not None
    if service is None or service.is_rolling or service.noted or service.seeking or world.left["snapshot"]:
        raise OracleError(f"it does not come to rest: {world.fingerprint()}")
    in_flight = [message for _, message in world.to_host]
    journal = [message for _, message in world.driver.journal]
    world.truth.check_end([*world.host[1], *in_flight], journal, [service.line.number, base.number])
