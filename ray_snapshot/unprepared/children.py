"""The stacks of child processes that watched calls wait for, as py-spy shows them: of those on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_snapshot.detectors.unexplained import unexplained
from ray_snapshot.instrument.process.kernel_waits import program_of
from ray_snapshot.instrument.process.stacks import Stack, StackFrame
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.unprepared import evidence
from ray_snapshot.unprepared.stacks import own_frames

_CHILD = re.compile(r"child process (\d+) \((.*)\), which is alive")


def stacks_of_children(snapshot: Snapshot) -> Iterator[tuple[str, Stack]]:
    """(machine whose child it is, a stack); without frames where there are none to be had: its `of` says why."""
    found = ((one.machine, told) for one in unexplained(snapshot) if (told := _CHILD.search(one.what)))
    for machine, told in list(dict.fromkeys((machine, one.groups()) for machine, one in found))[: LIMITS.node_stacks]:
        of = f"child process {told[0]} ({told[1]})"
        seen = _seen(int(told[0]), told[1])
        if isinstance(seen, str):
            yield machine, Stack(f"{of}, whose stack cannot be read: {seen}", None, ())
        else:
            yield from ((machine, Stack(of, None, frames)) for frames in seen)


def _seen(pid: int, program: str) -> list[tuple[StackFrame, ...]] | str:
    """The stack of each thread of a process; why there are none."""
    try:
        if program_of(pid) != program:
            return "it is not on this machine, or has ended"
    except OSError:
        return "it is not on this machine, or has ended"
    told = evidence.stacks(evidence.spy(), pid)
    if "why" in told:
        return {"not installed": "py-spy is not installed", "refused": "the system refuses it to py-spy"}.get(
            told["why"], f"py-spy says: {told['why']}"
        )
    own = (own_frames(thread["frames"]) for thread in told["threads"] if thread["frames"])
    return [tuple(StackFrame(one.function, one.file, one.line, None, one.inside) for one in frames) for frames in own]
