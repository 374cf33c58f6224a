"""Bytes on their way as arguments of a Ray call: in pieces, each of which travels inside the call.

An argument of 100 KB or more Ray puts into the object store of the node: the raylet pins it, the callee maps it, the raylet
frees it, some 3 ms of processor time in three processes for each, whatever its size. Smaller ones go with the call. What is far
larger is cheaper in the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

PIECE = 90_000
"""Bytes of a piece; Ray's bound is 100 KB (`max_direct_call_object_size`) with what it puts around them."""

MOST = 1_500_000
"""More bytes than this go through the object store. (Ray's bound of a call with all its arguments is 10 MB.)"""


def in_pieces(found: Any) -> tuple[Any, ...]:
    """The arguments of a call that takes a dataclass: itself, with lengths in the place of bytes, and the pieces of these.

    Its class names in `BLOBS` the fields that are bytes, sequences of bytes, or None. Without pieces where one argument is as
    good.
    """
    told = {name: value for name in _blobs_of(found) if (value := getattr(found, name)) is not None}
    blobs = [blob for value in told.values() for blob in _each(value)]
    if not PIECE < sum(map(len, blobs)) <= MOST:
        return (found,)
    lengths: dict[str, Any] = {
        name: len(value) if isinstance(value, bytes) else tuple(map(len, value)) for name, value in told.items()
    }
    return replace(found, **lengths), *cut(b"".join(blobs))


def bytes_of(found: Any) -> int:
    """How many there are in the fields that are bytes."""
    return sum(len(blob) for name in _blobs_of(found) for blob in _each(getattr(found, name)))


def _each(value: bytes | Sequence[bytes] | None) -> Sequence[bytes]:
    return [value] if isinstance(value, bytes) else value or ()


def cut(whole: bytes) -> tuple[bytes, ...]:
    """Bytes in pieces, of which none takes the way through the store; in one where that is as good."""
    if not PIECE < len(whole) <= MOST:
        return (whole,)
    return tuple(whole[begin : begin + PIECE] for begin in range(0, len(whole), PIECE))


def put_together(found: Any, pieces: Sequence[bytes]) -> Any:
    """What `in_pieces` was given, by the callee."""
    if not pieces:
        return found
    whole, end = b"".join(pieces), 0
    told: dict[str, Any] = {}
    for name in _blobs_of(found):
        value = getattr(found, name)
        if value is None:
            continue
        blobs = []
        for length in [value] if isinstance(value, int) else value:
            blobs.append(whole[end : end + length])
            end += length
        told[name] = blobs[0] if isinstance(value, int) else tuple(blobs)
    return replace(found, **told)


def _blobs_of(found: Any) -> Sequence[str]:
    return getattr(found, "BLOBS", ())
