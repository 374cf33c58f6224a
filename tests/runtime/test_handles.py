"""Handles: of machines that a driver has spawned, made when they are asked for; and of those known by name."""

import operator
import pickle
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from clean import ran

from ray_snapshot import MachineHandle
from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime.handles import forget_handles, forget_places, handle_of, note_kinds
from ray_snapshot.runtime.spawned import Handles

RUN = "run-of-handles"


class Account:
    """A class of machines."""


class Till:
    """Another."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    forget_handles(RUN)


def many(count: int) -> Handles[Account]:
    return Handles(RUN, [f"Account-{number}" for number in range(count)], ["host-0"] * count)


def test_handles_are_a_sequence_of_handles() -> None:
    found = many(5)
    expected = [handle_of(RUN, f"Account-{number}", "host-0") for number in range(5)]
    assert [*found] == expected
    assert (len(found), found[1], found[-1]) == (5, expected[1], expected[4])
    assert found[1:3] == expected[1:3]
    assert isinstance(found[1:3], Handles)
    assert (found == expected, found == many(5), found == many(4), found == "Account-0") == (True, True, False, False)
    assert operator.add(found, [1]) == [*expected, 1]
    assert operator.add([1], found) == [1, *expected]
    assert expected[2] in found
    assert found[0]._host == "host-0"
    assert repr(found) == "<5 machines, Account-0 to Account-4>"
    assert repr(many(0)) == "<no machines>"
    with pytest.raises(IndexError):
        found[5]


def test_where_they_are_sent_they_are_a_list() -> None:
    assert type(pickle.loads(pickle.dumps(many(3)))) is list
    assert pickle.loads(pickle.dumps(many(3))) == many(3)


def test_a_handle_that_nobody_asks_for_is_not_made() -> None:
    tracemalloc.start()
    try:
        many(10_000)
        assert tracemalloc.get_traced_memory()[1] / 10_000 < 100
    finally:
        tracemalloc.stop()


def test_the_class_is_known_of_handles_that_are_there_and_of_those_that_come() -> None:
    early = handle_of(RUN, "till")
    assert early._kind is None
    note_kinds(RUN, ["till", "safe"], Till)
    assert (early._kind, handle_of(RUN, "safe")._kind, handle_of(RUN, "unheard-of")._kind) == (Till, Till, None)
    assert handle_of("another run", "safe")._kind is None
    forget_handles("another run")


def test_what_was_known_of_a_run_ends_with_it() -> None:
    note_kinds(RUN, ["till"], Till)
    forget_handles(RUN)
    assert isinstance(found := handle_of(RUN, "till"), MachineHandle)
    assert found._kind is None


class OfTheUser(str):
    """As numpy makes them."""

    __slots__ = ()


def test_a_name_of_a_class_of_the_users_is_a_plain_one() -> None:
    name = handle_of(RUN, OfTheUser("m-1"))._name
    assert type(name) is str
    assert check_machine_name(OfTheUser("m-1")) == name
    assert type(check_machine_name(OfTheUser("m-1"))) is str
    core = HostCore("A")
    sender = core.born("s", object())
    core.born("m-1", object())
    channel = core.send(sender, OfTheUser("m-1"), MAIL, "add", (), 0.0)
    assert (channel.target, channel.kind) == ("m-1", MAIL)
    assert core.next_action() is not None


SIZES = """
import tracemalloc
from ray_snapshot.runtime.handles import handle_of

def bytes_each(method):
    names = [f"{method}-{number}" for number in range(1000)]
    tracemalloc.start()
    for name in names:
        getattr(handle_of("run", name), method)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(names)

early = bytes_each("add")
for number in range(40):
    getattr(handle_of("run", "m"), f"method_{number}")
print(early, bytes_each("late"))
"""


def test_what_a_handle_and_a_sender_of_its_own_take() -> None:
    """Python shares the keys of dictionaries of one class, as long as there are few different ones."""
    done = ran(sys.executable, "-c", SIZES, env={})
    assert done.returncode == 0, done.stderr
    early, late = map(float, done.stdout.split())
    assert early < 250
    assert late < 450


def test_a_handle_that_says_where_its_machine_lives_is_kept_and_hears_that_it_may_have_moved() -> None:
    placed = [handle_of(RUN, f"m{number}", "host-1") for number in range(500)]
    assert all(handle_of(RUN, handle._name) is handle for handle in placed)
    forget_places(RUN)
    assert {handle._host for handle in placed} == {None}
