"""With which snapshot a detector compares: one rule for the live verdicts, Spark's, and those who follow."""

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_histories import live, rows, snapshot

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Termination, TokenConservation
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.spark_jobs import conservation, detections
from ray_snapshot.verdicts import Standards

OWN = TokenConservation(name="own")

ANSWERS = {
    "5 5 4 5": "? T F T",
    "5 5 4 4": "? T F F",
    "5 x 4": "? ? F",
    "5 5u 4 4": "? ? F F",
    "5 5 5u 4 4": "? T ? F F",
    "5 5i 4": "? ? F",
    "x 5 5 4": "? ? T F",
    "5i 4 4 5": "? ? T F",
    "x 5u 4i 7 7": "? ? ? ? T",
    "5 5 | 4 4 5": "? T ? T F",
    "5 4 | 4 4": "? F ? T",
    "5 | 5 |2 4 | 3 3": "? ? ? ? T",
    "5 | 5 |2 x | 5 5": "? ? ? ? T",
    "5 | x 4 4": "? ? ? T",
    "| 5 5 5 |2 x | 4": "? T T ? ?",
    "- 3 3 4": "? ? T F",
    "3 - 3": "? F T",
    "0 3 3 4": "? ? T F",
    "3b 5 5 4": "? ? T F",
    "5 5b 3b 5 4": "? ? ? T F",
    "0b 3b 5 0": "? ? ? ?",
    "5 5b 7b 3b 5": "? ? F ? T",
    "3c 5 5c 5": "? ? ? T",
}
"""Totals of successive snapshots, and what is told of each. x: unreadable, u: uncovered, i: inconsistent, b: a machine is
still to be made, c: one is being made, |: a restore, -: nothing where the path leads, 0: no machine."""

STATES: dict[str, dict[str, Any]] = {"x": {"tokens": "?"}, "-": {"else": 1}}


def run_of(name: str, totals: str) -> list[Snapshot]:
    taken: list[Snapshot] = []
    restored_from = None
    for word in totals.split():
        if word.startswith("|"):
            restored_from = f"{name}-older{word}"
            continue
        about: dict[str, Any] = {
            "machines": [{"machine": "m", "state": STATES.get(word) or {"tokens": int(word[0])}}] * (word[0] != "0"),
            "messages": [{"source": "driver", "target": "n", "method": "__init__", "args": [2]}] * ("b" in word),
            "calls": [{"machine": "m", "call_id": "c", "method": "__init__"}] * ("c" in word),
            "coverage": {"uncovered": [{"name": "o", "reason": "a test"}] if "u" in word else []},
            "consistent": "i" not in word,
            "restored_from": restored_from,
        }
        taken.append(snapshot(name, len(taken), **about))
    return taken


def told(holds: list[bool | None]) -> str:
    return " ".join({None: "?", True: "T", False: "F"}[one] for one in holds)


@pytest.mark.parametrize("totals", ANSWERS)
def test_a_live_verdict_compares_with_the_last_that_was_right_since_the_restore(totals: str) -> None:
    assert told([one.holds for one in live(run_of("pot-1", totals), OWN)]) == ANSWERS[totals]


class GoesOn:
    """Whether more was in flight than before; not told of the first."""

    name, stable, alarm_when = "goes-on", False, False

    def evaluate(self, snapshot: Snapshot, earlier: Snapshot | None = None) -> Any:
        return None if earlier is None else snapshot.sequence > earlier.sequence


def test_a_detector_that_would_raise_its_alarm_against_the_same_snapshot_still_has_a_first_to_compare_with() -> None:
    assert told([one.holds for one in live(run_of("pot-1", "5 5 5"), GoesOn())]) == "? T T"


def test_for_what_does_not_ask_for_an_earlier_snapshot_none_is_kept() -> None:
    standards = Standards()
    standards.evaluate(Termination(), run_of("pot-1", "5")[0])
    assert not standards.known


BY_DAY, BY_NIGHT = (1, 12), (None, 40)
"""The seed, if it is always the same, and how many runs are drawn with it beside those of `ANSWERS`."""


def many(seed: int, count: int) -> dict[str, list[Snapshot]]:
    """The runs of `ANSWERS` and some more."""
    chance = random.Random(seed)
    words = ["5", "5", "5", "4", "4", "x", "5u", "4u", "5i", "5b", "4b", "7b", "4c", "0", "-", "|", "|2"]
    texts = [*ANSWERS, *(" ".join(chance.choices(words, k=11)) for _ in range(count))]
    return {f"pot-{number}": run_of(f"pot-{number}", text) for number, text in enumerate(texts)}


def told_live(runs: dict[str, list[Snapshot]]) -> dict[str, str]:
    return {name: told([one.holds for one in live(taken, OWN)]) for name, taken in runs.items()}


def told_of(answers: dict[str, bool | None], runs: dict[str, list[Snapshot]]) -> dict[str, str]:
    return {name: told([answers[one.snapshot_id] for one in taken]) for name, taken in runs.items()}


TURNS = 4
Drawn = tuple[dict[str, list[Snapshot]], list[Path]]
"""Runs, and the folder of their history as it is at each turn, with the live verdicts."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Drawn]:
    """Runs of a seed are written once for all tests that draw them."""
    return cache(lambda seed, count: _written(tmp_path_factory.mktemp("turns"), many(seed, count)))


def _written(folder: Path, runs: dict[str, list[Snapshot]]) -> Drawn:
    stages = []
    for turn in range(TURNS):
        with HistoryWriter(folder / "pots") as writer:
            for taken in runs.values():
                new = {one.snapshot_id: one for one in taken if one.sequence // 3 == turn}
                for one in new.values():
                    writer.add(one)
                writer.add_verdicts([one for one in live(taken, OWN) if one.snapshot_id in new])
        stages.append(shutil.copytree(folder / "pots", folder / f"turn-{turn}"))
    return runs, stages


@pytest.fixture(params=[BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.nightly)], ids=["day", "night"])
def drawn(request: pytest.FixtureRequest, seed: int, written: Callable[[int, int], Drawn]) -> Drawn:
    """The same runs by day, others and more of them every night."""
    always, count = request.param
    return written(always or seed, count)


JOBS: dict[str, Any] = {"detections": detections, "conservation": conservation}


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("job", JOBS)
def test_the_spark_jobs_compare_with_the_same(spark: Any, job: str, drawn: Drawn) -> None:
    runs, stages = drawn
    frames = JOBS[job].run(spark, History(stages[-1]))
    frame = frames["verdicts"].where("detector = 'own'") if job == "detections" else frames["ledger"]
    answers = {snapshot_id: row["holds"] for snapshot_id, row in rows(frame, "snapshot_id").items()}
    assert told_of(answers, runs) == told_live(runs)
