"""`docs/protocols.md` names tests and mutants: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import test_mutants_by_hand
from mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_test_and_mutant_that_the_page_names_exists() -> None:
    page = (ROOT / "docs" / "protocols.md").read_text()
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
    page = (ROOT / "docs" / "protocols.md").read_text()
    table = page.split("## Mutants")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    by_hand = {breaks.__name__: test.__name__ for breaks, test in test_mutants_by_hand.MUTANTS.items()}

    assert set(rows) == {mutant.name for mutant in MUTANTS} | set(by_hand)
    assert {name: rows[name] for name in by_hand} == {name: f"`{by_hand[name]}`, in one run" for name in by_hand}
    assert len(rows) > 40
