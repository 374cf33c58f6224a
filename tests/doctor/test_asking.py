"""All checks are asked, whatever one of them does; the command says what they find, and ends."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from clean import clean_environment, ran
from terminals import typed

from ray_snapshot.cli import main
from ray_snapshot.doctor import looking
from ray_snapshot.doctor.asking import Asking, Check
from ray_snapshot.doctor.checks import OK, PROBLEM, WARNING, Finding

COMMAND = Path(sys.executable).parent / "ray-snapshot"
BOUND_S = 180.0


def fine(name: str) -> Check:
    return Check(name, lambda: Finding(name, OK, "fine"), 30.0)


def failing() -> Finding:
    raise ValueError("an odd\nmachine")


def test_what_raises_and_what_hangs_is_told_and_the_others_come_all_the_same() -> None:
    ends = threading.Event()
    hanging = Check("hanging", lambda: Finding("hanging", OK, str(ends.wait(60))), 0.1)
    asking = Asking([fine("a"), Check("odd", failing, 30.0), hanging, fine("b")])
    found = {one.check: one for one in asking.findings()}
    assert asking.is_hanging
    assert [*found] == ["a", "odd", "hanging", "b"]
    assert found["odd"].found == "it cannot be told: ValueError: an odd machine"
    assert found["hanging"].found == "no answer within 0.1 s"
    assert {one.state for name, one in found.items() if name in ("odd", "hanging")} == {WARNING}
    ends.set()
    asking.answers["hanging"].thread.join(30)
    assert not asking.is_hanging


def test_what_waits_for_another_program_waits_while_the_others_are_asked() -> None:
    """The first is told only when the second has been asked: it can only be because it was begun before."""
    begun, asked = threading.Event(), threading.Event()

    def early() -> Finding:
        begun.set()
        return Finding("early", OK, "fine")

    def late() -> Finding:
        asked.set()
        return Finding("late", OK, str(begun.wait(30)))

    found = list(Asking([Check("late", late, 60.0), Check("early", early, 60.0, is_begun_early=True)]).findings())
    assert [(one.check, one.found) for one in found] == [("late", "True"), ("early", "fine")]


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def told(*found: Finding) -> None:
        named = [Check(one.check, lambda one=one: one, 30.0) for one in found]  # type: ignore[misc]
        monkeypatch.setattr(looking, "all_checks", lambda address, history: named)

    return told


WELL = Finding("ray", OK, "2.60.0")
ODD = Finding("py-spy", WARNING, "not installed", "pip install it")


@pytest.mark.parametrize(
    ("found", "code", "last"),
    [
        ([WELL], 0, "all is well"),
        ([WELL, ODD], 0, "1 warning"),
        ([Finding("ray", PROBLEM, "none", "get it"), ODD, Finding("a", WARNING, "b", "c")], 1, "1 problem, 2 warnings"),
    ],
)
def test_it_ends_with_1_if_there_is_a_problem_and_says_what_there_is(
    finds: Callable[..., None], capsys: pytest.CaptureFixture[str], found: list[Finding], code: int, last: str
) -> None:
    finds(*found)
    assert main(["doctor"]) == code
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == last
    if ODD in found:
        assert out[1].split(maxsplit=2) == ["warning", "py-spy", "not installed; to do: pip install it"]


def test_json_is_one_object_a_line_and_nothing_else(
    finds: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    finds(Finding("ray", OK, "2.60.0"), Finding("a", PROBLEM, "x\ny", "z"))
    assert main(["doctor", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"check": "ray", "state": "ok", "found": "2.60.0", "remedy": ""}
    assert rows[1]["found"] == "x\ny"


def test_what_a_machine_says_cannot_move_the_terminal(
    finds: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    finds(Finding("ray", PROBLEM, "\x1b[2Jx\ny", "z"))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("\n") == 2


NAMES = ["ray", "java", "py-spy", "history", "token", "cluster"]


@pytest.mark.contract
def test_this_machine_is_looked_at_from_an_environment_made_of_nothing(tmp_path: Path) -> None:
    """And a cluster that was named and does not answer is a problem."""
    command = [str(COMMAND), "doctor", "--json", str(tmp_path / "new"), "--address", "127.0.0.1:1"]
    done = ran(*command, cwd=tmp_path, seconds=BOUND_S)
    assert (done.returncode, done.stderr) == (1, "")
    rows = {row["check"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert [*rows] == NAMES
    assert rows["ray"]["state"] == "ok", rows["ray"]
    assert rows["history"]["found"].startswith(f"{tmp_path / 'new'} can be made")
    assert rows["cluster"]["state"] == "problem"
    assert rows["cluster"]["found"].startswith("127.0.0.1:1 (--address): no Ray cluster can be reached")
    assert [*tmp_path.iterdir()] == [], "nothing is left behind"


def test_what_hangs_does_not_keep_the_command(tmp_path: Path) -> None:
    """A thread that Python would wait for at its end stays behind."""
    code = (
        "import sys, threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from ray_snapshot.doctor import looking\n"
        "from ray_snapshot.doctor.asking import Check\n"
        "from ray_snapshot.doctor.checks import Finding\n"
        "def hangs():\n"
        "    with ThreadPoolExecutor() as pool: pool.submit(threading.Event().wait).result()\n"
        "looking.all_checks = lambda *_: [Check('a', hangs, 0.1), Check('b', lambda: Finding('b', 'problem', 'c', 'd'), 9)]\n"
        "from ray_snapshot.cli import main\n"
        "sys.exit(main(['doctor']))"
    )
    done = ran(sys.executable, "-c", code, seconds=60.0)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "1 problem, 1 warning"


@pytest.mark.contract
def test_a_terminal_has_lines_that_fit() -> None:
    code, lines = typed([COMMAND, "doctor", "--address", "nothing"], 60, clean_environment(TERM="xterm"))
    assert code == 1
    assert max(map(len, lines)) <= 60 or all(len(line.split()) < 3 for line in lines if len(line) > 60)
    assert sum(line.startswith(("ok ", "warning ", "problem ")) for line in lines) == len(NAMES) - 1
