"""Do the tests work? Each wrong protocol of `mutants` must be caught by a seeded run, and for the right reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mutants import MUTANTS, Mutant
from worlds.mail.schedules import run_seeded

from ray_snapshot.simulation.mail.oracle import OracleError

MOST_SEEDS = 150
WITHIN = (1, 3, 10, 30, MOST_SEEDS)
PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"


def _row(mutant: Mutant, seeds: int) -> str:
    """The mutant's row in the table of the page."""
    within = next(most for most in WITHIN if seeds <= most)
    return f"| `{mutant.name}` | seeds of `{mutant.profile}`, within {within} | {mutant.seen_by} |"


@pytest.mark.by_day(12)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_protocol_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)

    told = []
    for seed in range(MOST_SEEDS):
        try:
            run_seeded(mutant.profile, seed)
        except OracleError as error:
            told.append(str(error))
            if mutant.seen_by in str(error):
                _compare_with_the_page(mutant, seed + 1)
                return
    pytest.fail(f"{MOST_SEEDS} seeds did not show {mutant.seen_by!r}; they showed {told[:3]}")


def _compare_with_the_page(mutant: Mutant, seeds: int) -> None:
    """The page may promise too much time, never too little; how many seeds it takes is for chance to say."""
    found = re.search(rf"\| `{mutant.name}` \| seeds of `([\w-]+)`, within (\d+) \| (.+) \|", PAGE.read_text())
    assert found is not None, f"docs/protocols.md lacks the row {_row(mutant, seeds)}"
    assert found[1] == mutant.profile
    assert found[3] == mutant.seen_by
    assert seeds <= int(found[2]), f"the row should be {_row(mutant, seeds)}"


def test_the_protocol_itself_passes_the_seeds_that_catch_the_mutants() -> None:
    for profile in sorted({mutant.profile for mutant in MUTANTS}):
        for seed in range(3):
            run_seeded(profile, seed)
