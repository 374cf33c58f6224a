"""Running the apps of `tests/apps`, plainly and watched, in processes of their own on the tests' cluster."""

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clean import auth_mode, clean_environment, on_cluster

APPS = Path(__file__).parent.parent / "apps"
LONGEST_S = 120.0
"""A bound for everything that these tests wait for; when the machine is idle, an app takes between 2 and 15 seconds."""

COMMAND = str(Path(sys.executable).parent / "ray-snapshot")

_RAYS_OWN = re.compile(r"^\S*\(raylet\).*\n(?:.*\n(?:\s.*\n)+\w+: .*\n)?", re.MULTILINE)
"""What Ray itself reports of a program's processes, on the program's own stdout, whenever it hears of it.

A line, or one with a traceback behind it, whose beginning Ray may cut off; the apps indent nothing.
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What a program has printed, and its exit code."""

    output: str
    errors: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Runner:
    """Starts programs that find the cluster at `address` as Ray's users tell them: by an environment variable."""

    address: str
    auth_mode: str = field(default_factory=auth_mode)
    """A driver in this mode refuses workers that show no token: so it has to be the cluster's."""

    def start(self, *command: str, folder: Path = APPS) -> subprocess.Popen[str]:
        """A process that `finish` must wait for."""
        own = on_cluster(self.address, RAY_LOG_TO_DRIVER="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
        own["RAY_AUTH_MODE"] = self.auth_mode
        return self.start_in(command, folder, own)

    def start_in(self, command: tuple[str, ...], folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def finish(self, process: subprocess.Popen[str], say: str = "", longest: float = LONGEST_S) -> Done:
        """Wait for the end of a process, and fail with what it had printed if it does not come."""
        try:
            output, errors = process.communicate(say, timeout=longest)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise AssertionError(f"{process.args!r} has not ended in {longest} s:\n{output}\n{errors}") from None
        return Done(_RAYS_OWN.sub("", output), errors, process.returncode)

    def plain(self, *program: str) -> Done:
        """`python SCRIPT ...`."""
        return self.finish(self.start(sys.executable, *program))

    def command(self, *arguments: str, folder: Path = APPS) -> Done:
        """`ray-snapshot ...`; but for `run`, in a terminal that knows nothing of the cluster."""
        if arguments[0] == "run":
            return self.finish(self.start(COMMAND, *arguments, folder=folder))
        return self.finish(self.start_in((COMMAND, *arguments), folder, clean_environment()))

    def start_watched(self, name: str, *program: str) -> subprocess.Popen[str]:
        """`ray-snapshot run` of a program that stays for a while."""
        return self.start(COMMAND, "run", "--name", name, *program)

    @contextmanager
    def running(self, process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
        """A process that is ended with its block, whatever has become of it."""
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def watching(self, name: str, *program: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return self.running(self.start_watched(name, *program))

    def both(self, name: str, *program: str) -> tuple[Done, Done]:
        watched = self.start_watched(name, "--quiet", *program)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.finish, watched)
            return self.plain(*program), ended.result()
