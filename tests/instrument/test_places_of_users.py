"""A place is the user's own line, with the function of a library behind it; in a notebook, the cell. No Ray in here."""

import asyncio
import queue
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from clean import clean_environment
from lone_app import snapshot_of
from lone_process import lone_process
from until import until

from ray_snapshot.instrument.process import cells
from ray_snapshot.instrument.process import stacks as stacks_of
from ray_snapshot.instrument.process.coroutines import site_of
from ray_snapshot.instrument.process.stacks import Stack, StackFrame
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.questions import Questions
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.runtime.here import call_site, frames_of_threads, outward, place, place_in, split_place
from ray_snapshot.unprepared.stacks import reading
from ray_snapshot.views.report import chain


class Waits:
    """What a thread of the user's may wait in."""

    def __init__(self) -> None:
        self.items: queue.Queue[int] = queue.Queue()
        self.ends = threading.Event()
        self.value: Future[int] = Future()
        self.child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment())

    def gets(self) -> None:
        self.items.get()

    def waits(self) -> None:
        self.ends.wait()

    def reads(self) -> None:
        self.value.result()

    def runs(self) -> None:
        self.child.wait()

    def end(self) -> None:
        self.items.put(1)
        self.ends.set()
        self.value.set_result(1)
        assert self.child.stdin is not None
        self.child.stdin.close()


@pytest.fixture
def inside() -> Iterator[Callable[[str, str], FrameType]]:
    """The innermost frame of a thread that runs a method of `Waits`, once it is in another function."""
    threads, waits = [], Waits()

    def begin(method: str, name: str) -> FrameType:
        thread = threading.Thread(target=getattr(waits, method), daemon=True)
        thread.start()
        threads.append(thread)
        until(lambda: name in [frame.f_code.co_name for frame in outward(frames_of_threads().get(thread.ident or 0))])
        return frames_of_threads()[thread.ident or 0]

    yield begin
    waits.end()
    for thread in threads:
        thread.join(10)
    waits.child.wait()
    assert waits.child.stdout is not None
    waits.child.stdout.close()


@pytest.mark.parametrize(
    ("method", "inner", "name"),
    [
        ("gets", "wait", "queue.Queue.get"),
        ("waits", "wait", "threading.Event.wait"),
        ("reads", "wait", "concurrent.futures.Future.result"),
        ("runs", "_try_wait", "subprocess.Popen.wait"),
    ],
)
def test_a_wait_in_the_standard_library_stands_at_the_users_line_and_is_named(
    inside: Callable[[str, str], FrameType], method: str, inner: str, name: str
) -> None:
    frame = inside(method, inner)
    line = getattr(Waits, method).__code__.co_firstlineno + 1
    assert str(place(frame)) == f"{__file__}:{line}, in {name}"
    assert call_site(frame) == f"{__file__}:{line}"
    assert split_place(str(place(frame))) == (f"{__file__}:{line}", name)


PACKAGES = site.getsitepackages()[0]


def _frames(*files: str) -> list[FrameType]:
    """The frames of functions, each in one of these files and called by the next, from the inside out."""
    inner: Callable[[], Any] = lambda: sys._getframe(1)  # noqa: E731
    for number, file in enumerate(files):
        names: dict[str, Any] = {"inner": inner, "__name__": Path(file).stem}
        exec(compile(f"\n\ndef step{number}():\n    return inner()\n", file, "exec"), names)
        inner = names[f"step{number}"]
    return list(outward(inner()))[: len(files)]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ((f"{PACKAGES}/torch/c10d.py", "/home/me/train.py"), "/home/me/train.py:4, in c10d.step0"),
        (("/usr/lib/python3/dist-packages/torch/c10d.py", "/home/me/train.py"), "/home/me/train.py:4, in c10d.step0"),
        ((f"{PACKAGES}/a.py", f"{PACKAGES}/b.py"), f"{PACKAGES}/a.py:4"),
        ((queue.__file__, f"{PACKAGES}/app/a.py", f"{PACKAGES}/app/b.py"), f"{PACKAGES}/app/a.py:4, in queue.step0"),
        ((f"{PACKAGES}/ray/worker.py", "/home/me/train.py"), "/home/me/train.py:4"),
        (("/home/me/vendor/torch/c10d.py", "/home/me/train.py"), "/home/me/vendor/torch/c10d.py:4"),
        (("/home/me/app.py", f"{PACKAGES}/click/core.py", "/home/me/main.py"), "/home/me/app.py:4"),
    ],
    ids=["installed", "debian", "all_installed", "all_installed_in_queue", "ray", "vendored", "called_back"],
)
def test_what_is_installed_is_a_place_only_where_no_line_is_the_users(files: tuple[str, ...], shown: str) -> None:
    found = place_in(_frames(*files))
    assert str(found) == shown


def test_a_thread_that_only_waits_in_the_standard_library_has_no_frame_to_show() -> None:
    assert stacks_of._own(_frames(threading.__file__)) == ([], "")


def test_a_coroutine_stands_at_the_users_line_too() -> None:
    names: dict[str, Any] = {"asyncio": asyncio, "__name__": "aiolib"}
    exec(compile("async def fetch(ends):\n    await ends.wait()\n", f"{PACKAGES}/aiolib.py", "exec"), names)

    async def main() -> str | None:
        ends = asyncio.Event()

        async def call() -> None:
            await names["fetch"](ends)

        coroutine = call()
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        text = site_of(coroutine)
        ends.set()
        await task
        return text

    line = test_a_coroutine_stands_at_the_users_line_too.__code__.co_firstlineno + 8
    assert asyncio.run(main()) == f"{__file__}:{line}, in aiolib.fetch"


def test_a_stack_has_the_users_frames_alone_and_names_what_the_innermost_is_in() -> None:
    files = (f"{PACKAGES}/torch/c10d.py", "/home/me/a.py", f"{PACKAGES}/lightning/fit.py", "/home/me/b.py")
    own, within = stacks_of._own(_frames(*files, f"{PACKAGES}/click/core.py", f"{sys.prefix}/bin/ray-snapshot"))
    assert [frame.f_code.co_filename for frame in own] == [files[1], files[3]]
    assert within == "c10d.step0"


def test_a_long_stack_loses_its_middle_and_no_frame_of_the_user_in_silence() -> None:
    frames = _frames(*(f"/home/me/f{number}.py" for number in range(LIMITS.stack_frames + 7)))
    found = stacks_of._stack("work", None, frames, with_locals=False)
    assert (len(found.frames), found.cut) == (LIMITS.stack_frames, 7)
    assert (found.frames[0].file, found.frames[-1].file) == ("/home/me/f0.py", "/home/me/f56.py")
    assert " < 7 more < " in chain([frame._asdict() for frame in found.frames], found.cut)


def test_a_recursion_is_one_link_of_the_chain() -> None:
    walk, main = {"function": "walk", "file": "a.py", "line": 3}, {"function": "main", "file": "a.py", "line": 9}
    text = chain([{**walk, "inside": "queue.Queue.get"}, *[walk] * 4, main])
    assert text == "walk (a.py:3, in queue.Queue.get) < walk (a.py:3) (4 times) < main (a.py:9)"


def test_from_outside_libraries_and_our_command_line_are_no_users_either() -> None:
    frames = [
        ["_try_wait", "/usr/lib/python3.12/subprocess.py", 2004, "", None],
        ["communicate", "/usr/lib/python3.12/subprocess.py", 1209, "", None],
        ["launch", "/usr/lib/python3.12/site-packages/lib/spawn.py", 7, "process.communicate()", None],
        ["main", "/home/me/app.py", 12, "", None],
        ["run", str(Path(stacks_of.__file__).parents[2] / "commands/run.py"), 9, "", None],
        ["<module>", "/venv/bin/ray-snapshot", 8, "", None],
    ]
    (frame,) = reading([{"name": "MainThread", "is_active": False, "frames": frames}], None).frames
    assert (frame.function, frame.file, frame.line) == ("main", "/home/me/app.py", 12)
    assert frame.inside == "subprocess.communicate"


FILE = "/tmp/ipykernel_7/1234.py"
CELLS = {FILE: "In[4]"}


def _notebook(monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int]) -> None:
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=numbers))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_the_cells_that_ran_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _notebook(monkeypatch, {f"{at}.py": at for at in range(LIMITS.notebook_cells + 5)})
    found = cells.cells()
    assert (len(found), found["5.py"], "4.py" in found) == (LIMITS.notebook_cells, "In[5]", False)


def test_a_cell_that_runs_again_is_among_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has its name by its text, and keeps its place."""
    _notebook(monkeypatch, {**{f"{at}.py": at for at in range(LIMITS.notebook_cells + 5)}, "0.py": 999})
    assert cells.cells()["0.py"] == "In[999]"


_STRANGE = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=SimpleNamespace(_filename_map=5)))


@pytest.mark.parametrize("module", [None, SimpleNamespace(), SimpleNamespace(get_ipython=lambda: None), _STRANGE])
def test_without_a_notebook_there_are_none(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert cells.cells() == {}


@pytest.mark.parametrize(("machine", "told"), [(DRIVER, CELLS), ("A", {})])
def test_the_program_tells_its_cells(monkeypatch: pytest.MonkeyPatch, machine: str, told: dict[str, str]) -> None:
    _notebook(monkeypatch, {FILE: 4})
    with lone_process(CallLedger(machine)) as process:
        process.obey(Request(1))
        process.obey(Overdue(1))
        assert process.recording.reports[1].cells == told


def test_a_snapshot_names_the_cell() -> None:
    coordinator, ledger = Coordinator(), CallLedger(DRIVER, acts_unasked=True)
    coordinator.join(DRIVER, 0, 0)
    for file in (FILE, "app.py"):
        ledger.wait(None, [], 1, 0.0, call_site=f"{file}:10")
    snapshot = snapshot_of(coordinator, {DRIVER: ledger}, {DRIVER: {"shown": DRIVER, "cells": CELLS}})
    assert [row["call_site"] for row in snapshot.calls] == ["In[4]:10", "app.py:10"]


def test_a_stack_names_it_too() -> None:
    roster = Roster(lambda _: False)
    roster.facts[DRIVER] = {"shown": DRIVER, "cells": CELLS}
    questions = Questions(roster, Outboxes())
    questions.answers[1] = {}
    questions.told(1, "A", [Stack("work", None, (StackFrame("work", FILE, 10), StackFrame("main", "app.py", 1)))])
    assert [frame.file for frame in questions.answers[1]["A"][0].frames] == ["In[4]", "app.py"]
