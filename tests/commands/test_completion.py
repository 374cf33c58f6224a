"""Tab: a real bash completes our commands; zsh and fish are asked as their scripts ask. Nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from clean import clean_environment

from ray_snapshot import cli
from ray_snapshot.cli import COMPLETING, main

BIN = Path(sys.executable).parent
BOUND_S = 120.0
ALL = typer.main.get_command(cli.make_app()).commands  # type: ignore[attr-defined]
HEAVY = ("ray", "pyspark", "pyarrow", "deltalake", "numpy", "matplotlib")

IN_BASH = """
eval "$(ray-snapshot completion bash)"
complete -p ray-snapshot >&2
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ray_snapshot_completion ray-snapshot
printf '%s\\n' "${COMPREPLY[@]}"
"""


def environment(**more: str) -> dict[str, str]:
    found = clean_environment(**more)
    return {**found, "PATH": f"{BIN}:{found['PATH']}"}


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment(**more), capture_output=True, text=True, timeout=BOUND_S, check=False
    )


def in_bash(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    done = run(["bash", "--norc", "--noprofile", "-c", IN_BASH, "bash", *words])
    assert done.returncode == 0, done
    assert done.stderr.strip() == "complete -o default -F _ray_snapshot_completion ray-snapshot"
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ray-snapshot", "dia"), ["diagnose"]),
        (("ray-snapshot", "run", "--on-d"), ["--on-deadlock"]),
        (("ray-snapshot", "run", "--on-deadlock", ""), ["report", "raise", "exit"]),
        (("ray-snapshot", "completion", "f"), ["fish"]),
        (("ray-snapshot", "list", "--sys"), ["--system"]),
        (("ray-snapshot", "list", "h"), []),  # bash offers the files
        (("ray-snapshot", "run", "--history", "h"), []),
        (("ray-snapshot", "nothing", "h"), []),
    ],
)
def test_bash_offers_commands_options_and_values_and_else_files(words: tuple[str, ...], offered: list[str]) -> None:
    assert in_bash(*words) == offered


def asked(shell: str, typed: str, **more: str) -> str:
    """The answer to what the script of that shell asks."""
    told = {COMPLETING: f"complete_{shell}", "_TYPER_COMPLETE_ARGS": typed, **more}
    return run([str(BIN / "ray-snapshot")], **told).stdout


def test_zsh_gets_each_with_what_it_does() -> None:
    first, *_ = asked("zsh", "ray-snapshot dia").splitlines()
    assert first.startswith('_arguments \'*: :(("diagnose":"Say who waits for whom, now')
    assert '"raise"' in asked("zsh", "ray-snapshot run --on-deadlock ")
    assert asked("zsh", "ray-snapshot list h").strip() == "_files"


def test_fish_gets_each_with_what_it_does() -> None:
    telling = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert asked("fish", "ray-snapshot dia", **telling).startswith("diagnose\tSay who waits for whom, now")
    assert asked("fish", "ray-snapshot run --on-deadlock r", **telling).split() == ["report", "raise"]
    assert asked("fish", "ray-snapshot list h", **telling).strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_us(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert f"{COMPLETING}=complete_{shell}" in capsys.readouterr().out


def test_another_shell_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    said = capsys.readouterr().err
    assert "'bash', 'zsh', 'fish'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", ["ray-snapshot d", "ray-snapshot diagnose --"])
def test_nothing_heavy_is_imported_while_a_person_waits(words: str) -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr))\n"
        "from ray_snapshot.cli import COMPLETING, main\nmain([])"
    )
    told = {COMPLETING: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = run([sys.executable, "-c", code], **told)
    assert "diagnose" in done.stdout or "--address" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "place", "names", "has_options"),
    [("ray-snapshot lis", "1", "all", False), ("ray-snapshot list --sys", "2", "list", True)],
)
def test_only_what_is_asked_for_is_built(
    words: str, place: str, names: str, has_options: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To build all commands with their options takes half of the time that a person waits."""
    monkeypatch.setenv(COMPLETING, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", place)
    commands = typer.main.get_command(cli._completing()).commands  # type: ignore[attr-defined]
    assert set(commands) == (set(ALL) if names == "all" else {names})
    assert any(len(one.params) > 1 for one in commands.values()) == has_options


def test_help_breaks_no_name_at_its_hyphens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in range(60, 100, 3):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["run", "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.endswith("-")] == []
