"""`ray_snapshot/commands/exit_codes.py`: every command is there, and every exit code is what the command ends with."""

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from ray_snapshot import cli
from ray_snapshot.commands import exit_codes

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {words[-1] for words, _ in cli.each_command(typer.main.get_command(cli.make_app()))}

TESTED: dict[tuple[str, int], str] = {
    ("run", 0): "tests/instrument/test_apps_stay_as_they_are.py::test_a_program_ends_with_its_own_exit_code_and_last_words",
    ("run", 3): "tests/instrument/test_apps_that_hang.py::test_the_app_is_ended_with_code_3_and_the_report_is_on_stderr",
    ("restore", 0): "tests/runtime/test_restore_command.py::",
    ("systems", 0): "tests/instrument/test_apps_from_outside.py::",
    ("snapshot", 0): "tests/runtime/test_runtime_contract.py::",
    ("diagnose", 0): "tests/instrument/test_apps_from_outside.py::test_diagnose_says_healthy_of_a_program_that_only",
    ("diagnose", 3): "tests/instrument/test_apps_from_outside.py::test_diagnose_draws_who_waits_for_whom",
    ("diagnose", 4): "tests/instrument/test_apps_from_outside.py::test_diagnose_cannot_tell_of_an_actor",
    ("since", 1): "tests/commands/test_question_commands.py::test_since_exits_with_1_and_says_so_where_a_detector_failed",
    ("verify", 1): "tests/history/test_history_commands.py::test_verify_exits_1_and_names_each_snapshot",
    ("analyze", 0): "tests/spark/test_spark_command.py::test_the_answer_is_a_table_and_parquet",
    ("analyze", 1): "tests/spark/test_spark_command.py::test_a_detector_that_fails_is_named_with_its_reason",
    ("simulate", 1): "tests/simulation/test_simulate_command.py::test_a_protocol_that_is_wrong_is_told",
    ("witness", 0): "tests/witness/test_witness_on_ray.py::test_every_snapshot_of_a_run_is_proven",
    ("witness", 1): "tests/witness/test_witness_on_ray.py::test_a_history_that_was_tampered_with_is_caught",
    ("blame", 0): "tests/witness/test_blame.py::test_that_all_is_right_ends_with_0",
    ("blame", 1): "tests/witness/test_blame.py::test_it_is_told_and_ends_with_1",
    ("blame", 4): "tests/witness/test_blame.py::test_that_it_cannot_be_told_ends_with_4",
    ("explore", 1): "tests/testing/test_explore_command.py::test_a_counterexample_is_told_and_ends_with_1",
    ("explore", 4): "tests/testing/test_explore_command.py::test_a_search_that_was_stopped_ends_with_4",
    ("doctor", 0): "tests/doctor/test_asking.py::test_it_ends_with_1_if_there_is_a_problem_and_says_what_there_is",
    ("doctor", 1): "tests/doctor/test_asking.py::test_it_ends_with_1_if_there_is_a_problem",
    ("serve", 0): "tests/commands/test_serve.py::test_it_prints_the_address_to_open_shows_a_history_and_ends_with_ctrl_c",
    ("top", 0): "tests/commands/test_top.py::test_it_looks_at_a_system_of_another_program_and_ends_when_that_ends",
    ("demo", 0): "tests/examples/test_demo_command.py::",
}  # fmt: skip
"""What needs Ray or Spark is done elsewhere."""


def test_every_command_is_in_the_table_and_every_code_of_it_is_tried() -> None:
    assert exit_codes.OF.keys() == COMMANDS
    tried = {*TESTED, *((name, 0) for name in HERE)}
    assert tried == {(name, code) for name, codes in exit_codes.OF.items() for code in codes}
    for where in TESTED.values():
        path, _, name = where.partition("::")
        assert f"def {name or 'test_'}" in (ROOT / path).read_text(encoding="utf-8"), where


def test_the_codes_of_every_command_are_those_of_the_command_line() -> None:
    assert set(exit_codes.OF_EVERY) == {
        value for name, value in vars(cli).items() if name[0].isupper() and type(value) is int
    }


def test_at_most_18_commands_are_listed_each_with_its_summary_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for group, most in ((), 18), (("history",), 7):
        assert cli.main([*group, "--help"]) == 0
        said = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        summaries = [line.split(maxsplit=1)[1] for line in said]
        assert len(said) <= most
        assert [line for line in summaries if len(line) > 60 or line.endswith("...")] == []


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_says_what_the_command_ends_with(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(exit_codes.epilog(command).split()) in said


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_what_is_asked_wrongly_is_one_line_and_exit_code_2(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--no-such-option"]) == cli.FAULT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("ray-snapshot: error: ")
    assert said.err.count("\n") == 1


HERE: dict[str, Callable[[str, str], list[str]]] = {
    "list": lambda history, _: ["history", "list", history],
    "show": lambda history, _: ["show", history, "latest"],
    "report": lambda history, out: ["report", history, "--out", f"{out}.html"],
    "verdicts": lambda history, _: ["verdicts", history],
    "conservation": lambda history, _: ["conservation", history],
    "since": lambda history, _: ["ask", history, "since"],
    "diff": lambda history, _: ["ask", history, "diff"],
    "sql": lambda history, _: ["sql", history, "SELECT count(*) FROM machines"],
    "verify": lambda history, _: ["verify", history],
    "compact": lambda history, _: ["compact", history],
    "vacuum": lambda history, _: ["vacuum", history],
    "synth": lambda _, new: ["synth", "--machines", "16", "--snapshots", "2", "--out", new],
    "explore": lambda _, __: ["explore", "ray_snapshot.examples.bank_without_ray:bank", "--never", "deadlock"],
    "simulate": lambda _, new: ["simulate", "--topology", f"{new}.topology", "--events", f"{new}.events"],
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("codes") / "history")
    assert cli.main(["synth", "--machines", "16", "--snapshots", "3", "--out", folder]) == 0
    return folder


@pytest.mark.parametrize("command", sorted(HERE))
def test_what_can_be_done_ends_with_0(command: str, history: str, tmp_path: Path) -> None:
    (tmp_path / "new.topology").write_text("2\nN1 3\nN2 0\nN1 N2\nN2 N1\n")
    (tmp_path / "new.events").write_text("send N1 N2 1\nsnapshot N1\n")
    assert cli.main(HERE[command](history, str(tmp_path / "new"))) == 0
