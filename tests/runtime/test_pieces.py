"""Large bytes travel in pieces, and come out as they went in."""

from __future__ import annotations

import pickle

import pytest

from ray_snapshot.columns import squeezed
from ray_snapshot.runtime.pieces import MOST, PIECE, cut


@pytest.mark.parametrize(("size", "count"), [(0, 1), (PIECE, 1), (PIECE + 1, 2), (MOST, 17), (MOST + 1, 1)])
def test_a_batch_is_cut_where_that_saves_the_way_through_the_store(size: int, count: int) -> None:
    whole = bytes(range(256)) * (size // 256 + 1)
    found = cut(whole[:size])
    assert (len(found), b"".join(found)) == (count, whole[:size])


@pytest.mark.parametrize("size", [10, 100_000, 6_000_000])
def test_a_squeezed_pickle_yields_the_same(size: int) -> None:
    value = {"text": "ab" * (size // 2)}
    plain = pickle.dumps(value, protocol=5)
    found = squeezed(plain)
    assert pickle.loads(found) == value
    assert (len(found) < len(plain) / 10) == (size > 10)
