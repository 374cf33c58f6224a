"""A command that only looks at a running cluster: quiet, in bounded time, and untouched by the job that it may run inside.

Imports Ray nowhere: what Ray reads from the environment when it is imported must be settled before.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ray_snapshot.streams import Shown

ASKED_FOR = "RAY_BACKEND_LOG_LEVEL"
"""Ray's own variable for its log: where it is set, Ray's lines are shown."""

_OF_THE_JOB = ("RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_RUNTIME_ENV_HOOK", "RAY_OVERRIDE_JOB_RUNTIME_ENV")
"""What Ray would make this process a part of: a submitted job, its runtime environment, a hook that changes it."""

FAULT = 2

GONE_S, _LOOK_S = 5.0, 0.5
"""So long something that is asked may be gone before the process ends, and how often it is looked for."""


@contextmanager
def visitor() -> Iterator[None]:
    """Ray's own lines do not reach stderr, and Ray does not count this process as a part of any submitted job."""
    for name in _OF_THE_JOB:
        os.environ.pop(name, None)
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # `uv run` would upload the current folder
    if ASKED_FOR in os.environ or not _is_on_stderr():
        yield
        return
    own, kept = sys.stderr, os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        with (
            open(kept, "w", buffering=1, errors="backslashreplace", closefd=False) as ours,
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", module=r"ray\.")
            sys.stderr = Shown(ours)
            yield
    finally:
        sys.stderr = own
        os.dup2(kept, 2)
        os.close(kept)


def _is_on_stderr() -> bool:
    """Whether what we print goes where Ray writes by itself, and not to a test or a file of ours."""
    try:
        return sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


@contextmanager
def at_most(seconds: float, complain: Callable[[], None]) -> Iterator[None]:
    """End the process with exit code 2 if the block, which may be inside Ray where nothing interrupts, takes longer."""

    def end() -> None:
        complain()
        sys.stderr.flush()
        os._exit(FAULT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def as_long_as(lives: Callable[[], bool], complain: Callable[[], None]) -> Iterator[None]:
    """End the process with exit code 2 if what the block asks is gone for `GONE_S`: Ray waits a minute, and ends it with 1."""
    is_over = threading.Event()

    def watch() -> None:
        gone_s = 0.0
        while gone_s < GONE_S:
            if is_over.wait(_LOOK_S):
                return
            gone_s = 0.0 if lives() else gone_s + _LOOK_S
        complain()
        sys.stderr.flush()
        os._exit(FAULT)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
