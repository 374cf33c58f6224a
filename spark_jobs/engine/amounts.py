"""The amounts that a ledger counts, in states and arguments, and their sums: Spark's own expressions over JSON columns.

Integers of at most 64 bits at one of a few paths are read and added the quick way; all else is parsed as VARIANT.
Sums are exact, or unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ray_snapshot.detectors.holdings import CONSTRUCTOR
from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.names import DRIVER

EXACT = "decimal(38,12)"
"""Integers and recorded decimals are added exactly, up to 10**26 and to twelve places."""

_NAMES = {"state": "class_name", "args": "method"}
_PATHS = {"state": "state_paths", "args": "message_paths"}
"""By the column that amounts are in: what names a row's path, and the settings' paths by that name."""

AtPath = Callable[[Callable[[str], Column]], Column]
"""Applies what finds something at a path to the path of each row."""

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


def sums(
    machines: DataFrame,
    messages: DataFrame,
    settings: DataFrame,
    runs: DataFrame,
    quick: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> DataFrame:
    """Per snapshot and ledger: the sums by place and kind of number, and how many amounts could not be read or added.

    What is a whole number at one of the paths `quick` (by column, `state` or `args`) is added first; only where there is
    anything else are the rows looked at again, and parsed. `runs`: `snapshot_id, run_id` of those that are asked about.
    """
    frames = {"state": _of_machines(machines, settings), "args": _of_messages(messages, settings)}
    if not any(quick.values()):
        return _sums(*(_amounts(frame, column) for column, frame in frames.items()))
    paths = {column: [path for path in quick.get(column, ()) if _sparks(path)] for column in frames}
    held = _added_whole(_without_driver(machines), "state", paths["state"])
    sent = _added_whole(messages, "args", paths["args"])
    fast = _by_ledger(held, runs, settings, "state", paths["state"])
    added = fast.unionByName(_by_ledger(sent, runs, settings, "args", paths["args"])).persist()
    if added.where("others > 0").isEmpty():
        return _sums(added)
    rest = (
        _amounts(_with_whole(frame, column, paths[column]).where("whole is null"), column)
        for column, frame in frames.items()
    )
    return _sums(added, *rest)


def unmade(messages: DataFrame, calls: DataFrame, settings: DataFrame) -> DataFrame:
    """Per snapshot and ledger: how many constructors still run, or are in flight without a path to what they make with."""
    untold = F.try_element_at("message_paths", F.lit(CONSTRUCTOR)).isNull()
    coming = _constructors(messages).join(settings.where(untold), "run_id", "inner")
    made = coming.unionByName(_constructors(calls).join(settings, "run_id", "inner"))
    return made.groupBy("snapshot_id", "detector").agg(F.count(F.lit(1)).alias("unmade"))


def _constructors(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("method") == CONSTRUCTOR).select("snapshot_id", "run_id")


def _of_machines(machines: DataFrame, settings: DataFrame) -> DataFrame:
    """The machines that ledgers count, with the `path` of each."""
    return _with_path(_without_driver(machines).join(settings, "run_id", "inner"), "state")


def _without_driver(machines: DataFrame) -> DataFrame:
    """A driver without a state holds nothing; one whose state was cut off may hold something."""
    has_none = F.col("state").isNull() | (F.col("state") == "null")
    return machines.where(~((F.col("machine") == DRIVER) & has_none))


def _of_messages(messages: DataFrame, settings: DataFrame) -> DataFrame:
    return _with_path(messages.join(settings, "run_id", "inner"), "args")


def _with_path(rows: DataFrame, column: str) -> DataFrame:
    """The rows that a ledger counts, with the `path` to their amount."""
    by_name = F.try_element_at(_PATHS[column], F.col(_NAMES[column]))
    path = F.coalesce("state_path", by_name) if column == "state" else by_name
    return rows.withColumn("path", path).where(F.col("path").isNotNull())


def _recorded(column: str) -> Column:
    """The text of a JSON column where it was recorded whole: JSON's null is no state and no list of arguments."""
    whole = ~F.coalesce(f"{column}_truncated", F.lit(False)) & (F.col(column) != "null")
    return F.when(whole, F.col(column))


def _with_whole(frame: DataFrame, column: str, quick: Sequence[str]) -> DataFrame:
    """With `whole`: the number at `path` as `_whole` finds it, where that is one of the paths `quick`; else null."""

    def at_path(found: Callable[[str], Column]) -> Column:
        any_of = F.lit(None).cast("string")
        for path in quick:
            any_of = F.when(F.col("path") == path, found(path)).otherwise(any_of)
        return any_of

    return _whole(frame.withColumn("text", _recorded(column)), at_path, "whole")


def _whole(frame: DataFrame, at_path: AtPath, name: str) -> DataFrame:
    """With `name`: the number at a path in `text`, if it is a JSON integer of at most 64 bits; else null.

    These are by far the most frequent. Most are seen without reading the JSON (`_pattern`). From the other texts Spark
    extracts what is there. That is text, and does not tell a number from a string, so it counts only if the same text
    in quotes stands nowhere in the JSON.
    """
    seen, found, text = F.col(f"{name}_seen"), F.col(f"{name}_found"), F.col("text")
    unseen = F.when(seen.isNull(), text)
    may_be_text = text.contains(F.concat(F.lit('"'), found, F.lit('"'))) | text.contains("\\")
    # One column at a time: Spark would extract once for each time that it is named.
    frame = frame.withColumn(f"{name}_seen", at_path(_seen).try_cast("bigint"))
    frame = frame.withColumn(f"{name}_found", at_path(lambda path: _extracted(unseen, path)))
    return frame.withColumn(name, F.coalesce(seen, F.when(~may_be_text, found.try_cast("bigint"))))


def _only(path: str) -> AtPath:
    """For rows that all have their amount at one path."""
    return lambda found: found(path)


def _extracted(text: Column, path: str) -> Column:
    """What Spark finds at `path`; null where a key of the path occurs twice, for Spark would take the first."""
    is_clear = text.isNotNull()
    for name in (step for step in compile_path(path).steps if isinstance(step, str)):
        is_clear &= F.substring_index(text, json.dumps(name, ensure_ascii=False), 2) == text
    return F.when(is_clear, F.get_json_object(text, _sparks(path)))


def _seen(path: str) -> Column:
    """The digits at `path`, if `text` is so simple that they are seen in it; else no number."""
    pattern = _pattern(path)
    return F.lit(None).cast("string") if pattern is None else F.regexp_extract("text", pattern, 1)


def _pattern(path: str) -> str | None:
    """What JSON looks like that has an integer of at most 18 digits at `path`; None if too much looks like that.

    For a field of the whole, or its first element. In front of the field no object begins, and nothing is escaped: so each
    quote opens or closes a string, and what stands in quotes before a colon is a key of the whole. Behind it, the name does
    not come again, nor anything that could be read as it. No part is a repeated group, for which Java would need a stack.
    """
    number = "(-?(?:0|[1-9][0-9]{0,17}))"
    match compile_path(path).steps:
        case [0]:
            return rf"^\[{number}(?:\]|,.*\])$"
        case [str() as name] if re.fullmatch(r"[A-Za-z0-9_]+", name):
            return rf'^\{{[^{{\\]*"{name}":{number}(?:\}}|,(?!.*(?:"{name}"|\\)).*\}})$'
    return None


def _sparks(path: str) -> str | None:
    """A path as `get_json_object` has it; None if that has no such path."""
    steps = compile_path(path).steps
    if any(isinstance(step, str) and (not step or step == "*" or {*step} & {*"'?"}) for step in steps):
        return None
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps)


def _added_whole(rows: DataFrame, column: str, quick: Sequence[str]) -> DataFrame:
    """Per snapshot and class or method: how many `rows` there are, and for each of the paths `quick`, by its place, the sum
    of all that is a whole number there, and how many `others` there are.

    The sum is in two halves of 32 bits, which cannot overflow and are added much faster than decimals. Nothing is
    joined to the rows: which ledger counts them is found out later, for the sums, which are few.
    """
    rows = rows.withColumn("text", _recorded(column))
    found = [F.count(F.lit(1)).alias("rows")]
    for place, path in enumerate(quick):
        name = f"whole_{place}"
        rows = _whole(rows, _only(path), name)
        found += [
            F.sum(F.shiftright(name, 32)).alias(f"upper_{place}"),
            F.sum(F.col(name).bitwiseAND(F.lit(2**32 - 1))).alias(f"lower_{place}"),
            F.count_if(F.col(name).isNull()).alias(f"others_{place}"),
        ]
    return rows.groupBy("snapshot_id", _NAMES[column]).agg(*found)


def _by_ledger(added: DataFrame, runs: DataFrame, settings: DataFrame, column: str, quick: Sequence[str]) -> DataFrame:
    """Per snapshot and ledger: the exact sum of what `_added_whole` added, and how many `others` there are."""
    counted = _with_path(added.join(runs, "snapshot_id", "inner").join(settings, "run_id", "inner"), column)

    def at_path(name: str, otherwise: Column) -> Column:
        for place, path in enumerate(quick):
            otherwise = F.when(F.col("path") == path, F.col(f"{name}_{place}")).otherwise(otherwise)
        return otherwise

    none = F.lit(None).cast("bigint")
    found = counted.groupBy("snapshot_id", "detector").agg(
        F.sum(at_path("upper", none)).alias("upper"),
        F.sum(at_path("lower", none)).alias("lower"),
        F.sum(at_path("others", F.col("rows"))).alias("others"),
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
        F.bool_or(machine).alias("has_machines"),
        # Nothing holds anything where the paths lead: they are probably wrong.
        (~has_amount).alias("pathless"),
    )
