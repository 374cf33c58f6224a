"""What a recovering system goes back to: every order, with every death at every moment; and wrong decisions are caught.

A change of behaviour changes a number here even when nothing is wrong; explain it before you pin the new one.
"""

import ast
import re
from pathlib import Path

import pytest
from making_mutants import Mutant
from recovering_mutants import MUTANTS
from replaying import check_replay
from worlds.rollback import recovering_orders, recovery_oracle
from worlds.rollback.recovering_orders import RECOVERIES, Explored, every_order, run_recovery
from worlds.rollback.recovering_parties import Script

from ray_snapshot.simulation.mail.oracle import OracleError

SEEDS = 150

BY_DAY = {
    "nobody dies": (Script(2, 2), Explored(1699, 18)),
    "three snapshots overlap": (Script(0, 3), Explored(1860, 7)),
    "more is kept in memory": (Script(1, 2, most_kept=2), Explored(588, 3)),
    "somebody dies": (Script(1, 1, ("any",)), Explored(1256, 37)),
    "somebody dies, and there is a history": (Script(1, 1, ("any",), has_history=True), Explored(1052, 27)),
    "host and analyst die": (Script(0, 1, ("host", "analyst")), Explored(776, 21)),
    "the service does not hear the driver": (Script(1, 1, hiccups=1), Explored(70, 4)),
    "the program restores": (Script(1, 1, restores=1), Explored(1090, 18)),
}
BY_NIGHT = {
    "two die": (Script(1, 1, ("any", "any")), Explored(14392, 167)),
    "two die while two snapshots overlap": (Script(0, 2, ("any", "any")), Explored(97891, 604)),
    "service and analyst die while two overlap": (Script(1, 2, ("service", "analyst")), Explored(81721, 583)),
    "service and host die while two overlap": (Script(1, 2, ("service", "host")), Explored(121191, 607)),
    "host and analyst die while two overlap": (Script(1, 2, ("host", "analyst")), Explored(84319, 384)),
    "one dies, three messages": (Script(3, 2, ("any",)), Explored(138924, 926)),
    "one dies, a history": (Script(1, 2, ("any",), has_history=True), Explored(18443, 139)),
    "one dies, and the service does not hear": (Script(1, 1, ("any",), hiccups=1), Explored(2351, 63)),
    "the program restores one of two": (Script(1, 2, restores=1), Explored(32720, 138)),
    "two die while the program restores": (Script(1, 1, ("service", "host"), restores=1), Explored(91046, 264)),
    "one dies while the program restores": (Script(1, 1, ("any",), restores=1), Explored(27944, 177)),
    "one dies while the program restores from a history": (
        Script(1, 1, ("any",), restores=1, has_history=True),
        Explored(15064, 107),
    ),
}
NIGHTLY = [pytest.param(*found, id=name, marks=pytest.mark.nightly) for name, found in BY_NIGHT.items()]


@pytest.mark.parametrize(
    ("script", "found"), [*(pytest.param(*found, id=name) for name, found in BY_DAY.items()), *NIGHTLY]
)
def test_every_order_of_a_recovery(script: Script, found: Explored) -> None:
    assert every_order(script) == found


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", RECOVERIES)
def test_long_recoveries_by_seed(name: str, seeds: int) -> None:
    worlds = [run_recovery(name, seed) for seed in range(seeds)]
    assert sum(not world.deaths for world in worlds) > seeds // 4, "nobody dies in them"


@pytest.mark.by_day(8)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_decision_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    with pytest.raises(OracleError, match=mutant.seen_by):
        every_order(mutant.shown_by)


def test_the_page_names_each_wrong_decision() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    section = page.split("## Recovery line")[1].split("\n## ")[0]
    named = {name for row in re.findall(r"^\|.+\| (`.+`) \|$", section, re.MULTILINE) for name in row.split("`")[1::2]}
    assert named == {mutant.name for mutant in MUTANTS}


def test_a_seed_that_finds_something_prints_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovering_orders, "check_end", lambda _: _fail())
    trace: list[str] = []
    with pytest.raises(OracleError, match="for this test") as caught:
        run_recovery("recovering", 3, trace)
    check_replay(caught.value, trace)


def _fail() -> None:
    raise OracleError("for this test")


def test_too_many_orders_are_an_error() -> None:
    with pytest.raises(OracleError, match="more than 50 states"):
        every_order(Script(2, 2), most=50)


def test_the_oracle_of_recoveries_shares_no_code_with_the_decisions() -> None:
    tree = ast.parse(Path(recovery_oracle.__file__).read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any("protocol" in module for module in modules)
