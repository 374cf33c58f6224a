"""What an analyst that takes the place of another one is told; without Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.attending import Attendant, Patience
from ray_snapshot.runtime.driver import DriverPost
from ray_snapshot.runtime.keeping import Keeper
from ray_snapshot.runtime.restoring import Ground, opened_share
from ray_snapshot.runtime.system import System

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
    analyst = SimpleNamespace(open=SimpleNamespace(remote=lambda *args, **_: given.append(args[2])))
    known = {"run_id": "now", "history": None, "detectors": [], "_key": None, "_wanted": None, "_subscribers": None}
    system: Any = SimpleNamespace(_memory=driver.attendant.memory, _analyst=analyst, _is_checkpointing=True, **known)
    System._open_analyst(system, 1)
    found: Keeper = pickle.loads(pickle.dumps(given[0]))
    return found


def test_it_knows_the_runs_that_this_one_goes_on_from(driver: DriverPost) -> None:
    first = Keeper("now", None, None)
    first.recall(EARLIER)
    plan = first.plan("s", Ground("now", ["host-0"]))
    with driver.lock:
        driver._load(opened_share(plan.shares[DRIVER]))
        driver._load(opened_share(plan.shares[DRIVER]))  # as after each recovery
    assert opened_again(driver).aliases == first.aliases == ["first", "earlier"]
