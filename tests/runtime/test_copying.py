"""Machines at rest are copied: others are let in, and what was noted for a snapshot that was given up is not shown."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from limited import limit
from lone_host import LoneHost
from resting import Flat, forget, resting_host
from until import until

from ray_snapshot import redaction
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Abort, Close, Request

COUNT, FEW = 40, 6


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


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LoneHost, list[bool]]]:
    """A host whose machines are at rest, but for m1; while the list is not empty it copies none but before their actions."""
    with resting_host() as host:
        holds: list[bool] = []
        copy_slice = host.post.recorder.copy_slice
        monkeypatch.setattr(host.post.recorder, "copy_slice", lambda: None if holds else copy_slice())
        for number in range(FEW):
            host.create(f"m{number}", Flat, number)
        until(lambda: host.post.constructed() == FEW)
        host.obey(Request(1))
        host.report(1)
        host.obey(Close(1))
        _act(host, "m1")
        holds.append(True)
        yield host, holds
    forget()


def _act(host: LoneHost, name: str) -> None:
    machine = host.post.core.machines[name]
    before = machine.accepted
    host.send(name, "add", 1)
    until(lambda: machine.accepted > before and host.post.floor.is_idle)


def _copy(host: LoneHost, name: str) -> None:
    core = host.post.core
    with host.post.member.lock:
        while core.machines[name].copied not in (core.colour, None):
            core.copy_next()
        assert core.copying.uncopied


def _act_and_rest(host: LoneHost, first: int) -> None:
    """m0 acts behind the instant of a snapshot that is given up, and is put to rest for a third one."""
    _act(host, "m0")
    _act(host, "m2")
    for number in (first, first + 1):
        host.obey(Abort(number - 1), Request(number))
        until(lambda asked=number: host.post.core.is_recorded(asked))
        _copy(host, "m0")
    assert host.post.core.machines["m0"].copied is None, "it is at rest"


def _total(host: LoneHost, number: int) -> int:
    machines: Any = host.report(number).machines
    (row,) = [row for row in machines.to_pylist() if row["machine"] == "m0"]
    return int(json.loads(row["state"])["total"])


def test_what_was_copied_again_for_a_redacted_name_gives_way_to_a_later_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    with held(monkeypatch) as (host, holds):
        host.obey(Request(2))
        until(lambda: host.post.core.is_recorded(2))
        redaction.redact("password")
        host.obey(Request(3))
        until(lambda: host.post.core.is_recorded(3))
        host.obey(Abort(2))
        _act_and_rest(host, 4)
        holds.clear()
        assert _total(host, 5) == 1
