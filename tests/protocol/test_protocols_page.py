"""`docs/protocols.md` names tests and mutants: they exist."""

from __future__ import annotations

import re
from pathlib import Path

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
