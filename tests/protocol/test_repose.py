"""A driver in repose: in every order, what the service reports for it is what it would report itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_snapshot.protocol.repose import Repose, StandIn

MOST_ACTS = 2
MOST_ENDS = 2
MOST_REPORTS = 4
STATES = 6_367


class World:
    """A driver, its service, and what is on its way between them: reports and calls in any order, commands in theirs."""

    def __init__(self) -> None:
        self.repose = Repose()
        self.stand_in = StandIn()
        self.reports: list[tuple[int, Any]] = []
        self.calls: list[int] = []
        self.answers = 0
        self.commands: list[int] = []
        self.reported = self.ended = 0

    def key(self) -> Any:
        repose, stand_in = self.repose, self.stand_in
        driver = tuple(getattr(repose, name) for name in repose.__slots__)
        service = tuple(getattr(stand_in, name) for name in stand_in.__slots__)
        on_way = (tuple(sorted(self.reports, key=repr)), tuple(self.calls), self.answers, tuple(self.commands))
        return driver, service, on_way, self.reported, self.ended

    def steps(self) -> Iterator[Callable[[World], None]]:
        if self.reported < MOST_REPORTS:
            yield World.report
        if self.repose.acts < MOST_ACTS and not self.repose.is_on:
            yield World.act
        elif self.repose.acts < MOST_ACTS and not self.repose.is_rousing:
            yield World.rouse
        for place in range(len(self.reports)):
            yield lambda world, place=place: world.stand_in.take(*world.reports.pop(place))
        if self.calls:
            yield World.answer
        if self.answers:
            yield World.hear
        if self.ended < MOST_ENDS:
            yield World.end
        if self.commands:
            yield World.obey

    def report(self) -> None:
        self.reported += 1
        said = self.repose.offer(is_still=True)
        self.reports.append((self.repose.acts, said))

    def act(self) -> None:
        self.repose.acts += 1

    def rouse(self) -> None:
        self.calls.append(self.repose.begin_rousing())

    def answer(self) -> None:
        self.stand_in.rouse(self.calls.pop())
        self.answers += 1

    def hear(self) -> None:
        self.answers -= 1
        self.repose.roused()
        self.repose.acts += 1

    def end(self) -> None:
        """The service tells the driver of a channel, say: its reports show that from then on."""
        self.ended += 1
        self.commands.append(self.stand_in.end())

    def obey(self) -> None:
        self.repose.ended(self.commands.pop(0))
        self.repose.acts += 1


def explored() -> int:
    """How many states there are. What the service would report is what the driver shows, or will be told of by a command."""
    first = World()
    known, stack, in_repose = {first.key()}, [first], 0
    while stack:
        world = stack.pop()
        stood = world.stand_in.report
        assert stood is None or stood == world.repose.acts, "the service reports what the driver is no more"
        in_repose += stood is not None
        for step in world.steps():
            then = copy.deepcopy(world)
            step(then)
            if (key := then.key()) not in known:
                known.add(key)
                stack.append(then)
    assert in_repose, "it was never in repose"
    return len(known)


def test_in_every_order_the_service_reports_what_the_driver_would() -> None:
    assert explored() == STATES


class HearsOldOffers(StandIn):
    """A mutant: takes a report whatever has been said since."""

    def take(self, report: Any, said: Any) -> None:
        self.report = report if said is not None else self.report


class ForgetsItsEnds(StandIn):
    """A mutant: a report that was on its way when the service ended a repose brings it back."""

    def take(self, report: Any, said: Any) -> None:
        super().take(report, None if said is None else (said[0], self.ends))


class OffersWhileRousing(Repose):
    """A mutant: what it reports while it waits for the service says repose."""

    def offer(self, *, is_still: bool) -> Any:
        is_rousing, self.is_rousing = self.is_rousing, False
        found = super().offer(is_still=is_still)
        self.is_rousing = is_rousing
        return found


class ActsAtOnce(Repose):
    """A mutant: it does not wait for the answer."""

    def begin_rousing(self) -> int:
        self.acts += 1
        return super().begin_rousing()


@pytest.mark.parametrize("mutant", [HearsOldOffers, ForgetsItsEnds, OffersWhileRousing, ActsAtOnce])
def test_mutants_of_it_are_caught(mutant: type, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "StandIn" if issubclass(mutant, StandIn) else "Repose"
    monkeypatch.setitem(World.__init__.__globals__, name, mutant)
    with pytest.raises(AssertionError, match="is no more"):
        explored()


def test_a_driver_reports_the_same_twice_before_it_is_in_repose() -> None:
    repose = Repose()
    assert repose.offer(is_still=True) is None
    assert repose.offer(is_still=True) == (0, 0)
    assert repose.offer(is_still=False) == (0, 0)  # nothing has changed: its own markers are on their way
    repose.begin_rousing()
    repose.roused()
    repose.acts += 1
    assert [repose.offer(is_still=still) for still in (True, False, True, True)] == [None, None, None, (1, 0)]
