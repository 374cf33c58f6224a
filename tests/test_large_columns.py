"""Rows in any order whose texts do not fit into one Arrow array (made small here), names to integers, and views of rows."""

import pickle
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot import Snapshot, large_columns
from ray_snapshot.errors import UnknownMachineError
from ray_snapshot.large_columns import in_order, joined, taken
from ray_snapshot.name_index import NameIndex, Words

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("text", pa.string()),
        ("number", pa.int64()),
        ("names", pa.list_(pa.string())),
        ("coded", pa.dictionary(pa.int32(), pa.string())),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "name": st.sampled_from("abc"),
        "text": st.none() | st.text(max_size=40),
        "number": st.integers(0, 3) | st.none(),
        "names": st.none() | st.lists(st.sampled_from("xy"), max_size=2),
        "coded": st.sampled_from(["p", "q"]),
    }
)


@st.composite
def tables(draw: Any) -> pa.Table:
    """Some rows, in several pieces, of which each may begin inside of a longer one."""
    parts = draw(st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=3))
    found = pa.concat_tables([pa.Table.from_pylist(part, schema=SCHEMA) for part in parts]).unify_dictionaries()
    return found.slice(draw(st.integers(0, 2)))


@given(tables(), st.randoms(use_true_random=False))
def test_rows_are_taken_in_any_order_and_each_piece_is_small(table: pa.Table, chance: Any) -> None:
    places = list(range(table.num_rows))
    chance.shuffle(places)
    places = places[: chance.randrange(table.num_rows + 1)]
    with patch.object(large_columns, "MOST_TOGETHER", 0), patch.object(large_columns, "PIECE", 64):
        found = taken(table, pa.array(places, pa.int64()))
        ordered = in_order(table, ("name", "number"))
    found.validate(full=True)
    assert found.schema == table.schema
    assert found.to_pylist() == table.take(pa.array(places, pa.int64())).to_pylist()
    keys = [("name", "ascending"), ("number", "ascending")]
    assert ordered.to_pylist() == table.take(pc.sort_indices(table, sort_keys=keys)).to_pylist()
    longest = max([len(row["name"] + (row["text"] or "")) * 4 for row in found.to_pylist()], default=0)
    assert all(_bytes(batch) <= 64 + longest for batch in found.to_batches())


def _bytes(batch: pa.RecordBatch) -> int:
    return sum(pc.sum(pc.binary_length(batch[name])).as_py() or 0 for name in ("name", "text"))


def test_columns_in_several_pieces_are_joined_in_their_order() -> None:
    parts = [pa.array(["a"]), pa.chunked_array([["b"], ["c", "d"]])]
    assert joined(parts).to_pylist() == ["a", "b", "c", "d"]


@given(
    st.lists(st.lists(st.none() | st.text(max_size=3), max_size=4), min_size=1, max_size=4), st.sets(st.integers(0, 15))
)
def test_values_are_picked_from_all_pieces(pieces: list[list[str | None]], places: set[int]) -> None:
    column = pa.chunked_array([pa.array(piece, pa.string()) for piece in pieces])
    rows = np.array(sorted(place for place in places if place < len(column)), np.int64)
    if len(rows):
        assert large_columns.picked(column, rows).to_pylist() == column.take(pa.array(rows)).to_pylist()


NAMES = st.text("ab\x00é-0", max_size=20) | st.sampled_from(["x" * 64, "x" * 65, "x" * 9, "Account-000001"])


def _expected(values: list[str | None], names: list[str]) -> list[int]:
    return [names.index(value) if value is not None and value in names else -1 for value in values]


@given(st.lists(NAMES, max_size=40), st.lists(NAMES | st.none(), max_size=60), st.integers(0, 3))
def test_each_name_stands_at_its_first_place(names: list[str], values: list[str | None], cut: int) -> None:
    index = NameIndex(pa.array(names, pa.string())[cut:])
    asked = pa.array([*values, *names], pa.string())[cut:]
    found = index.positions(asked)
    assert found.dtype == np.int64
    assert found.tolist() == _expected(asked.to_pylist(), names[cut:])
    if len(set(names)) == len(names):
        assert index.positions_of_runs(asked).tolist() == found.tolist()


@given(st.lists(st.sampled_from(["active", "blocked", "odd"]) | st.none(), max_size=20), st.integers(0, 3))
def test_which_rows_have_one_of_some_words(values: list[str | None], cut: int) -> None:
    words = Words(pa.array(values, pa.string())[cut:])
    assert words.are("blocked", "odd", "unknown").tolist() == [value in ("blocked", "odd") for value in values[cut:]]
    assert not words.are().any()


def test_a_machine_that_a_snapshot_has_not_is_missing_as_from_any_mapping() -> None:
    machines = Snapshot.from_rows(machines=[{"machine": "a"}]).machines
    assert machines.get("b") is None
    with pytest.raises(UnknownMachineError, match=r"^no machine 'b' in this snapshot; it has") as error:
        machines["b"]
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
