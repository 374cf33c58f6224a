"""What a search does faster than the detectors, it does as they do: each answer is held against the detector's own."""

from collections.abc import Callable
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.testing.judging import ByDetector, judge_of
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.space import Space, State
from ray_snapshot.testing.stage import Stage


class Polite(rs.SnapshotMixin):
    """Says by its hook whom it waits for."""

    def __init__(self) -> None:
        self.asks: Any = None

    def ask(self, whom: rs.MachineHandle) -> None:
        self.asks = whom
        whom.asked.send(self.handle)

    def asked(self, by: rs.MachineHandle) -> None:
        if self.asks is None:
            by.thanked.send()

    def thanked(self) -> None:
        self.asks = None

    def waiting_for(self) -> rs.Wait | None:
        return None if self.asks is None else rs.all_of(self.asks)


def polite(system: Any) -> None:
    a, b, c = (system.spawn(Polite, name=name) for name in "abc")
    a.ask.send(b)
    b.ask.send(c)
    c.ask.send(a)


def three_callers(system: Any) -> None:
    a, b, c = (system.spawn(machines.Account, 40, name=name) for name in "abc")
    a.move_all.send(b)
    b.move_all.send(c)
    c.greet.send(a)


BUILDS = [
    machines.bank, machines.embrace, machines.asking, machines.family, machines.joining, machines.half_a_join, machines.racing,
    polite, three_callers,
]  # fmt: skip
DETECTORS = [
    detectors.Deadlock(),
    detectors.Termination(),
    detectors.TokenConservation(total=150, state="$.balance", messages={"deposit": "$[0]"}),
    detectors.TokenConservation(total=120, state={"Account": "$.balance"}, messages={"deposit": "$[0]"}),
    detectors.TokenConservation(state="$.balance", messages={"deposit": "$[0]"}),
]


def each_state(
    build: Callable[[Any], object], look: Callable[[Space, Shown, State], None], most: int = 600, **options: Any
) -> int:
    with Stage(build) as stage:
        space = Space(stage, **options)
        shown = Shown(space)
        states = [move.after for move in space.start()]
        seen = set(states)
        for state in states:
            look(space, shown, state)
            for move in (move for task in space.tasks(state) for move in space.moves_of(state, task)):
                if move.after not in seen and len(seen) < most:
                    seen.add(move.after)
                    states.append(move.after)
        return len(states)


@pytest.mark.parametrize("build", BUILDS)
def test_every_quick_answer_is_the_detectors_own(build: Any) -> None:
    judges: list[tuple[Any, ByDetector]] = []
    told: list[bool | None] = []

    def look(space: Space, shown: Shown, state: State) -> None:
        if not judges:
            judges.extend((judge_of(item, space, shown), ByDetector(item, space, shown)) for item in DETECTORS)
        for quick, slow in judges:
            answer = slow.holds(state)
            assert quick.holds(state) == answer, f"{quick.name}: {slow.sentence(state)}"
            told.append(answer)

    assert each_state(build, look, most=40) > 1
    assert False in told
    assert len(set(told)) > 1


@pytest.mark.parametrize("build", BUILDS)
def test_every_state_is_a_consistent_snapshot(build: Any) -> None:
    def look(space: Space, shown: Shown, state: State) -> None:
        shown.snapshot(state).verify()

    assert each_state(build, look, most=30) > 1


def test_each_action_is_done_once_whatever_the_others_do() -> None:
    """Seven machines, none of which has to do with the others: the states are a product, the executions a sum."""

    def build(system: Any) -> None:
        for number in range(6):
            system.spawn(machines.Account, number, name=f"m{number}").deposit.send(1)

    executions = []

    def look(space: Space, shown: Shown, state: State) -> None:
        executions.append(space.stage.executions)

    assert each_state(build, look) == 64
    assert executions[-1] < 40


def test_sets_in_another_order_and_equal_texts_are_one_state() -> None:
    from ray_snapshot.testing.values import decoded, encoded

    word = "".join(["w", "ord"])
    one, other = (
        {"a": set(range(0, 24, 8)), "b": [word, word]},
        {"a": set(range(16, -8, -8)), "b": ["word", "".join(["wo", "rd"])]},
    )
    assert encoded(one).data == encoded(other).data
    shared: list[int] = []
    assert encoded({"a": shared, "b": shared}).data != encoded({"a": [], "b": []}).data, "one list is not two"
    again = decoded(encoded({"a": shared, "b": shared}).data)
    assert again["a"] is again["b"]
    assert encoded({"a": 1}).data != encoded({"a": True}).data != encoded({"a": 1.0}).data


class Words(set[str]):
    """A set of a class of its own."""


class Thing:
    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, 1)


class Slotted:
    __slots__ = ("__dict__", "x")

    def __init__(self) -> None:
        self.x = 1


def test_the_order_in_which_attributes_were_set_is_no_part_of_a_state() -> None:
    from ray_snapshot.testing.values import decoded, encoded, state_of

    assert encoded(Thing("x", "y")).data == encoded(Thing("y", "x")).data
    assert vars(decoded(encoded([Thing("y", "x")]).data)[0]) == {"x": 1, "y": 1}
    one, other = Slotted(), Slotted()
    one.a, one.b = 1, 2  # type: ignore[attr-defined]
    other.b, other.a = 2, 1  # type: ignore[attr-defined]
    assert encoded(state_of(one)).data == encoded(state_of(other)).data == encoded(state_of(one)).data
    assert encoded({"a": 1, "b": 2}).data != encoded({"b": 2, "a": 1}).data, "of a dict it is"


def test_a_set_of_a_class_of_its_own_is_sorted() -> None:
    from ray_snapshot.testing.values import decoded, encoded

    one, other = Words(), Words()
    for place in (0, 8, 16):
        one.add(place)  # type: ignore[arg-type]
        other.add(16 - place)  # type: ignore[arg-type]
    assert [*one] != [*other]
    assert encoded(one).data == encoded(other).data
    again = decoded(encoded(one).data)
    assert (type(again), again) == (Words, one)


def test_two_orders_of_two_attributes_end_in_one_state() -> None:
    class Late(rs.SnapshotMixin):
        def first(self) -> None:
            self.x = 1

        def second(self) -> None:
            self.y = 1

    class Caller(rs.SnapshotMixin):
        def go(self, late: rs.MachineHandle, method: str) -> None:
            getattr(late, method).send()

    def build(system: Any) -> None:
        late = system.spawn(Late, name="late")
        for name, method in (("a", "first"), ("b", "second")):
            system.spawn(Caller, name=name).go.send(late, method)

    ends = []

    def look(space: Space, shown: Shown, state: State) -> None:
        ends.append(not space.tasks(state))

    assert each_state(build, look) == 9
    assert sum(ends) == 1
