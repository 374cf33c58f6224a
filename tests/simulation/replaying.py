"""Runs the very line with which an error says how to see its run again."""

import os
import sys
from pathlib import Path

from clean import clean_environment, ran

ROOT = Path(__file__).parents[2]


def check_replay(error: BaseException, trace: list[str]) -> None:
    """The command in this error prints what its run had traced, and ends well; a set prints its names in any order."""
    command = str(error).rpartition("replay: ")[2]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = ran("sh", "-c", command, cwd=ROOT, env=clean_environment(PATH=path))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert trace
    assert [line.split()[:2] for line in lines[: len(trace)]] == [line.split()[:2] for line in trace]
