"""What a host spends on snapshots is counted wherever it is spent, and once."""

from __future__ import annotations

import time
from typing import Any

from lone_host import lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot.protocol.commands import Close
from ray_snapshot.runtime.host.meter import Meter

SPENT_S = 0.02


def spend(seconds: float = SPENT_S) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Account(rs.SnapshotMixin):
    """A machine."""


def test_time_is_counted_once_however_deep() -> None:
    meter = Meter()
    spend()
    with meter:
        spend()
        with meter:
            spend()
    spend()
    assert 2 * SPENT_S <= meter.take() < 3 * SPENT_S
    assert meter.take() == 0.0


def test_a_machine_that_is_copied_in_front_of_its_action_is_counted_too() -> None:
    with lone_host() as host:
        host.create("account", Account)
        until(lambda: host.post.constructed() == 1)
        copied: Any = host.post.copier._copied
        host.post.copier._copied = lambda machine: (spend(), copied(machine))[1]  # type: ignore[method-assign,func-returns-value]
        with host.post.member.lock:
            core = host.post.core
            core.request(1)
            core.boundary()
            core._copy_if_due(core.machines["account"])  # as `next_action` does
            host.post.recorder.copy_slice()
        host.report(1)
        (payload,) = (found for (found,) in host.service.of("report") if found.number == 1)
        assert payload.cpu_s >= SPENT_S
        host.obey(Close(1))
