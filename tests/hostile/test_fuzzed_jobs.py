"""Any history with any Spark job: some by day, a hundred at night."""

from __future__ import annotations

from pathlib import Path

import fuzzing
import pytest

BY_DAY, BY_NIGHT = range(1), range(1, 108)


@pytest.mark.spark
@pytest.mark.parametrize("seeds", [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=len)
def test_whatever_a_history_holds_a_spark_job_answers_or_says_in_one_line_why_not(template: Path, seeds: range) -> None:
    wrong = fuzzing.replayed(fuzzing.results(seeds, template, is_job=True), "--job ")
    assert not wrong, "\n".join(wrong)
