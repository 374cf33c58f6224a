"""Runs the very line with which an error says how to see its run again."""

import os
import subprocess
import sys
from pathlib import Path

from clean import clean_environment

ROOT = Path(__file__).parents[2]


def check_replay(error: BaseException, trace: list[str]) -> None:
    """The command in this error prints what its run had traced, and ends well; a set prints its names in any order."""
    command = str(error).rpartition("replay: ")[2]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=clean_environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert trace
    assert [line.split()[:2] for line in lines[: len(trace)]] == [line.split()[:2] for line in trace]
