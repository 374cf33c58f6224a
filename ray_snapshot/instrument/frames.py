"""Long stacks without their middle, and tracebacks without our frames: an app's errors look as they do when it is not watched.

An exception gets an entry for each frame that it leaves. Where it is about to leave the outermost of ours, our entries are
taken off its traceback; a bare `raise`, and the end of a `with`, add none for the frame that they are in.
Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from ray_snapshot.limits import LIMITS

_Frame = TypeVar("_Frame")
_OURS = "ray_snapshot.instrument."


def cut_middle(frames: Sequence[_Frame]) -> tuple[list[_Frame], int]:
    """`stack_frames` of the frames of a stack, and how many are left out between the two halves."""
    cut, half = max(0, len(frames) - LIMITS.stack_frames), LIMITS.stack_frames // 2
    return [*frames[:half], *frames[half + cut :]], cut


def hide_ours(error: BaseException | None) -> None:
    """Take our frames off the beginning of the error's traceback; `raise` it bare afterwards."""
    if error is not None:
        error.__traceback__ = without_ours(error.__traceback__)


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The rest of a traceback, from the first frame on that is not ours."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        trace = trace.tb_next
    return trace
