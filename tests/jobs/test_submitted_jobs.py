"""`docs/howto/jobs.md`: its commands, on a cluster of `ray start` that asks for a token, from a terminal that is outside of it.

Run by `make test-libraries`: submitting needs Ray's dashboard.
"""

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from clean import clean_environment, ran
from started import started

pytestmark = [pytest.mark.libraries, pytest.mark.contract]

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "howto" / "jobs.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent
BOUND_S = 180.0
TOKEN = "0123456789abcdef" * 4
DEADLOCK = "ray-snapshot: deadlock in job ("


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def on_the_page(words: str) -> list[str]:
    """The `ray job submit` of the page that ends with these words."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("ray job submit ")]
    (found,) = [line for line in lines if line.endswith(words)]
    return shlex.split(found)


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and a terminal beside it with the token in its home."""

    home: Path
    dashboard: str

    def environment(self, **more: str) -> dict[str, str]:
        own = {"HOME": str(self.home), "PATH": f"{BIN}:/usr/bin:/bin", "RAY_USAGE_STATS_ENABLED": "0"}
        return clean_environment(**own | more)

    def submits(self) -> dict[str, str]:
        """What Ray asks of those who submit."""
        return self.environment(RAY_API_SERVER_ADDRESS=self.dashboard, RAY_AUTH_MODE="token")

    def type(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command as the page has it, with programs of this environment."""
        env = self.submits() if command[0] == "ray" else self.environment(**more)
        given = [str(BIN / command[0]), *command[1:]]
        return ran(*given, env=env, cwd=HERE / "apps", seconds=BOUND_S)

    def submit(self, words: str, *program: str) -> subprocess.CompletedProcess[str]:
        """The page's command that ends with these words; its `app.py` is this program."""
        return self.type(*on_the_page(words)[:-1], *program)

    @contextmanager
    def hanging(self, *options: str, job: str) -> Iterator[None]:
        """A job that hangs in a deadlock and has said so; stopped behind the block."""
        command = (
            *("ray", "job", "submit", "--no-wait", "--submission-id", job, "--working-dir", "."),
            *(*options[:2], "--", "ray-snapshot", "run", *options[2:], "job.py", "hang"),
        )
        done = self.type(*command)
        assert done.returncode == 0, done.stderr
        logs = [str(BIN / "ray"), "job", "logs", "--follow", job]
        with started(logs, env=self.submits() | {"PYTHONUNBUFFERED": "1"}, seconds=BOUND_S) as following:
            assert following.stdout is not None
            assert any(DEADLOCK in line for line in following.stdout), "its logs ended without a report"
        try:
            yield
        finally:
            self.type("ray", "job", "stop", job)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    (folder / "home/.ray").mkdir(parents=True)
    (folder / "home/.ray/auth_token").write_text(TOKEN)
    port = free_port()
    found = Place(folder / "home", f"http://127.0.0.1:{port}")
    command = [str(BIN / "ray"), "start", "--head", "--block", "--port", free_port(), "--num-cpus", "4"]
    command += ["--temp-dir", str(folder / "ray"), "--include-dashboard", "true"]
    command += ["--dashboard-host", "127.0.0.1", "--dashboard-port", port]
    command += ["--dashboard-agent-listen-port", free_port()]  # else one of another cluster may have it
    own = found.environment(RAY_AUTH_MODE="token")
    try:
        with started(command, env=own, seconds=10 * BOUND_S, stderr=subprocess.STDOUT) as head:
            assert head.stdout is not None
            said = []
            for line in head.stdout:
                said.append(line)
                if "--block" in line:
                    break
            else:
                pytest.fail(f"no cluster: {said}")
            yield found
            head.terminate()
            head.wait(BOUND_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_ends_as_its_program_does_and_its_history_is_where_the_page_says(place: Place) -> None:
    history = place.home / "histories"
    command = on_the_page("--history /var/lib/histories/app app.py")
    command = [*(str(history) if word.startswith("/var") else word for word in command[:-1]), "job.py", "end", "0"]
    done = place.type(*command)
    assert done.returncode == 0, done.stdout
    assert "ray-snapshot: watching; from another terminal: ray-snapshot diagnose job --address " in done.stdout
    assert "app: None None" in done.stdout
    listed = place.type("ray-snapshot", "list", str(history), "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {row["system"] for row in rows} == {"job"}, listed.stderr
    failed = place.submit("-- ray-snapshot run app.py", "job.py", "end", "7")
    assert failed.returncode == 1
    assert "Job entrypoint command failed with exit code 7" in failed.stdout


def test_a_deadlock_makes_a_job_fail_and_the_report_is_in_its_logs(place: Place) -> None:
    done = place.submit("--exit-on deadlock app.py", "job.py", "hang")
    assert done.returncode == 1
    assert "Job entrypoint command failed with exit code 3" in done.stdout
    report = done.stdout[done.stdout.index(DEADLOCK) :]
    assert " in Account.transfer (job.py:" in report
    assert "so that Account.deposit (called at job.py:" in report


def test_what_cannot_be_watched_makes_a_job_fail_with_the_reason_in_its_logs(place: Place) -> None:
    done = place.submit("-- ray-snapshot run app.py", "nothing.py")
    assert "Job entrypoint command failed with exit code 2" in done.stdout
    assert done.stdout.count("ray-snapshot: error: ") == 2, "once in the logs, and once more in the status"


def test_a_job_that_hangs_is_diagnosed_from_a_terminal_and_by_a_job_and_leaves_its_history(place: Place) -> None:
    history = str(place.home / "hanging")
    brought = {"env_vars": {"SAID": "by the job"}, "worker_process_setup_hook": "job.hook"}
    runtime_env = ("--runtime-env-json", json.dumps(brought))
    with place.hanging(*runtime_env, "--history", history, job="hangs"):
        logs = place.type("ray", "job", "logs", "hangs").stdout
        assert "app: by the job by the job" in logs
        beside = place.type("ray-snapshot", "diagnose", "job")
        assert (beside.returncode, beside.stderr.replace("\n", "")) == (3, ""), beside.stderr
        assert DEADLOCK in beside.stdout
        assert "_ray_pkg_" not in beside.stdout.partition("  deadlock: ")[0]
        submitted = place.submit("-- ray-snapshot diagnose app", "job")
        assert "Job entrypoint command failed with exit code 3" in submitted.stdout
        assert DEADLOCK in submitted.stdout
    status = place.type("ray", "job", "status", "hangs")
    assert "was stopped" in status.stdout + status.stderr
    verdicts = place.type("ray-snapshot", "verdicts", history, "--detector", "deadlock", "--json")
    rows = [json.loads(line) for line in verdicts.stdout.splitlines()]
    assert rows[-1]["holds"] is True
