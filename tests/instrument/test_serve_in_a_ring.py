"""What two Serve deployments wait for that ask each other is not known, and that is what is said; it needs Serve."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from app_runner import LONGEST_S, Done, Runner
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.libraries, pytest.mark.contract]

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMAND = str(Path(sys.executable).parent / "ray-snapshot")
UNKNOWN = 4


@pytest.fixture
def serving(runner: Runner) -> Iterator[Runner]:
    """What Serve has started is ended behind the test: it outlives its program."""
    yield runner
    ending = "import ray; from ray import serve; ray.init(); serve.shutdown()"
    assert runner.finish(runner.start(sys.executable, "-c", ending)).exit_code == 0


def _start(runner: Runner, name: str, at_once: str) -> subprocess.Popen[str]:
    return runner.start(COMMAND, "run", "--name", name, "serve_in_a_ring.py", at_once, folder=EXAMPLES)


def test_deployments_that_wait_for_each_other_are_named_as_what_cannot_be_told(serving: Runner) -> None:
    program = _start(serving, "ring", "1")

    def diagnosis() -> Done:
        return serving.command("diagnose", "ring", "--address", serving.address)

    who = r".*ServeReplica:prices:Prices-0.*"  # and others, or not: a generator may count as active
    stuck = re.compile(rf"deadlock: Deadlock cannot be told: {who} can move only by what was not observed: .*")
    place = re.compile(r"waits for ServeReplica:stock:Stock-0 in \S+ \(\S*serve_in_a_ring\.py:33\)")
    try:
        found = until(
            diagnosis, good=lambda found: all(one.search(found.output) for one in (stuck, place)), seconds=LONGEST_S
        )
    finally:
        program.kill()
        program.communicate()
    assert found.exit_code == UNKNOWN
    told = stuck.search(found.output)
    assert told is not None
    assert re.search(r"thread \S+ \(_run_user_code_event_loop\)[^,]* of ServeReplica:prices:Prices-0", told[0]), told[0]


def test_with_room_for_two_requests_they_answer(serving: Runner) -> None:
    done = serving.finish(_start(serving, "no-ring", "2"))
    assert (done.exit_code, done.output) == (0, "the tea is worth 6\n"), done.errors
    assert "no deadlock" in done.errors
