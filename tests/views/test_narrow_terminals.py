"""At 80 and at 60 columns: nothing is broken inside a word, and what matters is shown; wide ones are used."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clean import clean_environment
from terminals import Terminal, typed

from ray_snapshot import Snapshot, Verdict, cli
from ray_snapshot.commands import system
from ray_snapshot.history import HistoryWriter
from ray_snapshot.stderr import say
from ray_snapshot.views.results import print_result
from ray_snapshot.views.tables import print_fields
from ray_snapshot.wrapping import room_on, wrapped

COMMAND = Path(sys.executable).parent / "ray-snapshot"
SYSTEM = "payments-reconciliation-service"
MACHINES = ["philosopher-counselling-service-0", "fork-administration-department-1", "b"]
SENTENCE = f"{MACHINES[0]} waits for {MACHINES[1]}, which waits for {MACHINES[0]}, and so on round a cycle of 2."
IDS = [f"20260301T12000{number}000000Z-cd400b-{number:06d}" for number in range(3)]


def taken(number: int, **more: Any) -> Snapshot:
    first, second, third = MACHINES
    state = {"owner": "a customer of the third kind", "balance": 100}
    machines = [
        {"machine": first, "class_name": "PhilosopherCounsellingService", "status": "blocked", "waits_for": [second]},
        {"machine": second, "class_name": "ForkAdministrationDepartment", "status": "blocked", "waits_for": [first]},
        {"machine": third, "status": "active", "state": state},
    ]
    calls = [{"machine": first, "call_id": "1", "caller": second, "method": "counsel", "call_site": "a/b.py:12"}]
    messages = [{"source": third, "target": second, "method": "administrate_everything", "args": ["a", "long", "list"]}]
    at = datetime(2026, 3, 1, 12, 0, number, tzinfo=UTC)
    whole = {"snapshot_id": IDS[number], "system": SYSTEM, "run_id": "0123456789abcdef", "started_at": at, **more}
    return Snapshot.from_rows(machines=machines, calls=calls, messages=messages, **whole)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("narrow") / "history"
    with HistoryWriter(folder) as writer:
        for number, snapshot_id in enumerate(IDS):
            verdict = {"snapshot_id": snapshot_id, "run_id": "0123456789abcdef", "sentence": SENTENCE}
            writer.add(taken(number))
            writer.add_verdicts([Verdict(detector="no-payment-may-be-lost", holds=False, alarm=True, **verdict)])
    return str(folder)


@pytest.fixture
def shows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What a terminal of so many columns shows of a command."""

    def show(columns: int, *command: str) -> list[str]:
        screen = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "stderr", screen)
            cli.main(command)
        return screen.lines()

    return show


def fits(line: str, columns: int) -> bool:
    """Whether a line fits, or holds one word that does not, alone or behind the name of its field."""
    return len(line) <= columns or len(line.split()) <= 2


COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "list": (["list"], [*IDS, "complete", "consistent", "yes"]),
    "verdicts": (["verdicts"], [*IDS, "no-payment-may-be-lost", "no (alarm)", *SENTENCE.split()]),
    "show": (["show", "latest"], [IDS[-1], *MACHINES, "blocked", "administrate_everything", *SENTENCE.split()]),
    "verify": (["verify"], ["verified,", "(analyze", "verdicts"]),
    "compact": (["compact"], ["removed", "snapshots"]),
    "vacuum": (["vacuum", "--dry-run"], ["delete", "snapshots"]),
    "report": (["report", "--markdown", "-1"], []),
}
"""And the words that are shown, each in one piece."""


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"report"}))
def test_no_word_is_broken_and_what_matters_stays(
    name: str, columns: int, history: str, shows: Callable[..., list[str]]
) -> None:
    (command, *more), words = COMMANDS[name]
    lines = shows(columns, command, history, *more)
    assert [line for line in lines if not fits(line, columns)] == []
    assert [word for word in words if not any(word in line for line in lines)] == []


def test_markdown_is_for_copying_and_is_not_broken(history: str, shows: Callable[..., list[str]]) -> None:
    long = max(shows(60, "report", history, "--markdown", "-1"), key=len)
    assert len(long) > 100


@pytest.mark.parametrize("columns", [80, 60])
def test_an_error_is_broken_between_words(columns: int, tmp_path: Path, shows: Callable[..., list[str]]) -> None:
    folder = tmp_path / "a folder with many words in its name and no history at all inside of it"
    lines = shows(columns, "list", str(folder))
    assert len(lines) > 1
    assert " ".join(line.strip() for line in lines).startswith(f"ray-snapshot: error: no history at {folder}: ")
    assert all(fits(line, columns) for line in lines)


@pytest.mark.parametrize("columns", [80, 60])
def test_results_of_spark_jobs_are_broken_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tables are made of what Spark has answered; here without it."""
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", screen)
    row = {"system": SYSTEM, "run_id": "0123456789abcdef", "snapshot_id": IDS[0], "count": 12_000, "sentence": SENTENCE}
    print_result(pa.Table.from_pylist([row]), "What was told", tuple(row), ("run_id",))
    assert all(fits(line, columns) for line in screen.lines())
    assert [word for word in (SYSTEM, IDS[0], "12,000", *SENTENCE.split()) if word not in screen.getvalue()] == []
    assert any(SYSTEM in line and IDS[0] in line for line in screen.lines()) == (columns == 80)


def test_systems_are_listed_with_their_addresses_where_there_is_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"run_id": "0123456789abcdef", "hosts": 12, "machines": 12_000, "snapshots": 100, "pending": 0}
    about |= {"skipped": 0, "generation": 0, "rolling": False, "goes_back_to": IDS[0], "failed": None}
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdout", screen)
    system._print([{"system": SYSTEM, **about, "address": "192.0.2.7:46697"}], as_json=False)
    heading, _, row, *_ = screen.lines()
    assert heading.split()[0] == "system"
    assert row.split()[0] == SYSTEM
    assert row.split()[-1] == "192.0.2.7:46697"
    assert "12000" in row


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_help_takes_the_width_of_the_terminal(columns: int, shows: Callable[..., list[str]]) -> None:
    lines = shows(columns, "run", "--help")
    longest = max(map(len, lines))
    assert columns - 15 < longest <= columns


@pytest.mark.contract
def test_a_real_terminal_says_how_wide_it_is(history: str) -> None:
    code, lines = typed([COMMAND, "verdicts", history], 60, clean_environment(TERM="xterm"))
    assert code == 0
    assert all(fits(line, 60) for line in lines)
    assert f"detector  {'no-payment-may-be-lost'}" in lines


@pytest.mark.contract
def test_what_goes_into_a_pipe_is_not_broken(history: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verdicts", history]) == 0
    assert SENTENCE in capsys.readouterr().out


def test_a_report_of_a_program_is_broken_between_words_and_a_command_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", screen)
    say(f"  to do: {SENTENCE}", wraps=True)
    assert " ".join(line.strip() for line in screen.lines()) == f"to do: {SENTENCE}"
    assert all(fits(line, 60) for line in screen.lines())
    say(command := f"ray-snapshot diagnose {SYSTEM} --address 192.0.2.7:46697")
    assert screen.lines()[-1] == command


def test_lines_are_broken_between_words_and_hang() -> None:
    assert wrapped("short", 10) == ["short"]
    assert wrapped("  to do: raise it to two, or do not wait", 20) == [
        "  to do: raise it to",
        "      two, or do not",
        "      wait",
    ]
    assert wrapped("name  one two three", 14, hanging=6) == ["name  one two", "      three"]
    assert wrapped("a " + "x" * 30 + " b", 10) == ["a", "    " + "x" * 30, "    b"]
    assert wrapped("not-broken-at-hyphens or-anywhere", 12) == ["not-broken-at-hyphens", "    or-anywhere"]
    assert wrapped("any length at all", None) == ["any length at all"]
    assert wrapped(" " * 30, 10) == [" " * 30]


def test_a_field_that_is_long_goes_on_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", screen)
    print_fields([("id", "7"), ("reason", "it was given up after ten seconds")])
    assert screen.lines() == ["id      7", "reason  it was given up after", "        ten seconds"]


def test_what_does_not_say_its_width_is_not_broken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert room_on(Terminal()) is None
    monkeypatch.setenv("COLUMNS", "0")
    assert room_on(Terminal()) is None
    monkeypatch.setenv("COLUMNS", "70")
    assert room_on(Terminal()) == 70
    with open(os.devnull) as nothing:
        assert room_on(nothing) is None
