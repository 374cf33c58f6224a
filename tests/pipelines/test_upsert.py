"""The latest row of each key: written again without harm, and by nobody of a past that was given up."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.pipelines import UpsertSink

pytestmark = pytest.mark.contract


class Sink(UpsertSink):
    """Without a host."""

    machine_name = "sink"


def begun(path: Path, keys: Sequence[str] = ("word",), columns: Sequence[str] = ("count",)) -> Sink:
    return Sink(path / "rows.sqlite", keys, columns)


def restored(state: dict[str, Any]) -> Sink:
    sink = Sink.__new__(Sink)
    sink.restore_state(state)
    return sink


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path / "rows.sqlite")) as connection:
        return connection.execute("SELECT * FROM rows ORDER BY 1").fetchall()


def test_the_last_row_of_each_key_stays(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    sink.write([{"word": "a", "count": 1}, {"word": "b", "count": 1}, {"word": "a", "count": 2}])
    sink.write([{"word": "b", "count": 7}])
    assert rows(tmp_path) == [("a", 2), ("b", 7)]


def test_what_is_written_again_after_going_back_changes_nothing_in_the_end(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    sink.write([{"word": "a", "count": 1}])
    state = dict(sink.snapshot_state())
    sink.write([{"word": "a", "count": 2}, {"word": "b", "count": 1}])
    again = restored(state)
    again.write([{"word": "a", "count": 2}, {"word": "b", "count": 1}, {"word": "a", "count": 3}])
    assert rows(tmp_path) == [("a", 3), ("b", 1)]


def test_nobody_of_a_past_that_was_given_up_may_write(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    sink.write([{"word": "a", "count": 1}])
    again = restored(dict(sink.snapshot_state()))
    again.write([{"word": "a", "count": 2}])
    with pytest.raises(rs.OutputChangedError, match="another sink has taken over"):
        sink.write([{"word": "a", "count": 99}, {"word": "b", "count": 99}])
    again.write([])
    assert rows(tmp_path) == [("a", 2)]


def test_a_row_that_lacks_a_column_is_an_error_and_nothing_of_its_batch_is_written(tmp_path: Path) -> None:
    sink = begun(tmp_path)
    sink.write([{"word": "a", "count": 1}])
    with pytest.raises(KeyError):
        sink.write([{"word": "a", "count": 2}, {"word": "b"}])
    assert rows(tmp_path) == [("a", 1)]


def test_keys_alone_make_a_set(tmp_path: Path) -> None:
    sink = begun(tmp_path, ["word", "page"], [])
    sink.write([{"word": "a", "page": 1}, {"word": "a", "page": 1}, {"word": "a", "page": 2}])
    assert rows(tmp_path) == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("keys", "columns"), [([], ["count"]), (["a b"], []), (["word"], ['count"; DROP TABLE rows; --'])]
)
def test_columns_that_cannot_be_are_refused(tmp_path: Path, keys: list[str], columns: list[str]) -> None:
    with pytest.raises(rs.SettingError):
        begun(tmp_path, keys, columns)
