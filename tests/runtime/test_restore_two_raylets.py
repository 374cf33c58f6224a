"""A node is gone while hosts on it work: the system goes on, on the one that comes in its place."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from clean import clean_environment, ran

pytestmark = pytest.mark.contract


@pytest.mark.ray
@pytest.mark.nightly
def test_a_node_that_goes_takes_nothing_with_it() -> None:
    folder = tempfile.mkdtemp(prefix="rs-", dir="/tmp")
    try:
        done = ran(
            sys.executable,
            str(Path(__file__).with_name("two_raylets.py")),
            env=clean_environment(RAY_TMPDIR=folder),
            seconds=400,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["nodes"], found["moved"], found["tokens"], found["alarms"]) == (2, True, 800, [])
