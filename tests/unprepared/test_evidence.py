"""What is seen of processes that are none of ours: real ones, looked at as a node's task looks at them."""

import sys

import pytest
from clean import clean_environment
from started import started

from ray_snapshot.unprepared.evidence import examine

PROGRAMS = {
    "sleeps": "import time; print('ready', flush=True); time.sleep(600)",
    "naps": "import time; print('ready', flush=True)\nwhile True: time.sleep(1)",
    "waits": "import threading; print('ready', flush=True); threading.Event().wait()",
    "reads": "import sys; print('ready', flush=True); sys.stdin.read()",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.by_day(2)
def test_a_thread_that_sleeps_is_told_from_one_that_waits(name: str) -> None:
    """Ray's waits stand in no sleep of Python's; where the kernel does not tell, nothing is said of either."""
    command = [sys.executable, "-c", PROGRAMS[name]]
    with started(command, env=clean_environment(), seconds=60, takes_input=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        seen = examine([program.pid], 1.5, [])[program.pid]
    (first,) = (thread for thread in seen["switches"] if thread[2])
    assert first[3] == (name in ("sleeps", "naps"))
    assert seen["cpu_s"] < 0.5
