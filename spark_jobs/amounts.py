"""The amounts that a ledger counts, in states and arguments, and their sums: Spark's own expressions over JSON columns.

An integer of at most 64 bits at one of a few paths is read the quick way, and added by halves; all else is parsed as VARIANT.
Sums are exact, or unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.names import DRIVER

EXACT = "decimal(38,12)"
"""Integers and recorded decimals are added exactly, up to 10**26 and to twelve places."""

_FINER = "decimal(38,18)"
_WHOLE = ("BIGINT", "BOOLEAN")
_ROUNDED = ("DOUBLE", "FLOAT")
_TAGGED = tuple(f"OBJECT<{quote}${tag}{quote}: STRING>" for tag in ("int", "decimal") for quote in ("", "`"))
"""How Spark names the types of JSON numbers, and of the recorded form of Python's exact ones."""


def in_machines(machines: DataFrame, settings: DataFrame, *kept: str, quick: Sequence[str] = ()) -> DataFrame:
    """The amount in each machine that a ledger counts; a state without one holds 0, and so does a driver without state."""
    path = F.coalesce("state_path", F.try_element_at("state_paths", F.col("class_name")))
    driver = (F.col("machine") == DRIVER) & _recorded("state").isNull()
    frame = machines.where(~driver).join(settings, "run_id", "inner").withColumn("path", path)
    return _amounts(frame.where(F.col("path").isNotNull()), "state", *kept, missing_is_zero=True, quick=quick)


def in_messages(messages: DataFrame, settings: DataFrame, *kept: str, quick: Sequence[str] = ()) -> DataFrame:
    """The amount in each message in flight of a method that a ledger counts."""
    path = F.try_element_at("message_paths", F.col("method"))
    frame = messages.join(settings, "run_id", "inner").withColumn("path", path)
    return _amounts(frame.where(F.col("path").isNotNull()), "args", *kept, missing_is_zero=False, quick=quick)


def _recorded(column: str) -> Column:
    """The text of a JSON column where it was recorded whole: JSON's null is no state and no list of arguments."""
    whole = ~F.coalesce(f"{column}_truncated", F.lit(False)) & (F.col(column) != "null")
    return F.when(whole, F.col(column))


def _whole_number(text: Column, quick: Sequence[str]) -> Column:
    """The number at the column `path`, where that is one of the paths `quick` and there is a JSON integer of at most 64 bits,
    which is by far the most frequent; else null."""
    found = F.lit(None).cast("bigint")
    for path in quick:
        found = F.when(F.col("path") == path, _long_at(text, compile_path(path).steps)).otherwise(found)
    return found


def _long_at(text: Column, steps: Sequence[str | int]) -> Column:
    """Spark reads an integer alone as a bigint: no text, no truth value, no number with a point."""
    kind: DataType = LongType()
    for step in reversed(steps):
        kind = StructType([StructField(step, kind)]) if isinstance(step, str) else ArrayType(kind)
    # An object would be read as a list of that one object.
    value = F.from_json(F.when(text.startswith("{" if isinstance(steps[0], str) else "["), text), kind)
    for step in steps:
        value = value[step] if isinstance(step, str) else F.get(value, step)
    return value


def _amounts(frame: DataFrame, column: str, *kept: str, missing_is_zero: bool, quick: Sequence[str] = ()) -> DataFrame:
    """`whole`, `exact` or `rounded` of each row: an amount as integer, decimal or float; `unreadable` where a number is due
    but is none."""
    frame = (
        frame.withColumn("text", _recorded(column))
        .withColumn("whole", _whole_number(F.col("text"), quick))
        .withColumn("parsed", F.when(F.col("whole").isNull(), F.try_parse_json("text")))
        .withColumn("value", F.try_variant_get("parsed", F.col("path"), "variant"))
        .withColumn("variant_kind", F.schema_of_variant("value"))
    )
    kind = F.col("variant_kind")  # a channel has a column `kind` of its own
    decimal = kind.startswith("DECIMAL")  # which JSON numbers Spark calls so
    whole = kind.isin(*_WHOLE) | (decimal & kind.endswith(",0)"))
    exact = F.when(whole, _as(EXACT)).when(kind.isin(*_TAGGED), _untagged())
    rounded = F.when((decimal | kind.isin(*_ROUNDED)) & ~whole, _as("double"))
    nothing = F.col("parsed").isNotNull() & (F.col("value").isNull() | (kind == "VOID")) & F.lit(missing_is_zero)
    return frame.select(
        "snapshot_id",
        "detector",
        F.lit(column == "state").alias("in_machine"),
        "whole",
        exact.alias("exact"),
        rounded.alias("rounded"),
        (F.col("whole").isNull() & exact.isNull() & rounded.isNull() & ~nothing).alias("unreadable"),
        *kept,
    )


def _as(kind: str) -> Column:
    return F.try_variant_get("value", F.lit("$"), kind)


def _untagged() -> Column:
    """The number in `{"$int": "..."}` or `{"$decimal": "..."}`; null if it has more places than `EXACT`."""
    text = F.coalesce(*(F.try_variant_get("value", F.lit(f"$['{tag}']"), "string") for tag in ("$int", "$decimal")))
    found, finer = text.try_cast(EXACT), text.try_cast(_FINER)
    return F.when(finer.isNull() | (finer == found.try_cast(_FINER)), found)


def sums(amounts: DataFrame) -> DataFrame:
    """Per snapshot and ledger: the sums by place and kind of number, and how many amounts could not be read or added."""
    machine, exact, whole = F.col("in_machine"), F.col("exact"), F.col("whole")
    has_amount = F.bool_or(whole.isNotNull() | exact.isNotNull() | F.col("rounded").isNotNull())
    in_all = _added(F.try_sum(exact), _sum_of_whole(whole))
    overflow = F.bool_or(whole.isNotNull() | exact.isNotNull()) & in_all.isNull()
    return amounts.groupBy("snapshot_id", "detector").agg(
        _added(F.try_sum(F.when(machine, exact)), _sum_of_whole(F.when(machine, whole))).alias("machine_exact"),
        F.sum(F.when(machine, F.col("rounded"))).alias("machine_rounded"),
        _added(F.try_sum(F.when(~machine, exact)), _sum_of_whole(F.when(~machine, whole))).alias("message_exact"),
        F.sum(F.when(~machine, F.col("rounded"))).alias("message_rounded"),
        (F.count_if("unreadable") + overflow.cast("int")).alias("unreadable"),
        # Nobody holds anything where the paths lead: they are probably wrong.
        (F.bool_or(machine) & ~has_amount).alias("pathless"),
    )


def _sum_of_whole(numbers: Column) -> Column:
    """The exact sum of 64-bit integers: by halves, which cannot overflow, and are added much faster than decimals."""
    upper, lower = F.sum(F.shiftright(numbers, 32)), F.sum(numbers.bitwiseAND(F.lit(2**32 - 1)))
    return upper.cast("decimal(20,0)") * F.lit(2**32).cast("decimal(10,0)") + lower.cast("decimal(20,0)")


def _added(exact: Column, whole: Column) -> Column:
    """The sum of what is there of the two; null if nothing is, or if it is too large."""
    small = whole.try_cast(EXACT)
    return F.when(whole.isNull(), exact).when(exact.isNull(), small).otherwise(F.try_add(exact, small).try_cast(EXACT))
