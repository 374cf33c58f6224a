"""What a handle of a machine that is known by name takes, and hears."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime.handles import forget_handles, forget_places, handle_of, note_kinds

RUNS = HOSTS, DRIVERS = "a-host's", "a-driver's"
NAMES = [f"m{number}" for number in range(500)]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    for run in RUNS:
        forget_handles(run)


class OfTheUser(str):
    """As numpy makes them."""

    __slots__ = ()


def test_a_name_of_a_class_of_the_users_is_a_plain_one() -> None:
    name = handle_of(HOSTS, OfTheUser("m-1"))._name
    assert type(name) is str
    assert check_machine_name(OfTheUser("m-1")) == name
    assert type(check_machine_name(OfTheUser("m-1"))) is str
    core = HostCore("A")
    sender = core.born("s", object())
    core.born("m-1", object())
    channel = core.send(sender, OfTheUser("m-1"), MAIL, "add", (), 0.0)
    assert (channel.target, channel.kind) == ("m-1", MAIL)
    assert core.next_action() is not None


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="Python 3.12 would keep such a text for ever")
def test_a_name_is_there_once_however_often_it_has_come() -> None:
    names = ["".join(["m", "-", "17"]) for _ in range(2)]
    assert names[0] is not names[1]
    core = HostCore("A")
    core.resolve(names[0], "B")
    assert handle_of(HOSTS, names[1])._name is next(iter(core.addresses.places))
    assert core.machine("".join(["m", "-", "18"])).name is handle_of(HOSTS, "".join(["m", "-", "18"]))._name


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
    done = subprocess.run(
        [sys.executable, "-c", SIZES], env={}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    early, late = map(float, done.stdout.split())
    assert early < 250
    assert late < 450


def test_a_handle_that_says_where_its_machine_lives_is_kept_and_hears_that_it_may_have_moved() -> None:
    placed = [handle_of(HOSTS, name, "host-1") for name in NAMES]
    assert all(handle_of(HOSTS, handle._name) is handle for handle in placed)
    forget_places(HOSTS)
    assert {handle._host for handle in placed} == {None}


def test_a_program_keeps_its_own_which_hear_of_what_is_spawned_later() -> None:
    note_kinds(DRIVERS, ["first"], int)
    ahead = [handle_of(DRIVERS, name) for name in NAMES]
    note_kinds(DRIVERS, NAMES, str)
    assert {handle._kind for handle in ahead} == {str}
