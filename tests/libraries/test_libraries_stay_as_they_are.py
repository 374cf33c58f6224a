"""Programs that use Ray's own libraries print the same and end in the same way, whether they are watched or not.

Run by `make test-libraries`, in an environment that has the libraries and uvloop; each program starts a Ray of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from started import started

pytestmark = pytest.mark.libraries

APPS = Path(__file__).parent / "apps"
BOUND_S = 300.0
COMMAND = str(Path(sys.executable).parent / "ray-snapshot")
PLAIN, WATCHED = (sys.executable,), (COMMAND, "run", "--every", "0.25")


def _run(how: tuple[str, ...], program: str, *arguments: str) -> tuple[list[str], int, str]:
    """(what it prints itself, exit code, errors) of a program in an environment made from nothing."""
    command = (*how, f"{program}.py", *arguments)
    done = subprocess.run(
        command, cwd=APPS, env=_environment(program), capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    lines = [
        line for line in done.stdout.splitlines() if line.startswith("app:")
    ]  # the rest is the libraries', with times
    return lines, done.returncode, done.stderr


def _environment(program: str) -> dict[str, str]:
    """Made from nothing; both ends of Ray Client are told that there is no token: only the one that starts Ray makes one."""
    own = {"RAY_AUTH_MODE": "disabled"} if program == "client" else {}
    return {name: os.environ[name] for name in ("HOME", "PATH")} | own


def _free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def _assert_same(program: str, plainly: str, watched: str) -> str:
    """Both runs, with arguments of their own, print the same; returns what is said of the watched one on stderr."""
    expected, code, errors = _run(PLAIN, program, plainly)
    assert (code, expected[-1:]) == (0, ["app: the end"]), errors
    output, code, errors = _run(WATCHED, program, watched)
    assert (output, code) == (expected, 0), errors
    assert "fault of ours" not in errors
    assert "is not watched" not in errors
    return errors


def test_serve_answers_over_http_and_by_handles_as_it_does_unwatched() -> None:
    _assert_same("serving", _free_port(), _free_port())


def test_tune_ends_its_trials_as_it_does_unwatched_those_that_fail_too(tmp_path: Path) -> None:
    _assert_same("tuning", str(tmp_path / "plain"), str(tmp_path / "watched"))


def test_data_computes_what_it_computes_unwatched(tmp_path: Path) -> None:
    _assert_same("data", str(tmp_path / "plain"), str(tmp_path / "watched"))


@pytest.fixture
def client_address() -> Iterator[str]:
    port = _free_port()
    command = [sys.executable, "client_server.py", port]
    own = _environment("client")
    quiet = subprocess.DEVNULL
    with started(command, cwd=APPS, env=own, seconds=10 * BOUND_S, takes_input=True, stderr=quiet) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        yield f"ray://127.0.0.1:{port}"
        server.stdin.close()
        server.wait(BOUND_S)


def test_a_program_that_connects_with_ray_client_runs_plainly_and_is_told_so_in_a_line(client_address: str) -> None:
    said = _assert_same("client", client_address, client_address)
    assert said.count("ray-snapshot: nothing is watched: over Ray Client") == 1
