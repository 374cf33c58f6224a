"""A program begins while the services of its watch are starting. No Ray in here."""

import asyncio
from functools import partial
from typing import Any

import pytest
from test_watcher_alone import RUN, World

from ray_snapshot.errors import ClusterError
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.instrument.watching import open_beside
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Request

BOUND_S = 10.0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


# ---- the driver is there before it has asked ---------------------------------------------------------------------------


def test_a_watcher_that_is_made_with_the_drivers_facts_asks_it_for_its_part_at_once(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        number = await watcher.snapshot([], 60.0, wait=False)
        _, commands = await asyncio.wait_for(watcher.commands_for(DRIVER, 0, []), BOUND_S)
        return number, commands, watcher.processes.roster.facts[DRIVER]["pid"]

    number, commands, pid = world.run(scenario, driver={"class": DRIVER, "key": None, "pid": 7})
    assert (commands, pid) == ([Request(number)], 7)


def test_the_driver_takes_part_under_the_terms_that_it_would_have_been_told(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        return await watcher.join(RUN, DRIVER, {"class": DRIVER, "key": None, "pid": 1}, 0)

    welcome = world.run(scenario)
    assert (welcome.incarnation, welcome.colour, welcome.pending, welcome.last) == (0, 0, [], 0)
    assert welcome.terms == Terms()
    assert welcome.settled == 0


# ---- waiting for the services beside the program -----------------------------------------------------------------------


def test_where_the_services_do_not_start_the_program_goes_on_and_a_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []

    def none() -> None:
        raise ClusterError("no worker starts")

    open_beside([none, partial(done.append, "clock")], partial(done.append, "closed"))
    assert done == ["closed"]
    assert capsys.readouterr().err == "ray-snapshot: nothing is watched: no worker starts\n"
