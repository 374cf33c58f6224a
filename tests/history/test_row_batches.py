"""How many snapshots are read at once: of their rows a bounded number, and about as many each time."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.history.verification import row_batches


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_each_is_read_once_in_order_and_no_more_rows_than_may_be(rows: list[int], most: int) -> None:
    sizes = {f"s-{place}": count for place, count in enumerate(rows)}
    found = list(row_batches(sizes, most))
    assert [*chain.from_iterable(found)] == [*sizes]
    assert all(len(batch) == 1 or sum(sizes[one] for one in batch) <= most for batch in found)


def test_none_of_them_is_left_over() -> None:
    sizes = {f"s-{place}": 24_500 for place in range(256)}
    assert [len(batch) for batch in row_batches(sizes, 3_000_000)] == [86, 86, 84]


def test_snapshots_without_rows_are_read_together() -> None:
    assert len(list(row_batches({f"s-{place}": 0 for place in range(400)}))) == 1
