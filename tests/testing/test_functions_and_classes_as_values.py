"""Lambdas, local functions and local classes: values of what they are made of, as cloudpickle makes them on Ray."""

import abc
import dataclasses
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.testing.values import canonical, decoded, encoded


class Worker(rs.SnapshotMixin):
    def __init__(self, work: Any) -> None:
        self.work = work
        self.count = 0

    def go(self) -> None:
        self.count = self.work(self.count)

    def take(self, work: Any) -> None:
        self.work = work


class Sender(rs.SnapshotMixin):
    def go(self, to: rs.MachineHandle) -> None:
        step = 5
        to.take.send(lambda count: count + step)


def shown_counts(build: Any) -> set[int]:
    shown = set()

    def note(states: Any) -> bool:
        shown.add(states["a"].count)
        return True

    found = testing.explore(build, always=[note])
    assert found.complete, str(found)
    return shown


@pytest.mark.contract
def test_a_lambda_in_build_and_one_in_a_message_are_values() -> None:
    def build(system: Any) -> None:
        a = system.spawn(Worker, lambda count: count + 1, name="a")
        system.spawn(Sender, name="b").go.send(a)
        a.go.send()
        a.go.send()

    assert shown_counts(build) == {0, 1, 2, 5, 6, 10}


@pytest.mark.contract
def test_what_a_local_function_closes_over_belongs_to_the_state_of_its_machine() -> None:
    def build(system: Any) -> None:
        heard: list[int] = []

        def work(count: int) -> int:
            heard.append(count)
            return len(heard)

        for name in "ab":
            worker = system.spawn(Worker, work, name=name)
            worker.go.send()
            worker.go.send()

    assert shown_counts(build) == {0, 1, 2}, "each machine has its own list, as behind a pickle"


def test_functions_that_differ_in_what_they_close_over_are_two() -> None:
    def adding(step: int, most: int = 9) -> Any:
        return lambda count, most=most: min(count + step, most)

    one, same, other, less = (encoded(adding(*args)).data for args in ((1,), (1,), (2,), (1, 3)))
    assert one == same
    assert len({one, other, less}) == 3
    assert decoded(one)(4) == 5
    assert decoded(less)(4) == 3


def test_a_function_that_calls_itself_and_two_that_share_a_variable_come_back_as_they_are() -> None:
    def factorial(number: int) -> int:
        return number * factorial(number - 1) if number else 1

    assert decoded(encoded(factorial).data)(5) == 120
    count = 0

    def up() -> None:
        nonlocal count
        count += 1

    def read() -> int:
        return count

    more, look = decoded(encoded((up, read)).data)
    more()
    assert (look(), read()) == (1, 0)


@pytest.mark.contract
def test_a_local_class_is_one_class_each_time_that_the_program_is_done_again() -> None:
    class Base(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.count = 0

    def build(system: Any) -> None:
        step = 3

        class Local(Base):
            def __init__(self) -> None:
                super().__init__()
                self.kind = Local

            def go(self) -> None:
                self.count += step

        system.spawn(Local, name="a").go.send()

    assert shown_counts(build) == {0, 3}


def test_local_classes_that_differ_are_two_classes() -> None:
    def of(number: int) -> type:
        @dataclasses.dataclass
        class Item(abc.ABC):  # noqa: B024
            amount: int = number

            def read(self) -> int:
                return self.amount * number

        return Item

    assert canonical(of(1)) is canonical(of(1))
    assert canonical(of(1)) is not canonical(of(2))
    assert encoded(of(2)()).data == encoded(of(2)()).data
    assert decoded(encoded(of(3)()).data).read() == 9
