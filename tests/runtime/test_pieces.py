"""Large bytes travel in pieces, and come out as they went in."""

from __future__ import annotations

import pickle

import pytest

from ray_snapshot.columns import squeezed
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.runtime.collected import Collected, HostPayload, SnapshotHeader
from ray_snapshot.runtime.pieces import MOST, PIECE, cut, in_pieces, put_together

HEADER = SnapshotHeader(1, "bank", "r", "observer", [], 0.0)


def payload(part: bytes, **others: bytes | None) -> HostPayload:
    return HostPayload(3, HostReport("host-0"), part, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [PIECE + 1, 2 * PIECE, 5 * PIECE + 7])
def test_what_is_taken_apart_is_put_together(size: int) -> None:
    part = bytes(range(256)) * (size // 256 + 1)
    for found in (
        payload(part, checkpoint=b"kept", trace=None),
        payload(b"", checkpoint=part, trace=b"t"),
        Collected(HEADER, (part, b"", part[:9]), (b"t",), (b"c", part[:100])),
    ):
        light, *pieces = in_pieces(found)
        assert max(map(len, pieces)) <= PIECE
        assert len(pieces) > 1
        assert len(pickle.dumps(light)) < 1_000
        assert put_together(light, pieces) == found


@pytest.mark.parametrize("size", [0, PIECE, MOST + 1])
def test_what_is_small_or_far_too_large_stays_whole(size: int) -> None:
    found = payload(b"x" * size)
    assert in_pieces(found) == (found,)
    assert put_together(found, ()) is found


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
