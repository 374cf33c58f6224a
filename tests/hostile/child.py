"""A process of its own that carries out requests one by one, and is watched: it may neither hang nor end nor take a gigabyte.

The parent asks by a line of JSON, the child answers by one. As a program, this file runs command lines of `ray-snapshot`.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ray_snapshot import cli

SECONDS = 60
"""A request that takes longer hangs: it takes a quarter of a second as a rule."""

MOST_BYTES = 1_000_000_000
"""So much memory may be taken for a request."""


class Said(NamedTuple):
    code: int
    out: str
    err: str


def said_by(line: Sequence[str]) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(line)
    return Said(code, out.getvalue(), err.getvalue())


def peak() -> int:
    """The most memory that this process has had since `forget_peak`, in bytes; not that of whom it was forked from."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024
    raise AssertionError("no peak is known")


def forget_peak() -> int:
    """Measure anew from now on; returns what this process has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def serve(answer: Callable[[Any], Any], seconds: float = SECONDS) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a native library prints is no answer
    for line in sys.stdin:
        faulthandler.dump_traceback_later(seconds - 5)
        found = answer(json.loads(line))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(found), file=answers, flush=True)


class EndedError(Exception):
    """The child has ended, or did not answer in time; with the end of what it printed."""


class Child:
    """The parent's part: a program that calls `serve`, started with an environment made from nothing."""

    def __init__(self, *command: str, seconds: float = SECONDS, **variables: str) -> None:
        self.seconds = seconds
        self.log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed in `close`
        environment = {"HOME": str(Path.home()), "PATH": "/usr/bin:/bin", **variables}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, text=True,
        )  # fmt: skip

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Any) -> Any:
        """The answer to a request; raises `EndedError`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        answered, _, _ = select.select([self.process.stdout], [], [], self.seconds)
        line = self.process.stdout.readline() if answered else ""
        if line:
            return json.loads(line)
        what = "its process ended" if answered else f"it did not end in {self.seconds} s"
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 3_000))
        raise EndedError(f"{what}: {self.log.read().decode(errors='replace')}")

    def close(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.communicate()
        self.log.close()


def run_all(lines: Sequence[Sequence[str]]) -> dict[str, Any]:
    """What each of some commands said, and how much memory they took together."""
    before = forget_peak()
    return {"said": [said_by(line) for line in lines], "bytes": peak() - before}


if __name__ == "__main__":
    serve(run_all)
