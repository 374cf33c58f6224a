"""A node is gone while hosts on it work: the system goes on, on the one that comes in its place."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from clean import clean_environment, ran

pytestmark = pytest.mark.contract


@pytest.mark.ray
@pytest.mark.nightly
def test_a_node_that_goes_takes_nothing_with_it() -> None:
    program = Path(__file__).with_name("two_raylets.py")
    with TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = ran(sys.executable, program, env=clean_environment(RAY_TMPDIR=folder), seconds=400)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["nodes"], found["moved"], found["tokens"], found["alarms"]) == (2, True, 800, [])
