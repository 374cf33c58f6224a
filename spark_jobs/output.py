"""What a job leaves behind: Parquet results, a table for people, JSON lines for programs.

The only place of the jobs that brings rows to the driver, and only as many as are shown.
Imports no other part of `spark_jobs`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LONGEST_CELL = 48
_JSON_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown: which of its columns, under which title, sorted by which (`-` in front: the largest first)."""

    name: str
    title: str
    columns: tuple[str, ...]
    order: tuple[str, ...]
    none: str = "none"
    """What is said where there is no row."""


def results(frames: Mapping[str, DataFrame], out: str | None) -> dict[str, DataFrame]:
    """The frames, each computed once: read back from Parquet files under `out`, or kept by Spark if there is no `out`."""
    return {name: _kept(name, frame, out) for name, frame in frames.items()}


def _kept(name: str, frame: DataFrame, out: str | None) -> DataFrame:
    if out is None:
        return frame.persist()
    path = f"{out.rstrip('/')}/{name}"
    frame.write.mode("overwrite").parquet(path)
    return frame.sparkSession.read.schema(frame.schema).parquet(path)


def print_view(view: View, frame: DataFrame, top: int) -> None:
    """Print the first `top` rows of a result: a table on a terminal, plain lines elsewhere."""
    table = _sorted(view, frame).select(*view.columns).limit(top + 1).toArrow()
    rows = [[_cell(value) for value in row.values()] for row in table.slice(0, top).to_pylist()]
    names = [name.replace("_", " ") for name in view.columns]
    note = f"the first {top}; --top shows more" if table.num_rows > top else ""
    if not rows:
        print(f"{view.title}: {view.none}")
    elif sys.stdout.isatty():
        _print_rich(view.title, names, rows, note)
    else:
        _print_plain(view.title, names, rows, note)


def print_json(view: View, frame: DataFrame) -> None:
    """Print every row of a result, with all of its columns, as one JSON object a line."""
    for row in _rows(_sorted(view, frame)):
        print(json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False))


def _sorted(view: View, frame: DataFrame) -> DataFrame:
    columns = (F.desc_nulls_last(name[1:]) if name.startswith("-") else F.asc_nulls_last(name) for name in view.order)
    return frame.orderBy(*columns)


def _rows(frame: DataFrame) -> Iterator[dict[str, Any]]:
    """The rows of a frame in its order, as Python values, times in UTC."""
    for batch in frame.toArrow().to_batches(max_chunksize=_JSON_BATCH_ROWS):
        yield from batch.to_pylist()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float | str | list) else str(value)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d}"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case list():
            text = ", ".join(map(str, value))
        case _:
            text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."


def _print_rich(title: str, names: list[str], rows: list[list[str]], note: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _print_plain(title: str, names: list[str], rows: list[list[str]], note: str) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    print(f"{title}{f' ({note})' if note else ''}")
    for row in [names, *rows]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
