"""Results as tables for a person: the heading of a column follows from its name, how a value is written from its type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ray_snapshot.names import word_for
from ray_snapshot.views.tables import Column, print_table

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 200
"""Characters of a value in a table; `--json` has all of them."""


def print_result(
    table: pa.Table, title: str, columns: Sequence[str], minor: Sequence[str], noun: str = "machine"
) -> None:
    """Print all rows of a table; a narrow terminal does without the columns of `minor`, the first of them first. `noun`: what a
    machine is called."""
    rows = [{name: readable(value) for name, value in row.items()} for row in table.to_pylist()]
    ranks = {name: len(minor) - place for place, name in enumerate(minor)}
    shown = [_column(name, table[name], ranks.get(name, 0), noun) for name in columns]
    print_table(rows, shown, title=title.replace("Machines", f"{noun.capitalize()}s"))


def _column(name: str, values: pa.ChunkedArray, minor: int, noun: str) -> Column:
    """Text that has spaces may be broken at them; names and ids have none."""
    import pyarrow as pa

    heading = word_for(name, noun).removesuffix("_id").removesuffix("_name").replace("_", " ")
    heading = f"{heading[:-3]} (UTC)" if name.endswith("_at") else heading
    is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    wraps = pa.types.is_string(values.type) and any(" " in (text or "") for text in values.to_pylist())
    return Column(heading, name, right=bool(is_number), wraps=wraps, minor=minor)


def readable(value: Any) -> Any:
    """Numbers with thousands apart and without digits that mean nothing, long texts without their ends; all else as it is."""
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]} ... ({len(value):,} characters)"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}"
