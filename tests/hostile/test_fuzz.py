"""Any history with any command line: some by day, thousands at night."""

import os
from collections.abc import Sequence
from pathlib import Path

import crafted
import fuzzing
import pytest
from hostile_commands import as_process

BY_DAY = range(int(os.environ.get("RAY_SNAPSHOT_FUZZ", "12")))
"""The variable says how many, for who wants to try more."""
BY_NIGHT = range(40, 2_100)
FOUND = (175, 1_294, 1_428)
"""Each of these has found a fault by night."""


def test_the_honest_history_passes_and_is_witnessed(template: Path) -> None:
    for line in (["verify", "{history}"], ["witness", "{history}", "traced-1", "--module", "teller.py"]):
        given = [item.format(history=template / "honest") for item in line]
        done = as_process(given, template / "work", **{"RAY_SNAPSHOT_KEY": crafted.KEY.decode()})
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seeds", [BY_DAY, FOUND, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=len)
def test_whatever_a_history_holds_and_whatever_is_asked_the_answer_is_short_true_and_harmless(
    template: Path, seeds: Sequence[int]
) -> None:
    wrong = fuzzing.replayed(fuzzing.results(seeds, template))
    assert not wrong, "\n".join(wrong)
