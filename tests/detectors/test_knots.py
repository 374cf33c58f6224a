"""Knots of large graphs are looked for among few nodes: they are those of all nodes, and none is missed."""

from collections.abc import Iterator

import numpy as np
import pytest

from ray_snapshot.detectors import reduction
from ray_snapshot.detectors.common import Integers
from ray_snapshot.detectors.reduction import knots, shortest_cycle

SEEDS = 300


@pytest.fixture(autouse=True)
def _as_of_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_MANY", 1)
    monkeypatch.setattr(reduction, "_MUCH_FEWER", 1)
    monkeypatch.setattr(reduction, "_SHRINKS", 50)


def graphs() -> Iterator[tuple[int, Integers, Integers]]:
    """By chance: nodes, edges, some of them twice or to themselves; the sources in order or not."""
    for seed in range(SEEDS):
        chance = np.random.default_rng(seed)
        count = int(chance.integers(1, 30))
        source, target = chance.integers(0, count, (2, int(chance.integers(0, 2 * count))))
        if seed % 2:
            source = np.sort(source)
        yield count, source, np.maximum(target, np.minimum(source + 1, count - 1)) if seed % 3 else target


def in_knots(count: int, source: Integers, target: Integers) -> list[bool]:
    """By what each node can reach: all of that can reach it, too."""
    reach = np.eye(count, dtype=bool)
    reach[source, target] = True
    for middle in range(count):
        reach |= reach[:, [middle]] & reach[[middle]]
    return [bool(reach[reach[node], node].all()) for node in range(count)]


def test_the_same_knots_are_found_as_by_what_each_node_can_reach() -> None:
    fewer = 0
    for count, source, target in graphs():
        found = knots(count, source, target)
        near = reduction._near_knots(count, source, target)
        assert found.in_core.tolist() == in_knots(count, source, target)
        whole = reduction.components(count, source, target)
        together = found.label[found.in_core], whole.label[found.in_core]
        assert len(set(zip(*together, strict=True))) == len(set(together[0])) == len(set(together[1]))
        fewer += near is not None and len(near) < count
    assert fewer > SEEDS // 4


def test_plain_loops_find_what_scipy_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    cycles = 0
    for count, source, target in graphs():
        start = int(source[0]) if len(source) else 0
        plain = reduction.components(count, source, target), shortest_cycle(count, source, target, start)
        with monkeypatch.context() as patch:
            patch.setattr(reduction, "_PLAIN", 0)
            of_scipy = reduction.components(count, source, target), shortest_cycle(count, source, target, start)
        assert plain[1] == of_scipy[1]
        assert plain[0].in_core.tolist() == of_scipy[0].in_core.tolist()
        together = set(zip(plain[0].label.tolist(), of_scipy[0].label.tolist(), strict=True))
        assert len(together) == len(plain[0].core) == len(of_scipy[0].core)
        cycles += len(plain[1]) > 2
    assert cycles > SEEDS // 50


@pytest.mark.parametrize("count", [4_900, 5_100], ids=["by loops", "by scipy"])
def test_a_long_chain_that_closes_is_one_component_and_one_cycle(count: int) -> None:
    """As deep as there are nodes: there is no recursion."""
    source, target = np.arange(count), np.roll(np.arange(count), -1)
    assert reduction.components(count, source, target).in_core.all()
    assert shortest_cycle(count, source, target, 5) == [*range(5, count), *range(5)]


def test_knots_that_are_far_away_are_found_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_MOST_LEVELS", 5)
    line = np.arange(1, 30)
    source = np.concatenate([line, line])
    target = np.concatenate([np.minimum(line + 1, 29), np.zeros(29, np.int64)])  # the last edge of each leads back to 0
    source, target = np.append(source, 0), np.append(target, 1)
    assert reduction._near_knots(30, source, target) is None
    assert knots(30, source, target).in_core.all()
