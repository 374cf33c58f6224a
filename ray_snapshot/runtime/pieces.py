"""Bytes on their way as arguments of a Ray call: in pieces, each of which travels inside the call.

An argument of 100 KB or more Ray puts into the object store of the node: the raylet pins it, the callee maps it, the raylet
frees it, some 3 ms of processor time in three processes for each, whatever its size. Smaller ones go with the call. What is far
larger is cheaper in the store.
"""

from __future__ import annotations

PIECE = 90_000
"""Bytes of a piece; Ray's bound is 100 KB (`max_direct_call_object_size`) with what it puts around them."""

MOST = 1_500_000
"""More bytes than this go through the object store. (Ray's bound of a call with all its arguments is 10 MB.)"""


def cut(whole: bytes) -> tuple[bytes, ...]:
    """Bytes in pieces, of which none takes the way through the store; in one where that is as good."""
    if not PIECE < len(whole) <= MOST:
        return (whole,)
    return tuple(whole[begin : begin + PIECE] for begin in range(0, len(whole), PIECE))
