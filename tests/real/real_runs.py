"""Running a program as its users do, in an environment made from nothing: plainly, watched, and with `rs.install()`."""

import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalogue import Program
from clean import clean_environment

BOUND_S = 300.0
"""No program takes a fifth of this on an idle machine."""
EVERY_S = 0.5
BIN = Path(sys.executable).parent
RUN = (str(BIN / "ray-snapshot"), "run", "--every", str(EVERY_S), "--detect", "deadlock,termination")
INSTALL = """import ray_snapshot as _rs
_rs.install({name!r}, every={every}, history={history!r}, detectors=["deadlock", "termination"])
"""
FAULTS = ("fault of ours", "is not watched", "ray-snapshot: deadlock in")
"""What must not be said of a program that is not stuck."""

_IS_LOGGED = re.compile(r"\d{4}-\d\d-\d\d |ray-snapshot: |.*\(raylet\)")
_CHANGING = (
    (re.compile(r"\bpid=\d+"), "pid=N"),
    (re.compile(r"\bip=[\d.]+"), "ip=N"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "0xN"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "ID"),
    (re.compile(r"File \"[^\"]*/([^/\"]+)\", line \d+"), r"File \1"),
    (re.compile(r"/tmp/\S+"), "/tmp/..."),
)
"""What differs between two runs of a program, in the text of its last exception."""


@dataclass(frozen=True, slots=True)
class Ended:
    lines: list[str]
    """The program's own: those that begin with `app:`; the rest is Ray's and its libraries', with times."""
    exit_code: int
    errors: str
    seconds: float

    @property
    def exception(self) -> str:
        """The traceback with which a program ends that fails, less what differs between any two runs."""
        if not self.exit_code:
            return ""
        begin = self.errors.rfind("\nTraceback (most recent call last)")
        lines = self.errors[begin:].splitlines() if begin >= 0 else []
        text = "\n".join(line for line in lines if not _IS_LOGGED.match(line))
        for changing, same in _CHANGING:
            text = changing.sub(same, text)
        return text.strip()

    @property
    def faults(self) -> list[str]:
        """Lines on stderr that no program should get to see."""
        return [line for line in self.errors.splitlines() if any(fault in line for fault in FAULTS)]


def free_port() -> str:
    """A port of the loopback interface that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def plainly(program: Program, environment: Mapping[str, str] | None = None) -> Ended:
    """`python PROGRAM ...`."""
    return _run((sys.executable, str(program.path)), program, environment)


def watched(program: Program, history: Path, environment: Mapping[str, str] | None = None) -> Ended:
    """`ray-snapshot run PROGRAM ...`, with a history."""
    return _run((*RUN, "--history", str(history), str(program.path)), program, environment)


def installed(program: Program, history: Path, environment: Mapping[str, str] | None = None) -> Ended:
    """`python PROGRAM ...` with `rs.install()` put in front of its first line."""
    with _folder() as folder:
        copy = folder / program.path.name
        first = INSTALL.format(name=program.path.stem, every=EVERY_S, history=str(history))
        copy.write_text(first + program.path.read_text())
        return _run((sys.executable, str(copy)), program, environment)


def environment_of(program: Program) -> dict[str, str]:
    """HOME, a PATH that begins with this environment's commands, and what the program's user has set."""
    own = clean_environment(**program.environment)
    own.pop("XDG_CONFIG_HOME", None)
    return own | {"PATH": f"{BIN}:{own['PATH']}"}


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="real-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: Sequence[str], program: Program, more: Mapping[str, str] | None) -> Ended:
    """Output and errors go to files: what Ray leaves running for a moment would hold a pipe open."""
    with _folder() as folder:
        told = [word.replace("FOLDER", str(folder / "own")) for word in program.arguments]
        told = [free_port() if word == "PORT" else word for word in told]
        own = environment_of(program) | dict(more or {})
        if program.is_job:
            command = (str(BIN / "ray"), "job", "submit", "--", *command)
        with (folder / "out").open("w") as out, (folder / "errors").open("w") as errors:
            begun = time.monotonic()
            process = subprocess.Popen(
                [*command, *told], cwd=program.path.parent, env=own, stdout=out, stderr=errors, stdin=subprocess.DEVNULL
            )
            try:
                code = process.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait(BOUND_S)
            seconds = time.monotonic() - begun
        lines = (folder / "out").read_text(errors="replace").splitlines()
        said = (folder / "errors").read_text(errors="replace")
        return Ended([line for line in lines if line.startswith("app:")], code, said, seconds)
