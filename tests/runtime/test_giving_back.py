"""What large snapshots took for a moment goes back to the machine, in each process that was at work on one."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from lone_host import lone_host
from lone_service import Program
from ray import cloudpickle
from until import until

import ray_snapshot as rs
from ray_snapshot.columns import inner
from ray_snapshot.protocol.commands import Request
from ray_snapshot.runtime import giving_back, session
from ray_snapshot.runtime.analyst import actor as analysts
from ray_snapshot.runtime.collected import Collected, SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.host import reporter
from ray_snapshot.runtime.report import HostPart
from ray_snapshot.schema import MACHINES, MESSAGES

HELD = """
import os
import sys

import pyarrow as pa
from ray_snapshot.runtime.giving_back import LARGE, give_back

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

pa.array([0]).cast(pa.string())  # it loads what it needs
before = megabytes()
if sys.argv[1] == "Arrow":
    columns = [pa.array(range(2000)).cast(pa.string()) for _ in range(4000)]
else:
    columns = [bytes(10_000) for _ in range(10_000)]
    between = columns[::10]
del columns
held = megabytes() - before
give_back(LARGE - 1)
of_a_small_one = megabytes() - before
give_back(LARGE)
once = megabytes() - before
columns = [bytes(10_000) for _ in range(10_000)]
between = [between, columns[::10]] if sys.argv[1] == "C" else columns[::10]
del columns
give_back(LARGE)
print(held, of_a_small_one, once, megabytes() - before)
"""


DROPPED = """
import os

import numpy as np
import pyarrow as pa
from ray_snapshot.runtime.joined_ends import joined_ends

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

def named(places, names):
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(names))

def channels(count):
    places = np.arange(count * count)
    names = [f"{number:01000}" for number in range(count)]
    counts = dict.fromkeys(("sent", "accepted", "in_flight", "held", "duplicates"), pa.array([0]))
    ends = {"source": named(places // count, names), "target": named(places % count, names), "kind": named([0], ["mail"])}
    return joined_ends([(len(places), ends | counts)], "marker")

channels(10)
before = megabytes()
found = channels(300)
held = megabytes() - before
del found
print(held, megabytes() - before)
"""


class Idle(rs.SnapshotMixin):
    """A machine."""


def collected() -> Collected:
    nothing = (pa.RecordBatch.from_pylist([], schema=schema) for schema in (inner(MESSAGES), ENDS, inner(MACHINES)))
    header = SnapshotHeader(1, "shop", "run", "chandy-lamport", [], 1.0, 2.0)
    return Collected(header, [pickle.dumps(HostPart(*nothing))])


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """How much was asked to be given back, and in which thread."""
    found: list[tuple[int, str]] = []

    def give_back(size: int) -> None:
        found.append((size, threading.current_thread().name))

    for module in (session, analysts, reporter):
        monkeypatch.setattr(module, "give_back", give_back)
    monkeypatch.setattr(giving_back, "LARGE", 0)
    return found


@pytest.mark.parametrize("whose", ["Arrow", "C"])
def test_a_process_that_was_at_work_on_a_large_snapshot_is_small_again(whose: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD, whose], env={}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    held, of_a_small_one, left, at_once_again = map(float, done.stdout.split())
    assert held > 50, "what is let go of stays with the process"
    assert of_a_small_one > 0.9 * held, "for a small one it is not worth the time"
    assert left < 0.5 * held
    assert at_once_again > left + 50, "it is not done for each of many snapshots"


def test_channels_of_a_large_snapshot_go_back_when_it_is_dropped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], env={}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    held, left = map(float, done.stdout.split())
    assert held > 180, "two columns of names, of 90 MB each"
    assert left < 0.2 * held


def test_a_host_does_so_where_it_has_made_its_report(given: list[tuple[int, str]]) -> None:
    with lone_host() as host:
        host.create("m", Idle)
        host.obey(Request(1))
        host.report(1)
        until(lambda: bool(given))
        sent = [args for args in host.service.of("report") if args[0].number == 1]
        assert given == [(len(sent[0][0].part), given[0][1])]
        assert given[0][1] not in (host.thread.name, threading.current_thread().name)


def test_an_analyst_does_so_behind_each_snapshot(given: list[tuple[int, str]]) -> None:
    async def play() -> None:
        analyst = analysts.Analyst("shop", None, ())
        await analyst.open(cloudpickle.dumps([]))
        await analyst.add(collected(), 1)
        await asyncio.to_thread(until, lambda: bool(given))

    asyncio.run(asyncio.wait_for(play(), 90))
    assert given == [(len(collected().parts[0]), "analyst")]


def test_a_program_does_so_when_its_snapshot_is_put_together(given: list[tuple[int, str]]) -> None:
    program = Program()
    program._service = SimpleNamespace(snapshot=SimpleNamespace(remote=lambda *_: None))
    program._ask = lambda *_: collected()  # type: ignore[method-assign]
    found: Any = program._taken([], None)
    assert found.status == "complete"
    assert given == [(len(collected().parts[0]), threading.current_thread().name)]
