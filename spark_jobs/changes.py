"""Which machines appeared, vanished or were replaced, and which fields of their states changed, where and from what to what?

With `--machine`, `--field` and `--value` it is blame: in which snapshot did this field of this machine get this value? Each
snapshot is held against the one before it in its run; `ray-snapshot ask HISTORY diff` holds any two against each other.
Everything is in Spark's own expressions, and goes over the machines once: states are parsed only where their text differs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.errors import SettingError
from ray_snapshot.spark_jobs.engine.output import View, results, some_rows
from ray_snapshot.spark_jobs.tables import Selection, Tables

if TYPE_CHECKING:
    from ray_snapshot.history import History

KEY = ("system", "run_id", "machine")

EXISTS, CLASS, HOST, INCARNATION, WHOLE = "(exists)", "(class)", "(host)", "(incarnation)", "(state)"
"""Fields that are no fields of a state; `WHOLE` stands for a state that has none, such as a list."""

KEPT = ("class_name", "host", "incarnation", "state")
"""What is held against the row before."""

VIEWS = (
    View(
        "machines",
        "Machines that appeared, vanished or were replaced",
        ("system", "run_id", "machine", "class_name", "event", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "sequence", "machine", "event"),
        minor=("run_id", "started_at", "class_name", "before", "after"),
    ),
    View(
        "fields",
        "Fields that changed, the rarest first",
        ("system", "run_id", "class_name", "field", "changes", "machines", "first_id", "last_id"),
        order=("changes", "system", "run_id", "class_name", "field"),
        minor=("run_id", "last_id", "class_name"),
    ),
    View(
        "changes",
        "What changed, the latest first",
        ("system", "run_id", "machine", "field", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "-sequence", "machine", "field"),
        minor=("run_id", "started_at"),
        none="no such change",
    ),
)


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    machine: str | None = None,
    field: str | None = None,
    value: str | None = None,
) -> dict[str, DataFrame]:
    """`machines`, `fields` (a row a field of a class) and `changes` (a row a machine, snapshot and field).

    `value`: as text, what the field became. Raises `SettingError` for a machine that none of the snapshots has.
    """
    tables = Tables(spark, history, selection or Selection())
    rows = tables.rows("machines")
    if machine is not None:
        rows = _of_machine(rows, machine)
    known = places(tables.complete)
    found = changes(known, rows)
    if field is not None:
        found = found.where(F.col("field") == field)
    if value is not None:
        found = found.where(F.col("after") == value)
    (found,) = results({"changes": found}, out).values()
    return {**results({"machines": machines(found), "fields": fields(found, known)}, out), "changes": found}


def options(machine: str | None = None, field: str | None = None, value: str | None = None) -> dict[str, Any]:
    """Check what the command line gave before Spark starts; raises `SettingError`."""
    if value is not None and field is None:
        raise SettingError("--value: say of which field, with --field NAME")
    return {"machine": machine, "field": field, "value": value}


def _of_machine(rows: DataFrame, machine: str) -> DataFrame:
    """The rows of one machine; raises `SettingError`, naming some that there are, if it has none."""
    found = rows.where(F.col("machine") == machine)
    if not some_rows(found.select("machine"), 1):
        some = ", ".join(row["machine"] for row in some_rows(rows.select("machine"), 3))
        raise SettingError(f"--machine: no machine {machine!r} in these snapshots; they have {some or 'none'}, ...")
    return found


def places(snapshots: DataFrame) -> DataFrame:
    """Each snapshot's place in its run, and the last place of that."""
    run = Window.partitionBy("system", "run_id")
    by_time = run.orderBy("started_at", "snapshot_id")
    return snapshots.select(
        "snapshot_id",
        "system",
        "run_id",
        "sequence",
        "started_at",
        F.row_number().over(by_time).alias("place"),
        F.count(F.lit(1)).over(run).alias("last_place"),
    )


def changes(places: DataFrame, machines: DataFrame) -> DataFrame:
    """One row a machine, snapshot and field whose value is another than in the snapshot before (null: it had none).

    A machine's class, host, incarnation and existence count as fields too (`CLASS`, ...).
    """
    rows = _differing(_with_before(places, machines))
    found = rows.withColumns({"old": _fields("had.state"), "new": _fields("state")}).select(
        "run_id", "machine", "class_name", F.explode(F.concat(_of_machine_itself(), _of_state())).alias("change")
    )
    found = found.select("run_id", "machine", "class_name", "change.*")
    found = found.where(~F.col("before").eqNullSafe(F.col("after")))
    at = places.select("run_id", "place", "system", "snapshot_id", "sequence", "started_at")
    return found.join(F.broadcast(at), ["run_id", "place"], "inner").select(
        *KEY, "class_name", "field", "snapshot_id", "sequence", "started_at", "before", "after"
    )


def _with_before(places: DataFrame, machines: DataFrame) -> DataFrame:
    """Each row with what its machine `had` one row earlier, and the place where it is seen `again`.

    All rows are moved and sorted for that, so they are narrow, and sorted by a number before any text: numbers are
    told apart without a look at the rows, names that begin alike are not.
    """
    near = F.broadcast(places.select("snapshot_id", "run_id", "place", "last_place"))
    rows = machines.select("snapshot_id", "machine", *KEPT).join(near, "snapshot_id", "inner").drop("snapshot_id")
    rows = rows.withColumn("key", F.xxhash64("run_id", "machine"))
    by_time = Window.partitionBy("key", "run_id", "machine").orderBy("place")
    had = F.lag(F.struct("place", *KEPT)).over(by_time)
    return rows.withColumn("had", had).withColumn("again", F.lead("place").over(by_time))


def _differing(rows: DataFrame) -> DataFrame:
    """The rows that are not as the one before, with what they are: `born`, `gone` behind it, or just other than it."""
    place, last = F.col("place"), F.col("last_place")
    same = F.lit(True)
    for name in KEPT:
        same &= F.col(f"had.{name}").eqNullSafe(F.col(name))
    rows = rows.withColumns(
        {
            "gone": (place < last) & ~F.col("again").eqNullSafe(place + 1),
            "born": (place > 1) & ~F.col("had.place").eqNullSafe(place - 1),
            "differs": F.col("had").isNotNull() & ~same,
        }
    )
    return rows.where("gone or born or differs").withColumn("differs", F.expr("differs and not born"))


def _change(place: Column, field: str | Column, before: Column, after: Column) -> Column:
    name = F.lit(field) if isinstance(field, str) else field
    return F.struct(place.alias("place"), name.alias("field"), before.alias("before"), after.alias("after"))


NOTHING = "array<struct<place:int,field:string,before:string,after:string>>"


def _of_machine_itself() -> Column:
    """Changes that are no changes of its state."""
    here, nothing = F.col("place"), F.array().cast(NOTHING)
    found = [
        F.when(F.col("born"), F.array(_change(here, EXISTS, F.lit("no"), F.lit("yes")))).otherwise(nothing),
        F.when(F.col("gone"), F.array(_change(here + 1, EXISTS, F.lit("yes"), F.lit("no")))).otherwise(nothing),
    ]
    columns = []
    for name, field in (("class_name", CLASS), ("host", HOST), ("incarnation", INCARNATION)):
        before, after = (F.col(where).cast("string") for where in (f"had.{name}", name))
        columns.append(_change(here, field, before, after))
    found.append(F.when(F.col("differs"), F.array(*columns)).otherwise(nothing))
    return F.concat(*found)


def _of_state() -> Column:
    """The fields of two states, as text."""
    old, new = F.col("old"), F.col("new")
    names = F.array_union(F.map_keys(old), F.map_keys(new))
    every = F.transform(
        names, lambda name: _change(F.col("place"), name, F.try_element_at(old, name), F.try_element_at(new, name))
    )
    return F.when(F.col("differs"), every).otherwise(F.array().cast(NOTHING))


def _fields(column: str) -> Column:
    """A state as a map from field to JSON text; one that is no object is a field of its own."""
    state = F.col(column)
    parsed = F.when(state.startswith("{"), F.from_json(state, "map<string,string>"))
    none = F.create_map().cast("map<string,string>")
    whole = F.when(state.isNull(), none).otherwise(F.create_map(F.lit(WHOLE), state))
    return F.when(F.col("differs"), F.coalesce(parsed, whole))


def machines(changes: DataFrame) -> DataFrame:
    """The changes that are no changes of a state: `event` is `appeared`, `vanished`, `moved`, `restarted` or `replaced`."""
    event = (
        F.when((F.col("field") == EXISTS) & (F.col("after") == "yes"), "appeared")
        .when(F.col("field") == EXISTS, "vanished")
        .when(F.col("field") == HOST, "moved")
        .when(F.col("field") == INCARNATION, "restarted")
        .when(F.col("field") == CLASS, "replaced")
    )
    about = F.col("field").isin(HOST, INCARNATION, CLASS)
    return changes.where(event.isNotNull()).select(
        *KEY,
        "class_name",
        event.alias("event"),
        "snapshot_id",
        "sequence",
        "started_at",
        F.when(about, F.col("before")).alias("before"),
        F.when(about, F.col("after")).alias("after"),
    )


def fields(changes: DataFrame, places: DataFrame) -> DataFrame:
    """One row a field of a class: how often it changed, in how many machines, first and last where."""
    key = ("system", "run_id", "class_name", "field")
    of_states = changes.where(~F.col("field").isin(EXISTS, CLASS, HOST, INCARNATION))
    # Numbers, and their names at the end: Spark has to sort the rows to find the least of anything else.
    by_machine = of_states.groupBy(*key, "machine").agg(
        F.count(F.lit(1)).alias("changes"), F.min("sequence").alias("first"), F.max("sequence").alias("last")
    )
    found = by_machine.groupBy(*key).agg(
        F.sum("changes").alias("changes"),
        F.count(F.lit(1)).alias("machines"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    # Nothing is told of a first snapshot.
    ids = places.where("place > 1").select("system", "run_id", "sequence", "snapshot_id")
    for end in ("first", "last"):
        named = ids.withColumnsRenamed({"sequence": end, "snapshot_id": f"{end}_id"})
        found = found.join(F.broadcast(named), ["system", "run_id", end], "inner")
    return found.select(*key, "changes", "machines", "first_id", "last_id")


def draw(frames: dict[str, DataFrame], path: str) -> None:
    """Changes a snapshot over time, and marks where machines appeared and vanished."""
    from ray_snapshot.spark_jobs.engine import pictures
    from ray_snapshot.views.charts import Quantity

    counts = frames["changes"].groupBy("system", "run_id", "started_at").agg(F.count(F.lit(1)).alias("changes"))
    marks = some_rows(frames["machines"].orderBy("started_at").select("started_at", "event", "machine"), 50)
    pictures.lines(
        path,
        "Changes of states a snapshot",
        {"changes": Quantity("changes a snapshot", is_whole=True)},
        pictures.series(counts, ["changes"]),
        marks=[(row["started_at"], f"{row['machine']} {row['event']}") for row in marks],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit changes.py HISTORY`."""
    from ray_snapshot.spark_jobs.engine.command import main as run_job

    return run_job("changes", argv)


if __name__ == "__main__":
    sys.exit(main())
