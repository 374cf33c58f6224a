"""Names to integers: a table of our own gives what Arrow's gives, whatever the names are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_snapshot import name_index
from ray_snapshot.name_index import NameIndex, Words

NAMES = st.text("ab\x00é-0", max_size=20) | st.sampled_from(["x" * 64, "x" * 65, "x" * 9, "Account-000001"])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small columns are looked up as large ones are."""
    monkeypatch.setattr(name_index, "_MANY", 1)
    monkeypatch.setattr(name_index, "_AT_ONCE", 7)


def _expected(values: list[str | None], names: list[str]) -> list[int]:
    return [names.index(value) if value is not None and value in names else -1 for value in values]


@given(st.lists(NAMES, max_size=40), st.lists(NAMES | st.none(), max_size=60), st.integers(0, 3))
@settings(max_examples=300)
def test_each_name_stands_at_its_first_place(names: list[str], values: list[str | None], cut: int) -> None:
    index = NameIndex(pa.array(names, pa.string())[cut:])
    asked = pa.array([*values, *names], pa.string())[cut:]

    found = index.positions(asked)

    assert found.dtype == np.int64
    assert found.tolist() == _expected(asked.to_pylist(), names[cut:])
    if len(set(names)) == len(names):
        assert index.positions_of_runs(asked).tolist() == found.tolist()


@pytest.mark.parametrize("width", [1, 8, 9, 16, 40])
def test_names_whose_slots_are_taken_are_found_in_the_next_ones(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_index, "_GOLDEN", np.uint64(1))  # all names get the first slot
    names = [f"{number:0{width}d}"[-width:] for number in range(10 if width == 1 else 100)]
    others = [f"{number:0{width}d}" for number in range(100, 120)]
    index = NameIndex(pa.array(names))

    assert index.positions(pa.array(names[::-1] + others)).tolist() == _expected(names[::-1] + others, names)


def test_a_longer_name_that_begins_like_one_is_not_that_one() -> None:
    index = NameIndex(pa.array(["12345678", "a"]))

    assert index.positions(pa.array(["123456789", "12345678", "a\x00", "a", ""])).tolist() == [-1, 0, -1, 1, -1]


@given(st.lists(st.sampled_from(["active", "blocked", "odd"]) | st.none(), max_size=20), st.integers(0, 3))
def test_which_rows_have_one_of_some_words(values: list[str | None], cut: int) -> None:
    words = Words(pa.array(values, pa.string())[cut:])

    assert words.are("blocked", "odd", "unknown").tolist() == [value in ("blocked", "odd") for value in values[cut:]]
    assert not words.are().any()
