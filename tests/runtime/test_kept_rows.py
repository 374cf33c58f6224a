"""Rows of machines at rest that stay with their host: what is kept, how long, and what a detector makes of them there."""

from __future__ import annotations

import operator
import pickle
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows_kept import HEADER, few, names_of, resting, without

import ray_snapshot as rs
from ray_snapshot import adding, detectors, redaction
from ray_snapshot.columns import packed, unpacked
from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.runtime.host import kept
from ray_snapshot.runtime.host.config import KEEP_FROM, asked_keeping
from ray_snapshot.runtime.host.kept import KeptTables
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import evaluate

# ---- what a host keeps ---------------------------------------------------------------------------------------------


def test_kept_rows_are_those_of_their_snapshot_whatever_came_later() -> None:
    tables = KeptTables("h", 1)
    said = tables.keep(1, resting(3), 10)
    tables.keep(2, resting(2), 20)
    assert said is not None
    assert (said.host, said.classes, said.state_bytes, said.recorded_at) == ("h", {"Purse": 3}, 6, 10)
    assert names_of(tables.packed(1)) == ["m0", "m1", "m2"]
    assert names_of(tables.packed(2)) == ["m0", "m1"]
    assert names_of(tables.packed(1, ["m2", "another"])) == ["m2"]
    at = unpacked(tables.packed(2))["recorded_at"].cast(pa.int64()).to_pylist()
    assert at == [20, 20]


def test_what_cannot_be_said_in_counts_is_sent() -> None:
    tables = KeptTables("h", 3)
    assert tables.keep(1, resting(2), 0) is None, "too few"
    assert tables.keep(2, resting(3, status="stopped"), 0) is None
    assert tables.keep(3, resting(3, inputs={"m1": Inputs((), {})}), 0) is None
    assert KeptTables("h", None).keep(4, resting(3), 0) is None
    assert [tables.packed(number) for number in (1, 2, 3)] == [None] * 3


def test_the_oldest_are_dropped_and_a_lease_holds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_SNAPSHOTS", 3)
    tables = KeptTables("h", 1)
    for number in range(1, 7):
        tables.keep(number, resting(number), 0)
        if number == 2:
            tables.lease([2], [])
    assert [number for number in range(1, 7) if tables.packed(number) is not None] == [2, 4, 5, 6]
    tables.lease([], [2])
    assert tables.packed(2) is None
    tables.lease([1], [])
    assert tables.packed(1) is None, "it was asked for too late"


def test_what_was_judged_is_dropped_after_a_while_but_for_the_last_and_what_is_leased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = KeptTables("h", 1)
    for number in range(1, 5):
        tables.keep(number, resting(number), 0)
        tables.judged([number])
    assert all(tables.packed(number) is not None for number in range(1, 5)), "a program may lease them yet"
    tables.lease([2], [])
    monkeypatch.setattr(kept, "GRACE_S", -1.0)
    tables.judged([4])
    assert [number for number in range(1, 5) if tables.packed(number) is not None] == [2, 4]


def test_rows_are_sent_or_gone_where_anything_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)
    monkeypatch.setattr(redaction, "is_active", True)
    assert tables.packed(1) is None
    assert tables.partial(1, HEADER, "key").is_gone
    assert tables.keep(2, resting(3), 0) is None


def test_threads_that_read_a_snapshot_see_all_of_it_once() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    inside = threading.Barrier(2, timeout=30)

    def fetch(names: Sequence[str] | None) -> pa.Table:
        inside.wait()
        return elsewhere.fetch(names)

    absent = part.parted[1]
    object.__setattr__(absent, "fetch", fetch)
    readers = [threading.Thread(target=part.load) for _ in range(3)]
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


def test_columns_that_are_shared_count_once_and_the_last_are_kept_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    same = resting(100)
    monkeypatch.setattr(kept, "MOST_BYTES", int(1.5 * same.machines.base.nbytes))
    monkeypatch.setattr(kept, "FEWEST", 2)
    tables = KeptTables("h", 1)
    for number in range(1, 6):
        hidden = same.machines if number % 2 else same.machines.without("machine", ["m1"])
        tables.keep(number, replace(same, machines=hidden), 0)
    assert all(tables.packed(number) is not None for number in range(1, 6))
    for number in range(6, 9):
        tables.keep(number, resting(100), 0)
    assert [number for number in range(1, 9) if tables.packed(number) is not None] == [7, 8]


@given(st.lists(st.sampled_from(["m0", "m1", "m2", "m3"]), max_size=4), st.booleans())
def test_rows_without_some_are_as_a_filter_has_them(hidden: list[str], compact: bool) -> None:
    rows = resting(4).machines.without("machine", hidden)
    rows = rows.compact() if compact else rows
    left = [name for name in ("m0", "m1", "m2", "m3") if name not in hidden]
    assert rows.table("machine")["machine"].to_pylist() == left
    assert rows.count == len(left)
    assert rows.plus(resting(1).machines.table()).table()["machine"].to_pylist() == [*left, "m0"]


def test_from_how_many_rows_on_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, meant in (("", 1_000), ("1", 1), ("50000", 50_000)):
        monkeypatch.setenv(KEEP_FROM, told)
        assert asked_keeping() == meant
    for told in ("0", "-1", "1.5", "many"):
        monkeypatch.setenv(KEEP_FROM, told)
        with pytest.raises(SettingError, match="a number of machines, 1 or more"):
            asked_keeping()


# ---- detectors, where the rows are -------------------------------------------------------------------------------------


def test_what_a_detector_raises_where_the_rows_are_is_told_with_its_place() -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)

    @rs.detector(partial=lambda part: 1 // 0, merge=operator.add)
    def wrong(count: int) -> bool:
        return count > 0

    key, blob = adding.pickled(wrong)
    assert tables.partial(1, HEADER, key).is_unknown
    assert "ZeroDivisionError" in tables.partial(1, HEADER, key, blob).error
    assert tables.partial(2, HEADER, key).is_gone
    key, blob = adding.pickled(few)
    assert [pickle.loads(tables.partial(1, HEADER, key, one).value) for one in (blob, None)] == [3, 3]


def _exits(_: Snapshot) -> Any:
    sys.exit("as meant")


@pytest.mark.parametrize(
    ("partial", "words"),
    [(_exits, "SystemExit: as meant"), (lambda _: threading.Lock(), "a lock, cannot be pickled")],
    ids=["exits", "unpicklable"],
)
def test_whatever_a_partial_does_is_the_detectors_fault(partial: Any, words: str) -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)
    key, blob = adding.pickled(rs.detector(partial=partial, merge=operator.add, name="odd")(_is_any))
    assert words in tables.partial(1, HEADER, key, blob).error


def _is_any(total: Any) -> bool:
    return bool(total)


def test_a_detector_that_cannot_be_sent_says_so() -> None:
    lock = threading.Lock()
    item = rs.detector(partial=lambda part: bool(lock) + len(part.machines), merge=operator.add, name="odd")(_is_any)
    with pytest.raises(rs.DetectorError, match="odd cannot be sent to where rows are"):
        adding.pickled(item)


def test_a_function_of_what_all_come_to_has_one_parameter() -> None:
    with pytest.raises(rs.DetectorError, match="its function has one parameter"):
        rs.detector(partial=len, merge=operator.add)(lambda total, earlier: True)


def test_what_is_timeless_is_asked_anew_of_other_rows_only() -> None:
    tables = KeptTables("h", 1)
    same, asked = resting(3), list[int]()

    class Counting:
        name = "counting"
        is_timeless = True

        def partial(self, part: Snapshot) -> int:
            asked.append(len(part.machines))
            return len(part.machines)

        def merge(self, one: int, other: int) -> int:
            return one + other

    tables._partials._items["key"] = Counting()
    for number, rows in enumerate((same, same, resting(2), same)):
        tables.keep(number, rows, 0)
        assert pickle.loads(tables.partial(number, HEADER, "key").value) == rows.machines.count
    assert asked == [3, 2, 3]
    tables._partials._items["of a moment"] = of_a_moment = Counting()
    of_a_moment.is_timeless = False
    for _ in range(2):
        tables.partial(3, HEADER, "of a moment")
    assert asked == [3, 2, 3, 3, 3]


def test_a_part_is_of_its_snapshot() -> None:
    """What a detector may read of a part is what the whole would say."""
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 1_000_000)
    seen: list[Any] = []

    class Looking:
        name = "looking"

        def partial(self, part: Snapshot) -> int:
            machines = part.tables["machines"].to_pylist()
            seen.append(
                (part.snapshot_id, part.run_id, part.system, part.sequence, part.machine_count, part.started_at)
            )
            seen.append(
                {(row["run_id"], row["snapshot_id"], row["recorded_at"], row["record_delay_ms"]) for row in machines}
            )
            return 1

        def merge(self, one: int, other: int) -> int:
            return one + other

    began = datetime.fromtimestamp(0.5, UTC)
    whole = Snapshot.from_rows(snapshot_id="x-1", run_id="run-1", system="bank", sequence=7, started_at=began)
    tables._partials._items["key"] = Looking()
    assert not tables.partial(1, packed(whole.tables["snapshots"]), "key").error
    assert seen[0] == ("x-1", "run-1", "bank", 7, 3, began)
    assert seen[1] == {("run-1", "x-1", datetime.fromtimestamp(1, UTC), 500.0)}


def test_both_functions_are_needed() -> None:
    with pytest.raises(rs.DetectorError, match="needs both, partial= and merge="):
        rs.detector(partial=len)
