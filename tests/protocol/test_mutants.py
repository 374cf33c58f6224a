"""Each wrong protocol of `mutants` must be caught by a seeded run, for the right reason, and stand on the page."""

import re
from pathlib import Path

import pytest
import test_mutants_by_hand
from making_mutants import Mutant
from mutants import MUTANTS
from worlds.mail.schedules import run_seeded

from ray_snapshot.simulation.mail.oracle import OracleError

MOST_SEEDS = 150
WITHIN = (1, 3, 10, 30, MOST_SEEDS)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocols.md"


def _row(mutant: Mutant, seeds: int) -> str:
    """The mutant's row in the table of the page."""
    within = next(most for most in WITHIN if seeds <= most)
    return f"| `{mutant.name}` | seeds of `{mutant.shown_by}`, within {within} | {mutant.seen_by} |"


@pytest.mark.by_day(12)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_protocol_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    told = []
    for seed in range(MOST_SEEDS):
        try:
            run_seeded(mutant.shown_by, seed)
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
    assert found[1] == mutant.shown_by
    assert found[3] == mutant.seen_by
    assert seeds <= int(found[2]), f"the row should be {_row(mutant, seeds)}"


def test_the_protocol_itself_passes_the_seeds_that_catch_the_mutants() -> None:
    for profile in sorted({mutant.shown_by for mutant in MUTANTS}):
        for seed in range(3):
            run_seeded(profile, seed)


def test_every_test_and_mutant_that_the_page_names_exists() -> None:
    page = PAGE.read_text()
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    traps = page.split("## Traps")[1].split("\n## ")[0]
    named = set(re.findall(r"`(test_\w+)`", page))
    mutants = {
        name for row in traps.splitlines() if row.startswith("| ") for name in re.findall(r"`(\w+)`", row.split("|")[4])
    }
    assert len(named) > 15
    assert {name for name in named if f"def {name}(" not in sources} == set()
    assert len(mutants) > 8
    assert mutants - {mutant.name for mutant in MUTANTS} == set()


def test_the_table_of_mutants_names_each_and_what_catches_it() -> None:
    page = PAGE.read_text()
    table = page.split("## Mutants")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    by_hand = {mutant.name: mutant.shown_by.__name__ for mutant in test_mutants_by_hand.MUTANTS}
    assert set(rows) == {mutant.name for mutant in MUTANTS} | set(by_hand)
    assert {name: rows[name] for name in by_hand} == {name: f"`{by_hand[name]}`, in one run" for name in by_hand}
    assert len(rows) > 40
