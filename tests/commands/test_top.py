"""`ray-snapshot top`: one screen of a system that runs; what it says of it, and how it ends."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from incidents import CROWD, OF_MACHINES, deadlocked, healthy, judged
from rich.console import Console
from started import started
from terminals import Terminal

from ray_snapshot import Snapshot
from ray_snapshot.commands import top
from ray_snapshot.glances import Glances
from ray_snapshot.views.live import lines, screen
from ray_snapshot.web.served import Running

PROGRAM = Path(sys.executable).parent / "ray-snapshot"


def running(*snapshots: Snapshot, trouble: str = "", **about: Any) -> Running:
    glances = Glances()
    for number, one in enumerate(snapshots):
        glances.add(one, judged(one), generation=number)
    told = {"run_id": "run-1", "totals": glances.totals, "last": glances.last, "open": [], **about}
    return Running("bank", told, tuple(glances.kept), trouble=trouble)


def shown(one: Running, columns: int = 100) -> str:
    terminal = Terminal()
    console = Console(file=terminal, width=columns, color_system=None, markup=False, highlight=False)
    console.print(screen(top.said(one)))
    return "\n".join(terminal.lines())


def test_the_screen_says_what_alarms_what_waits_and_how_snapshots_went() -> None:
    one = running(healthy(1), deadlocked(2), open=[{"number": 3, "reported": 1, "lacking": 2}])
    text = shown(one)
    assert text.splitlines()[0] == "bank  run run-1  3 machines  rolled back: 1"
    assert "2 snapshots, one being taken (1 of 3 parties have reported); the last " in text
    assert "deadlock     ALARM: holds" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("Account"))
    assert row == ["Account", "2", "0", "2", "0", "0", "1"], "two accounts, both blocked; one message for each"
    assert [line.split()[0] for line in text.splitlines()[-2:]] == ["2", "1"], "the last snapshot first"


def test_a_snapshot_that_was_given_up_and_a_system_that_does_not_answer_are_told() -> None:
    given_up = Snapshot.from_rows(
        machines=[], snapshot_id="x", system="bank", run_id="run-1", sequence=2, status="aborted", abort_reason="slow"
    )
    text = shown(running(healthy(1), given_up, trouble="no answer within 30 s"))
    assert "1 snapshot, 1 given up; the last " in text
    assert "it did not answer: no answer within 30 s" in text
    assert "Account" in text, "what the last complete one said stays"
    assert "given up" in text.splitlines()[-2]


def test_before_the_first_snapshot_there_is_little_to_say() -> None:
    assert lines(top.said(running(machines=7))) == ["bank  run run-1", "0 snapshots"]


def test_of_an_app_that_is_watched_an_actor_is_an_actor_and_a_thousand_that_are_stuck_alike_are_a_screen() -> None:
    one = running(deadlocked(1, CROWD, protocol="calls"))
    text = shown(one) + "\n".join(lines(top.said(one)))
    assert OF_MACHINES.findall(text) == []
    assert text.count("account-1 in Account.transfer (/srv/app/bank.py:41) waits for account-0") == 2
    assert len(shown(one).splitlines()) < 24


@pytest.mark.parametrize("columns", [60, 80])
def test_names_of_strangers_neither_colour_nor_move_anything(columns: int) -> None:
    odd = Snapshot.from_rows(
        machines=[{"machine": "a", "class_name": "\x1b[31m[bold]K\n" * 9, "status": "active"}], snapshot_id="x"
    )
    told = running(odd, trouble="\x1b[2J")
    assert "\x1b" not in shown(told, columns)
    assert "[bold]" in shown(told, 200)
    assert "\x1b" not in "\n".join(lines(top.said(told)))


def test_long_lists_are_cut_and_say_so() -> None:
    many = [{"machine": f"m{at}", "class_name": f"K{at:02}"} for at in range(30)]
    text = shown(running(Snapshot.from_rows(machines=many, snapshot_id="x")))
    assert "... and 18 more classes" in text


RING = """
import sys
import ray_snapshot as rs

class Idle(rs.SnapshotMixin):
    pass

with rs.System("idlers", every=0.2) as system:
    system.spawn_many(Idle, [() for _ in range(3)])
    system.start()
    print("up", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def idlers(folder: Path) -> Iterator[subprocess.Popen[str]]:
    (folder / "idlers.py").write_text(RING)
    env = clean_environment(HOME=str(folder))
    with started([sys.executable, folder / "idlers.py"], env=env, seconds=180, takes_input=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
def test_it_looks_at_a_system_of_another_program_and_ends_when_that_ends(tmp_path: Path) -> None:
    env = clean_environment(HOME=str(tmp_path))
    with idlers(tmp_path) as program, started([PROGRAM, "top", "idlers", "--json"], env=env, seconds=120) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if told["completed"] >= 2:
                break
        assert {one["class"]: one["machines"] for one in told["classes"]}["Idle"] == 3
        assert [one["detector"] for one in told["verdicts"]] == ["termination", "deadlock"]
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
def test_it_ends_with_ctrl_c_and_names_what_runs(tmp_path: Path) -> None:
    env = clean_environment(HOME=str(tmp_path))
    with idlers(tmp_path):
        done = ran(PROGRAM, "top", "nobody", env=env)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "no system 'nobody' is running; running: idlers" in done.stderr
        with started([PROGRAM, "top", "--json"], env=env, seconds=120) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["system"] == "idlers"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
