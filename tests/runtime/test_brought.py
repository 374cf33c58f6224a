"""Rows of machines at rest that come packed with their host's report: when they do, and that they say what plain rows say."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from limited import limit
from unread_rows import ASKED, COLUMNS, resting, snapshots

import ray_snapshot as rs
from ray_snapshot import Snapshot, redaction
from ray_snapshot.adding import total
from ray_snapshot.columns import inner, packed
from ray_snapshot.glances import glance_of
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.runtime import brought
from ray_snapshot.runtime.assembly import Also, assembled
from ray_snapshot.runtime.brought import BroughtRows, Label, whole
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.host import resting as resting_module
from ray_snapshot.runtime.host.resting import Packing, Rows
from ray_snapshot.runtime.report import HostPart, Packed
from ray_snapshot.schema import MESSAGES
from ray_snapshot.snapshot import Absent
from ray_snapshot.verdicts import evaluate

LABEL = Label("s", "r", 0)


def packed_of(host: str, names: Sequence[str], recorded_at: int = 7) -> Packed:
    rows = [
        {"machine": name, "class_name": "Purse", "host": host, "status": "passive", "state": "{}"} for name in names
    ]
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    return Packed(host, {"Purse": len(names)}, 2 * len(names), recorded_at, Rows(table).packed())


# ---- when rows are packed --------------------------------------------------------------------------------------------


def test_rows_are_packed_when_a_second_snapshot_shows_them_as_they_were() -> None:
    packing = Packing("h")
    rows = resting(LIMITS.packed_rows)
    assert packing.packed(rows, 10) is None
    found = [packing.packed(rows, 10 * number) for number in (2, 3)]
    assert [one and one.recorded_at for one in found] == [20, 30]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].rows is found[1].rows, "made once"
    assert (found[0].classes, found[0].state_bytes) == ({"Purse": LIMITS.packed_rows}, 2 * LIMITS.packed_rows)
    assert packing.packed(resting(LIMITS.packed_rows), 40) is None, "others, though they look the same"


@pytest.mark.parametrize(
    "rows",
    [
        resting(LIMITS.packed_rows - 1),
        resting(LIMITS.packed_rows, status="stopped"),
        resting(LIMITS.packed_rows, inputs={"m1": Inputs((), {})}),
    ],
    ids=["few", "not passive", "declared inputs"],
)
def test_what_is_few_or_cannot_be_said_in_counts_is_not_packed(rows: Any) -> None:
    packing = Packing("h")
    assert [packing.packed(rows, 1) for _ in range(3)] == [None] * 3


def test_nothing_is_packed_where_anything_is_secret_or_much(monkeypatch: pytest.MonkeyPatch) -> None:
    packing, rows = Packing("h"), resting(LIMITS.packed_rows)
    packing.packed(rows, 1)
    with monkeypatch.context() as patch:
        patch.setattr(redaction, "is_active", True)
        assert packing.packed(rows, 1) is None
    with monkeypatch.context() as patch:
        patch.setattr(resting_module, "MOST_SQUEEZED", 1_000)
        assert packing.packed(rows, 1) is None
    assert packing.packed(rows, 1) is not None


# ---- what a snapshot says --------------------------------------------------------------------------------------------


def with_packed(full: Snapshot, absent: Sequence[str], cuts: Sequence[int]) -> Snapshot:
    """The same, but that rows of these machines are packed, those of several hosts apart."""
    table = full.tables["machines"]
    ends = [0, *sorted(min(cut, len(absent)) for cut in cuts), len(absent)]
    names = [absent[first:last] for first, last in pairwise(ends) if first < last]
    is_absent = [name in absent for name in table["machine"].to_pylist()]
    kept = []
    for host, mine in enumerate(names):
        rows = table.filter(pa.array([name in mine for name in table["machine"].to_pylist()], pa.bool_()))
        classes = rows["class_name"].to_pylist()
        counts = {name: classes.count(name) for name in classes}
        kept.append(Packed(f"h{host}", counts, 0, 0, packed(rows.select(COLUMNS.names), "zstd").to_pybytes()))
    rows = BroughtRows(Label(full.snapshot_id, full.run_id, 0), kept)
    classes = [name for name, away in zip(table["class_name"].to_pylist(), is_absent, strict=True) if away]
    said = Absent(
        {name: classes.count(name) for name in classes},
        rows.hosts,
        dict.fromkeys(rows.hosts, 0.0),
        0,
        rows.of,
        lambda item, snapshot: list(rows.partials(item, snapshot.tables["snapshots"])),
        rows,
    )
    here = table.filter(pa.array([not away for away in is_absent], pa.bool_()))
    return Snapshot({**full.tables, "machines": here}, said if absent else None)


@settings(max_examples=25)
@given(snapshots())
def test_every_answer_is_that_of_plain_rows(given: tuple[Snapshot, list[str], list[int]]) -> None:
    full, absent, cuts = given
    for item in ASKED:
        found, expected = evaluate(item, with_packed(full, absent, cuts)), evaluate(item, full)
        assert (found.holds, found.evidence, found.sentence) == (expected.holds, expected.evidence, expected.sentence)
    part = with_packed(full, absent, cuts)
    told, expected_told = glance_of(part, 1, ()), glance_of(full, 1, ())
    assert (told.classes, told.backlogs) == (expected_told.classes, expected_told.backlogs)
    assert part.problems() == full.problems() == []
    untimed = [name for name in part.tables["machines"].column_names if name not in ("recorded_at", "record_delay_ms")]
    assert part.tables["machines"].select(untimed).equals(full.tables["machines"].select(untimed))


def test_a_cut_with_a_machine_on_two_hosts_is_not_consistent() -> None:
    header = SnapshotHeader(1, "bank", "run-1", "chandy-lamport", [], 1.0, 1.5)
    nothing = inner(MESSAGES).empty_table(), ENDS.empty_table()
    parts = [HostPart(*nothing, COLUMNS.empty_table(), packed=packed_of(host, ["a", host])) for host in ("g", "h")]
    found = assembled(header, parts, Also())
    assert (found.consistent, found.problems(), found.machine_count) == (False, ["a machine is recorded twice"], 4)
    parts[1].packed = packed_of("h", ["h"])
    assert assembled(header, parts, Also()).consistent
    parts[1].machines = pa.Table.from_pylist([{"machine": "g"}], schema=COLUMNS)
    assert not assembled(header, parts, Also()).consistent


def test_the_same_bytes_are_read_once_and_what_the_last_snapshot_has_is_remembered_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brought, "_REMEMBERED", brought._Remembered())
    limit(monkeypatch, brought_bytes=1)
    kept = [packed_of(host, [f"{host}-{at}" for at in range(9)]) for host in "ghi"]
    first, second = BroughtRows(LABEL, kept), BroughtRows(LABEL, [*kept])
    assert first.repeats(pa.chunked_array([["x"]])) is second.repeats(pa.chunked_array([["x"]])) is False
    assert [*map(id, first._parts)] == [*map(id, second._parts)]
    BroughtRows(LABEL, [packed_of("k", ["k"]), *kept[:1]])._parts[0]
    assert [one.table["host"][0].as_py() for one in brought._REMEMBERED._read.values()] == ["g", "k"]


def test_what_is_timeless_is_asked_of_the_same_rows_once() -> None:
    asked = []

    @rs.detector(partial=lambda part: asked.append(len(part.machines)) or len(part.machines), merge=lambda a, b: a + b)
    def count(found: int) -> bool:
        return found == 3

    kept = [packed_of("timeless", ["a", "b", "c"])]
    for expected in ([3], [3, 3]):
        list(BroughtRows(LABEL, kept).partials(count, Snapshot.from_rows(snapshot_id="x").tables["snapshots"]))
        assert asked == expected, "a user's detector is asked of each snapshot"
    count.is_timeless, count.spec = True, {"type": "mine"}
    for _ in range(3):
        list(BroughtRows(LABEL, kept).partials(count, Snapshot.from_rows(snapshot_id="x").tables["snapshots"]))
    assert asked == [3, 3, 3]
    assert total(count, Snapshot.from_rows(machines=[{"machine": name} for name in "abc"])) == 3


def test_a_part_with_packed_rows_made_whole_is_the_plain_part() -> None:
    nothing = inner(MESSAGES).empty_table(), ENDS.empty_table()
    awake = pa.RecordBatch.from_pylist([{"machine": "awake"}], schema=COLUMNS)
    found = whole(HostPart(*nothing, awake, packed=packed_of("h", ["b", "a"])))
    assert found.packed is None
    assert found.machines is not None
    assert found.machines["machine"].to_pylist() == ["a", "b", "awake"]
    assert found.machines["recorded_at"].cast(pa.int64()).to_pylist() == [7, 7, None]
    plain = HostPart(*nothing, awake)
    assert whole(plain) is plain
    assert plain.machines is awake
