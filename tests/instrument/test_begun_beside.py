"""A program begins while the services of its watch are starting. No Ray in here."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_watcher_alone import RUN, World

from ray_snapshot.errors import ClusterError
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.instrument.watching import Watch
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


def _watch(monkeypatch: pytest.MonkeyPatch, services: Any) -> tuple[Watch, list[str]]:
    """A watch whose services are what `services` does, and what has become of it."""
    found, done = object.__new__(Watch), []
    monkeypatch.setattr(Watch, "_await_services", lambda self, opened: services())
    monkeypatch.setattr(Watch, "start", lambda self: done.append("clock"))
    monkeypatch.setattr(Watch, "close", lambda self: done.append("closed"))
    found._on_watch = lambda watch: done.append("told")
    return found, done


def test_the_clock_goes_and_the_program_hears_when_the_services_have_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = _watch(monkeypatch, lambda: done.append("answered"))
    found._open([])
    assert done == ["answered", "clock", "told"]


def test_where_the_services_do_not_start_the_program_goes_on_and_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise ClusterError("no worker starts")

    found, done = _watch(monkeypatch, none)
    found._open([])
    assert done == ["closed"]
    assert capsys.readouterr().err == "ray-snapshot: nothing is watched: no worker starts\n"
