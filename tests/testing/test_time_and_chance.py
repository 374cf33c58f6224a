"""`self.now()` and `self.random`: the real ones on Ray, and in a class that is tried by itself."""

import cProfile
import datetime
import random
import sys
import time
from contextlib import nullcontext
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.errors import NotDeterministicError
from ray_snapshot.testing.guards import Guards


@pytest.mark.contract
def test_a_class_by_itself_has_the_real_clock_and_real_chance() -> None:
    clock, die = machines.Clock(), machines.Die()
    before = time.time()
    clock.note()
    assert clock.at is not None
    assert before <= clock.at <= time.time()
    die.throw()
    assert 1 <= die.eyes <= 6


@pytest.mark.contract
def test_a_class_may_have_names_of_its_own_for_them() -> None:
    class Own(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.random = random.Random(3)

        def now(self) -> float:
            return 17.0

    assert Own().now() == 17.0
    assert isinstance(Own().random, random.Random)


class _Plain(rs.SnapshotMixin):
    def note(self) -> None:
        self.at = 1


class _Dated(rs.SnapshotMixin):
    def note(self) -> None:
        self.at = datetime.datetime.now(datetime.UTC).year


def _date(system: Any) -> None:
    system.spawn(_Dated, name="dated").note.send()


def test_each_call_is_looked_at_only_in_classes_whose_own_code_may_ask_the_date() -> None:
    guards = Guards()
    guards.watch(_Plain)
    guards.watch(_Dated)
    assert guards.dated == {2}


@pytest.mark.contract
def test_a_profiler_that_is_written_in_c_is_left_alone() -> None:
    refused = pytest.raises(NotDeterministicError, match=r"datetime.now")
    with cProfile.Profile() as profile, refused if sys.version_info >= (3, 12) else nullcontext():
        testing.simulate(_date, seed=1)
    assert any(getattr(one.code, "co_name", "") == "note" for one in profile.getstats())
    with refused:
        testing.simulate(_date, seed=1)


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
def test_on_ray_machines_are_told_the_real_time_and_draw_by_themselves() -> None:
    import ray

    before = time.time()
    with rs.System("clocks", detectors=[]) as system:
        clock = system.spawn(machines.Timekeeper, name="clock")
        at, thrown = ray.get(clock.tell.remote(40))
    assert before <= at <= time.time()
    assert len(set(thrown)) > 1
