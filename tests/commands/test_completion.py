"""Tab: a real bash completes our commands, by typer's script. Nothing heavy is imported for it."""

import sys
from pathlib import Path

import pytest
from clean import clean_environment, ran

pytestmark = pytest.mark.contract

BIN = Path(sys.executable).parent
BOUND_S = 120.0
COMPLETING = "_RAY_SNAPSHOT_COMPLETE"
HEAVY = ("ray", "pyspark", "pyarrow", "deltalake", "numpy", "matplotlib")

IN_BASH = """
eval "$(ray-snapshot --show-completion)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_ray_snapshot_completion ray-snapshot
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ray-snapshot", "dia"), ["diagnose"]),
        (("ray-snapshot", "run", "--on-deadlock", ""), ["report", "raise", "exit"]),
        (("ray-snapshot", "list", "h"), []),  # bash offers the files
    ],
)
def test_bash_offers_commands_and_values_and_else_files(words: tuple[str, ...], offered: list[str]) -> None:
    env = clean_environment()
    done = ran(
        "bash",
        "--norc",
        "--noprofile",
        "-c",
        IN_BASH,
        "bash",
        *words,
        env={**env, "PATH": f"{BIN}:{env['PATH']}"},
        seconds=BOUND_S,
    )
    assert done.stdout.split() == offered, done


def test_nothing_heavy_is_imported_while_a_person_waits() -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr))\n"
        "from ray_snapshot.cli import main\nmain([])"
    )
    env = clean_environment(**{COMPLETING: "complete_bash", "COMP_WORDS": "ray-snapshot d", "COMP_CWORD": "1"})
    done = ran(sys.executable, "-c", code, env=env, seconds=BOUND_S)
    assert "diagnose" in done.stdout
    assert done.stderr.strip() == "[]"
