"""The amounts that a ledger counts, in states and arguments, and their sums: Spark's own expressions over JSON columns.

Integers of at most 64 bits at one of a few paths are read and added the quick way; all else is parsed as VARIANT.
Sums are exact, or unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.names import DRIVER

EXACT = "decimal(38,12)"
"""Integers and recorded decimals are added exactly, up to 10**26 and to twelve places."""

_FINER = "decimal(38,18)"
_WHOLE = ("BIGINT", "BOOLEAN")
_ROUNDED = ("DOUBLE", "FLOAT")
_TAGGED = tuple(f"OBJECT<{quote}${tag}{quote}: STRING>" for tag in ("int", "decimal") for quote in ("", "`"))
"""How Spark names the types of JSON numbers, and of the recorded form of Python's exact ones."""


def in_machines(machines: DataFrame, settings: DataFrame, *kept: str) -> DataFrame:
    """The amount in each machine that a ledger counts; a state without one holds 0."""
    return _amounts(_of_machines(machines, settings), "state", *kept)


def in_messages(messages: DataFrame, settings: DataFrame, *kept: str) -> DataFrame:
    """The amount in each message in flight of a method that a ledger counts."""
    return _amounts(_of_messages(messages, settings), "args", *kept)


def sums(machines: DataFrame, messages: DataFrame, settings: DataFrame, quick: Sequence[str] = ()) -> DataFrame:
    """Per snapshot and ledger: the sums by place and kind of number, and how many amounts could not be read or added.

    What is a whole number at one of the paths `quick` is added first; only where there is anything else are the rows looked
    at again, and parsed.
    """
    frames = {"state": _of_machines(machines, settings), "args": _of_messages(messages, settings)}
    if not quick:
        return _sums(*(_amounts(frame, column) for column, frame in frames.items()))
    fast = [_added_whole(frame, column, quick) for column, frame in frames.items()]
    added = fast[0].unionByName(fast[1]).persist()
    if added.where("others > 0").isEmpty():
        return _sums(added)
    rest = (
        _amounts(_with_whole(frame, column, quick).where("whole is null"), column) for column, frame in frames.items()
    )
    return _sums(added, *rest)


def _of_machines(machines: DataFrame, settings: DataFrame) -> DataFrame:
    """The machines that ledgers count, with the `path` of each; a driver without a state holds nothing."""
    path = F.coalesce("state_path", F.try_element_at("state_paths", F.col("class_name")))
    driver = (F.col("machine") == DRIVER) & _recorded("state").isNull()
    frame = machines.where(~driver).join(settings, "run_id", "inner").withColumn("path", path)
    return frame.where(F.col("path").isNotNull())


def _of_messages(messages: DataFrame, settings: DataFrame) -> DataFrame:
    path = F.try_element_at("message_paths", F.col("method"))
    frame = messages.join(settings, "run_id", "inner").withColumn("path", path)
    return frame.where(F.col("path").isNotNull())


def _recorded(column: str) -> Column:
    """The text of a JSON column where it was recorded whole: JSON's null is no state and no list of arguments."""
    whole = ~F.coalesce(f"{column}_truncated", F.lit(False)) & (F.col(column) != "null")
    return F.when(whole, F.col(column))


def _with_whole(frame: DataFrame, column: str, quick: Sequence[str]) -> DataFrame:
    """With `whole`: the number at `path`, where that is one of the paths `quick` and there is a JSON integer of at most 64
    bits, which is by far the most frequent; else null.

    What Spark extracts is text, and does not tell a number from a string: nowhere may the same stand in quotes.
    """
    extracted = F.lit(None).cast("string")
    for path in filter(None, map(_sparks, quick)):
        extracted = F.when(F.col("path") == path[0], F.get_json_object("text", path[1])).otherwise(extracted)
    found, text = F.col("found"), F.col("text")
    may_be_text = text.contains(F.concat(F.lit('"'), found, F.lit('"'))) | text.contains("\\")
    # One column at a time: Spark would extract once for each time that it is named.
    frame = frame.withColumn("text", _recorded(column)).withColumn("found", extracted)
    return frame.withColumn("whole", F.when(~may_be_text, found.try_cast("bigint")))


def _sparks(path: str) -> tuple[str, str] | None:
    """A path, and as `get_json_object` has it; None if that has no such path."""
    steps = compile_path(path).steps
    if any(isinstance(step, str) and (not step or step == "*" or {*step} & {*"'?"}) for step in steps):
        return None
    return path, "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps)


def _added_whole(frame: DataFrame, column: str, quick: Sequence[str]) -> DataFrame:
    """Per snapshot and ledger: the exact sum of all that is a whole number, and how many `others` there are.

    By halves, which cannot overflow, and are added much faster than decimals.
    """
    found = (
        _with_whole(frame, column, quick)
        .groupBy("snapshot_id", "detector")
        .agg(
            F.sum(F.shiftright("whole", 32)).alias("upper"),
            F.sum(F.col("whole").bitwiseAND(F.lit(2**32 - 1))).alias("lower"),
            F.count_if(F.col("whole").isNull()).alias("others"),
        )
    )
    whole, two = F.col("upper").cast("decimal(20,0)"), F.lit(2**32).cast("decimal(10,0)")
    return found.select(
        "snapshot_id",
        "detector",
        F.lit(column == "state").alias("in_machine"),
        F.col("upper").isNotNull().alias("is_exact"),
        (whole * two + F.col("lower").cast("decimal(20,0)")).try_cast(EXACT).alias("exact"),
        F.lit(None).cast("double").alias("rounded"),
        F.lit(False).alias("unreadable"),
        "others",
    )


def _amounts(frame: DataFrame, column: str, *kept: str) -> DataFrame:
    """`exact` or `rounded` of each row: an amount as decimal or float; `unreadable` where a number is due but is none."""
    frame = (
        frame.withColumn("parsed", F.try_parse_json(_recorded(column)))
        .withColumn("value", F.try_variant_get("parsed", F.col("path"), "variant"))
        .withColumn("variant_kind", F.schema_of_variant("value"))
    )
    kind = F.col("variant_kind")  # a channel has a column `kind` of its own
    decimal = kind.startswith("DECIMAL")  # which JSON numbers Spark calls so
    whole = kind.isin(*_WHOLE) | (decimal & kind.endswith(",0)"))
    exact = F.when(whole, _as(EXACT)).when(kind.isin(*_TAGGED), _untagged())
    rounded = F.when((decimal | kind.isin(*_ROUNDED)) & ~whole, _as("double"))
    is_machine = column == "state"
    nothing = F.col("parsed").isNotNull() & (F.col("value").isNull() | (kind == "VOID")) & F.lit(is_machine)
    return frame.select(
        "snapshot_id",
        "detector",
        F.lit(is_machine).alias("in_machine"),
        exact.isNotNull().alias("is_exact"),
        exact.alias("exact"),
        rounded.alias("rounded"),
        (exact.isNull() & rounded.isNull() & ~nothing).alias("unreadable"),
        *kept,
    )


def _as(kind: str) -> Column:
    return F.try_variant_get("value", F.lit("$"), kind)


def _untagged() -> Column:
    """The number in `{"$int": "..."}` or `{"$decimal": "..."}`; null if it has more places than `EXACT`."""
    text = F.coalesce(*(F.try_variant_get("value", F.lit(f"$['{tag}']"), "string") for tag in ("$int", "$decimal")))
    found, finer = text.try_cast(EXACT), text.try_cast(_FINER)
    return F.when(finer.isNull() | (finer == found.try_cast(_FINER)), found)


def _sums(*amounts: DataFrame) -> DataFrame:
    columns = ("snapshot_id", "detector", "in_machine", "is_exact", "exact", "rounded", "unreadable")
    first, *others = (frame.select(*columns) for frame in amounts)
    for other in others:
        first = first.unionByName(other)
    machine, exact = F.col("in_machine"), F.col("exact")
    has_amount = F.bool_or(F.col("is_exact") | F.col("rounded").isNotNull())
    overflow = F.bool_or("is_exact") & (F.try_sum(exact).isNull() | F.bool_or(F.col("is_exact") & exact.isNull()))
    return first.groupBy("snapshot_id", "detector").agg(
        F.try_sum(F.when(machine, exact)).alias("machine_exact"),
        F.sum(F.when(machine, F.col("rounded"))).alias("machine_rounded"),
        F.try_sum(F.when(~machine, exact)).alias("message_exact"),
        F.sum(F.when(~machine, F.col("rounded"))).alias("message_rounded"),
        (F.count_if("unreadable") + overflow.cast("int")).alias("unreadable"),
        # Nobody holds anything where the paths lead: they are probably wrong.
        (F.bool_or(machine) & ~has_amount).alias("pathless"),
    )
