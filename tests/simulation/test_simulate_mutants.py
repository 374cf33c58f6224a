"""What `simulate` says is consistent by definition is a state that could have been: the theorem, on its very runs."""

import random

import pytest
from worlds.mail.holders import log_of
from worlds.mail.theorem import WorldLog, check

from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, CHANDY_LAMPORT, PROTOCOLS
from ray_snapshot.protocol.turning import Turning
from ray_snapshot.simulation.mail.oracle import OracleError, RecordedSnapshot
from ray_snapshot.simulation.tokens.playing import play_events
from ray_snapshot.simulation.tokens.scripts import Script, SendTokens, StartSnapshot, Tick, Topology
from ray_snapshot.simulation.tokens.system import TokenSystem

NAMES = ("a", "b", "c")


def ran(seed: int, protocol: str) -> TokenSystem:
    """Three machines that all send to each other, and three snapshots among thirty sends."""
    chance = random.Random(seed)
    topology = Topology(dict.fromkeys(NAMES, 50), dict.fromkeys((a, b) for a in NAMES for b in NAMES if a != b))
    operations: list[SendTokens | StartSnapshot | Tick] = []
    for step in range(30):
        source, target = chance.sample(NAMES, 2)
        operations += [SendTokens(step, source, target, 1), Tick(step, chance.randint(1, 2))]
        if step in (8, 9, 10):
            operations.append(StartSnapshot(step, (chance.choice(NAMES),)))
    return play_events(topology, Script("events", operations), seed, protocol).system


CONSISTENT = [one for one in PROTOCOLS if one != AT_LEAST_ONCE]


def judged(system: TokenSystem) -> tuple[list[bool | None], list[bool | None]]:
    """By complete snapshot: what `simulate` says of it, and what the theorem does."""
    said, log = [one.is_consistent for one in system.results() if one.is_complete], log_of(system)
    return said, [is_between(log, recorded) for _, recorded in sorted(system.recorded.items())]


def is_between(log: WorldLog, recorded: RecordedSnapshot) -> bool:
    try:
        check(log, recorded)
    except OracleError:
        return False
    return True


@pytest.mark.parametrize("protocol", CONSISTENT)
@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_that_is_called_consistent_is_a_state_between_white_and_red_actions(
    seed: int, protocol: str
) -> None:
    assert judged(ran(seed, protocol)) == ([True] * 3, [True] * 3)


def test_of_a_protocol_that_is_wrong_both_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turning, "is_white", lambda self, colour, number: not colour)
    found = [judged(ran(seed, CHANDY_LAMPORT)) for seed in range(20)]
    assert all(said == shown for said, shown in found)
    assert not all(all(said) for said, _ in found)
