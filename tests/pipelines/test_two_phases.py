"""What a sink shows, and when: snapshots that are kept, given up, overlap, or are gone back to."""

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ray_snapshot as rs
from ray_snapshot.pipelines.delta import DeltaOutput
from ray_snapshot.pipelines.parts import REJECTED, STAGED
from ray_snapshot.pipelines.two_phases import Committer, Folder, as_table

SCHEMA = pa.schema([("n", pa.int64())])


class Out:
    def __init__(self, kind: Any, path: Path) -> None:
        self.kind, self.path = kind, path

    def begun(self, sink: str = "sink") -> Committer:
        return Committer.begun(self.kind(str(self.path), SCHEMA), sink)

    def restored(self, state: dict[str, Any]) -> Committer:
        return Committer.restored(self.kind(str(self.path), SCHEMA), state)

    def rows(self) -> list[int]:
        if self.kind is DeltaOutput:
            files = [Path(uri) for uri in deltalake.DeltaTable(str(self.path)).file_uris()]
        else:
            files = list(self.path.glob("*.parquet"))
        return sorted(value for file in files for value in pq.read_table(file)["n"].to_pylist())


@pytest.fixture(params=[Folder, DeltaOutput], ids=["folder", "delta"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Out:
    return Out(request.param, tmp_path / "out")


@pytest.fixture
def sink(out: Out) -> Committer:
    return out.begun()


def recorded(sink: Committer, *numbers: int) -> dict[str, Any]:
    """The state of a snapshot behind these rows."""
    for number in numbers:
        sink.write([{"n": number}])
    return sink.stage()


def test_what_shows_is_what_kept_snapshots_have_held(out: Out, sink: Committer) -> None:
    first, second = recorded(sink, 1), recorded(sink, 2)
    assert out.rows() == []
    for _ in range(2):
        sink.commit(first)
        assert out.rows() == [1], "what is staged behind it does not show"
    recorded(sink, 3)  # given up
    last = recorded(sink, 4)
    for overlapping in (last, second):  # the later one may be told of first
        sink.commit(overlapping)
        assert out.rows() == [1, 2, 3, 4]
    with pytest.raises(rs.OutputChangedError, match="ray-snapshot restore"):
        out.begun()
    assert out.rows() == [1, 2, 3, 4], "output of an earlier run is not added to"


def test_what_shows_is_not_shown_again_by_who_does_not_know_it(out: Out, sink: Committer) -> None:
    recorded(sink, 1)
    for _ in range(2):
        sink.output.publish(sink.ledger, [1])
        assert out.rows() == [1]


def test_a_sink_that_was_killed_before_it_was_told_shows_it_when_it_comes_back(out: Out, sink: Committer) -> None:
    state = recorded(sink, 1)
    recorded(sink, 2)  # behind the cut
    again = out.restored(state)
    assert out.rows() == [1]
    again.commit(recorded(again, 2))
    assert out.rows() == [1, 2]


def test_coming_back_a_second_time_changes_nothing(out: Out, sink: Committer) -> None:
    state = recorded(sink, 1)
    sink.commit(state)
    for _ in range(2):
        again = out.restored(state)
        assert out.rows() == [1]
        assert len(again.ledger.lives) == 2, "lives that wrote nothing are forgotten"
    again.commit(recorded(again, 2))
    third = out.restored(again.ledger.state())
    third.commit(recorded(third, 3))
    assert out.rows() == [1, 2, 3]


def test_going_back_takes_back_what_was_shown_since_and_going_forth_again_shows_it_again(
    out: Out, sink: Committer
) -> None:
    states = []
    for number in (1, 2, 3):
        states.append(recorded(sink, number))
        sink.commit(states[-1])
    out.restored(states[0])
    assert out.rows() == [1]
    out.restored(states[2])
    assert out.rows() == [1, 2, 3]
    again = out.restored(states[0])
    again.commit(recorded(again, 4))
    assert out.rows() == [1, 4]


def test_a_past_that_is_over_cannot_be_gone_back_to_and_nothing_is_changed_by_trying(out: Out, sink: Committer) -> None:
    first = recorded(sink, 1)
    sink.commit(first)
    lost = recorded(sink, 2)
    again = out.restored(first)
    again.commit(recorded(again, 3))
    with pytest.raises(rs.OutputChangedError, match=r"part 2 of sink .* is gone"):
        out.restored(lost)
    assert out.rows() == [1, 3]


def test_a_snapshot_that_was_kept_when_the_system_went_back_behind_it_can_be_gone_back_to_until_the_next(
    out: Out,
    sink: Committer,
) -> None:
    """It was on the disk, and a host died before anybody was told."""
    first = recorded(sink, 1)
    sink.commit(first)
    later = recorded(sink, 2)
    again = out.restored(first)
    recorded(again, 5)
    out.restored(later)
    assert out.rows() == [1, 2]


def test_two_sinks_write_to_one_place(out: Out) -> None:
    one, two = out.begun("one"), out.begun("two")
    first, other = recorded(one, 1), recorded(two, 10)
    one.commit(first)
    two.commit(other)
    two.commit(recorded(two, 11))
    out.restored(first)
    assert out.rows() == [1, 10, 11]


def test_what_cannot_be_staged_is_not_lost(out: Out, sink: Committer) -> None:
    sink.write([{"n": 1}])
    shutil.rmtree(out.path / STAGED)
    with pytest.raises(OSError, match=STAGED):
        sink.stage()
    (out.path / STAGED).mkdir()
    sink.commit(sink.stage())
    assert out.rows() == [1]


def test_a_staged_part_that_is_gone_is_an_error_that_names_it(out: Out, sink: Committer) -> None:
    state = recorded(sink, 1)
    for file in (out.path / STAGED).iterdir():
        file.unlink()
    with pytest.raises(rs.OutputChangedError, match="part 1 of sink"):
        sink.commit(state)
    with pytest.raises(rs.OutputChangedError, match="part 1 of sink"):
        out.restored(state)


def test_a_past_that_was_put_aside_cannot_be_shown_by_who_still_belongs_to_it(out: Out, sink: Committer) -> None:
    first = recorded(sink, 1)
    second = recorded(sink, 2)
    out.restored(first)
    with pytest.raises(rs.OutputChangedError):
        sink.commit(second)
    assert out.rows() == [1]


def test_many_rows_are_staged_before_the_snapshot_and_show_with_it(
    out: Out, sink: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_snapshot.pipelines.two_phases.ROWS_PER_PART", 3)
    for number in range(8):
        sink.write([{"n": number}])
    assert len(list((out.path / STAGED).iterdir())) == 2
    sink.commit(sink.stage())
    assert out.rows() == list(range(8))


def test_what_was_shown_and_taken_away_by_its_reader_does_not_come_back(out: Out, sink: Committer) -> None:
    sink.commit(recorded(sink, 1))
    state = recorded(sink, 2)
    sink.commit(state)
    if out.kind is DeltaOutput:
        deltalake.DeltaTable(str(out.path)).delete("n = 1")
    else:
        next(path for path in out.path.glob("*-00000001-*")).unlink()
    out.restored(state)
    assert out.rows() == [2]


def take(out: Out, number: int) -> None:
    next(path for path in out.path.glob(f"*-{number:08d}-*")).unlink()


def test_a_reader_may_take_a_part_that_a_later_snapshot_still_names_as_pending(tmp_path: Path) -> None:
    """The later one was recorded before word of the one in front came."""
    out = Out(Folder, tmp_path / "out")
    sink = out.begun()
    first, second = recorded(sink, 1), recorded(sink, 2)
    sink.commit(first)
    take(out, 1)
    again = out.restored(second)  # kept, but the sink was not told
    assert out.rows() == [2]
    take(out, 2)
    third = recorded(again, 3)
    out.restored(second)
    assert out.rows() == []
    with pytest.raises(rs.OutputChangedError):
        again.commit(third)  # it was put aside


def test_a_part_that_was_taken_and_whose_past_is_over_is_an_error_as_any_other(tmp_path: Path) -> None:
    out = Out(Folder, tmp_path / "out")
    sink = out.begun()
    sink.commit(first := recorded(sink, 1))
    second = recorded(sink, 2)
    sink.commit(second)
    take(out, 2)
    out.restored(second)  # it has been seen
    again = out.restored(first)
    again.commit(recorded(again, 3))
    with pytest.raises(rs.OutputChangedError, match="part 2 of sink"):
        out.restored(second)
    assert out.rows() == [1, 3]


def test_a_delta_table_may_be_compacted_but_then_not_be_taken_back(tmp_path: Path) -> None:
    out = Out(DeltaOutput, tmp_path / "out")
    sink = out.begun()
    states = []
    for number in (1, 2, 3):
        states.append(recorded(sink, number))
        sink.commit(states[-1])
    table = deltalake.DeltaTable(str(out.path))
    table.optimize.compact()
    out.restored(states[2])
    assert out.rows() == [1, 2, 3]
    with pytest.raises(rs.OutputChangedError, match="compacted"):
        out.restored(states[1])
    assert out.rows() == [1, 2, 3]


def test_a_delta_table_that_others_write_to_meanwhile_loses_nothing(tmp_path: Path) -> None:
    out = Out(DeltaOutput, tmp_path / "out")
    sink = out.begun()
    state = recorded(sink, 1)
    looked_at = sink.output._table  # type: ignore[attr-defined]
    turns = iter(range(100))

    def overtaken() -> Any:
        found = looked_at()
        if next(turns) < 3:
            deltalake.write_deltalake(str(out.path), pa.table({"n": [7]}, schema=SCHEMA), mode="append")
        return found

    sink.output._table = overtaken  # type: ignore[attr-defined]
    sink.commit(state)
    assert out.rows() == [1, 7, 7, 7]


def test_rejected_parts_go_with_the_next_commit(tmp_path: Path) -> None:
    out = Out(Folder, tmp_path / "out")
    sink = out.begun()
    first = recorded(sink, 1)
    recorded(sink, 2)
    again = out.restored(first)
    assert len(list((out.path / REJECTED).iterdir())) == 1
    again.commit(recorded(again, 3))
    assert list((out.path / REJECTED).iterdir()) == []


@pytest.mark.parametrize(
    "rows",
    [
        [{"n": 1}, {"n": 2}],
        {"n": [1, 2]},
        pa.table({"n": pa.array([1, 2], pa.int32()), "more": ["a", "b"]}),
        pa.record_batch({"n": [1, 2]}),
    ],
)
def test_rows_may_be_given_in_several_forms(rows: Any) -> None:
    assert as_table(rows, SCHEMA).to_pydict() == {"n": [1, 2]}


@pytest.mark.parametrize(
    ("rows", "error"), [("text", rs.SettingError), ([{"n": "text"}], pa.ArrowInvalid), (7, rs.SettingError)]
)
def test_rows_that_do_not_fit_are_an_error_when_they_come_not_when_they_are_staged(
    rows: Any, error: type[Exception], tmp_path: Path
) -> None:
    sink = Out(Folder, tmp_path / "out").begun()
    with pytest.raises(error):
        sink.write(rows)
    assert sink.stage()["pending"] == []
