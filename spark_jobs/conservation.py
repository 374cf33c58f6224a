"""Was the sum of what machines hold and what is in flight ever another than it has to be, and since which snapshot?

The same question as the detector `TokenConservation` answers, with its settings (as stored with the live verdicts, or as
given by `--state`, `--message` and `--total`), in Spark's own expressions: states and arguments are parsed as VARIANT, and
the paths are columns. What a number is, what counts as nothing and when the answer is unknown follow
`ray_snapshot.detectors.conservation`; a test holds the two together.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.detectors import TokenConservation
from ray_snapshot.errors import SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.spark_jobs.output import View, results
from ray_snapshot.spark_jobs.tables import Selection, Tables, read_table

if TYPE_CHECKING:
    from ray_snapshot.history import History

LEDGER = ("system", "run_id", "detector")

VIEWS = (
    View(
        "ledger",
        "Ledger",
        (
            *LEDGER,
            "snapshot_id",
            "started_at",
            "in_machines",
            "in_flight",
            "total",
            "expected",
            "difference",
            "unreadable",
            "holds",
        ),
        order=(*LEDGER, "sequence"),
        none="nothing to count: no TokenConservation is stored with these snapshots; say --state, --message, --total",
    ),
    View(
        "breaks",
        "Where it broke",
        (*LEDGER, "snapshots", "held", "broken", "unknown", "first_broken", "first_broken_at", "difference", "last_right"),
        order=LEDGER,
    ),
)

_NUMBER = "^(BIGINT|BOOLEAN|DOUBLE|FLOAT|DECIMAL.*)$"
_WHOLE = "^(BIGINT|BOOLEAN|DECIMAL[(][0-9]+,0[)])$"
"""How Spark names the types of JSON numbers; true and false count 1 and 0."""


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    state: str | None = None,
    messages: dict[str, str] | None = None,
    total: float | None = None,
) -> dict[str, DataFrame]:
    """`ledger` (one row a snapshot and ledger) and `breaks` (one row a run and ledger).

    `state`, `messages` (path by method) and `total` make a ledger of their own in place of those stored.
    """
    tables = Tables(spark, history, selection or Selection())
    if state is None and not messages and total is None:
        specs = stored_specs(tables.complete, read_table(spark, history, "verdicts"))
    else:
        detector = TokenConservation(total, state or "$.tokens", messages or {})
        specs = tables.complete.select("run_id", F.lit(detector.name).alias("detector"), F.lit(json.dumps(detector.spec)).alias("spec"))
    settings = read_specs(specs.distinct())
    ledgers = ledger(tables.complete, settings, tables.rows("machines"), tables.rows("messages"))
    (ledgers,) = results({"ledger": ledgers}, out).values()
    return {"ledger": ledgers, **results({"breaks": breaks(ledgers)}, out)}


def options(state: str | None = None, messages: Sequence[str] = (), total: float | None = None) -> dict[str, Any]:
    """Check what the command line gave before Spark starts; raises `SettingError`."""
    wrong = [text for text in messages if "=" not in text]
    if wrong:
        raise SettingError(f"--message {wrong[0]!r} is not METHOD=PATH, such as 'deposit=$[0]'")
    paths = dict(text.split("=", 1) for text in messages)
    number = int(total) if total is not None and total == int(total) else total
    TokenConservation(number, state or "$.tokens", paths)
    return {"state": state, "messages": paths, "total": number}


def stored_specs(snapshots: DataFrame, verdicts: DataFrame) -> DataFrame:
    """`run_id, detector, spec`: the settings of each conservation detector that a selected run was watched with."""
    return (
        verdicts.where(F.get_json_object("detector_spec", "$.type") == "token-conservation")
        .join(snapshots.select("run_id").distinct(), "run_id", "left_semi")
        .groupBy("run_id", "detector")
        .agg(F.max_by("detector_spec", "evaluated_at").alias("spec"))
    )


def read_specs(specs: DataFrame) -> DataFrame:
    """The settings as columns: `state_path` or `state_paths` by class, `message_paths` by method, the total, the tolerance."""
    shape = "state string, messages map<string,string>, total string, tolerance double"
    given = specs.withColumn("given", F.from_json("spec", shape))
    by_class = F.col("given.state").startswith("{")
    total = F.col("given.total")
    return given.select(
        "run_id",
        "detector",
        F.when(~by_class, F.col("given.state")).alias("state_path"),
        F.when(by_class, F.from_json("given.state", "map<string,string>")).alias("state_paths"),
        F.col("given.messages").alias("message_paths"),
        F.when(total.rlike("^-?[0-9]+$"), total.try_cast("decimal(38,0)")).alias("total_whole"),
        total.try_cast("double").alias("total_double"),
        F.coalesce("given.tolerance", F.lit(1e-9)).alias("tolerance"),
    )


def ledger(snapshots: DataFrame, settings: DataFrame, machines: DataFrame, messages: DataFrame) -> DataFrame:
    """One row a snapshot and ledger: what was found, what was expected, and whether that is the same.

    `unreadable`: how many values were needed that were not recorded whole; `holds` is null then, as it is where the
    cut is inconsistent, something was not observed, or there is nothing to compare with.
    """
    settings = F.broadcast(settings)
    amounts = in_machines(machines, settings).unionByName(in_messages(messages, settings))
    counted = snapshots.join(settings, "run_id", "inner").join(sums(amounts), ["snapshot_id", "detector"], "left_outer")
    return judged(with_expected(totals(counted))).select(
        *LEDGER,
        "snapshot_id",
        "sequence",
        "started_at",
        "in_machines",
        "in_flight",
        "total",
        "expected",
        "difference",
        "unreadable",
        "holds",
    )


def in_machines(machines: DataFrame, settings: DataFrame) -> DataFrame:
    """The amount in each machine that a ledger counts; a state without one holds 0, and so does a driver without state."""
    path = F.coalesce("state_path", F.try_element_at("state_paths", F.col("class_name")))
    stateless_driver = (F.col("machine") == DRIVER) & F.col("state").isNull()
    frame = machines.where(~stateless_driver).join(settings, "run_id", "inner").withColumn("path", path)
    return _amounts(frame.where(F.col("path").isNotNull()), "state", missing_is_zero=True)


def in_messages(messages: DataFrame, settings: DataFrame) -> DataFrame:
    """The amount in each message in flight of a method that a ledger counts."""
    path = F.try_element_at("message_paths", F.col("method"))
    frame = messages.join(settings, "run_id", "inner").withColumn("path", path)
    return _amounts(frame.where(F.col("path").isNotNull()), "args", missing_is_zero=False)


def _amounts(frame: DataFrame, column: str, *, missing_is_zero: bool) -> DataFrame:
    """`whole` or `part` of each row: an exact integer, or a fraction; `unreadable` where there is no number."""
    whole_text = F.when(~F.coalesce(f"{column}_truncated", F.lit(False)), F.col(column))
    frame = (
        frame.withColumn("parsed", F.try_parse_json(whole_text))
        .withColumn("value", F.try_variant_get("parsed", F.col("path"), "variant"))
        .withColumn("kind", F.schema_of_variant("value"))
    )
    number, whole = F.col("kind").rlike(_NUMBER), F.col("kind").rlike(_WHOLE)
    nothing = F.col("parsed").isNotNull() & (F.col("value").isNull() | (F.col("kind") == "VOID"))
    is_amount = F.coalesce(number, F.lit(False))
    return frame.select(
        "snapshot_id",
        "detector",
        F.lit(column == "state").alias("in_machine"),
        F.when(whole, F.try_variant_get("value", F.lit("$"), "decimal(38,0)")).alias("whole"),
        F.when(number & ~whole, F.try_variant_get("value", F.lit("$"), "double")).alias("part"),
        is_amount.alias("is_amount"),
        (~(is_amount | (nothing & F.lit(missing_is_zero)))).alias("unreadable"),
    )


def sums(amounts: DataFrame) -> DataFrame:
    """Per snapshot and ledger: the exact sums of the integers, the sums of the fractions, and what else was seen."""
    in_machine = F.col("in_machine")
    return amounts.groupBy("snapshot_id", "detector").agg(
        F.try_sum(F.when(in_machine, F.col("whole"))).alias("machine_whole"),
        F.sum(F.when(in_machine, F.col("part"))).alias("machine_part"),
        F.try_sum(F.when(~in_machine, F.col("whole"))).alias("message_whole"),
        F.sum(F.when(~in_machine, F.col("part"))).alias("message_part"),
        F.count_if("unreadable").alias("unreadable"),
        # Nobody holds anything where the paths lead: they are probably wrong.
        (F.bool_or("in_machine") & ~F.bool_or("is_amount")).alias("pathless"),
    )


def totals(counted: DataFrame) -> DataFrame:
    """What was found in all: `found_whole` exactly if nothing but integers was found, `total` in any case."""
    nought = F.lit(0).cast("decimal(38,0)")
    whole = {place: F.coalesce(f"{place}_whole", nought) for place in ("machine", "message")}
    both = {place: whole[place].cast("double") + F.coalesce(f"{place}_part", F.lit(0.0)) for place in whole}
    only_whole = F.col("machine_part").isNull() & F.col("message_part").isNull()
    all_whole = F.try_add(whole["machine"], whole["message"]).cast("decimal(38,0)")
    uncovered = F.json_array_length(F.get_json_object("coverage", "$.uncovered"))
    return counted.select(
        *LEDGER,
        "snapshot_id",
        "sequence",
        "started_at",
        "tolerance",
        "total_whole",
        "total_double",
        both["machine"].alias("in_machines"),
        both["message"].alias("in_flight"),
        F.when(only_whole, all_whole).alias("found_whole"),
        (both["machine"] + both["message"]).alias("total"),
        F.coalesce("unreadable", F.lit(0)).alias("unreadable"),
        F.coalesce("pathless", F.lit(False)).alias("pathless"),
        F.col("consistent").alias("sound"),
        F.coalesce(uncovered == 0, F.lit(False)).alias("covered"),
    )


def with_expected(found: DataFrame) -> DataFrame:
    """What each snapshot is compared with: the total given, else what the last snapshot had whose answer was not False.

    That one is the first of a stretch: a stretch begins with a run, behind a snapshot that could not be read, and with
    one that did not observe everything.
    """
    by_time = Window.partitionBy(*LEDGER).orderBy("sequence")
    usable = F.col("sound") & (F.col("unreadable") == 0)
    begins = ~F.coalesce(F.lag(usable).over(by_time), F.lit(False)) | ~F.col("covered")
    numbered = found.withColumn("begins", begins).withColumn("stretch", F.sum(F.col("begins").cast("int")).over(by_time))
    first = Window.partitionBy(*LEDGER, "stretch").orderBy("sequence")
    given = F.col("total_double").isNotNull()
    return numbered.withColumn(
        "expected_whole", F.when(given, F.col("total_whole")).when(~F.col("begins"), F.first("found_whole").over(first))
    ).withColumn("expected", F.when(given, F.col("total_double")).when(~F.col("begins"), F.first("total").over(first)))


def judged(expected: DataFrame) -> DataFrame:
    """`difference` and `holds`: exact among integers, within the tolerance otherwise."""
    exact = F.col("found_whole") - F.col("expected_whole")
    difference = F.coalesce(exact.cast("double"), F.col("total") - F.col("expected"))
    allowed = F.col("tolerance") * F.greatest(F.lit(1.0), F.abs("expected"))
    same = F.when(exact.isNotNull(), exact == 0).otherwise(F.abs(difference) <= allowed)
    known = F.col("sound") & F.col("covered") & (F.col("unreadable") == 0) & F.col("expected").isNotNull()
    known &= ~(F.col("pathless") & (F.col("expected") == 0))
    return expected.withColumn("difference", difference).withColumn("holds", F.when(known, same))


def breaks(ledgers: DataFrame) -> DataFrame:
    """One row a ledger of a run: how often it was right, and where it was first wrong.

    `last_right`: the last snapshot before that on which it was right.
    """
    by_run = Window.partitionBy(*LEDGER)
    broken = F.col("holds") == F.lit(False)
    return (
        ledgers.withColumn("broke_at", F.min(F.when(broken, F.col("sequence"))).over(by_run))
        .groupBy(*LEDGER)
        .agg(
            F.count(F.lit(1)).alias("snapshots"),
            F.count_if("holds").alias("held"),
            F.count_if(broken).alias("broken"),
            F.count_if(F.col("holds").isNull()).alias("unknown"),
            F.min_by("snapshot_id", F.when(broken, F.col("sequence"))).alias("first_broken"),
            F.min_by("started_at", F.when(broken, F.col("sequence"))).alias("first_broken_at"),
            F.min_by("difference", F.when(broken, F.col("sequence"))).alias("difference"),
            F.max_by(
                "snapshot_id", F.when(F.col("holds") & (F.col("sequence") < F.col("broke_at")), F.col("sequence"))
            ).alias("last_right"),
        )
        .select(
            *LEDGER,
            "snapshots",
            "held",
            "broken",
            "unknown",
            "first_broken",
            "first_broken_at",
            "difference",
            "last_right",
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit conservation.py HISTORY`."""
    from ray_snapshot.spark_jobs.command import main as run_job

    return run_job("conservation", argv)


if __name__ == "__main__":
    sys.exit(main())
