"""Processes of the tests that end with their block: leaving `with Popen(...)` waits for ever for one that does not end."""

import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BOUND_S = 120.0


@contextmanager
def started(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    seconds: float = BOUND_S,
    takes_input: bool = False,
    stderr: int = subprocess.PIPE,
) -> Iterator[subprocess.Popen[str]]:
    """A process, its output and errors in pipes; killed past `seconds`, so that reading has a bound too, and with the block."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        text=True,
        stdin=subprocess.PIPE if takes_input else None,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    bound = threading.Timer(seconds, process.kill)
    bound.daemon = True
    bound.start()
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        bound.cancel()
