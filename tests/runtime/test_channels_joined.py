"""The row of a channel is what its two ends say of it, whatever parts tell of them."""

from __future__ import annotations

import pickle
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ray_snapshot import columns
from ray_snapshot.columns import Columns, inner, lean, packed, unpacked, unspread
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime import joined_ends
from ray_snapshot.runtime.ends import ENDS, OWNED
from ray_snapshot.runtime.host.resting import RestingRows, Rows
from ray_snapshot.runtime.rows import END_ROW
from ray_snapshot.schema import CHANNELS, MACHINES

NAMES = st.sampled_from(["a", "b", "é", ""])
COUNTS = st.sampled_from([0, 0, 1, 2, 2**53, 2**53 + 1, 2**57, -1])  # of a channel there may be 36, within 64 bits
ROW = st.tuples(NAMES, NAMES, st.sampled_from(["mail", "call"]), *[COUNTS] * 5)
Row = tuple[Any, ...]


def joined(parts: list[list[Row]]) -> list[dict[str, Any]]:
    """The rows of channels, an end at a time."""
    sums: dict[Row, list[int]] = {}
    for row in (row for part in parts for row in part):
        found = sums.setdefault(row[:3], [0] * 5)
        found[:] = [one + more for one, more in zip(found, row[3:], strict=True)]
    rows = []
    for (source, target, kind), (sent, accepted, in_flight, held, duplicates) in sums.items():
        row = dict.fromkeys(inner(CHANNELS).names, 0)
        row |= {"source": source, "target": target, "kind": kind, "sent_count": sent, "accepted_count": accepted}
        row |= {"in_flight_count": in_flight + held, "duplicate_count": duplicates}
        rows.append({**row, "recorded_by": "sender" if held > 0 else "marker"})
    return rows


def sent(part: list[Row]) -> list[Columns]:
    """As a part brings it: its names are its own, and a column of one value has one row."""
    made = pa.Table.from_pylist([dict(zip(END_ROW, row, strict=True)) for row in part], schema=ENDS)
    return unspread(pickle.loads(pickle.dumps(lean(made), protocol=5)))


def found_in(parts: list[list[Row]]) -> list[dict[str, Any]]:
    """What is made of these parts; of one source all channels stand together."""
    found = joined_ends.joined_ends(chain.from_iterable(map(sent, parts)), "marker")
    assert found.schema == inner(CHANNELS)
    sources = [name for name, _ in groupby(found["source"].to_pylist())]
    assert len(sources) == len({*sources})
    return in_order(found.to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["source"], row["target"], row["kind"]))


@pytest.mark.parametrize("least", [1, 1_000], ids=["lean", "plain"])
@given(parts=st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=3))
@example(
    parts=[[("a", "b", "mail", 2**53, 0, 0, 0, 0)], [("b", "a", "mail", *[0] * 5), ("a", "b", "mail", 1, 0, 0, 0, 0)]]
)
@example(parts=[[("b", "a", "call", 1, 0, 0, 0, 0)], [("a", "b", "mail", 0, 1, 0, 0, 0)]])
@example(parts=[[("a", "b", "mail", 1, 2, 3, 4, 5)] * 2, []])
def test_a_channel_is_what_both_ends_say(least: int, parts: list[list[Row]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "LEAST_LEAN", least)
        assert found_in(parts) == in_order(joined(parts))


@pytest.mark.parametrize("left", [0, 1, 7])
@pytest.mark.parametrize("pieces", [1, 3])
def test_names_of_machines_that_rest_no_more_are_not_sent(left: int, pieces: int) -> None:
    names = [f"m{number}" for number in range(3 * LIMITS.spare_names)]
    rows = RestingRows("h")
    rows.shapes = dict.fromkeys(names)
    rows.machines = Rows(pa.Table.from_pylist([{"machine": name} for name in names], schema=inner(MACHINES)))
    given = [{**dict(zip(END_ROW, (name, "b", "mail", 3, 0, 0, 0, 0), strict=True)), "owner": name} for name in names]
    made = pa.Table.from_pylist(given, schema=OWNED)
    size = len(names) // pieces
    rows.ends = pa.concat_tables([unpacked(packed(made.slice(at * size, size))) for at in range(pieces)])
    for shown in (rows.beside(names[left:]).ends, (rows.forget(names[left:]), rows.ends)[1]):
        assert shown.to_pylist() == made.select(shown.column_names)[:left].to_pylist()
        assert shown.schema.equals(ENDS if "owner" not in shown.column_names else OWNED)
        assert packed(shown).size < packed(made.select(shown.column_names)).size / 10
