"""Notebooks, their cells run by a real kernel as Jupyter runs them, and a terminal beside them that knows nothing of it.

Run by `make test-libraries`: a kernel brings its own event loop, and threads that nobody else starts.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, LONGEST_S, Done, Runner
from clean import on_cluster
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.libraries, pytest.mark.contract]

DEADLOCKED = 3
PAGE = Path(__file__).parents[2] / "docs" / "start" / "hangs.md"

APP = """
import asyncio
import ray
ray.init(log_to_driver=False)

@ray.remote
class Asks:
    def __init__(self, other=None):
        self.other = other

    def know(self, other):
        self.other = other

    def ask(self):
        return ray.get(self.other.answer.remote())

    def answer(self):
        return 42

answers = Asks.remote()
asks = Asks.remote(answers)
"""
ASKS_ITSELF = "asks.know.remote(asks), asks.ask.remote()"
HANGS = re.compile(r"^    Asks-1 in Asks\.ask \(In\[3\]:14\) waits for Asks-1 \(Asks\.answer\)$", re.MULTILINE)
"""In the third cell that a notebook of the tests runs; a kernel takes the empty line before it away."""


def first_cell() -> str:
    """What the page has its reader begin a notebook with."""
    (cell,) = re.findall(r"^## In a notebook$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(cell)


@dataclass(frozen=True, slots=True)
class Notebook:
    """A kernel; `kernel` and `client` are Jupyter's."""

    kernel: Any
    client: Any

    def run(self, cell: str) -> str:
        shown: list[str] = []

        def show(message: Any) -> None:
            match message["msg_type"], message["content"]:
                case "stream", {"text": text}:
                    shown.append(text)
                case "execute_result" | "display_data", {"data": data}:
                    shown.append(data["text/plain"])
                case "error", {"ename": kind, "evalue": words}:
                    shown.append(f"{kind}: {words}")

        reply = self.client.execute_interactive(cell, timeout=LONGEST_S, output_hook=show, allow_stdin=False)
        assert reply["content"]["status"] == "ok", shown
        return "".join(shown)

    def begin(self, cell: str) -> None:
        self.client.execute(cell, allow_stdin=False, stop_on_error=False)


@pytest.fixture
def notebook(runner: Runner) -> Iterator[Notebook]:
    """In an environment made from nothing, on the tests' cluster."""
    from jupyter_client.manager import start_new_kernel

    environment = on_cluster(runner.address, RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
    environment["RAY_AUTH_MODE"] = runner.auth_mode
    kernel, client = start_new_kernel(startup_timeout=LONGEST_S, kernel_name="python3", env=environment, cwd=str(APPS))
    try:
        assert Notebook(kernel, client).run("import sys; print(sys.executable)").strip() == sys.executable
        yield Notebook(kernel, client)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_termination_is_answered_although_a_kernel_has_threads_of_its_own(notebook: Notebook) -> None:
    notebook.run(first_cell())
    notebook.run(APP)
    assert notebook.run("await asks.ask.remote()") == "42"
    assert notebook.run("seen[0].wait_for('termination', timeout=60).holds") == "True"
    shown = notebook.run("seen[0].snapshot()")
    assert "complete" in shown
    assert "cannot be told" not in shown


def check_that_it_hangs(notebook: Notebook, runner: Runner, cell: str) -> None:
    """Behind the first cells this one hangs, and a terminal says why."""

    def ask() -> Done:
        return runner.command("diagnose", "notebook", "--address", runner.address)

    notebook.run(first_cell())
    notebook.run(APP)
    notebook.begin(cell)
    said = until(ask, good=lambda done: done.exit_code == DEADLOCKED, seconds=LONGEST_S).output
    assert HANGS.search(said), said


def test_a_cell_that_hangs_in_get_is_diagnosed_and_the_next_cell_runs(notebook: Notebook, runner: Runner) -> None:
    check_that_it_hangs(notebook, runner, f"ray.get([{ASKS_ITSELF}])")
    notebook.kernel.interrupt_kernel()
    notebook.run("from ray_snapshot.detectors import Deadlock")
    assert "Deadlock" in notebook.run("print(Deadlock().evaluate(seen[0].snapshot()).sentence)")


def test_a_cell_that_hangs_in_await_is_diagnosed(notebook: Notebook, runner: Runner) -> None:
    check_that_it_hangs(notebook, runner, f"await asyncio.gather({ASKS_ITSELF})")


def test_the_first_cell_may_run_again(notebook: Notebook) -> None:
    notebook.run(first_cell())
    notebook.run(APP)
    notebook.run("before = seen[0]")
    notebook.run(first_cell())
    assert notebook.run("seen == [before]") == "True"
