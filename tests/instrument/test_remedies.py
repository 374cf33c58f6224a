"""What a report advises against a deadlock ends the program: each remedy is applied."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from app_runner import Runner
from until import until

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

LOCK = "of its calls then run at once: lock what they change, but not while they wait)"
ADVICE = {
    "slots": (
        "Give Server.wake_up (called at ",
        ") a concurrency group apart from Server.generate, and wake that by loop.call_soon_threadsafe",
        f"; or raise max_concurrency of Server to 9 (9 {LOCK}, which is enough for the calls that there are now.",
    ),
    "relock": (
        "Ledger.add holds asyncio.Lock while it waits (",
        ") for Auditor.check of Auditor-0: leave the `async with` before that wait.",
    ),
    "rlock": (
        "Purse.transfer holds threading.RLock while it waits (",
        ") for Purse.deposit of Purse-0, Purse.deposit of Purse-1: leave the `with` before that wait, or take these locks in",
    ),
    "itself": ("Tree.size (", ") calls itself, and each level takes a slot: call self.size() directly."),
    "order": ("Take Lock-0, Lock-1 in the same order everywhere.",),
    "behind_get": (
        "Give Buffer.put (called at ",
        f") a concurrency group apart from Buffer.get; or raise max_concurrency of Buffer to 2 (2 {LOCK}, which is enough",
    ),
    "on_loop": (
        "Let Locked.take (",
        ") wait in a thread (await asyncio.to_thread(...)): it keeps the event loop that Locked.release (called at ",
    ),
    "too_large": ("Ask for less than CPU 10000, or give the cluster a node that has it.",),
    "asks_back": (
        "Raise max_concurrency of Account to 2, or make Account an async actor that awaits, so that Account.balance (called",
        f") can begin (2 {LOCK}; or give its value along with the call, so that nobody asks back; or do not wait for its",
    ),
}
"""By program: what is advised, but for the place."""

REMEDIES = {
    "slots": ("9", "a group of its own"),
    "relock": ("leaves the lock",),
    "rlock": ("leaves the lock", "the same order"),
    "itself": ("directly",),
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
    "detached": "End what is not needed any more: ray.kill(ray.get_actor('held', namespace='jobs')).",
}
"""By program that is no deadlock: what is advised."""

END_OF_HELD = "import ray; ray.init(namespace='jobs'); ray.kill(ray.get_actor('held'))"

BY_NIGHT = {*REMEDIES} - {"slots"}


@pytest.fixture(scope="module", autouse=True)
def applied(runner: Runner, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """All programs of the tests that run, with their remedies, side by side, while others hang."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    names = dict.fromkeys(item.callspec.params["name"] for item in items)
    pairs = [f"{name}: {one}" for name in REMEDIES if name in names for one in REMEDIES[name]]
    with runner.running(runner.start(sys.executable, "remedies.py", *pairs)) as process:
        yield process, pairs


def _each(names: Iterable[str]) -> list[Any]:
    return [pytest.param(one, marks=pytest.mark.nightly if one in BY_NIGHT else ()) for one in names]


@pytest.mark.parametrize("name", _each(ADVICE))
def test_without_it_the_program_hangs_and_the_report_advises_that(runner: Runner, name: str) -> None:
    done = runner.command("run", "--every", "0.5", "--exit-on", "deadlock", "remedies.py", name)
    assert done.exit_code == 3, done.errors
    for text in ADVICE[name]:
        assert text in " ".join(done.errors.split()), done.errors


@pytest.mark.parametrize("name", _each(UNDECIDED))
def test_what_is_no_deadlock_hangs_without_it_and_that_is_advised(runner: Runner, tmp_path: Path, name: str) -> None:
    history = tmp_path / "history"

    def is_advised() -> bool:
        rows = rs.History(history).verdicts()
        assert not any(row["holds"] for row in rows if row["detector"] == "deadlock")
        return any(UNDECIDED[name] in text for row in rows for text in row["evidence"].get("advice", ()))

    options = ("--every", "0.5", "--history", str(history))
    with runner.watching(name.replace("_", "-"), *options, "remedies.py", name) as app:
        until(is_advised, again=(rs.RaySnapshotError,))
        assert app.poll() is None, "it hangs"
    if name == "detached":
        runner.plain("-c", END_OF_HELD)


def test_each_program_ends_with_each_of_its_remedies(
    runner: Runner, applied: tuple[subprocess.Popen[str], list[str]]
) -> None:
    process, pairs = applied
    done = runner.finish(process)
    assert done.output.splitlines() == pairs, done.errors
