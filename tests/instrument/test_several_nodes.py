"""Actors on other nodes are watched, although nobody has installed us there; or the run fails, naming the node."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from app_runner import LONGEST_S, Runner
from clean import clean_environment
from until import until

import ray_snapshot as rs
from ray_snapshot.instrument import arriving, delivery
from ray_snapshot.instrument.hooks import attaching

OLD = {
    "ray_snapshot/__init__.py": "__version__ = '0.0.9'\n",
    "ray_snapshot/instrument/__init__.py": "",
    "ray_snapshot/instrument/hooks/attaching.py": "def attach():\n    'Here it did something else.'\n",
}
"""An image in which another version of ours was installed once."""

LOCKED = {
    "sitecustomize.py": """
import sys
def refuse(event, arguments):
    if event == "import" and arguments[0].startswith("ray_snapshot."):
        raise ImportError(f"{arguments[0]} is not allowed on this node")
sys.addaudithook(refuse)
"""
}
"""A node whose Python refuses to import us, wherever we come from."""

WATCHING = """
import ray, ray_snapshot as rs
ray.init()
try:
    rs.watch()
except rs.NodeNotReadyError as error:
    print(error.node, error)
"""


@dataclass
class TwoNodes:
    """A cluster in a process of its own; we are not installed on its second node."""

    process: subprocess.Popen[str]
    folder: Path
    runner: Runner
    second: str

    @classmethod
    def start(cls, folder: Path, temp: str) -> TwoNodes:
        command = [sys.executable, str(Path(__file__).parent / "two_nodes.py"), _written(folder / "old", OLD)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=clean_environment(RAY_TMPDIR=temp), text=True)
        assert process.stdout is not None
        address, _, second = process.stdout.readline().split()
        return cls(process, folder, Runner(address, "disabled"), second)

    def tell(self, line: str) -> str:
        """Add a node, or take it away; returns what is answered."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def with_node(self, files: dict[str, str]) -> str:
        """One more node whose workers find these files first; returns its id."""
        return self.tell(_written(Path(tempfile.mkdtemp(dir=self.folder)), files))


def _written(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    temp = tempfile.mkdtemp(prefix="rs-", dir="/tmp")
    found = TwoNodes.start(tmp_path_factory.mktemp("nodes"), temp)
    yield found
    found.process.communicate("", timeout=LONGEST_S)
    shutil.rmtree(temp, ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.ray
def test_a_deadlock_across_nodes_is_found_where_only_another_version_of_us_is_installed(nodes: TwoNodes) -> None:
    done = nodes.runner.command(
        "run", "--every", "0.5", "--exit-on", "deadlock", "deadlocks.py", "on_nodes", "first", "second"
    )
    assert (done.exit_code, done.output) == (3, "start\n2 nodes\n"), done.errors
    assert " in Account.transfer (deadlocks.py:" in done.errors
    assert " in Account.both (deadlocks.py:" in done.errors


@pytest.mark.nightly
@pytest.mark.ray
def test_a_node_whose_workers_cannot_import_us_is_named_with_what_to_do(nodes: TwoNodes) -> None:
    locked = nodes.with_node(LOCKED)
    try:
        done = nodes.runner.command("run", "--quiet", "deadlocks.py", "on_nodes", "first", "second")
    finally:
        assert nodes.tell("-") == "-"
    assert (done.exit_code, done.output) == (0, "start\n2 nodes\n"), done.errors
    said = [line for line in done.errors.splitlines() if line.startswith("ray-snapshot: ")]
    assert len(said) == 1
    assert f"nothing is watched: the actors on node {locked} (" in said[0]
    assert "is not allowed on this node" in said[0]
    assert f"install ray-snapshot=={rs.__version__} there" in said[0]
    assert "Traceback" not in done.errors


@pytest.mark.ray
@pytest.mark.nightly
def test_watching_without_install_needs_us_on_every_node_and_says_on_which_it_is_missing(nodes: TwoNodes) -> None:
    done = nodes.runner.plain("-c", WATCHING)
    assert done.exit_code == 0, done.errors
    assert done.output.startswith(f"{nodes.second} the actors on node {nodes.second} ("), done.output


@pytest.mark.ray
@pytest.mark.nightly
def test_a_node_that_joins_later_is_named_in_the_coverage_until_it_has_answered(
    nodes: TwoNodes, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    app = nodes.runner.start_watched("late", "--every", "0.25", "--history", str(history), "standing.py", "idle")
    assert app.stdout is not None
    assert app.stdout.readline() == "hello\n"
    joined = nodes.with_node({})
    try:
        diagnosed = nodes.runner.command("diagnose", "late", "--address", nodes.runner.address)
        until(lambda: _naming(history, joined), good=lambda named: True in named and not named[-1])
        done = nodes.runner.finish(app, "go on\n")
    finally:
        assert nodes.tell("-") == "-"
    assert (diagnosed.exit_code, done.exit_code) == (0, 0), diagnosed.output + done.errors
    named = _naming(history, joined)
    assert not named[0]
    assert not named[-1]


def _naming(history: Path, node: str) -> list[bool]:
    return [node in json.dumps(row["coverage"]) for row in rs.History(history).snapshots()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_apps_own_hook_is_called_whether_or_not_ours_could_do_its_part(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, fails: bool
) -> None:
    called: list[str] = []

    def replace_ray() -> None:
        called.append("ours")
        if fails:
            raise rs.UnsupportedRayError("another Ray")

    monkeypatch.setattr(attaching, "replace_ray", replace_ray)
    monkeypatch.setattr("json.tool.main", lambda: called.append("by its name"))
    arriving.hook_with(rs.__version__, b"", lambda: called.append("the app's"))()
    arriving.hook_with(rs.__version__, b"", "json.tool.main")()
    assert called == ["ours", "the app's", "ours", "by its name"]
    assert capsys.readouterr().err.count("nothing is watched in this worker: UnsupportedRayError") == 2 * fails


class Answers:
    """Probes that are answered when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, asyncio.Future[Any]] = {}
        monkeypatch.setattr(delivery, "probe", self.probe)

    def probe(self, node: str, *, needs_hook: bool) -> Any:
        assert needs_hook
        self.asked[node] = asyncio.get_running_loop().create_future()
        return self.asked[node]

    async def answer(self, node: str, answer: tuple[str | None, str]) -> None:
        await asyncio.sleep(0)
        self.asked[node].set_result(answer)
        for _ in range(3):
            await asyncio.sleep(0)


def test_of_a_node_that_was_not_there_at_the_start_nothing_is_known_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> list[list[str]]:
        answers, nodes = Answers(monkeypatch), delivery.Nodes(["a"], needs_hook=True)
        alive = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
        before = nodes.uncovered(alive)
        await answers.answer("b", (rs.__version__, ""))
        await answers.answer("c", ("0.0.9", ""))
        assert nodes.uncovered(alive) == nodes.uncovered(alive)
        return [before, nodes.uncovered(alive), sorted(answers.asked)]

    before, after, asked = asyncio.run(scenario())
    assert [line.split(":")[0] for line in before] == ["actors on node b (10.0.0.2)", "actors on node c (10.0.0.3)"]
    assert after == [f"actors on node c (10.0.0.3): it has ray-snapshot 0.0.9, and this program has {rs.__version__}"]
    assert asked == ["b", "c"], "each is asked once, and a ready one never"
