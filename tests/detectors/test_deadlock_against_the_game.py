"""Reported implies true, true implies reported: `Deadlock` against systems that are played to their end."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from waiting_game import Game, cores, deadlocked, edges, random_game, who_moves

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, reduction

BLOCKS, BLOCK = 10, 200
SEEDS = 60


def names(records: list[dict[str, object]]) -> set[str]:
    return {str(record["machine"]) for record in records}


def check(game: Game, verdict: Verdict, seed: int) -> None:
    holds, stuck = deadlocked(game)
    assert verdict.holds is holds, f"seed {seed}: {game}"
    evidence = verdict.evidence
    assert names(evidence["members"]) | names(evidence["stuck_behind"]) == stuck, f"seed {seed}: {game}"
    expected = cores(game, stuck, who_moves(game, outsiders=holds is True))
    assert {frozenset(core) for core in evidence["cores"]} == expected, f"seed {seed}: {game}"
    assert names(evidence["members"]) == set().union(*expected), f"seed {seed}: {game}"
    check_cycle(game, evidence["cycle"], expected, stuck, seed)


def check_cycle(game: Game, cycle: list[str], found: set[frozenset[str]], stuck: set[str], seed: int) -> None:
    waits_for = edges(game, stuck)
    for name, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert after in waits_for[name], f"seed {seed}: {cycle} is no cycle of {game}"
    assert len(set(cycle)) == len(cycle)
    possible = any(waits_for[name] & core for core in found for name in core)
    assert bool(cycle) == possible, f"seed {seed}: {game}"


@pytest.mark.contract
@pytest.mark.by_day(5)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_answer_the_members_the_cores_and_the_cycle_are_those_of_the_game(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        game = random_game(seed)
        check(game, Deadlock().evaluate(game.snapshot()), seed)


def test_a_level_at_a_time_finds_the_same_as_one_node_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_FEW", 1)
    for seed in range(SEEDS):
        game = random_game(seed)
        check(game, Deadlock().evaluate(game.snapshot()), seed)


@pytest.mark.contract
def test_the_random_systems_give_every_answer_and_every_kind_of_core() -> None:
    answers = Counter[object]()
    for seed in range(BLOCKS * BLOCK):
        game = random_game(seed)
        holds, stuck = deadlocked(game)
        answers[holds] += 1
        if holds:
            found = cores(game, stuck, who_moves(game, outsiders=True))
            answers["several cores"] += len(found) > 1
            answers["somebody behind"] += bool(stuck - set().union(*found))
    assert min(answers.values()) > 100, answers


@pytest.mark.contract
def test_the_short_form_in_machines_says_the_same_as_its_rows_of_waits() -> None:
    for seed in range(SEEDS):
        game = random_game(seed)
        snapshot = game.snapshot()
        declared = {row["machine"] for row in game.waits}
        brief = pa.array([row["machine"] in declared for row in snapshot.waits], pa.bool_())
        bare = Snapshot({**snapshot.tables, "waits": snapshot.tables["waits"].filter(brief)})
        one, other = Deadlock().evaluate(snapshot), Deadlock().evaluate(bare)
        assert (one.holds, one.evidence, one.sentence) == (other.holds, other.evidence, other.sentence), (
            f"seed {seed}: {game}"
        )


def named(part: Any, new: dict[str, str]) -> Any:
    """The same with other names of machines, wherever they stand."""
    if isinstance(part, dict):
        return {key: named(value, new) for key, value in part.items()}
    return [named(one, new) for one in part] if isinstance(part, list) else new.get(part, part)


@pytest.mark.contract
def test_other_names_in_another_order_change_nothing_but_the_names() -> None:
    for seed in range(SEEDS):
        game = random_game(seed)
        new = {row["machine"]: f"x{99 - number}" for number, row in enumerate(game.machines)}
        renamed = Game(*(named(part, new) for part in (game.machines, game.waits, game.messages, game.uncovered)))
        renamed.machines.reverse()
        one, other = Deadlock().evaluate(game.snapshot()), Deadlock().evaluate(renamed.snapshot())
        assert one.holds is other.holds, f"seed {seed}: {game}"
        for part in ("members", "stuck_behind"):
            assert {new[name] for name in names(one.evidence[part])} == names(other.evidence[part]), (
                f"seed {seed}: {game}"
            )


@pytest.mark.contract
def test_one_more_passive_machine_that_nobody_knows_changes_nothing() -> None:
    for seed in range(SEEDS):
        game = random_game(seed)
        more = Game(
            [*game.machines, {"machine": "bystander", "status": "passive"}], game.waits, game.messages, game.uncovered
        )
        one, other = Deadlock().evaluate(game.snapshot()), Deadlock().evaluate(more.snapshot())
        assert (one.holds, one.evidence) == (other.holds, other.evidence), f"seed {seed}: {game}"


@pytest.mark.contract
def test_what_was_stuck_stays_stuck_whatever_the_others_do() -> None:
    """Stable: whoever can move sends to anybody, those who wait for it included."""
    for seed in range(SEEDS):
        game = random_game(seed)
        holds, stuck = deadlocked(game)
        if not holds:
            continue
        for mover in sorted(who_moves(game, outsiders=False) & {row["machine"] for row in game.machines}):
            for target in (row["machine"] for row in game.machines):
                sent = Game(
                    game.machines,
                    game.waits,
                    [*game.messages, {"source": mover, "target": target, "kind": "mail"}],
                    game.uncovered,
                )
                after = Deadlock().evaluate(sent.snapshot())
                assert after.holds, f"seed {seed}: {mover} -> {target} in {game}"
                assert stuck <= names(after.evidence["members"]) | names(after.evidence["stuck_behind"])
