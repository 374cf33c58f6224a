"""Where machines live is told as by a dictionary, however they were spawned."""

from __future__ import annotations

import random

import pytest

from ray_snapshot.errors import DuplicateMachineError
from ray_snapshot.runtime.service.directory import Directory
from ray_snapshot.runtime.service.places import Places

ODD = [*["a", "a-1", "a-01", "a-b-2", "-3", "a-", "a-²", "a--1", "b-7", "a-10", "3", "17"], f"a-{'1' * 5_000}"]


def test_as_a_dictionary_whatever_is_added(seed: int) -> None:
    for number in range(seed, seed + 200):
        chance, expected = random.Random(number), {"driver": "driver"}
        places = Places(expected)
        for _ in range(8):
            prefix, start = chance.choice(["a", "a-b", "b", ""]), chance.randrange(40)
            names = [f"{prefix}-{start + at}" for at in range(chance.choice([1, 2, 9]))]
            names = chance.choice([names, [chance.choice(ODD)], [*reversed(names)], chance.sample(ODD, 2)])
            fresh = [name for name in names if name not in expected]
            hosts = sorted(chance.choices(["host-0", "host-1", "host-2"], k=len(fresh)), key=lambda _: chance.random())
            if fresh:
                places.add(fresh, hosts)
                expected.update(zip(fresh, hosts, strict=True))
        assert dict(places) == expected, f"pytest --seed {number}"
        assert len(places) == len(expected)
        for name in [*ODD, *(f"{prefix}-{at}" for prefix in ("a", "a-b", "b", "", "c") for at in range(50)), *expected]:
            assert (name in places, places.get(name)) == (name in expected, expected.get(name)), (
                f"pytest --seed {number}"
            )


def test_numbered_machines_take_no_room_of_their_own() -> None:
    places = Places({})
    places.add([f"Account-{number}" for number in range(1_000)], ["host-0"] * 400 + ["host-1"] * 600)
    assert not places.named
    (block,) = places.numbered["Account"]
    assert (block.starts, block.hosts) == ([0, 400], ["host-0", "host-1"])


def test_numbers_that_are_too_long_to_be_read_are_found_all_the_same() -> None:
    names = [f"a-{10**18 - 2 + at}" for at in range(4)]
    places = Places({})
    places.add(names, ["host-0"] * 4)
    assert all(name in places for name in names)


def test_a_name_that_is_taken_is_passed_over_or_refused() -> None:
    directory = Directory("bank", "chandy-lamport")

    def claim(count: int, names: list[str] | None) -> list[str]:
        return directory.claim("Account", count, names, ["host-0"] * count, None, is_driver=True)

    claim(2, ["Account-1", "Account-2"])
    assert claim(3, None) == ["Account-0", "Account-3", "Account-4"]
    assert claim(2, None) == ["Account-5", "Account-6"]
    for names in (["x", "Account-2"], ["x", "x"], ["Account-6", "Account-7"]):
        with pytest.raises(DuplicateMachineError):
            claim(2, names)
    assert "x" not in directory.places
