"""Any history with any Spark job: a hundred at night."""

from pathlib import Path

import fuzzing
import pytest

SEEDS = range(108)


@pytest.mark.spark
@pytest.mark.nightly
def test_whatever_a_history_holds_a_spark_job_answers_or_says_in_one_line_why_not(template: Path) -> None:
    wrong = fuzzing.replayed(fuzzing.results(SEEDS, template, is_job=True), "--job ")
    assert not wrong, "\n".join(wrong)
