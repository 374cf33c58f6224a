"""Filters that Spark hands down, as Arrow expressions: what Parquet's statistics can skip is never read.

Only filters on single columns that hold text, whole numbers, times, dates or truth values. Spark applies all of them again,
so that nothing here can add a row. Imports no Spark session and no history.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: lambda column, value: column == value,
    GreaterThan: lambda column, value: column > value,
    GreaterThanOrEqual: lambda column, value: column >= value,
    LessThan: lambda column, value: column < value,
    LessThanOrEqual: lambda column, value: column <= value,
}


def all_of(filters: Iterable[Filter], schema: pa.Schema) -> pc.Expression | None:
    """The rows that pass those of `filters` that can be applied while reading; None if there is none."""
    terms = [term for one in filters if (term := expression(one, schema)) is not None]
    return functools.reduce(operator.and_, terms) if terms else None


def expression(one: Filter, schema: pa.Schema) -> pc.Expression | None:
    """One filter as Arrow's; None if it must stay with Spark."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    kind = schema.field(path[0]).type if len(path) == 1 and path[0] in schema.names else None
    if kind is None or not _is_plain(kind):
        return None
    column = pc.field(path[0])
    match one:
        case IsNull():
            return column.is_null()
        case IsNotNull():
            return column.is_valid()
        case In(value=values):
            known = [_value(value, kind) for value in values if value is not None]
            return None if None in known else column.isin(pa.array(known, kind))
        case StringStartsWith(value=prefix) if pa.types.is_string(kind):
            return pc.starts_with(column, prefix)
    compare, value = _COMPARISONS.get(type(one)), _value(getattr(one, "value", None), kind)
    return None if compare is None or value is None else compare(column, pa.scalar(value, kind))


def bounds(filters: Iterable[Filter], column: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column that can pass; None where there is no bound."""
    low: list[Any] = []
    high: list[Any] = []
    for one in filters:
        if getattr(one, "attribute", ()) != (column,):
            continue
        match one:
            case EqualTo(value=value):
                low.append(value)
                high.append(value)
            case In(value=values) if values and None not in values:
                low.append(min(values))
                high.append(max(values))
            case StringStartsWith(value=prefix):
                low.append(prefix)
            case GreaterThan(value=value) | GreaterThanOrEqual(value=value):
                low.append(value)
            case LessThan(value=value) | LessThanOrEqual(value=value):
                high.append(value)
    return max(low, default=None), min(high, default=None)


_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_string, str),
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_date, date),
)
"""Columns that can be filtered by. Not floating-point ones: Spark holds NaN to be the greatest number, Arrow does not."""


def _is_plain(kind: pa.DataType) -> bool:
    return any(is_of(kind) for is_of, _ in _CLASSES)


def _value(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow takes it; None if it does not belong to such a column. Spark's times are local ones."""
    (wanted,) = (found for is_of, found in _CLASSES if is_of(kind))
    if type(value) is not wanted:
        return None
    return value.astimezone(UTC) if isinstance(value, datetime) else value
