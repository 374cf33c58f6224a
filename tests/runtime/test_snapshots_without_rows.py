"""What a snapshot answers whose rows of machines at rest are not read yet, and what it reads."""

import operator
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from unread_rows import without

import ray_snapshot as rs
from ray_snapshot import Snapshot, detectors
from ray_snapshot.glances import glance_of
from ray_snapshot.verdicts import evaluate


def test_nothing_is_asked_for_that_counts_can_say_and_rows_once_for_all() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    for item in (detectors.Termination(), detectors.Deadlock()):
        evaluate(item, part)
    glance_of(part, 1, ())
    part.verify()
    assert elsewhere.asked == []
    assert part.rows_of(["b"])["machine"].to_pylist() == ["b"]
    assert elsewhere.asked == [["b"]]
    assert (part.machines["d"].state, len(part.machines), part.parted[1]) == ({"tokens": 1}, 4, None)
    part.to_arrow()
    assert elsewhere.asked == [["b"], None]


def test_of_a_deadlock_only_rows_of_those_concerned_are_fetched() -> None:
    machines = [{"machine": name, "waits_for": [on]} for name, on in ("ab", "ba", "cd")]
    whole = Snapshot.from_rows(
        machines=[*machines, *({"machine": name} for name in "defgh")], messages=[{"source": "e", "target": "f"}]
    )
    part, elsewhere = without(whole, "defgh")
    found, expected = evaluate(detectors.Deadlock(), part), evaluate(detectors.Deadlock(), whole)
    assert found.holds is True
    assert (found.evidence, found.sentence) == (expected.evidence, expected.sentence)
    assert [sorted(names or "everything") for names in elsewhere.asked] == [["a", "b", "c", "d", "e", "f"]]


def test_a_machine_that_is_not_there_is_a_problem_before_any_row_is_fetched() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    part.__dict__["machine_count"] = 5
    assert part.problems() == ["machine_count is 5, but the table machines has 4 rows"]
    assert elsewhere.asked == []


def test_what_was_added_up_is_remembered() -> None:
    """A snapshot that later ones are compared with is read for what has changed since, and for nothing else."""
    standing = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "ab"])
    before, elsewhere = without(standing, "b")
    item = detectors.TokenConservation()
    evaluate(item, before, earlier=before)
    assert elsewhere.asked == ["conservation"]
    now = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 2}} for name in "ab"])
    said = evaluate(item, now, earlier=before)
    assert (said.holds, said.evidence["expected"], said.evidence["found"]) == (False, 2, 4)
    assert (said.evidence["since"], "changed" in said.evidence) == (before.snapshot_id, True)
    assert elsewhere.asked == ["conservation", None]


def test_threads_that_read_a_snapshot_see_all_of_it_once() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    inside = threading.Barrier(2, timeout=30)

    def fetch(names: Sequence[str] | None) -> pa.Table:
        inside.wait()
        return elsewhere.fetch(names)

    absent = part.parted[1]
    object.__setattr__(absent, "fetch", fetch)
    readers = [threading.Thread(target=lambda: part.tables["machines"]) for _ in range(3)]
    for one in readers:
        one.start()
    item = detectors.TokenConservation(total=4)
    here, before = part.parted
    assert before is absent
    inside.wait()
    assert evaluate(item, part).holds is True
    for one in readers:
        one.join(30)
    assert elsewhere.asked.count(None) == 1
    assert part.tables["machines"].num_rows == 4
    assert here.num_rows == 1


def test_what_a_users_detector_makes_of_rows_is_not_remembered() -> None:
    taken = Snapshot.from_rows(machines=[{"machine": name} for name in "abc"])

    @rs.detector(partial=lambda part: [*part.machines], merge=operator.add)
    def first(names: list[str]) -> Any:
        return True, {"first": names.pop(0)}

    assert [evaluate(first, taken).evidence["first"] for _ in range(2)] == ["a", "a"]


@pytest.mark.contract
def test_a_function_of_what_all_come_to_has_one_parameter() -> None:
    with pytest.raises(rs.DetectorError, match="its function has one parameter"):
        rs.detector(partial=len, merge=operator.add)(lambda total, earlier: True)


@pytest.mark.contract
def test_both_functions_are_needed() -> None:
    with pytest.raises(rs.DetectorError, match="needs both, partial= and merge="):
        rs.detector(partial=len)
