"""A process tells where its threads and coroutines are, in the app's own lines, and what stands in their variables. No Ray."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator

import pytest
from limited import limit
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot import redaction
from ray_snapshot.instrument.diagnosis import stack_lines
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.stacks import Stack, StackFrame, _variables, stacks
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.questions import Questions
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import Header
from ray_snapshot.protocol.commands import TellStacks
from ray_snapshot.protocol.tasks import worker_name

WORKER = worker_name("w", 1)


class Vault:
    """An object that must not be asked for anything."""

    def __init__(self) -> None:
        self.coins = 3
        self.keys = [{"api_key": "sesame-1"}]

    def __repr__(self) -> str:
        raise AssertionError("code of the app's was run")


def outer(vault: Vault, ends: threading.Event, password: str = "hunter2", pin: str = "1234567") -> None:
    inner([vault] * 2, ends)


def inner(kept: list[Vault], ends: threading.Event) -> None:
    text = "x" * LIMITS.locals_characters
    ends.wait()
    del text


@pytest.fixture
def calling() -> Iterator[Process]:
    """A process of which a call is in `inner`."""
    ends = threading.Event()
    with lone_process() as process:

        def call() -> None:
            call_id = process.enter(Header("driver", 0, 1, 0, 1), "pay")
            outer(Vault(), ends)
            process.leave(call_id)

        thread = threading.Thread(target=call, name="a call's")
        thread.start()
        until(
            lambda: any(frame.function == "inner" for one in stacks(process, with_locals=False) for frame in one.frames)
        )
        yield process
        ends.set()
        thread.join(BOUND_S)


def _of_the_call(process: Process, *, with_locals: bool) -> Stack:
    (found,) = [one for one in stacks(process, with_locals=with_locals) if one.call is not None]
    return found


def test_a_call_is_told_by_its_method_with_the_lines_of_the_app_from_the_inside_out(calling: Process) -> None:
    found = _of_the_call(calling, with_locals=False)
    assert (found.of, found.call) == ("pay", "driver/0/A/1")
    assert [frame.function for frame in found.frames][:2] == ["inner", "outer"]
    assert all(frame.file == __file__ and frame.variables is None for frame in found.frames)


def test_variables_are_told_on_request_without_secrets_and_by_no_code_of_the_app(
    calling: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_names", "is_active"):
        monkeypatch.setattr(redaction, name, getattr(redaction, name))
    redaction.redact("pin")
    told = {frame.function: str(frame.variables) for frame in _of_the_call(calling, with_locals=True).frames}
    values = json.loads(told["outer"])
    assert values["vault"]["coins"] == 3
    assert values["password"] == "[redacted]"
    assert "hunter2" not in told["outer"]
    assert "1234567" not in told["outer"]
    assert values["vault"]["keys"] == [{"api_key": "[redacted]"}], "however deep"
    assert "sesame" not in told["outer"] + told["inner"]
    assert len(told["inner"]) <= LIMITS.locals_characters + 1, "it is cut"


def test_a_secret_in_the_head_of_what_is_cut_off_is_not_told() -> None:
    def cut_off() -> str:
        large = [{"password": "hunter2"}] * 1_000_000
        text = _variables(sys._getframe())
        assert large
        return text

    text = cut_off()
    assert "truncated" in text
    assert "hunter2" not in text


def test_coroutines_are_told_too() -> None:
    async def waits(ends: asyncio.Event) -> None:
        await deeper(ends)

    async def deeper(ends: asyncio.Event) -> None:
        await ends.wait()

    async def main() -> list[Stack]:
        ends = asyncio.Event()
        task = asyncio.create_task(waits(ends), name="a task")
        await asyncio.sleep(0)
        with lone_process() as process:
            process.program_loop.loop = asyncio.get_running_loop()
            found = await asyncio.to_thread(stacks, process, with_locals=False)
        ends.set()
        await task
        return found

    (found,) = [one for one in asyncio.run(main()) if one.of == "task a task"]
    names = [frame.function.rpartition(".")[2] for frame in found.frames]
    assert names == ["deeper", "waits"]


# ---- asking -------------------------------------------------------------------------------------------------------------


FRAME = StackFrame("pay", "app.py", 7)


async def _asked(*names: str) -> tuple[dict[str, list[Stack]], list[str], Questions]:
    """What is answered, who was asked, and whom: two actors, one that answers nothing, and a worker, which may run a task."""
    roster, outboxes = Roster(lambda _: False), Outboxes()
    for machine in ("A:1", "B:1", "quiet:1", WORKER):
        roster.enter(machine, {"class": machine.partition(":")[0]}, 0)
        outboxes.open(machine)
    questions = Questions(roster, outboxes)
    asking = asyncio.create_task(questions.stacks(names, with_locals=False))
    await asyncio.sleep(0)
    asked = [machine for machine, box in outboxes.boxes.items() if box.commands]
    for machine in asked:
        (command,) = outboxes.boxes[machine].commands
        assert isinstance(command, TellStacks)
        if not machine.startswith("quiet"):
            questions.told(command.question, machine, [Stack("pay", f"driver/0/{machine}/1", (FRAME,))])
    return await asking, asked, questions


def test_those_that_are_meant_are_asked_and_nothing_is_kept_of_a_question_that_is_over() -> None:
    found, asked, questions = asyncio.run(_asked("A-0"))
    assert asked == ["A:1"]
    assert [one.call for one in found["A-0"]] == ["driver/0/A-0/1"], "in words that people know"
    questions.told(1, "A:1", [])  # too late
    assert not questions.answers


def test_of_a_task_workers_are_asked_for_one_of_them_runs_it() -> None:
    assert asyncio.run(_asked("A-0", "f-0"))[1] == ["A:1", WORKER]


def test_who_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, stacks_answer_s=0.01)
    assert set(asyncio.run(_asked("B-0", "quiet-0"))[0]) == {"B-0"}


def test_equal_stacks_are_one_line_and_what_stands_with_the_wait_is_none() -> None:
    deep = Stack("pay", "c", (StackFrame("A.inner", "app.py", 7), StackFrame("A.pay", "app.py", 4)))
    told = {"A-0": [deep, deep._replace(call="d"), Stack("pay", "e", deep.frames[:1])]}
    assert stack_lines(told, with_locals=False) == [
        "  called from:",
        "    A-0, pay: A.inner (app.py:7) < A.pay (app.py:4) (2 calls)",
    ]
    with_variables = deep._replace(frames=(StackFrame("A.inner", "app.py", 7, '{"n":1}'),))
    assert stack_lines({"A-0": [with_variables]}, with_locals=True)[1].splitlines() == [
        "    A-0, pay:",
        "      A.inner (app.py:7)",
        '        {"n":1}',
    ]
    assert stack_lines({}, with_locals=False) == []
