"""`ray-snapshot explore --from`, and `--by-hand`, through a pipe and in a real terminal."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpointed import record
from clean import clean_environment
from counting_machines import Forgetful
from moment_machines import Eater, Fork, Till
from terminals import plain

from ray_snapshot import cli, testing

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _modules_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    history = tmp_path_factory.mktemp("table") / "history"
    machines: dict[str, tuple[type, Any]] = {f"f{one}": (Fork, {"holder": None, "queue": []}) for one in range(2)}
    for one in range(2):
        machines[f"p{one}"] = (Eater, {"forks": [f"f{one}", f"f{1 - one}"], "has": [], "meals": 0})
    messages = [(f"p{one}", f"f{one}", "ask", (f"p{one}",)) for one in range(2)]
    return str(history), record(history, machines, messages)


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    history = tmp_path_factory.mktemp("till") / "history"
    state = {"coins": 5, "peer": None, "paid_at": None}
    messages = [("driver", "b", "take", (2,)), ("driver", "b", "take", ("no number",)), ("b", "b", "take", (1,), 2.5)]
    return str(history), record(history, {"b": (Till, state)}, messages)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    history = tmp_path_factory.mktemp("forgetful") / "history"
    messages = [("driver", "f", "note", (amount,)) for amount in (1, 2)]
    return str(history), record(history, {"f": (Forgetful, 0)}, messages)


# ---- explore --from -----------------------------------------------------------------------------------------------------


def test_the_order_that_reaches_the_deadlock_is_shown(
    table: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    schedule, diagram = tmp_path / "order.json", tmp_path / "order.svg"
    words = ["explore", "--from", *table, "--never", "deadlock"]
    assert cli.main([*words, "--schedule", str(schedule), "--diagram", str(diagram)]) == 1
    shown = capsys.readouterr().out
    assert "1. the program goes on from the snapshot with f0, f1, p0, p1, 2 in flight" in shown
    assert diagram.read_text(encoding="utf-8").startswith("<svg")
    assert len(testing.replay(testing.from_snapshot(*table), schedule).steps) == 7


def test_what_the_program_does_then_comes_behind_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rich = ["--never", "moment_machines:is_rich"]
    history = str(tmp_path / "h")
    start = history, record(tmp_path / "h", {"b": (Till, {"coins": 5, "peer": None, "paid_at": None})})
    assert cli.main(["explore", "--from", *start, *rich]) == 0
    assert cli.main(["explore", "moment_machines:one_more", "--from", *start, *rich]) == 1
    assert "sends take(100) to b" in capsys.readouterr().out


def test_what_is_asked_wrongly_is_one_line(
    table: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words, said in (
        (["explore"], "name the function that builds the system, or a snapshot"),
        (["explore", "moment_machines:one_more", "--class", "moment_machines:Till"], "it goes with --from"),
        (["explore", "--from", table[0], "no-such"], "no snapshot 'no-such'"),
        (["explore", "--by-hand", "--from", table[0], "no-such"], "no snapshot 'no-such'"),
        (
            ["explore", "--by-hand", "--from", *table, "--class", "moment_machines:nobody_starves"],
            "is no class of machines",
        ),
        (["explore", "--by-hand", "--from", *table, "--schedule", "no-such.json"], "is no schedule"),
    ):
        assert cli.main(words) == 2
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "quite another key")
    for command in (["explore", "--from", *table], ["explore", "--by-hand", "--from", *table]):
        assert cli.main(command) == 2
        assert "was not written with this key" in capsys.readouterr().err


# ---- step ---------------------------------------------------------------------------------------------------------------


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_snapshot_is_stepped_through_by_a_pipe(
    till: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    diagram, schedule = tmp_path / "by-hand.svg", tmp_path / "by-hand.json"
    piped(monkeypatch, f"s\n2\n\nb\n1\n2\nd {diagram}\nw {schedule}\nt\n")
    assert cli.main(["explore", "--by-hand", "--from", *till]) == 0
    shown = capsys.readouterr().out.splitlines()
    state = '  b  Till  passive  {"coins": 5, "paid_at": null, "peer": null}'
    assert shown[0] == f"snapshot {till[1]}"
    assert shown[1] == shown[6] == state
    assert shown[4:6] == ["     1  b accepts take(2) from driver", "     2  b accepts timer take(1) from b (in 2.5 s)"]
    text = "\n".join(shown)
    assert "   2. b accepts timer take(1) from b; coins 5 -> 6\n     1  b accepts take(2) from driver" in text
    assert "   3. b accepts timer take(1) from b; coins 7 -> 8" in text
    assert shown[-3] == "   1. the program goes on from the snapshot with b, 3 in flight"
    assert diagram.read_text(encoding="utf-8").startswith("<svg")
    run = testing.replay(testing.from_snapshot(*till), schedule)
    assert (len(run.steps), run.machines["b"].coins) == (3, 8)
    piped(monkeypatch, "1\n")
    assert cli.main(["explore", "--by-hand", "--from", *till, "--schedule", str(schedule)]) == 0
    assert '   4. b accepts take("no number") from driver' in capsys.readouterr().out


def test_an_action_that_raises_ends_the_run_and_there_is_a_way_back(
    till: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, "1\n1\nb\n2\n")
    assert cli.main(["explore", "--by-hand", "--from", *till]) == 0
    shown = capsys.readouterr().out
    assert "raised TypeError" in shown
    assert "the action raised, and the system has failed: b goes back" in shown
    assert shown.rstrip().splitlines()[-2].startswith("   3. b accepts timer")


def test_where_nothing_is_left_the_detectors_say_what_that_is(
    table: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "order.json"
    cli.main(["explore", "--from", *table, "--never", "deadlock", "--schedule", str(path)])
    piped(monkeypatch, "")
    assert cli.main(["explore", "--by-hand", "--from", *table, "--schedule", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "p0  Eater  waits for f1" in shown
    assert "nothing is left to happen" in shown
    assert "Deadlock" in shown.splitlines()[-1]


def test_a_schedule_with_a_crash_is_gone_along(
    forgetful: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = tmp_path / "found.json", tmp_path / "by-hand.json"
    goal = ["--never", "counting_machines:is_lost"]
    assert cli.main(["explore", "--from", *forgetful, *goal, "--crashes", "1", "--schedule", str(first)]) == 1
    steps = [line for line in capsys.readouterr().out.splitlines() if line[:4].strip().isdecimal()]
    piped(monkeypatch, f"w {second}\n")
    assert cli.main(["explore", "--by-hand", "--from", *forgetful, "--schedule", str(first)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[: len(steps)] == steps
    assert shown[len(steps)] == f"snapshot {forgetful[1]}"
    assert "f crashes" in steps[-1]
    assert json.loads(second.read_text("utf-8"))["settings"] == json.loads(first.read_text("utf-8"))["settings"]
    build = testing.from_snapshot(*forgetful)
    assert testing.replay(build, second).steps == testing.replay(build, first).steps


def test_a_crash_is_chosen_by_hand(
    forgetful: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(typed: str, *words: str) -> str:
        piped(monkeypatch, typed)
        assert cli.main(["explore", "--by-hand", "--from", *forgetful, *words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    calm = step("")
    assert "     1  f accepts note(1) from driver\n" in calm
    assert "     2" not in calm
    shown = step("", "--crashes", "1")
    assert [line[8:] for line in shown.splitlines()[-2:]] == ["f accepts note(1) from driver", "f crashes"]


def test_a_schedule_of_other_settings_is_one_line(
    forgetful: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "schedule.json"
    for settings, said in (
        ({"crashes": "many"}, "it is a number"),
        ({"crashes": -1}, "it is a number"),
        ({"protocol": "observer"}, "the schedule is of a run under a protocol"),
    ):
        steps = [["driver", "driver", [], [], [["f", []]]]]
        path.write_text(json.dumps({"kind": "ray-snapshot schedule", "settings": settings, "steps": steps}), "utf-8")
        assert cli.main(["explore", "--by-hand", "--from", *forgetful, "--schedule", str(path)]) == 2, settings
        told = capsys.readouterr().err
        assert said in told
        assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("1\n9\n", "line 2, '9': there is no step 9: there are 1 to 2"),
        ("b\n", "line 1, 'b': this is the beginning"),
        ("jump\n", "line 1, 'jump': 'jump' is no command: a number"),
        ("d\n", "d FILE: name the file"),
        ("d /no/such/folder/x.svg\n", "/no/such/folder/x.svg cannot be written"),
    ],
)
def test_a_mistake_in_a_pipe_is_an_error_with_its_line(
    till: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, typed: str, said: str
) -> None:
    piped(monkeypatch, typed)
    assert cli.main(["explore", "--by-hand", "--from", *till]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


class Person:
    """Types into a real terminal, and reads what is shown, with a bound."""

    def __init__(self, *words: str) -> None:
        self.ours, its = os.openpty()
        command = [sys.executable, "-m", "ray_snapshot.cli", *words]
        environment = clean_environment(XDG_CONFIG_HOME=os.environ["XDG_CONFIG_HOME"])
        self.process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment, cwd=HERE,
                                        start_new_session=True)  # fmt: skip
        os.close(its)
        self.shown = ""
        self.bound = threading.Timer(60.0, self.process.kill)
        self.bound.start()

    def sees(self, text: str) -> None:
        while text not in self.shown:
            try:
                part = os.read(self.ours, 65_536).decode()
            except OSError:
                part = ""
            assert part, f"{text!r} was never shown: {self.shown}"
            self.shown += part
        self.shown = self.shown.partition(text)[2]

    def leaves(self) -> None:
        self.process.kill()
        self.process.wait()
        self.bound.cancel()
        os.close(self.ours)

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())


@pytest.mark.parametrize("end", [pytest.param("q\n", marks=pytest.mark.nightly), "\x04"])
def test_in_a_terminal_a_mistake_is_told_and_asked_again(till: tuple[str, str], end: str) -> None:
    person = Person("explore", "--by-hand", "--from", *till)
    try:
        person.sees("step> ")
        person.types("7\n")
        person.sees("there is no step 7: there are 1 to 2")
        person.sees("step> ")
        person.types("1\n")
        person.sees("coins 5 -> 7")
        person.sees("step> ")
        person.types("b\n")
        person.sees("     1  b accepts take(2) from driver")
        person.sees("step> ")
        person.types(end)
        assert person.process.wait(60) == 0
        assert "Traceback" not in "\n".join(plain(person.shown))
    finally:
        person.leaves()


@pytest.mark.nightly
def test_ctrl_c_ends_it_with_130(till: tuple[str, str]) -> None:
    person = Person("explore", "--by-hand", "--from", *till)
    try:
        person.sees("step> ")
        os.killpg(person.process.pid, 2)
        assert person.process.wait(60) == 130
    finally:
        person.leaves()
