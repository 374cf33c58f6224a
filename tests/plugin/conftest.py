"""A suite of somebody else's, with tests that hang; it runs in a process of its own, in an environment made from nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from clean import clean_environment, on_cluster

SUITE = Path(__file__).parent / "suite.py"
LONGEST_S = 240.0
HOME = os.environ["HOME"]
"""Where a cluster's token is; `pytester` changes it."""


@dataclass(frozen=True, slots=True)
class Ran:
    text: str
    exit_code: int
    outcomes: dict[str, str] = field(default_factory=dict)
    """By test: PASSED, FAILED, ERROR."""


Suite = Callable[..., Ran]


@pytest.fixture
def suite(pytester: pytest.Pytester, ray_cluster: None) -> Suite:
    """Runs tests of `suite.py` with these arguments; `own`: with a cluster of their own, that their fixture starts."""
    import ray

    address = ray.get_runtime_context().gcs_address
    pytester.makepyfile(test_bank=SUITE.read_text(encoding="utf-8"))

    def run(*arguments: str, own: bool = False) -> Ran:
        environment = clean_environment(OWN_CLUSTER="1") if own else on_cluster(address)
        command = (sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *arguments)
        try:
            done = subprocess.run(
                command,
                cwd=pytester.path,
                env={**environment, "HOME": HOME, "RAY_LOG_TO_DRIVER": "0"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"pytest has not ended in {LONGEST_S} s:\n{error.stdout}") from None
        found = re.findall(r"^(PASSED|FAILED|ERROR) test_\w+\.py::(\S+)", done.stdout, re.MULTILINE)
        return Ran(done.stdout, done.returncode, {name: outcome for outcome, name in found})

    return run
