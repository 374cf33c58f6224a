"""An analyst without Ray: what one in the place of another is told; and what is listed before anybody hears of it."""

import asyncio
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from limited import limit
from lone_service import Program
from played import Played, Silent
from ray import cloudpickle

from ray_snapshot.columns import inner, packed
from ray_snapshot.errors import DetectorError, HistoryWriteError
from ray_snapshot.history import History
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.analyst.actor import Analyst
from ray_snapshot.runtime.analyst.keeping import Keeper
from ray_snapshot.runtime.collected import Collected, SnapshotHeader
from ray_snapshot.runtime.driver.attending import Attendant, Patience
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.planning import Ground, opened_share
from ray_snapshot.runtime.report import HostPart
from ray_snapshot.schema import MACHINES, MESSAGES, TABLES
from ray_snapshot.verdicts import ReadyMade

EARLIER = Checkpoint({"snapshot_id": "s", "number": 3, "run_id": "earlier", "aliases": ["first"]}, [])


@pytest.fixture
def driver() -> Iterator[DriverPost]:
    attendant = Attendant("shop", Silent(), Silent(), lambda _: None, Patience(5, 60.0, 60.0))
    options: dict[str, Any] = {"mailbox_bound": 10, "send_timeout": 1.0, "spawn_timeout": 1.0}
    post = DriverPost("now", Silent(), protocol="observer", attendant=attendant, **options)
    yield post
    post.close()


def opened_again(driver: DriverPost) -> Keeper:
    """What the next analyst is opened with, as it travels."""
    assert driver.attendant is not None
    given: list[Keeper] = []
    program = Program(driver.attendant.memory, checkpoint=True)
    program._analyst = Played(open=lambda *args, **_: given.append(args[2]))
    program._open_analyst(1)
    found: Keeper = pickle.loads(pickle.dumps(given[0]))
    return found


def test_it_knows_the_runs_that_this_one_goes_on_from(driver: DriverPost) -> None:
    first = Keeper("now", None, None)
    first.recall(EARLIER)
    plan = first.plan("s", Ground("now", ["host-0"]))
    with driver.member.lock:
        driver._load(opened_share(plan.shares[DRIVER]))
        driver._load(opened_share(plan.shares[DRIVER]))  # as after each recovery
    assert opened_again(driver).aliases == first.aliases == ["first", "earlier"]


def given_up(number: int) -> Collected:
    header = SnapshotHeader(number, "shop", "now", "observer", [], 1_000.0)
    header.completed_at, header.abort_reason = 1_001.0, "for this test"
    return Collected(header, [])


def test_it_answers_for_what_comes_again_however_much_that_is_new_waits_behind_a_gap() -> None:
    """The next of what comes again is sent only once the one before has been answered."""

    async def play() -> int:
        analyst = Analyst("shop", None, ())
        await analyst.open(cloudpickle.dumps([]))
        session = await analyst.begin_session()
        new = [asyncio.ensure_future(analyst.add(given_up(place), place, session)) for place in range(3, 10)]
        await asyncio.sleep(0)
        for place in (1, 2):
            await asyncio.wait_for(analyst.add(given_up(place), place, session, again=True), 10)
        await asyncio.wait_for(asyncio.gather(*new), 10)
        while analyst.evaluated < analyst.arrivals.received:
            await asyncio.sleep(0)
        return analyst.evaluated

    assert asyncio.run(play()) == 9


# ---- code that is not ours, when it is loaded ------------------------------------------------------------------------------

BOUND_S = 10.0
LOADS = threading.Event()


class Ends:
    """Whose module ends its process when it is imported."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


class Slow:
    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded_slowly, ()


def _loaded_slowly() -> Any:
    assert LOADS.wait(BOUND_S), "what waits for it is not done meanwhile"
    return ReadyMade("termination")


async def begun(*detectors: Any, history: Path | None = None) -> Analyst:
    analyst = Analyst("shop", None if history is None else str(history), ())
    await analyst.open(cloudpickle.dumps(list(detectors)))
    return analyst


def test_a_detector_whose_module_ends_its_process_is_refused_and_ends_nothing() -> None:
    async def play() -> int:
        analyst = await begun()
        with pytest.raises(DetectorError, match="SystemExit"):
            await analyst.watch(cloudpickle.dumps(Ends()))
        with pytest.raises(DetectorError, match="SystemExit"):
            await begun(Ends())
        return await analyst.count()

    assert asyncio.run(play()) == 0


def test_while_a_detector_is_loaded_others_are_answered() -> None:
    LOADS.clear()

    async def play() -> list[str]:
        analyst = await begun()
        loading = asyncio.ensure_future(analyst.watch(cloudpickle.dumps(Slow())))
        await asyncio.sleep(0)
        assert await analyst.count() == 0
        LOADS.set()
        await loading
        return [one.name for one in analyst.detectors]

    assert asyncio.run(play()) == ["termination"]


def test_a_trace_that_comes_while_it_is_being_opened_is_written(tmp_path: Path) -> None:
    LOADS.clear()

    async def play() -> int:
        analyst = Analyst("shop", str(tmp_path), ())
        opening = asyncio.ensure_future(analyst.open(cloudpickle.dumps([Slow()])))
        rows = pa.Table.from_pylist([{"machine": "m", "acted_at": 0}], schema=TABLES["actions"])
        giving = asyncio.ensure_future(analyst.add_trace([packed(rows)]))
        await asyncio.sleep(0)
        LOADS.set()
        await asyncio.gather(opening, giving)
        found = analyst.writer.writer.buffered_bytes
        analyst.writer.close()
        return found

    assert asyncio.run(play()) > 0


def collected(number: int) -> Collected:
    nothing = (pa.RecordBatch.from_pylist([], schema=schema) for schema in (inner(MESSAGES), ENDS, inner(MACHINES)))
    part = HostPart(*nothing)
    header = SnapshotHeader(number, "shop", "run", "chandy-lamport", [], 1.0, 2.0, is_kept=True)
    return Collected(header, [pickle.dumps(part)], checkpoints=(b"x",))


async def opened(history: Path) -> Analyst:
    analyst = Analyst("shop", str(history), ())
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
