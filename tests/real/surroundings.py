"""What runs beside a program: a cluster, another job, the server of Ray Client; started for it, and ended by process."""

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from catalogue import Program
from real_runs import BIN, BOUND_S, environment_of, free_port
from started import started
from until import until

HERE = Path(__file__).parent
END_S = 60.0


@contextmanager
def around(program: Program) -> Iterator[dict[str, str]]:
    """The variables by which the program finds what it needs."""
    match program.surroundings:
        case "":
            yield {}
        case "client server":
            with _client_server(program) as settings:
                yield settings
        case "cluster":
            with _cluster(program) as settings:
                yield settings
        case "other job" | "other job, watched":
            with _cluster(program) as settings, _other_job(program, settings):
                yield settings
        case other:
            raise AssertionError(f"{other!r}: no such surroundings")


@contextmanager
def _cluster(program: Program) -> Iterator[dict[str, str]]:
    """`ray start --head`, as a user would start it on a machine of several; its files in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    dashboard = free_port()
    command = [BIN / "ray", "start", "--head", "--block", "--num-cpus=4", "--disable-usage-stats"]
    command += [f"--port={free_port()}", f"--temp-dir={folder}"]
    command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"]
    command += [f"--ray-client-server-port={free_port()}", f"--dashboard-agent-listen-port={free_port()}"]
    own = environment_of(program)
    try:
        with _ended_kindly(command, own):
            address = until((folder / "ray_current_cluster").read_text, seconds=BOUND_S, again=(OSError,))
            until(lambda: _listens(dashboard), seconds=BOUND_S, again=(OSError,))
            where = f"http://127.0.0.1:{dashboard}" if program.is_job else address
            yield {"RAY_ADDRESS": where, "RAY_AUTH_MODE": "token"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_kindly(command: list[str | Path], own: dict[str, str]) -> Iterator[None]:
    """`ray start --block` ends its own processes when it is asked to end; killed, it would leave them."""
    quiet = subprocess.DEVNULL
    with started(command, env=own, seconds=2 * BOUND_S, stderr=quiet) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(END_S)


def _listens(port: str) -> bool:
    with socket.create_connection(("127.0.0.1", int(port)), timeout=1):
        return True


@contextmanager
def _other_job(program: Program, settings: dict[str, str]) -> Iterator[None]:
    """A second program on the same cluster, which has an actor that the first one calls; watched, too, if so asked."""
    how = (
        [BIN / "ray-snapshot", "run", "--every", "0.5"]
        if program.surroundings.endswith("watched")
        else [sys.executable]
    )
    with _talking([*how, HERE / "other_job.py"], environment_of(program) | settings, "ready"):
        yield


@contextmanager
def _client_server(program: Program) -> Iterator[dict[str, str]]:
    """Both ends of Ray Client are told that there is no token: only the one that starts Ray makes one."""
    port = free_port()
    with _talking([sys.executable, HERE / "client_server.py", port], environment_of(program), "listening"):
        yield {"RAY_ADDRESS": f"ray://127.0.0.1:{port}"}


@contextmanager
def _talking(command: list[str | Path], own: dict[str, str], word: str) -> Iterator[None]:
    """A process that says `word` when it is ready, and ends with its input."""
    quiet = subprocess.DEVNULL
    with started(command, env=own, seconds=2 * BOUND_S, takes_input=True, stderr=quiet) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = next((line for line in process.stdout if word in line), "")
        assert said, f"{command[-1]} has ended"
        yield
        process.stdin.close()
        process.wait(END_S)
