"""What a report advises against a deadlock ends the program: each remedy is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from app_runner import Done, Runner, asked_for

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

LOCK = "of its calls then run at once: lock what they change, but not while they wait)"
ADVICE = {
    "slots": (
        "Raise max_concurrency of Server to 9, so that Server.wake_up (called at ",
        f") can begin (9 {LOCK}, or give it a concurrency group of its own, and let it end these waits by"
        " loop.call_soon_threadsafe",
    ),
    "relock": (
        "Ledger.add holds asyncio.Lock while it waits (",
        ") for Auditor.check of Auditor-0: leave the `async with` before that wait.",
    ),
    "order": ("Take them in the same order everywhere.",),
    "behind_get": (
        "Raise max_concurrency of Buffer to 2, so that Buffer.put (called at ",
        f") can begin (2 {LOCK}, or give it a concurrency group of its own.",
    ),
    "on_loop": (
        "Locked.release (called at ",
        ") can begin only when the event loop of Locked-0 is free: let Locked.take wait in a thread (await"
        " asyncio.to_thread(...)).",
    ),
    "asks_back": (
        "Raise max_concurrency of Account to 2, or make Account an async actor that awaits, so that Account.balance (called",
        f") can begin (2 {LOCK}; or give its value along with the call, so that nobody asks back; or do not wait for its",
    ),
}
"""By program: what is advised, but for the place."""

REMEDIES = {
    "slots": ("9", "a group of its own"),
    "relock": ("leaves the lock",),
    "order": ("the same order",),
    "behind_get": ("2", "a group of its own"),
    "occupied": ("async", "in a thread"),
    "on_loop": ("in a thread",),
    "as_an_id": ("the ref itself",),
    "too_large": ("less",),
    "detached": ("ray.kill",),
    "asks_back": ("2", "async", "with its value", "without waiting"),
}

UNDECIDED = {
    "occupied": (
        "Make run async, with an await where it waits (asyncio.sleep), or let what it does run in a thread (await"
        " asyncio.to_thread(...)): then stop can run meanwhile."
    ),
    "as_an_id": "give the ref itself along (as an argument, a reply, or inside one), not its bytes or its id",
    "too_large": "Ask for less than CPU 10000, or give the cluster a node that has it.",
    "detached": "End what is not needed any more: ray.kill(ray.get_actor('held', namespace='jobs')).",
}
"""By program that is no deadlock: what is advised."""

BY_NIGHT = ("relock", "order", "behind_get", "on_loop", "asks_back", "as_an_id", "too_large", "detached")


ALL = "all of them"


@pytest.fixture(scope="module")
def done(
    runner: Runner, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Done]]:
    """How each program has ended; a few run at once. Those without a deadlock keep a history."""
    runs: dict[str, Callable[[], Done]] = {}
    for name in asked_for(request, "name"):
        more = ("--exit-on", "deadlock") if name in ADVICE else ("--history", str(_history(tmp_path_factory, name)))
        runs[name] = partial(runner.command, "run", "--every", "0.5", *more, "remedies.py", name)
    at_once = 1 if "detached" in runs else 3  # its holder has a name, and all that there is of a resource
    with runner.together({ALL: partial(runner.plain, "remedies.py", "all"), **runs}, at_once) as found:
        yield found


def _history(folders: pytest.TempPathFactory, name: str) -> Path:
    return folders.getbasetemp() / f"history of {name}"


def test_each_program_ends_with_each_of_its_remedies(done: Callable[[str], Done]) -> None:
    lines = done(ALL).output.splitlines()
    assert lines == [f"{name}: {one}" for name, remedies in REMEDIES.items() for one in remedies]


def _each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(one, marks=pytest.mark.nightly if one in BY_NIGHT else ()) for one in names]


@pytest.mark.parametrize("name", _each(ADVICE))
def test_without_it_the_program_hangs_and_the_report_advises_that(done: Callable[[str], Done], name: str) -> None:
    found = done(name)
    assert found.exit_code == 3, found.errors
    for text in ADVICE[name]:
        assert text in found.errors


@pytest.mark.parametrize("name", _each(UNDECIDED))
def test_what_is_no_deadlock_hangs_without_it_and_that_is_advised(
    done: Callable[[str], Done], tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    found = done(name)
    assert (found.output, found.exit_code) == ("it hangs\n", 0), found.errors
    rows = rs.History(_history(tmp_path_factory, name)).verdicts()
    assert not any(row["holds"] for row in rows if row["detector"] == "deadlock")
    assert any(UNDECIDED[name] in text for row in rows for text in row["evidence"].get("advice", ()))
