"""`ray-snapshot explore`, and that what it finds is the same in every process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clean import clean_environment
from rich.console import Console
from rich.status import Status
from terminals import Terminal

from ray_snapshot import cli
from ray_snapshot.examples import bank_without_ray
from ray_snapshot.testing import explore as explore_states
from ray_snapshot.testing import memory, replay
from ray_snapshot.views import tables

BANK = "ray_snapshot.examples.bank_without_ray"

PROGRAM = '''
import ray_snapshot as rs


class Voter(rs.SnapshotMixin):
    """Its state is full of sets and dicts of words."""

    def __init__(self, friends):
        self.friends = set(friends)
        self.heard = {}

    def hear(self, word, others):
        self.heard[word] = set(others)
        for name in sorted(self.friends - self.heard[word]):
            self.machine(name).hear.send(word, others | {name, self.machine_name})


def voters(system):
    names = {"north", "south", "east", "west"}
    for name in sorted(names):
        system.spawn(Voter, names - {name}, name=name)
    system.machine("north").hear.send("yes", {"north"})
    system.machine("south").hear.send("no", {"south"})


def nobody_hears_both(states):
    return not any(set(one.heard) == {"yes", "no"} for one in states.values())
'''


def explore(*words: str, folder: Path, seed: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ray_snapshot.cli", "explore", *words],
        cwd=folder, env=clean_environment(PYTHONHASHSEED=str(seed)), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.contract
def test_a_whole_search_without_a_counterexample_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--always", f"{BANK}:money", "--never", "deadlock", "--eventually", "termination", "--json"]
    assert cli.main(["explore", f"{BANK}:bank", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"ok": True, "complete": True, "states": 21, "broken": None, "steps": []}


@pytest.mark.contract
def test_a_counterexample_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schedule, diagram = tmp_path / "schedule.json", tmp_path / "wrong.svg"
    words = ["--always", f"{BANK}:no_overdraft", "--schedule", str(schedule), "--diagram", str(diagram)]
    assert cli.main(["explore", f"{BANK}:bank", *words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["broken"], len(found["steps"])) == (False, "no_overdraft", 2)
    assert cli.main(["explore", f"{BANK}:bank", *words]) == 1
    said = capsys.readouterr().out
    assert said.startswith("3 states; a counterexample ended the search\nno_overdraft: ")
    assert "   2. carol accepts transfer(bob, 15) from driver" in said
    assert diagram.read_text(encoding="utf-8").startswith("<svg")
    from ray_snapshot.examples.bank_without_ray import bank

    assert replay(bank, schedule).machines["carol"].balance == -10


@pytest.mark.contract
def test_a_search_that_was_stopped_ends_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explore", f"{BANK}:bank", "--most-states", "5", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["complete"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bank"], "names nothing: write MODULE:NAME"),
        (["no_such_module:bank"], "no_such_module:bank cannot be loaded: ModuleNotFoundError"),
        ([f"{BANK}:nothing"], "cannot be loaded: AttributeError"),
        ([f"{BANK}:bank", "--never", "no-such"], "no detector 'no-such'"),
        ([f"{BANK}:bank", "--protocol", "no-such"], "there is no protocol 'no-such'"),
        ([f"{BANK}:bank", "--always", f"{BANK}:Account"], "predicate"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explore", *words]) == cli.FAULT
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.contract
def test_the_module_is_looked_for_in_the_current_folder_and_the_counterexample_is_the_same_in_every_process(
    tmp_path: Path,
) -> None:
    (tmp_path / "voting.py").write_text(PROGRAM, encoding="utf-8")
    found = []
    for seed in (1, 2):
        words = ("voting:voters", "--always", "voting:nobody_hears_both", "--json", "--schedule", f"{seed}.json")
        done = explore(*words, folder=tmp_path, seed=seed)
        assert done.returncode == 1, done.stderr
        found.append((done.stdout, (tmp_path / f"{seed}.json").read_text(encoding="utf-8")))
    assert found[0] == found[1]
    assert len(json.loads(found[0][0])["steps"]) == 4


@pytest.mark.contract
def test_it_needs_no_running_ray_and_ends_in_seconds(tmp_path: Path) -> None:
    done = explore(f"{BANK}:bank", "--always", f"{BANK}:money", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Started a local Ray" not in done.stderr
    assert done.stdout.startswith("21 states; complete")


def test_a_terminal_shows_how_far_a_search_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    terminal = Terminal()
    monkeypatch.setattr(
        tables, "console", lambda **_: Console(file=terminal, force_terminal=True, force_interactive=True, width=120)
    )
    monkeypatch.setattr(memory.Pace, "is_due", lambda _: True)
    monkeypatch.setattr(Status, "update", lambda _, text: shown.append(text))
    assert cli.main(["explore", f"{BANK}:bank", "--always", f"{BANK}:money"]) == 0
    assert len(shown) == 21
    assert re.fullmatch(r"21 states, \d+ to be expanded, [\d,]+ a second", shown[-1]), shown[-1]
    assert "exploring" in terminal.getvalue()


@pytest.mark.parametrize("protocol", [None, "observer"])
def test_a_search_that_takes_too_much_memory_stops_and_says_so(
    monkeypatch: pytest.MonkeyPatch, protocol: str | None
) -> None:
    monkeypatch.setattr(memory, "resident", lambda: 1 << 62)
    monkeypatch.setattr(memory.Pace, "is_due", lambda _: True)
    found = explore_states(bank_without_ray.bank, protocol=protocol)
    assert (found.ok, found.complete) == (True, False)
    assert any("of memory, 60% of what there is" in why for why in found.why)


@pytest.mark.contract
def test_crashes_and_workers_are_settings_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explore", f"{BANK}:bank", "--always", f"{BANK}:money"]
    assert cli.main([*words, "--crashes", "1"]) == 4
    assert "conservation could not be told in 44 states" in capsys.readouterr().out
    assert cli.main([*words, "--workers", "2"]) == 2
    assert "one process searches" in capsys.readouterr().err
