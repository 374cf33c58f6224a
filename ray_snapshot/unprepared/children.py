"""The stacks of child processes that watched calls wait for, as py-spy shows them: of those on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ray_snapshot.detectors.unexplained import unexplained
from ray_snapshot.instrument.process.kernel_waits import described_child
from ray_snapshot.instrument.process.stacks import Stack, StackFrame
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.unprepared import evidence
from ray_snapshot.unprepared.stacks import own_frames

_CHILD = re.compile(r"(child process (\d+) \(.*\)), which is alive")


def stacks_of_children(snapshot: Snapshot) -> Iterator[tuple[str, Stack]]:
    """(machine whose child it is, a stack); without frames where there are none to be had: its `of` says why."""
    children = ((one.machine, child) for one in unexplained(snapshot) if (child := _CHILD.search(one.what)))
    for machine, (of, pid) in list(dict.fromkeys((machine, one.groups()) for machine, one in children))[
        : LIMITS.node_stacks
    ]:
        yield from ((machine, one) for one in _stacks(of, int(pid)))


def _stacks(of: str, pid: int) -> Iterator[Stack]:
    spied: dict[str, Any] = {"why": "it is not on this machine, or has ended"}
    if described_child(pid).startswith(f"{of}, which is alive"):
        spied = evidence.stacks(evidence.spy(), pid)
    if "why" in spied:
        yield Stack(f"{of}, whose stack py-spy does not show: {spied['why']}", None, ())
    for thread in spied.get("threads", ()):
        frames = own_frames(thread["frames"]) if thread["frames"] else ()
        yield Stack(of, None, tuple(StackFrame(one.function, one.file, one.line, None, one.inside) for one in frames))
