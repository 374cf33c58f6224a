"""Any history with any command line: fifty seeds by day, as many as fit into minutes at night, or `RAY_SNAPSHOT_FUZZ`."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable
from pathlib import Path

import crafted
import fuzzing
import pytest
from hostile_commands import as_process

from ray_snapshot.history import checkpoints

BY_DAY = 50
NIGHTLY_SECONDS = 360
SEEDS = "RAY_SNAPSHOT_FUZZ"
"""How many seeds are tried, in the environment of the tests."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzzing.prepared(tmp_path_factory.mktemp("fuzzed"))


def replayed(cases: Iterable[fuzzing.Case]) -> list[str]:
    """What is wrong with each case, with the command that replays it."""
    return [f"python tests/hostile/fuzzing.py {case.seed}\n{case}" for case in cases if case.problems]


def test_the_honest_history_passes_and_is_witnessed(template: Path) -> None:
    for line in (["verify", "{history}"], ["witness", "{history}", "traced-1", "--module", "teller.py"]):
        given = [item.format(history=template / "honest") for item in line]
        done = as_process(given, template / "work", **{checkpoints.KEY_VARIABLE: crafted.KEY.decode()})
        assert done.returncode == 0, done.stdout + done.stderr


def test_whatever_a_history_holds_and_whatever_is_asked_the_answer_is_short_true_and_harmless(template: Path) -> None:
    wrong = replayed(fuzzing.results(range(int(os.environ.get(SEEDS, BY_DAY))), template))
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
def test_the_same_for_as_many_seeds_as_a_few_minutes_hold(template: Path) -> None:
    until = time.monotonic() + NIGHTLY_SECONDS
    seeds = itertools.takewhile(lambda _: time.monotonic() < until, itertools.count(BY_DAY))
    wrong = replayed(fuzzing.results(seeds, template))
    assert not wrong, "\n".join(wrong)
