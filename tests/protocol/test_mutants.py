"""Do the tests work? Each wrong protocol of `mutants` must be caught by a seeded run, and for the right reason."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, Mutant

from ray_snapshot.simulation.oracle import OracleError
from ray_snapshot.simulation.schedules import run_seeded

MOST_SEEDS = 150


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
                return
    pytest.fail(f"{MOST_SEEDS} seeds did not show {mutant.seen_by!r}; they showed {told[:3]}")


def test_the_protocol_itself_passes_the_seeds_that_catch_the_mutants() -> None:
    for profile in sorted({mutant.profile for mutant in MUTANTS}):
        for seed in range(10):
            run_seeded(profile, seed)
