"""Snapshots of several sources, crossing each other over random graphs: all complete, and no token is lost or doubled."""

import random
from typing import Any

import pytest
from making_mutants import break_

from ray_snapshot.protocol.barriers import Alignment
from ray_snapshot.protocol.choosing import ALIGNED, AT_LEAST_ONCE, PROTOCOLS
from ray_snapshot.simulation.tokens.playing import play_events
from ray_snapshot.simulation.tokens.scripts import Script, SendTokens, StartSnapshot, Tick, Topology
from ray_snapshot.simulation.tokens.system import Result

SEEDS = 40
MANY = 5_000


def topology_of(chance: random.Random) -> Topology:
    """Two to six machines in a ring, and channels across it."""
    names = [f"M{index}" for index in range(chance.randint(2, 6))]
    found = Topology({name: chance.randint(0, 20) for name in names}, {})
    ring = chance.sample(names, len(names))
    across = [tuple(chance.sample(names, 2)) for _ in range(chance.randint(0, 2 * len(names)))]
    for source, target in [*zip(ring, ring[1:] + ring[:1], strict=True), *across]:
        found.channels[source, target] = None
    return found


def script_of(topology: Topology, chance: random.Random) -> Script:
    left, steps = dict(topology.machines), list[Any]()
    for line in range(1, chance.randint(6, 26)):
        turn = chance.random()
        if turn < 0.5:
            (source, target), tokens = chance.choice(list(topology.channels)), chance.randint(1, 3)
            if left[source] >= tokens:
                left[source] -= tokens
                steps.append(SendTokens(line, source, target, tokens))
        elif turn < 0.75:
            steps.append(Tick(line, chance.randint(1, 3)))
        else:
            initiators = chance.sample([*topology.machines], min(len(left) - 1, chance.choice((1, 1, 2))))
            steps.append(StartSnapshot(line, tuple(initiators)))
    return Script("random", steps)


def results_of(protocol: str, seed: int) -> tuple[int, list[Result]]:
    """How many tokens there are, and every snapshot of the run."""
    chance = random.Random(seed)
    topology = topology_of(chance)
    play = play_events(topology, script_of(topology, chance), seed, protocol)
    return sum(topology.machines.values()), play.system.results()


def faults_of(protocol: str, seed: int) -> list[str]:
    tokens, found = results_of(protocol, seed)
    faults = []
    for one in found:
        recorded = sum(one.machines.values()) + sum(message[2] for message in one.messages)
        if not one.is_complete:
            faults.append(f"seed {seed}: snapshot {one.number} does not complete")
        elif one.problem:
            faults.append(f"seed {seed}: {one.problem}")
        elif recorded != tokens and protocol != AT_LEAST_ONCE:
            faults.append(f"seed {seed}: snapshot {one.number} has {recorded} tokens of {tokens}")
    return faults


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_snapshot_completes_and_conserves(protocol: str) -> None:
    assert [fault for seed in range(SEEDS) for fault in faults_of(protocol, seed)] == []


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_snapshot_completes_and_conserves_thousands_of_times(protocol: str) -> None:
    assert [fault for seed in range(SEEDS, MANY) for fault in faults_of(protocol, seed)] == []


def test_most_snapshots_of_several_sources_stay_aligned() -> None:
    """On graphs of two machines there is no crossing; what is forced shows in that nothing was blocked for it."""
    asked = [0, 0]
    stuck = Alignment._stuck

    def counted(self: Alignment, channel: Any) -> Any:
        found = stuck(self, channel)
        asked[bool(found)] += 1
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alignment, "_stuck", counted)
        for seed in range(SEEDS):
            results_of(ALIGNED, seed)
    assert 0 < asked[True] < asked[False] / 4


@pytest.mark.parametrize("is_local", [False, True])
def test_without_the_rule_for_stuck_barriers_some_wait_for_each_other(
    is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the machine's own barriers count, though none is stuck behind another yet."""
    broken = "step: if isinstance(event, BarrierQueued): return ()" if is_local else "_stuck: return ()"
    break_(monkeypatch, (Alignment, broken))
    assert any("does not complete" in fault for seed in range(SEEDS) for fault in faults_of(ALIGNED, seed))
