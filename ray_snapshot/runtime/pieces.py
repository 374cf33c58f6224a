"""Bytes on their way as arguments of a Ray call: in pieces, each of which travels inside the call.

An argument of 100 KB or more Ray puts into the object store of the node: the raylet pins it, the callee maps it, the raylet
frees it, some 3 ms of processor time in three processes for each, whatever its size. Smaller ones go with the call. What is far
larger is cheaper in the store.
"""

from __future__ import annotations

from ray_snapshot.limits import LIMITS


def cut(whole: bytes) -> tuple[bytes, ...]:
    """Bytes in pieces, of which none takes the way through the store; in one where that is as good."""
    if not LIMITS.piece_bytes < len(whole) <= LIMITS.pieces_bytes:
        return (whole,)
    return tuple(whole[begin : begin + LIMITS.piece_bytes] for begin in range(0, len(whole), LIMITS.piece_bytes))
