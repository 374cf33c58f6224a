"""Names to integers: the same, whatever the names are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.name_index import NameIndex, Words

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
