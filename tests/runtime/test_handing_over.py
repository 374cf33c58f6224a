"""Handing snapshots over to an analyst that dies, and what the driver tells the next service; without Ray."""

import asyncio
from typing import Any

from played import Remote
from ray.exceptions import ActorUnavailableError

from ray_snapshot.protocol.recovery_line import BLOCK, Base
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.service.handing_over import HandOver


class Analyst:
    """Takes snapshots in sessions, and dies when it is told to, before it takes one."""

    def __init__(self) -> None:
        self.lives: list[list[tuple[int, str, bool]]] = []
        self.dies_at: set[str] = set()
        self.finished = 0

    def __getattr__(self, name: str) -> Any:
        return Remote(getattr(self, f"_{name}"))

    async def _begin_session(self) -> str:
        self.lives.append([])
        return f"session {len(self.lives)}"

    async def _add(self, found: str, place: int, session: str, *, again: bool) -> int | None:
        await asyncio.sleep(0)
        if found in self.dies_at:
            self.dies_at.discard(found)
            raise ActorUnavailableError("it has died", None)
        if session != f"session {len(self.lives)}":
            return None
        self.lives[-1].append((place, found, again))
        return self.finished


async def _handed(dies_at: set[str], names: list[str], finished: int = 0) -> Analyst:
    analyst = Analyst()
    analyst.dies_at, analyst.finished = dies_at, finished
    handing = HandOver(analyst, is_again=True)
    await handing.begin()
    await asyncio.wait_for(asyncio.gather(*(handing.give(name) for name in names)), 10)  # type: ignore[arg-type]
    return analyst


def test_another_analyst_gets_all_that_was_not_finished_once_and_in_its_order() -> None:
    names = [f"s{number}" for number in range(6)]
    for dies_at in ({"s0"}, {"s3"}, {"s5"}, {"s1", "s4"}):
        last = asyncio.run(_handed(set(dies_at), names)).lives[-1]
        assert sorted(last) == [(place, name, True) for place, name in enumerate(names, 1)]


def test_what_is_finished_is_not_handed_over_again() -> None:
    async def play() -> list[Any]:
        analyst = Analyst()
        handing = HandOver(analyst, is_again=True)
        await handing.begin()
        await handing.give("s0")  # type: ignore[arg-type]
        analyst.finished = 2
        await handing.give("s1")  # type: ignore[arg-type]
        analyst.finished = 0
        analyst.dies_at = {"s2"}
        await asyncio.wait_for(handing.give("s2"), 10)  # type: ignore[arg-type]
        return analyst.lives[-1]

    assert asyncio.run(play()) == [(1, "s2", True)]


def test_the_next_service_gives_out_no_number_that_may_have_been_given_out() -> None:
    memory = Memory()
    memory.numbers = 3 * BLOCK
    assert [memory.recollection(Base("s", 1), None).numbers for _ in "ab"] == [3 * BLOCK, 4 * BLOCK]
    assert memory.numbers == 5 * BLOCK
