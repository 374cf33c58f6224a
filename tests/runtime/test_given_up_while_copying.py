"""Snapshots that are given up while their machines are copied: what was noted for them is not shown in a later one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from lone_host import LoneHost
from resting import Flat, forget, resting_host
from until import until

from ray_snapshot import redaction
from ray_snapshot.protocol.commands import Abort, Close, Request

COUNT = 6


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LoneHost, list[bool]]]:
    """A host whose machines are at rest, but for m1; while the list is not empty it copies none but before their actions."""
    with resting_host() as host:
        holds: list[bool] = []
        copy_slice = host.post.recorder.copy_slice
        monkeypatch.setattr(host.post.recorder, "copy_slice", lambda: None if holds else copy_slice())
        for number in range(COUNT):
            host.create(f"m{number}", Flat, number)
        until(lambda: host.post.constructed() == COUNT)
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
