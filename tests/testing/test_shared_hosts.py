"""Worlds of a search under a protocol share their hosts: each is what it would be if it had been copied whole."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot.protocol.choosing import PROTOCOLS
from ray_snapshot.simulation.mail.fingerprints import fingerprint
from ray_snapshot.testing import hosted, hosted_orders, hosted_runs
from ray_snapshot.testing.hosted_sharing import SharedHosts, new_keeper
from ray_snapshot.testing.stage import Stage


class Curious(rs.SnapshotMixin):
    def look(self) -> None:
        self.request_snapshot()


def curious(system: Any) -> None:
    system.spawn(Curious, name="one").look.send()


BUILDS = (
    machines.bank, machines.asking, machines.family, machines.joining, machines.racing, machines.hurrying, machines.leaving,
    curious,
)  # fmt: skip
BESIDE_HOSTS = ("dues", "timeouts", "inside", "came", "calls", "owed", "places", "names", "clock", "failure")
"""What a world is beside what its fingerprint has."""


def _begun(stage: Stage, protocol: str) -> hosted.HostedWorld:
    """A world whose machines are built, and of which a snapshot is asked for."""
    settings = {"protocol": protocol, "hosts": None, "crashes": 0}
    player = hosted_runs.Player(stage, settings, hosted_orders._no_chance)
    player.take(("begin",))
    while player.world.is_being_built():
        steps = player.world.enabled()
        player.take(next(step for step in steps if step[0] not in ("accept", "fire", "resume", "timeout")))
    player.take(("snapshot",))
    return player.world


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    yield
    hosted.KNOWN.clear()


def _facts(world: hosted.HostedWorld) -> Hashable:
    beside = [vars(world)[name] for name in BESIDE_HOSTS]
    return fingerprint(world), repr([sorted(one) if isinstance(one, set) else one for one in beside])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_forked_world_is_what_one_is_that_was_not_forked_and_its_parent_stays_what_it_was(protocol: str) -> None:
    for build in BUILDS:
        marks: dict[Hashable, Hashable] = {}
        with Stage(build) as stage:
            plain, shared = _begun(stage, protocol), _begun(stage, protocol)
            shared.share(new_keeper())
            _walk(random.Random(7), plain, shared, marks)
        assert len({*marks.values()}) == len(marks) > 8, build.__name__


def _walk(
    chance: random.Random, plain: hosted.HostedWorld, shared: hosted.HostedWorld, marks: dict[Hashable, Hashable]
) -> None:
    for _ in range(28):
        steps = shared.enabled()
        assert steps == plain.enabled()
        if not steps:
            return
        before = _facts(shared)
        for other in chance.sample(steps, min(2, len(steps))):
            branch = shared.fork()
            hosted_orders._taken_eagerly(branch, other)
            _note(branch, marks)
        step = chance.choice(steps)
        after = shared.fork()
        assert hosted_orders._taken_eagerly(after, step) == hosted_orders._taken_eagerly(plain, step)
        assert _facts(shared) == before
        assert _facts(after) == _facts(plain)
        _note(after, marks)
        shared = after


def _note(world: hosted.HostedWorld, marks: dict[Hashable, Hashable]) -> None:
    """Its mark stands for its whole fingerprint, and for no other."""
    mark: Any = world.mark(has_clock=False)
    whole = (fingerprint(world), *mark[1:])
    assert marks.setdefault(mark, whole) == whole


def test_a_step_copies_the_hosts_that_it_changes_and_no_other() -> None:
    with Stage(machines.bank) as stage:
        world = _begun(stage, "chandy-lamport")
        world.share(new_keeper())
        after = world.fork()
        step = next(step for step in after.enabled() if step[0] == "accept")
        after.perform(step)
        assert isinstance(after.hosts, SharedHosts)
        unlike = {name for name in world.hosts if world.hosts.get(name) is not after.hosts.get(name)}
        assert unlike == {step[1]}
