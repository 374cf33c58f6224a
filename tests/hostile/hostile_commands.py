"""Every command of `ray-snapshot` that takes a history, with arguments that make it read all it can; and how to run one."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

sys.path.append(str(Path(__file__).parents[1]))  # where a child's process has none of pytest's folders

from clean import ran

from ray_snapshot.cli import each_command, make_app
from ray_snapshot.spark_jobs import JOBS

PROGRAM = "innocent.py"
"""A program of the user's, which does not touch the history."""

SERVER = "serve"
"""It does not end by itself: its pages are tried one by one."""

_PARTS = ("", "/waits", "/machines", "/channels", "/machine?name=driver")
PAGES = ("/", "/h/h", *(f"/h/h/s/latest{part}" for part in _PARTS))

READING: Mapping[str, Sequence[Sequence[str]]] = {
    "list": [["{history}"], ["{history}", "--json"]],
    "show": [["{history}"], ["{history}", "--json"]],
    "verdicts": [["{history}"], ["{history}", "--json"]],
    "conservation": [["{history}"], ["{history}", "--json"]],
    "since": [["{history}"], ["{history}", "--json"]],
    "diff": [["{history}"], ["{history}", "-2", "latest", "--json"]],
    "sql": [["{history}", "SELECT * FROM machines"], ["{history}", "SELECT * FROM verdicts", "--json"]],
    "verify": [["{history}"], ["{history}", "--json"]],
    "compact": [["{history}"], ["{history}", "--keep-every", "1h"]],
    "vacuum": [["{history}", "--keep-hours", "0"], ["{history}", "--keep", "1d"]],
    "doctor": [["{history}"], ["{history}", "--json"]],
    "report": [["{history}"], ["{history}", "latest", "--markdown"]],
    "witness": [["{history}", "latest"], ["{history}", "latest", "--json"], ["{history}", "latest", "--from", "-2"]],
    "explore": [["--by-hand", "--from", "{history}", "latest"]],
    "blame": [["{history}"], ["{history}", "latest", "--json"], ["{history}", "--detector", "conservation"]],
    "restore": [["{history}", "latest", PROGRAM]],
    "run": [["--history", "{history}", PROGRAM]],
    "analyze": [["{history}", job, *(["--predicate", "deadlock"] if job == "possibly" else [])] for job in JOBS],
}


def commands_on_histories() -> set[str]:
    """The names of all commands that have a parameter for a history, by what the command line itself says."""
    commands = each_command(typer.main.get_command(make_app()))
    every = {
        words[0]
        for words, one in commands
        if len(words) == 1 and {"history", "start"} & {item.name for item in one.params}
    }
    return every - {SERVER}


def lines(name: str, history: Path) -> list[list[str]]:
    return [[name, *(item.format(history=history) for item in given)] for given in READING[name]]


def as_process(line: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user would, with an environment made from nothing."""
    (folder / PROGRAM).write_text("print('done')\n")
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **more}
    return ran(Path(sys.executable).with_name("ray-snapshot"), *line, cwd=folder, env=environment)
