"""The fixtures `explored` and `simulated`: what fails is told with its steps, and how to replay it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_snapshot.examples.bank_without_ray import bank
from ray_snapshot.testing import replay

pytestmark = pytest.mark.contract

pytest_plugins = "pytester"

TESTS = """
from ray_snapshot import detectors
from ray_snapshot.examples.bank_without_ray import bank, money, no_overdraft


def test_money(explored):
    assert explored(bank, always=[money], eventually=[detectors.Termination()]).states == 21


def test_overdraft(explored):
    explored(bank, always=[no_overdraft])


def test_stopped(explored):
    assert explored(bank, most_states=3).ok


def test_one_run(simulated):
    run = simulated(bank, seed=4, detectors=[money])
    assert run.machines["bob"].balance == 75


def test_one_wrong_run(simulated):
    run = simulated(bank, seed=4)
    assert run.machines["bob"].balance == 0
"""


@pytest.mark.parametrize("variable", ["CI", "ELSEWHERE"])
def test_what_fails_shows_its_steps_and_one_line_replays_it(
    variable: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `CI` is set, pytest's summary shows each text once more."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(variable, "true")
    pytester.makepyfile(test_bank=TESTS)
    done = pytester.runpytest("-p", "no:cacheprovider")
    done.assert_outcomes(passed=3, failed=2, warnings=1)
    text = done.stdout.str()
    assert "2. carol accepts transfer(bob, 15) from driver; sends deposit(15) to bob; balance 5 -> -10" in text
    assert "the search is not complete: it was stopped at most_states=3" in text
    assert "the last run without Ray" in text
    assert "seed 4" in text
    first, second = dict.fromkeys(re.findall(r"replay: testing\.replay\(bank, '([^']+)'\)", text))
    assert replay(bank, first).machines["carol"].balance == -10
    assert replay(bank, second).machines["bob"].balance == 75
    drawn = [Path(name) for name in dict.fromkeys(re.findall(r"diagram: (\S+)", text))]
    assert all(path.read_text(encoding="utf-8").startswith("<svg") for path in drawn)
    assert len(drawn) == 2
