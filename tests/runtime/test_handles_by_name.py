"""How many handles a process keeps of machines that it knows by name alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_snapshot.runtime import handles
from ray_snapshot.runtime.handles import KINDS, forget_handles, forget_places, handle_of, interned
from ray_snapshot.runtime.spawned import Kinds

RUNS = HOSTS, DRIVERS = "a-host's", "a-driver's"
NAMES = [f"m{number}" for number in range(500)]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(handles, "_INTERNED", {})
    monkeypatch.setattr(handles, "MOST_BY_NAME", 10)
    monkeypatch.setattr(handles, "_most_kept", 20)
    yield
    for run in RUNS:
        forget_handles(run)


def test_handles_that_say_no_more_than_a_name_are_not_kept_for_ever() -> None:
    held = [handle_of(HOSTS, name) for name in NAMES]
    assert len(handles._INTERNED) <= 20
    again = handle_of(HOSTS, NAMES[0])
    assert again is not held[0]
    assert (again, hash(again)) == (held[0], hash(held[0]))
    assert handle_of(HOSTS, NAMES[0]) is again


def test_a_handle_that_says_where_its_machine_lives_is_kept_and_hears_that_it_may_have_moved() -> None:
    placed = [handle_of(HOSTS, name, "host-1") for name in NAMES]
    for name in NAMES:
        handle_of(HOSTS, f"other-{name}")
    assert all(interned(HOSTS, handle._name) is handle for handle in placed)
    assert len(handles._INTERNED) <= 2 * (len(placed) + 10)
    forget_places(HOSTS)
    assert {handle._host for handle in placed} == {None}


def test_a_program_keeps_its_own_which_hear_of_what_is_spawned_later() -> None:
    Kinds().add(DRIVERS, ["first"], int, is_named=True)
    ahead = [handle_of(DRIVERS, name) for name in NAMES]
    KINDS[DRIVERS].add(DRIVERS, NAMES, str, is_named=True)
    assert {handle._kind for handle in ahead} == {str}
