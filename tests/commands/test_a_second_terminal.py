"""`systems`, `snapshot` and `diagnose` in a terminal that knows nothing: clusters with a token, and without one."""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from clean import clean_environment, ran

from ray_snapshot.tested import minor

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
BOUND_S = 120.0
ASKED_FOR = {} if minor(ray.__version__) >= (2, 59) else {"RAY_AUTH_MODE": "token"}
"""How a program gets a cluster that asks for a token: by a bare `ray.init()`, but with older Rays."""
TOKEN = "0123456789abcdef" * 4


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a user types: a home, and nothing else."""

    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        return clean_environment(**{"HOME": str(self.home), **more})

    def type(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        given = [str(BIN / "ray-snapshot"), *command]
        environment = self.environment(**more)
        return ran(*given, env=environment, seconds=BOUND_S)

    @contextmanager
    def running(self, *command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """A program that has said its first word, until its stdin is closed."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(list(command), env=self.environment(**more), text=True, **pipes)  # type: ignore[call-overload]
        try:
            yield process
            process.communicate(timeout=BOUND_S)
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Watched:
    """A program that `ray-snapshot run` watches, with a cluster of its own."""

    terminal: Terminal
    told: str
    """The command that `run` has printed."""
    actor: int
    """The process of its actor."""

    @property
    def address(self) -> str:
        return self.told.rpartition(" ")[2]


@contextmanager
def watched(terminal: Terminal, name: str, **more: str) -> Iterator[Watched]:
    command = [str(BIN / "ray-snapshot"), "run", "--name", name, str(HERE / "holding.py")]
    with (
        tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        terminal.running(*command, folder, **more) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        told = next(line for line in process.stderr if "from another terminal" in line)
        greeting, _, actor = process.stdout.readline().rpartition(" ")
        assert greeting == "hello from"
        yield Watched(terminal, told.strip().partition("terminal: ")[2], int(actor))


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """With a token in its home, as `ray.init()` leaves it there."""
    home = tmp_path_factory.mktemp("home")
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(TOKEN)
    return Terminal(home)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def both(terminal: Terminal, stranger: Terminal) -> Iterator[tuple[Watched, Watched]]:
    """A cluster that asks for the token, and one that does not: as a bare `ray.init()` makes them."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        guarded = pool.submit(stack.enter_context, watched(terminal, "guarded", **ASKED_FOR))
        free = pool.submit(stack.enter_context, watched(stranger, "open", RAY_AUTH_MODE="disabled"))
        yield guarded.result(), free.result()


def healthy(done: subprocess.CompletedProcess[str], system: str) -> bool:
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.startswith(f"{system}: 2 actors, ")


pytestmark = pytest.mark.ray


def test_what_run_prints_can_be_pasted_into_another_terminal(both: tuple[Watched, Watched]) -> None:
    for item in both:
        program, *arguments = shlex.split(item.told)
        assert program == "ray-snapshot"
        assert healthy(item.terminal.type(*arguments), arguments[1])


@pytest.mark.nightly
def test_a_watcher_of_another_version_is_named_in_one_line(stranger: Terminal) -> None:
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        program = stranger.running(sys.executable, str(HERE / "another_version.py"), folder, RAY_AUTH_MODE="disabled")
        with program as process:
            assert process.stdout is not None
            address = ["--address", process.stdout.readline().strip()]
            named, all_ = stranger.type("diagnose", "other", *address), stranger.type("diagnose", *address)
    assert (named.returncode, all_.returncode) == (2, 4), (named, all_)
    for done in (named, all_):
        (line,) = done.stderr.splitlines()
        assert "the answer of other cannot be read here (AttributeError: " in line


def test_it_cannot_be_told_of_a_program_of_which_a_process_does_not_answer(both: tuple[Watched, Watched]) -> None:
    os.kill(both[1].actor, signal.SIGSTOP)
    try:
        done = both[1].terminal.type("diagnose", "open", "--address", both[1].address, "--timeout", "1")
    finally:
        os.kill(both[1].actor, signal.SIGCONT)
    assert (done.returncode, done.stderr) == (4, ""), done
    assert done.stdout.startswith("open: cannot be told: snapshot "), done
    assert "timed out waiting for the report of Desk-0; a process cannot answer while compiled code" in done.stdout, (
        done
    )


def test_systems_lists_those_of_every_cluster_with_its_address(
    both: tuple[Watched, Watched], terminal: Terminal
) -> None:
    done = terminal.type("systems", "--json")
    rows = {row["system"]: row["address"] for row in map(json.loads, done.stdout.splitlines())}
    assert {"guarded": both[0].address, "open": both[1].address}.items() <= rows.items(), done


def test_the_doctor_names_each_cluster_with_its_systems_and_who_asks_for_the_token(
    both: tuple[Watched, Watched], terminal: Terminal, stranger: Terminal
) -> None:
    found = diagnosed(terminal)
    guarded, free = (found[item.address] for item in both)
    assert (guarded["state"], free["state"]) == ("ok", "ok")
    assert guarded["found"].endswith("; systems: guarded")
    assert free["found"].endswith("answers, with the same Ray; systems: open")
    asks = minor(ray.__version__) >= (2, 52)
    assert ("asks for a token" in guarded["found"]) == asks
    assert (both[0].address in found["token"]["found"]) == asks
    found = diagnosed(stranger)
    assert found[both[0].address]["state"] == ("warning" if asks else "ok")
    assert ("RAY_AUTH_TOKEN" in found["token"]["remedy"]) == asks


def diagnosed(terminal: Terminal) -> dict[str, dict[str, str]]:
    """What `doctor` says there, by check; of clusters by their address."""
    done = terminal.type("doctor", "--json")
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert (done.returncode, done.stderr) == (any(row["state"] == "problem" for row in rows), "")
    return {row["found"].split()[0].rstrip(":") if row["check"] == "cluster" else row["check"]: row for row in rows}


@pytest.mark.nightly
def test_what_the_callers_environment_says_of_jobs_and_hooks_is_nothing_to_a_look(
    both: tuple[Watched, Watched], terminal: Terminal
) -> None:
    job = {
        "RAY_ADDRESS": both[0].address,
        "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {"pip": ["no-such-package"]}, "metadata": {}}',
        "RAY_RUNTIME_ENV_HOOK": "no.such.hook",
    }
    assert healthy(terminal.type("diagnose", "guarded", **job), "guarded")


@pytest.mark.skipif(minor(ray.__version__) < (2, 52), reason="clusters of this Ray ask for no token")
@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("system", "more", "words"),
    [
        ("guarded", {}, "asks for a token, and there is none in ~/.ray/auth_token: set RAY_AUTH_TOKEN"),
        ("guarded", {"RAY_AUTH_MODE": "disabled"}, "asks for a token, and RAY_AUTH_MODE=disabled is set: unset it"),
        ("guarded", {"RAY_AUTH_MODE": "token"}, "RAY_AUTH_MODE=token is set and there is no token: set RAY_AUTH_TOKEN"),
        ("guarded", {"RAY_AUTH_TOKEN_PATH": "/none"}, "RAY_AUTH_TOKEN_PATH is set but file cannot be opened"),
        ("nothing", {"RAY_AUTH_TOKEN": TOKEN}, "no system 'nothing' is running on this cluster; running: guarded"),
        (
            "guarded",
            {"RAY_AUTH_TOKEN": "wrong"},
            "refuses the token of RAY_AUTH_TOKEN: set RAY_AUTH_TOKEN to the token",
        ),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    system: str, more: dict[str, str], words: str, both: tuple[Watched, Watched], stranger: Terminal
) -> None:
    done = stranger.type("diagnose", system, "--address", both[0].address, **more)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ray-snapshot: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.nightly
def test_the_token_may_come_from_the_environment_and_no_file_is_written(
    both: tuple[Watched, Watched], stranger: Terminal
) -> None:
    done = stranger.type("diagnose", "guarded", "--address", both[0].address, RAY_AUTH_TOKEN=TOKEN)
    assert healthy(done, "guarded")
    assert not (stranger.home / ".ray").exists()
