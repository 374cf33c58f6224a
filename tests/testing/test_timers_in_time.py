"""Which timers may come before which: against every way in which time can pass, and as a user sees it."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.testing.acts import Around
from ray_snapshot.testing.records import MACHINE, TIMERS, Here
from ray_snapshot.testing.table import Table
from ray_snapshot.testing.timing import Timing

STEP = 0.25
"""Durations are whole, and there are at most four instants: finer times give no other order."""

Actions = list[list[tuple[str, float]]]
"""By action: (target, seconds) of each timer that it sets."""


def in_time(actions: Actions) -> set[Any]:
    """By target, the orders in which timers are due; for all moments at which the actions may come."""
    found = set()
    most = max(seconds for action in actions for _, seconds in action)
    steps = [STEP * place for place in range(int(most / STEP) + 2)]
    for gaps in product(steps, repeat=len(actions) - 1):
        at, dues = 0.0, dict[str, list[Any]]()
        for number, action in enumerate(actions):
            at += gaps[number - 1] if number else 0.0
            for place, (target, seconds) in enumerate(action):
                dues.setdefault(target, []).append((at + seconds, number, place))
        found.add(tuple((target, tuple(one[1:] for one in sorted(all_of))) for target, all_of in sorted(dues.items())))
    return found


def in_states(actions: Actions) -> set[Any]:
    """The same, as `Timing` has it: whatever comes first."""
    table = Table()
    timing = Timing(table)
    cells = [table.id_of(Here(Around(), None))]
    table.cell(MACHINE, "m")
    names = {}
    for number, action in enumerate(actions):
        timers = []
        for place, (target, seconds) in enumerate(action):
            cell = table.cell(TIMERS, ("m", target, "timer"))
            names[table.id_of((number, place))] = number, place
            timers.append((cell, seconds, table.id_of((number, place))))
        cells += [0] * (len(table.cells) - len(cells))
        timing.set(cells, "m", timers, None)
    found, seen = set(), set()

    def go(cells: list[int], came: dict[int, tuple[Any, ...]]) -> None:
        key = tuple(cells), tuple(sorted(came.items()))
        if key in seen:
            return
        seen.add(key)
        waiting = [cell for cell in table.timers["m"] if cells[cell]]
        if not waiting:
            found.add(tuple(sorted((table.cells[cell][1][1], order) for cell, order in came.items())))
        for cell in waiting:
            for index in timing.firsts(tuple(cells), cell):
                after = [*cells]
                mail = timing.take(after, cell, index)
                go(after, {**came, cell: (*came.get(cell, ()), names[mail])})

    go(cells, {})
    return found


def some_actions(count: int, most: int = 3) -> Iterator[Actions]:
    chance = Random(7)
    for _ in range(count):
        yield [
            [(chance.choice("ab"), float(chance.randint(0, 4))) for _ in range(chance.randint(1, 2))]
            for _ in range(chance.randint(1, most))
        ]


def test_timers_come_in_the_orders_that_time_allows_and_in_no_others() -> None:
    unlike = 0
    for actions in some_actions(60):
        there = in_time(actions)
        assert in_states(actions) == there, actions
        unlike += len(there) > 1
    assert unlike > 10


@pytest.mark.nightly
def test_timers_of_four_actions_come_in_the_orders_that_time_allows() -> None:
    for actions in some_actions(200, most=4):
        assert in_states(actions) == in_time(actions), actions


class Cook(rs.SnapshotMixin):
    """Joins what its timers bring."""

    def __init__(self) -> None:
        self.pairs: list[str] = []
        self.alone: list[str] = []

    def set(self, *timers: tuple[float, str, str]) -> None:
        for seconds, port, word in timers:
            getattr(self.handle, port).send_after(seconds, word)

    @rs.join("left", "right")
    def both(self, left: str, right: str) -> None:
        self.pairs.append(left + right)

    def other(self, word: str) -> None:
        self.alone.append(word)


@pytest.mark.contract
def test_a_join_takes_timers_in_every_order_in_which_they_may_come() -> None:
    pairs, alone = set(), set()

    def note(states: Any) -> bool:
        pairs.update(states["cook"].pairs)
        alone.add("".join(states["cook"].alone))
        return True

    def build(system: Any) -> None:
        cook = system.spawn(Cook, name="cook")
        cook.set.send((1.0, "left", "a"), (0.9, "other", "o"))
        cook.set.send((0.5, "left", "b"), (0.6, "right", "z"))

    found = testing.explore(build, always=[note])
    assert found.complete, str(found)
    assert pairs == {"bz"}, "a stands in front of b or behind z, or between them: then nothing is joined"
    assert alone == {"", "o"}
    made = testing.explore(build, never=[lambda states: states["cook"].pairs == ["bz"]])
    assert made.counterexample is not None
    assert testing.replay(build, made.counterexample.schedule).machines["cook"].pairs == ["bz"]


class Alarm(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.came: list[Any] = []

    def arm(self, *timers: tuple[float, str]) -> None:
        for seconds, word in timers:
            self.handle.ring.send_after(seconds, word)

    def ring(self, word: str) -> None:
        self.came.append(word)

    def beat(self) -> None:
        self.came.append("beat")
        self.handle.beat.send_after(1)


def orders(*sets: tuple[tuple[float, str], ...]) -> set[str]:
    """In which orders timers come that are set in so many actions."""
    shown = set()

    def note(states: Any) -> bool:
        shown.add("".join(states["a"].came))
        return True

    def build(system: Any) -> None:
        a = system.spawn(Alarm, name="a")
        for timers in sets:
            a.arm.send(*timers)

    assert testing.explore(build, always=[note]).complete
    size = max(map(len, shown))
    return {one for one in shown if len(one) == size}


@pytest.mark.contract
def test_two_timers_of_unlike_actions_come_in_either_order_if_the_second_is_shorter() -> None:
    assert orders(((1.0, "A"),), ((0.5, "B"),)) == {"AB", "BA"}
    assert orders(((1.0, "A"), (0.5, "B"))) == {"BA"}
    assert orders(((1.0, "A"),), ((1.0, "B"),)) == {"AB"}
    assert orders(((1.0, "A"),), ((2.0, "B"),)) == {"AB"}
    assert orders(((10.0, "p"), (2.0, "q")), ((5.0, "r"), (1.0, "s"))) == {"qspr", "sqrp", "qsrp", "qpsr"}


@pytest.mark.contract
def test_a_timer_that_comes_again_and_again_does_not_put_off_a_longer_one_for_ever() -> None:
    counts = set()

    def note(states: Any) -> bool:
        if "end" in states["a"].came:
            counts.add(states["a"].came.index("end"))
        return len(states["a"].came) < 9

    def build(system: Any) -> None:
        a = system.spawn(Alarm, name="a")
        a.arm.send((4.0, "end"))
        a.beat.send()

    testing.explore(build, always=[note])
    assert counts == {0, 1, 2, 3, 4}


@pytest.mark.contract
def test_a_wait_that_is_over_by_its_timeout_has_taken_its_time() -> None:
    class Patient(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.came: list[str] = []

        def go(self, other: rs.MachineHandle, seconds: float) -> None:
            import ray

            self.handle.ring.send_after(3, "first")
            try:
                ray.get(other.never.remote(), timeout=seconds)
            except ray.exceptions.GetTimeoutError:
                self.came.append("late")
            self.handle.ring.send_after(0.5, "second")

        def ring(self, word: str) -> None:
            self.came.append(word)

    class Deaf(rs.SnapshotMixin):
        def never(self) -> None:
            import ray

            ray.get(self.handle.never.remote())

    def build(seconds: float) -> Any:
        def build(system: Any) -> None:
            system.spawn(Patient, name="a").go.send(system.spawn(Deaf, name="deaf"), seconds)

        return build

    for seconds, ends in ((3.0, {"late,first,second"}), (1.0, {"late,first,second", "late,second,first"})):
        shown = set()

        def note(states: Any, shown: Any = shown) -> bool:
            shown.add(",".join(states["a"].came))
            return True

        assert testing.explore(build(seconds), always=[note]).complete
        assert {one for one in shown if one.count(",") == 2} == ends


class Server(rs.SnapshotMixin):
    """Grants a lease of five seconds."""

    def __init__(self) -> None:
        self.until = -1.0

    def want(self, who: rs.MachineHandle) -> None:
        if self.now() >= self.until:
            self.until = self.now() + 5.0
            who.granted.send()


class Client(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.holds = False

    def go(self, server: rs.MachineHandle) -> None:
        server.want.send(self.handle)

    def granted(self) -> None:
        self.holds = True


@pytest.mark.contract
def test_a_search_in_which_a_machine_asks_for_the_time_is_not_complete() -> None:
    def build(system: Any) -> None:
        server = system.spawn(Server, name="server")
        for name in "ab":
            system.spawn(Client, name=name).go.send(server)

    found = testing.explore(build, always=[lambda states: not (states["a"].holds and states["b"].holds)])
    assert (found.ok, found.complete) == (True, False)
    assert any("messages take no time" in why for why in found.why)


@pytest.mark.contract
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_timers_out_of_order_replay(seconds: float) -> None:
    def build(system: Any) -> None:
        a = system.spawn(Alarm, name="a")
        a.arm.send((1.0, "A"))
        a.arm.send((seconds, "B"))

    wanted = ["B", "A"] if seconds < 1 else ["A", "B"]
    found = testing.explore(build, never=[lambda states: states["a"].came == wanted])
    assert found.counterexample is not None
    run = testing.replay(build, found.counterexample.schedule)
    assert run.machines["a"].came == wanted
    assert run.steps == found.counterexample.steps
    assert found.counterexample.svg()
