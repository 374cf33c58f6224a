"""Tables and large bytes on their way: what is in common is sent once, and what comes is what was sent."""

import datetime
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ray_snapshot import columns
from ray_snapshot.columns import PIECE_ROWS, alike, inner, lean, packed, squeezed, whole
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.ends import ENDS, NAMES
from ray_snapshot.runtime.pieces import cut
from ray_snapshot.schema import MACHINES, MESSAGES

MOMENTS = [
    None,
    datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC),
    datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
]
KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, 0, 1]),
    (pa.string(), [None, "", "a", "b"]),
    (pa.bool_(), [None, False, True]),
    (pa.float64(), [None, 0.5, float("inf")]),
    (pa.timestamp("us", "UTC"), MOMENTS),
    (pa.list_(pa.string()), [None, [], ["a"], [None]]),
    (NAMES, [None, "a", "b", ""]),
]


@st.composite
def tables(draw: Any) -> pa.Table:
    """Some batches; many columns have one value, in a batch or in all."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    schema = pa.schema([(f"c{place}", kind) for place, (kind, _) in enumerate(kinds)])
    batches = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 4))
        values = [draw(st.lists(st.sampled_from(some), min_size=1, max_size=max(1, rows))) for _, some in kinds]
        made = [(some * rows)[:rows] for some in values]
        batches.append(
            pa.RecordBatch.from_arrays(
                [pa.array(some, item.type) for some, item in zip(made, schema, strict=True)], schema=schema
            )
        )
    return pa.Table.from_batches(batches + batches[:1])


@pytest.fixture(scope="module")
def _all_are_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LEAST_LEAN", 1)
        yield


def come(table: Any) -> pa.Table:
    return whole(pickle.loads(pickle.dumps(lean(table), protocol=5)))


@pytest.mark.usefixtures("_all_are_large")
@given(tables())
@example(pa.concat_tables([pa.table({"a": pa.array([[]])}), pa.table({"a": pa.array([[]])[:0]})]))
@example(pa.table({"a": [1, 2, 1]}))
@example(pa.table({"a": pa.array([None, None, "a"])}))
@example(pa.table({"a": pa.array([0, 0, 0]).slice(1), "b": pa.array([[], ["x"], ["x"]]).slice(1)}))
@example(pa.table({"a": pa.array([["x"], [], []]).slice(1), "b": pa.array(["b", "a", "a"]).slice(1)}))
@example(pa.table({"a": pa.array([0.0, -0.0])}))
def test_what_comes_is_what_was_sent(table: pa.Table) -> None:
    found = come(table)
    assert repr(found.to_pylist()) == repr(table.to_pylist())
    assert found.schema == table.schema
    found.validate(full=True)


@pytest.mark.usefixtures("_all_are_large")
@pytest.mark.parametrize("schema", [inner(MACHINES), inner(MESSAGES), ENDS], ids=["machines", "messages", "ends"])
def test_rows_that_have_nothing_of_their_own_take_no_room(schema: pa.Schema) -> None:
    row = {item.name: _value(item.type) for item in schema}
    table = pa.Table.from_pylist([row] * 10_000, schema=schema)
    assert come(table).to_pylist() == table.to_pylist()
    assert len(pickle.dumps(lean(table), protocol=5)) < 10_000 < packed(table).size


def _value(kind: pa.DataType) -> Any:
    """Hosts give no row a number that is not whole."""
    return next((some[1] for known, some in KINDS if known == kind and kind != pa.float64()), None)


def test_a_batch_and_a_small_table_come_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "LEAST_LEAN", 1_000)
    batch = pa.RecordBatch.from_pydict({"a": [1] * columns.LEAST_LEAN, "b": [*range(columns.LEAST_LEAN)]})
    assert come(batch).to_pylist() == batch.to_pylist()
    small = pa.table({"a": [1, 1]})
    assert isinstance(lean(small), pa.Buffer)
    assert come(small).equals(small)


@pytest.mark.parametrize("rows", [0, 1, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 5 * PIECE_ROWS + 7])
@pytest.mark.parametrize("value", [pa.scalar("a name"), pa.scalar(3, pa.int64()), pa.scalar(None, pa.string())])
def test_a_column_of_one_value_takes_no_more_room_than_a_piece_of_it(rows: int, value: Any) -> None:
    before = pa.total_allocated_bytes()
    found = alike(value, rows)
    taken = pa.total_allocated_bytes() - before
    assert found.equals(pa.chunked_array([pa.repeat(value, rows)]))
    assert found.type == value.type
    assert taken < 16 * PIECE_ROWS + 1_000


@pytest.mark.parametrize(
    ("size", "count"),
    [
        (0, 1),
        (LIMITS.piece_bytes, 1),
        (LIMITS.piece_bytes + 1, 2),
        (LIMITS.pieces_bytes, 17),
        (LIMITS.pieces_bytes + 1, 1),
    ],
)
def test_a_batch_is_cut_where_that_saves_the_way_through_the_store(size: int, count: int) -> None:
    whole = bytes(range(256)) * (size // 256 + 1)
    found = cut(whole[:size])
    assert (len(found), b"".join(found)) == (count, whole[:size])


@pytest.mark.parametrize("size", [10, 100_000, 6_000_000])
def test_a_squeezed_pickle_yields_the_same(size: int) -> None:
    value = {"text": "ab" * (size // 2)}
    plain = pickle.dumps(value, protocol=5)
    found = squeezed(plain)
    assert pickle.loads(found) == value
    assert (len(found) < len(plain) / 10) == (size > 10)
