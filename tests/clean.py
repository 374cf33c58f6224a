"""The environment that tests run commands in: made from nothing, so that none works only for what a test brought along.

Ray turns token authentication on in the process that starts a cluster, by a variable that a child process would inherit; a
user's second terminal has no such variable. `test_clean.py` sees to it that every process of the tests is started with this.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path


def hear_signals() -> None:
    """What a shell starts in the background, or `nohup`, ignores these, and so would every program that is started here."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def clean_environment(**more: str) -> dict[str, str]:
    """HOME and PATH, where this test run keeps settings in place of the user's, and what a test says."""
    return {name: os.environ[name] for name in ("HOME", "PATH", "XDG_CONFIG_HOME") if name in os.environ} | more


def auth_mode() -> str:
    """The mode of the cluster that this process has started; before Ray 2.59 it asked for no token by itself."""
    return os.environ.get("RAY_AUTH_MODE", "disabled")


def on_cluster(address: str, **more: str) -> dict[str, str]:
    """The same, for a program whose `ray.init()` is to reach the tests' cluster: what Ray asks of its users for that."""
    return clean_environment(RAY_ADDRESS=address, RAY_AUTH_MODE=auth_mode(), **more)


def ran(
    *command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, seconds: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, in a clean environment if it is given none."""
    env = clean_environment() if env is None else env
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
