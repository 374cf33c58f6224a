"""Any history with any command line: a hundred seeds by day, thousands at night; and Spark jobs, some and a hundred."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import crafted
import fuzzing
import pytest
from hostile_commands import as_process

from ray_snapshot.history import checkpoints

BY_DAY = range(int(os.environ.get("RAY_SNAPSHOT_FUZZ", "100")))
"""The variable says how many, for who wants to try more."""
BY_NIGHT = range(100, 2_100)
JOBS_BY_DAY, JOBS_BY_NIGHT = range(4), range(4, 108)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzzing.prepared(tmp_path_factory.mktemp("fuzzed"))


def replayed(cases: Iterable[fuzzing.Case], option: str = "") -> list[str]:
    """What is wrong with each case, with the command that replays it."""
    return [f"python tests/hostile/fuzzing.py {option}{case.seed}\n{case}" for case in cases if case.problems]


def test_the_honest_history_passes_and_is_witnessed(template: Path) -> None:
    for line in (["verify", "{history}"], ["witness", "{history}", "traced-1", "--module", "teller.py"]):
        given = [item.format(history=template / "honest") for item in line]
        done = as_process(given, template / "work", **{checkpoints.KEY_VARIABLE: crafted.KEY.decode()})
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=len)
def test_whatever_a_history_holds_and_whatever_is_asked_the_answer_is_short_true_and_harmless(
    template: Path, seeds: range
) -> None:
    wrong = replayed(fuzzing.results(seeds, template))
    assert not wrong, "\n".join(wrong)


@pytest.mark.spark
@pytest.mark.parametrize("seeds", [JOBS_BY_DAY, pytest.param(JOBS_BY_NIGHT, marks=pytest.mark.nightly)], ids=len)
def test_whatever_a_history_holds_a_spark_job_answers_or_says_in_one_line_why_not(template: Path, seeds: range) -> None:
    wrong = replayed(fuzzing.results(seeds, template, is_job=True), "--job ")
    assert not wrong, "\n".join(wrong)
