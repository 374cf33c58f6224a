"""What sinks show, another program can go on from: the history lists a snapshot before anybody hears of it; without Ray."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from limited import limit
from ray import cloudpickle

from ray_snapshot.columns import inner
from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import History
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.analyst import actor as analysts
from ray_snapshot.runtime.analyst.keeping import Keeper
from ray_snapshot.runtime.collected import Collected, SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.report import HostPart
from ray_snapshot.schema import MACHINES, MESSAGES


def collected(number: int) -> Collected:
    nothing = (pa.RecordBatch.from_pylist([], schema=schema) for schema in (inner(MESSAGES), ENDS, inner(MACHINES)))
    part = HostPart(*nothing)
    header = SnapshotHeader(number, "shop", "run", "chandy-lamport", [], 1.0, 2.0, is_kept=True)
    return Collected(header, [pickle.dumps(part)], checkpoints=(b"x",))


async def opened(history: Path) -> analysts.Analyst:
    analyst = analysts.Analyst("shop", str(history), ())
    await analyst.open(cloudpickle.dumps([]), (), Keeper("run", str(history), b"k" * 32))
    return analyst


def test_on_linux_the_threads_that_judge_and_write_come_second(tmp_path: Path) -> None:
    async def play() -> dict[str, int]:
        analyst = await opened(tmp_path)
        found = {one.name: os.getpriority(os.PRIO_PROCESS, one.native_id or 0) for one in threading.enumerate()}
        analyst.writer.close()
        return found

    found = asyncio.run(play())
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert found["analyst"] == found["history"] == min(19, own + LIMITS.analyst_niceness)
    assert found["MainThread"] == own


def test_a_commit_that_fails_is_tried_again_before_anybody_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, commit_again_s=0.0)

    async def play() -> None:
        analyst = await opened(tmp_path)
        write, failures = analyst.writer.writer.flush, [1, 2]

        def flush() -> None:
            if failures:
                failures.pop()
                raise HistoryWriteError("the disk is full", path=str(tmp_path))
            write()

        analyst.writer.writer.flush = flush
        found = collected(1)
        await analyst.add(found, 1)
        assert await analyst.is_kept(found.header.snapshot_id, is_listed=True)
        assert not failures
        assert len(History(tmp_path).snapshots()) == 1
        analyst.writer.close()

    asyncio.run(asyncio.wait_for(play(), 30))
