"""What an analyst that takes the place of another one is told; without Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from lone_service import Program
from played import Played
from ray import cloudpickle

from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.analyst.actor import Analyst
from ray_snapshot.runtime.analyst.keeping import Keeper
from ray_snapshot.runtime.collected import Collected, SnapshotHeader
from ray_snapshot.runtime.driver.attending import Attendant, Patience
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.planning import Ground, opened_share

EARLIER = Checkpoint({"snapshot_id": "s", "number": 3, "run_id": "earlier", "aliases": ["first"]}, [])


class Silent:
    """An actor that takes every call and never answers."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()


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
