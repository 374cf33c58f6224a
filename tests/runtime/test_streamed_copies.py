"""Many machines at rest: their rows are written while others are copied, and a host that copies lets others in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from limited import limit
from lone_host import LoneHost
from resting import Flat, resting_host
from until import until

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Close, Request

COUNT = 40


@contextmanager
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoneHost]:
    """A host with machines that are copied four at a time, one slice each, and written ten at a time."""
    limit(monkeypatch, copy_slice_s=0.0)
    limit(monkeypatch, copied_states=4)
    limit(monkeypatch, streamed_copies=10)
    with resting_host() as host:
        for number in range(COUNT):
            host.create(f"m{number}", Flat, number)
        until(lambda: host.post.constructed() == COUNT)
        yield host


def names_of(part: Any) -> list[str]:
    return sorted(name for name in part.machines["machine"].to_pylist() if name.startswith("m"))


def test_machines_are_not_copied_faster_than_rows_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    with many(monkeypatch) as host:
        core, pauses = host.post.core, []
        pause = host.post.floor.pause
        monkeypatch.setattr(host.post.floor, "pause", lambda seconds: pauses.append(seconds) or pause(seconds))
        host.post.reporter.pool.submit(gate.wait, 30)
        host.obey(Request(1))
        until(lambda: pauses.count(LIMITS.copy_ahead_pause_s) > 3)
        assert len(core.copying.uncopied) == COUNT - 24, "two lots stand in line, and no third is begun"
        host.send("m39", "add", 1)
        until(lambda: core.machines["m39"].accepted == 1, seconds=10)
        assert len(core.copying.uncopied) == COUNT - 24, "a machine that acts is copied all the same, and by itself"
        gate.set()
        part = host.report(1)
        assert names_of(part) == sorted(f"m{number}" for number in range(COUNT))
        states = dict(zip(part.machines["machine"].to_pylist(), part.machines["state"].to_pylist(), strict=True))
        assert '"total":39' in states["m39"], "as it was when the host turned red"
        host.obey(Close(1))


def test_who_copies_lets_others_in_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    with many(monkeypatch) as host:
        post, seen = host.post, []
        copy_slice = post.recorder.copy_slice

        def slice_and_wait() -> None:
            copy_slice()
            if post.core.copying.uncopied and not seen:
                threading.Thread(target=come_in, daemon=True).start()

        def come_in() -> None:
            with post.member.lock:
                seen.append(len(post.core.copying.uncopied))

        monkeypatch.setattr(post.recorder, "copy_slice", slice_and_wait)
        limit(monkeypatch, copy_pause_s=0.05)
        host.obey(Request(1))
        host.report(1)
        assert seen, "nobody came in"
        assert seen[0] > 0, "only when all was copied"
