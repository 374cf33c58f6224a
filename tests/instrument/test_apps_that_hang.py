"""Every deadlock that an app can bring about is found, with its members, their methods and the places where they wait.

The scenarios run some at a time, on one cluster and under names of their own: most of their time is the start of processes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import ray
from app_runner import APPS, Done, Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

DEADLOCKED = 3

Line = tuple[str, str, str]
"""A method, the source line where it waits, and what it waits for: calls, or machines if any later call would do."""


@dataclass(frozen=True)
class Expected:
    members: Counter[Line]
    behind: Counter[Line]
    advice: str


def _expected(members: list[Line], behind: list[Line], advice: str) -> Expected:
    return Expected(Counter(members), Counter(behind), advice)


def _program(source: str, calls: str) -> Line:
    return "driver.(the program)", source, calls


OTHERS_TRANSFER = ("Account.both", "return ray.get(self.other.transfer.remote())", "Account.transfer")
OTHERS_DEPOSIT = ("Account.transfer", "return ray.get(self.other.deposit.remote())", "Account.deposit")

CONSTRUCTED = "self.ready = ray.get(helper.report_to.remote(ray.get_runtime_context().current_actor))"

SCENARIOS = {
    "two": _expected(
        [OTHERS_TRANSFER, OTHERS_DEPOSIT],
        [_program("return ray.get(a.both.remote())", "Account.both")],
        "Raise max_concurrency of Account to 2, or make Account an async actor that awaits, so that Account.deposit (called at",
    ),
    "again": _expected(
        [OTHERS_TRANSFER, OTHERS_DEPOSIT],
        [],
        "Raise max_concurrency of Account to 2, or make Account an async actor that awaits, so that Account.deposit (called at",
    ),
    "self_call": _expected(
        [("Account.again", "return ray.get(ray.get_runtime_context().current_actor.deposit.remote())", "Account.deposit")],
        [_program("return ray.get(Account.remote().again.remote())", "Account.again")],
        "call self.deposit() directly",
    ),
    "async_self_call": _expected(
        [("Loop.again", "return await ray.get_runtime_context().current_actor.answer.remote()", "Loop.answer")],
        [_program("return ray.get(Loop.options(max_concurrency=1).remote().again.remote())", "Loop.again")],
        "raise max_concurrency of Loop to 2",
    ),
    "gathered_self_call": _expected(
        [("Loop.together", "return await asyncio.gather(me.answer.remote())", "Loop.answer")],
        [_program("return ray.get(Loop.options(max_concurrency=1).remote().together.remote())", "Loop.together")],
        "raise max_concurrency of Loop to 2",
    ),
    "blocked_loop": _expected(
        [
            ("Loop.blocking", "return ray.get(self.other.ask.remote())", "Loop.ask"),
            ("Loop.ask", "return await self.other.answer.remote()", "Loop.answer"),
        ],
        [
            _program("return ray.get([a.blocking.remote(), dozing])", "Loop.blocking Loop.doze"),
            ("Loop.doze", "await asyncio.sleep(3_600)", "Loop.blocking"),
        ],
        "instead of ray.get",
    ),
    "in_order": _expected(
        [
            ("Loop.enter", "await self.opened.wait()", "Account Loop driver"),
            ("Account.meet", "", "Loop.enter"),
            ("Account.transfer", "", "Account.meet"),
            _program("return ray.get(account.transfer.remote())", "Account.transfer"),
        ],
        [],
        "nobody is left to call Loop-0: driver is stuck; Account-0 does nothing",
    ),
    "async_slots": _expected(
        [("Loop.enter", "await self.opened.wait()", "Loop.open")] * 2,
        [_program("return ray.get([loop.enter.remote() for _ in range(2)])", "Loop.enter")],
        "raise max_concurrency of Loop to 3",
    ),
    "awaited_slots": _expected(
        [("Loop.enter", "await self.opened.wait()", "Loop.open")] * 2,
        [_program("return await asyncio.gather(*(loop.enter.remote() for _ in range(2)))", "Loop.enter")],
        "raise max_concurrency of Loop to 3",
    ),
    "threaded_slots": _expected(
        [("Threads.again", "return ray.get(ray.get_runtime_context().current_actor.answer.remote())", "Threads.answer")] * 2,
        [_program("return ray.get([threads.again.remote() for _ in range(2)])", "Threads.again")],
        "call self.answer() directly",
    ),
    "named_group": _expected(
        [
            (
                "Grouped.again",
                'return ray.get(me.answer.options(concurrency_group="narrow").remote())',
                "Grouped.answer",
            )
        ],
        [
            _program(
                'return ray.get(Grouped.remote().again.options(concurrency_group="narrow").remote())', "Grouped.again"
            )
        ],
        "call self.answer() directly",
    ),
    "queues": _expected(
        [("Courier.deliver", 'self.outbox.put("second")', "_QueueActor.put")] * 2
        + [("_QueueActor.put", "await asyncio.wait_for(self.queue.put(item), timeout)", "Courier QueueActor driver")] * 2
        + [_program("return ray.get([a.deliver.remote(), b.deliver.remote()])", "Courier.deliver")],
        [],
        "asyncio.Queue.put, 1 of 1 in the queue) waits to be woken",
    ),
    "constructor": _expected(
        [
            ("Parent.__init__", CONSTRUCTED, "Helper.report_to"),
            ("Helper.report_to", "return ray.get(parent.hello.remote())", "Parent.hello"),
        ],
        [_program("return ray.get(Parent.remote(Helper.remote()).hello.remote())", "Parent.hello")],
        "not in Parent.__init__",
    ),
    "restart": _expected(
        [
            ("Phoenix.work", "return ray.get(self.other.help.remote())", "Nurse.help"),
            ("Nurse.start", "return ray.get(self.patient.work.remote())", "Phoenix.work"),
        ],
        [_program("return ray.get(nurse.start.remote())", "Nurse.start")],
        "Raise max_concurrency of Nurse to 2",
    ),
    "votes": _expected(
        [("Voter.vote", 'return "yes" if is_eager else ray.get(self.leader.approve.remote())', "Leader.approve")] * 2
        + [("Leader.elect", "ready, _ = ray.wait(votes, num_returns=2)", "Voter.vote")],
        [_program("return ray.get(leader.elect.remote(voters))", "Leader.elect")],
        "Raise max_concurrency of Leader to 3",
    ),
    "held_generators": _expected(
        [
            ("Lines.lines", 'yield "a line"', "driver"),
            _program("return ray.get(one.ready.remote()), held", "Lines.ready"),
        ],
        [
            (".numbers", "yield number * number", "driver"),
            ("Lines.inner", "yield from items[:2]", "driver"),
        ],
        "Take the items of Lines.lines before Lines.ready",
    ),
    "held_async_generator": _expected(
        [
            ("AsyncLines.lines", 'yield f"line {number}"', "driver"),
            _program("return ray.get(held.completed())", "AsyncLines.lines"),
        ],
        [],
        "take its items before anything else is waited for",
    ),
    "next_item": _expected(
        [
            ("Reader.read", "return [ray.get(ref) for ref in asker.items.remote(me)]", "Asker.items"),
            ("Asker.items", "yield ray.get(other.answer.remote())", "Reader.answer"),
        ],
        [_program("return ray.get(reader.read.remote(reader, Asker.remote()))", "Reader.read")],
        "Raise max_concurrency of Reader to 2",
    ),
    "async_next_item": _expected(
        [
            ("AsyncReader.read", "return [await ref async for ref in asker.items.remote(me)]", "Asker.items"),
            ("AsyncReader.answer", "async with self.is_free:", "Asker.items"),
            ("Asker.items", "yield ray.get(other.answer.remote())", "AsyncReader.answer"),
            _program("return ray.get(reader.read.remote(reader, Asker.remote()))", "AsyncReader.read"),
        ],
        [],
        "AsyncReader.read holds asyncio.Lock while it waits",
    ),
}  # fmt: skip

ON_UVLOOP = ("queues", "async_slots", "async_self_call", "blocked_loop")
"""Ray runs async actors on uvloop where that is installed; the first of them is looked at on both loops."""
SCENARIOS |= {f"{name}.uvloop": SCENARIOS[name] if name == ON_UVLOOP[0] else SCENARIOS.pop(name) for name in ON_UVLOOP}

HELD_ON_LOOPS = (2, 60)
"""The first Ray that holds asynchronous generators, and has what reads them in Python, where a coroutine can be followed."""
if tuple(map(int, ray.__version__.split(".")[:2])) < HELD_ON_LOOPS:
    SCENARIOS = {
        name: one for name, one in SCENARIOS.items() if name not in ("held_async_generator", "async_next_item")
    }

Hanging = Callable[[str], tuple[Done, dict[str, Any]]]


@pytest.fixture(scope="module")
def hanging(runner: Runner, at_once: Any, scenarios: list[str], tmp_path_factory: pytest.TempPathFactory) -> Hanging:
    """What a scenario has printed, and the evidence that its history holds."""
    folder = tmp_path_factory.mktemp("hanging")
    runs = {name: at_once(_run, runner, name, folder / name) for name in scenarios}
    return cache(lambda name: (runs[name].result(), _evidence(folder / name)))


def _run(runner: Runner, scenario: str, history: Path) -> Done:
    name = scenario.replace("_", "-").replace(".", "-")
    options = ["--every", "0.5", "--exit-on", "deadlock", "--history", str(history), "--name", name]
    return runner.command("run", *options, "deadlocks.py", scenario)


def _evidence(history: Path) -> dict[str, Any]:
    found = [row for row in rs.History(history).verdicts() if row["holds"]]
    return dict(found[0]["evidence"]) if found else {}


def _lines(records: list[dict[str, Any]]) -> Counter[Line]:
    return Counter((f"{one['class']}.{one['method']}", _source(one["call_site"]), _calls(one)) for one in records)


def _source(call_site: str) -> str:
    if not call_site:
        return ""
    path, _, line = call_site.rpartition(":")
    return Path(path).read_text().splitlines()[int(line) - 1].strip()


def _calls(record: dict[str, Any]) -> str:
    """The calls; for who waits for any later call, the classes of the machines that could make it."""
    calls = record.get("waits_for_calls") or [name.partition("-")[0] for name in record["waits_for"]]
    return " ".join(sorted(set(calls)))


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_members_and_those_behind_are_named_with_their_methods_and_places(hanging: Hanging, scenario: str) -> None:
    _, evidence = hanging(scenario)
    assert _lines(evidence["members"]) == SCENARIOS[scenario].members
    assert _lines(evidence["stuck_behind"]) == SCENARIOS[scenario].behind


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_app_is_ended_with_code_3_and_the_report_is_on_stderr(hanging: Hanging, scenario: str) -> None:
    done, evidence = hanging(scenario)
    assert done.exit_code == DEADLOCKED, done.errors
    assert done.output == ("start\ndone\nleft\n" if scenario == "again" else "start\n")
    assert done.errors.count("ray-snapshot: deadlock in ") == 1
    report = done.errors[done.errors.index("ray-snapshot: deadlock in ") :]
    assert all(one["machine"] in report for one in evidence["members"])
    assert SCENARIOS[scenario].advice in report


def test_the_scenarios_are_those_of_the_app() -> None:
    source = (APPS / "deadlocks.py").read_text()
    assert all(f"\ndef {name.partition('.')[0]}(" in source for name in SCENARIOS)
