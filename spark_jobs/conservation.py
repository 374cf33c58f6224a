"""Was the sum of what machines hold and what is in flight ever another than it has to be, and since which snapshot?

The same question as the detector `TokenConservation` answers, with its settings (as stored with the live verdicts, or as
given by `--state`, `--message` and `--total`), in Spark's own expressions: states and arguments are parsed as VARIANT, and
the paths are columns. What a number is, what counts as nothing and when the answer is unknown follow
`ray_snapshot.detectors.conservation`, and a test holds the two together; but what Spark cannot add exactly (a recorded
fraction, more digits than `EXACT` has) is unreadable here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.detectors import TokenConservation
from ray_snapshot.errors import SettingError
from ray_snapshot.spark_jobs.engine.amounts import EXACT, in_machines, in_messages, sums, unmade
from ray_snapshot.spark_jobs.engine.output import View, results, some_rows
from ray_snapshot.spark_jobs.tables import CHANNEL, Selection, Tables, is_restored, read_table, specs_frame

if TYPE_CHECKING:
    from ray_snapshot.history import History

MOST_LEDGERS = 10_000
"""So many settings are looked up before the rows are."""

MOST_QUICK = 4
"""So many paths into states, and so many into arguments, are tried the quick way, each on every row."""

Paths = Mapping[str, Sequence[str]]
NO_PATHS: Paths = MappingProxyType({})

MOST_ENDS = 200
"""What changed is looked up for so many snapshots: a hundred runs that broke."""

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
        minor=("run_id", "started_at", "unreadable", "in_machines", "in_flight", "expected"),
        none="nothing to count: no TokenConservation is stored with these snapshots; say --state, --message, --total",
    ),
    View(
        "breaks",
        "Where it broke",
        (
            *LEDGER,
            "snapshots",
            "held",
            "broken",
            "unknown",
            "first_broken",
            "first_broken_at",
            "difference",
            "last_right",
        ),
        order=LEDGER,
        minor=("run_id", "first_broken_at", "unknown", "snapshots", "held"),
    ),
    View(
        "changed_machines",
        "Machines that changed where it broke, those first that sent and accepted nothing",
        (*LEDGER, "machine", "before", "after", "difference", "sent", "accepted", "unexplained"),
        order=(*LEDGER, "-unexplained", "-size", "machine"),
        minor=("run_id", "sent", "accepted"),
    ),
    View(
        "changed_channels",
        "Channels that changed where it broke, those first whose counts do not add up",
        (*LEDGER, *CHANNEL, "before", "after", "sent", "accepted", "missing"),
        order=(*LEDGER, "-size", *CHANNEL),
        minor=("run_id", "kind"),
    ),
)


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
    """`ledger` (one row a snapshot and ledger), `breaks` (one row a run and ledger); and of each break, `changed_machines` and
    `changed_channels`: what is different from the last snapshot that was right.

    `state`, `messages` (path by method) and `total` take the place of what is stored, each of itself only; see `own_specs` for
    runs that have no ledger stored.
    """
    tables = Tables(spark, history, selection or Selection())
    specs = stored_specs(tables.complete, read_table(spark, history, "verdicts"))
    given = (state, messages or {}, total)
    if given != (None, {}, None):
        specs = specs.unionByName(own_specs(tables.complete, specs, is_asked_for=state is not None))
    settings, quick = looked_up(with_given(read_specs(specs), *given))
    machines, messages, calls = (tables.unlisted(name) for name in ("machines", "messages", "calls"))
    ledgers = ledger(counts(tables.complete, settings, machines, messages, calls, quick)).select(*COLUMNS)
    (ledgers,) = results({"ledger": ledgers}, out).values()
    (broken,) = results({"breaks": breaks(ledgers)}, out).values()
    where = ends(broken)
    # Named one by one, so that Parquet's statistics skip all other snapshots.
    ids = [row["snapshot_id"] for row in some_rows(where.select("snapshot_id").distinct(), MOST_ENDS)]
    at_breaks = {
        name: tables.rows(name).where(F.col("snapshot_id").isin(*ids)) for name in ("machines", "channels", "messages")
    }
    changed = {
        "changed_machines": changed_machines(at_breaks["machines"], settings, where),
        "changed_channels": changed_channels(at_breaks["channels"], at_breaks["messages"], settings, where),
    }
    return {"ledger": ledgers, "breaks": broken, **results(changed, out)}


class CarriedTotal(NamedTuple):
    """With what the next snapshot is compared: the exact total as text, if no float was among it; or only a float."""

    system: str
    exact: str | None
    total: float | None
    restored_from: str | None = None


def fresh(
    spark: SparkSession,
    history: History,
    snapshots: Sequence[Mapping[str, Any]],
    specs: Mapping[str, Mapping[str, str]],
    carried: Mapping[str, Any],
    *,
    state: str | None = None,
    messages: dict[str, str] | None = None,
    total: float | None = None,
) -> tuple[pa.Table, dict[str, Any]]:
    """For `--follow`: the ledger of some snapshots, none of them before one that was asked about earlier.

    `snapshots`: rows with `snapshot_id`; `specs`: by run and detector; `carried`, and what is returned of it: by run and
    detector, the standard of their totals.
    """
    tables = Tables(spark, history, Selection(ids=tuple(row["snapshot_id"] for row in snapshots)))
    given = (state, messages or {}, total)
    stored = stored_specs(tables.complete, specs_frame(spark, specs))
    if given != (None, {}, None):
        stored = stored.unionByName(own_specs(tables.complete, stored, is_asked_for=state is not None))
    settings, _ = looked_up(with_given(read_specs(stored), *given))
    counted = counts(tables.complete, settings, *(tables.rows(name) for name in ("machines", "messages", "calls")))
    frame = ledger(counted, _carried_frame(spark, carried))
    rows = frame.select(*COLUMNS, "restored_from", "next_exact", "next_total").toArrow()
    rows = rows.sort_by([(name, "ascending") for name in (*LEDGER, "sequence")])
    left = {key: dict(ledgers) for key, ledgers in carried.items()}
    for row in rows.to_pylist():
        exact = row["next_exact"]
        standard = CarriedTotal(
            row["system"], None if exact is None else str(exact), row["next_total"], row["restored_from"]
        )
        left.setdefault(row["run_id"], {})[row["detector"]] = standard
    return rows.select(list(COLUMNS)), left


def _carried_frame(spark: SparkSession, carried: Mapping[str, Any]) -> DataFrame:
    rows = [
        (one.system, run, detector, None if one.exact is None else Decimal(one.exact), one.total, one.restored_from)
        for run, ledgers in carried.items()
        for detector, known in ledgers.items()
        for one in [CarriedTotal(*known)]
    ]
    columns = "system string, run_id string, detector string"
    return spark.createDataFrame(
        rows, f"{columns}, carried_exact {EXACT}, carried_total double, carried_restored_from string"
    )


def news(rows: pa.Table) -> pa.Table:
    """What a person who follows must hear of: where it does not hold."""
    return rows.filter(pc.fill_null(pc.invert(rows["holds"]), False))


FOLLOWED = VIEWS[0]
"""How that is shown."""


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


def own_specs(snapshots: DataFrame, stored: DataFrame, *, is_asked_for: bool) -> DataFrame:
    """As `stored_specs`: a ledger with default settings for each selected run that has none stored.

    Unless `is_asked_for` (a path into the states was given) only where no selected run has one: what is said of the ledgers
    that there are says nothing of the other runs.
    """
    detector = TokenConservation()
    has_ledger = stored["run_id"] == snapshots["run_id"] if is_asked_for else F.lit(True)
    runs = snapshots.join(stored, has_ledger, "left_anti").select("run_id").distinct()
    spec = F.lit(json.dumps(detector.spec)).alias("spec")
    return runs.select("run_id", F.lit(detector.name).alias("detector"), spec)


def with_given(
    settings: DataFrame, state: str | None = None, messages: Mapping[str, str] = MappingProxyType({}), total: Any = None
) -> DataFrame:
    """The settings of `read_specs`, replaced by those that the caller gave; `messages` method by method."""
    if state is not None:
        no_paths = F.lit(None).cast("map<string,string>")
        settings = settings.withColumns({"state_path": F.lit(state), "state_paths": no_paths})
    if messages:
        given = F.create_map(*(F.lit(text) for pair in messages.items() for text in pair))
        others = F.map_filter(
            F.coalesce("message_paths", F.create_map().cast("map<string,string>")), _is_other(messages)
        )
        settings = settings.withColumn("message_paths", F.map_concat(others, given))
    if total is not None:
        settings = settings.withColumns(_total(F.lit(str(total))))
    return settings


def _is_other(messages: Mapping[str, str]) -> Callable[[Column, Column], Column]:
    return lambda method, _: ~method.isin(*messages)


def _total(text: Column) -> dict[str, Column]:
    """A total as a float, and exactly if it is a whole number."""
    number = text.try_cast("double")
    is_whole = number == number.try_cast("decimal(38,0)")
    return {"total_given": number, "total_exact": F.when(is_whole, text.try_cast(EXACT))}


def read_specs(specs: DataFrame) -> DataFrame:
    """The settings as columns: `state_path` or `state_paths` by class, `message_paths` by method, the total, the tolerance."""
    shape = "state string, messages map<string,string>, total string, tolerance double"
    given = specs.withColumn("given", F.from_json("spec", shape))
    by_class = F.col("given.state").startswith("{")
    total = _total(F.col("given.total"))
    return given.select(
        "run_id",
        "detector",
        F.when(~by_class, F.col("given.state")).alias("state_path"),
        F.when(by_class, F.from_json("given.state", "map<string,string>")).alias("state_paths"),
        F.col("given.messages").alias("message_paths"),
        *(column.alias(name) for name, column in total.items()),
        F.coalesce("given.tolerance", F.lit(1e-9)).alias("tolerance"),
    )


def looked_up(settings: DataFrame) -> tuple[DataFrame, dict[str, list[str]]]:
    """The same settings, looked up once and not by every query that needs them; and the paths in them that are tried
    the quick way, by column. Where there are very many ledgers, they stay a query."""
    rows = settings.limit(MOST_LEDGERS + 1).toArrow()
    if rows.num_rows > MOST_LEDGERS:
        return settings, {}
    listed = rows.to_pylist(maps_as_pydicts="strict")
    states = [path for row in listed for path in (row["state_path"], *(row["state_paths"] or {}).values())]
    messages = [path for row in listed for path in (row["message_paths"] or {}).values()]
    quick = {"state": _some_paths(states), "args": _some_paths(messages)}
    return settings.sparkSession.createDataFrame(listed, settings.schema), quick


def _some_paths(paths: Sequence[str | None]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if path is not None and path != "$"][:MOST_QUICK]


def ledger(counted: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """What `counts` found, with what was expected (`with_expected`) and whether that is the same, in `holds`.

    `holds` is null where values were needed that were not recorded whole (`unreadable` says how many), where the cut is
    inconsistent, something was not observed, or there is nothing to compare with.
    """
    return judged(with_expected(counted, carried))


COLUMNS = (
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


def counts(
    snapshots: DataFrame,
    settings: DataFrame,
    machines: DataFrame,
    messages: DataFrame,
    calls: DataFrame,
    quick: Paths = NO_PATHS,
) -> DataFrame:
    """One row a snapshot and ledger: what was found in all, and whether the cut can be judged."""
    settings = F.broadcast(settings)
    found = sums(machines, messages, settings, snapshots.select("snapshot_id", "run_id"), quick)
    counted = snapshots.join(settings, "run_id", "inner")
    for frame in (found, unmade(messages, calls, settings)):
        counted = counted.join(frame, ["snapshot_id", "detector"], "left_outer")
    return totals(counted)


def totals(counted: DataFrame) -> DataFrame:
    """What was found in all: `exact` if no float was among it, `total` in any case; and whether the cut can be judged."""
    nought = F.lit(0).cast(EXACT)
    exact = {place: F.coalesce(f"{place}_exact", nought) for place in ("machine", "message")}
    both = {place: exact[place].cast("double") + F.coalesce(f"{place}_rounded", F.lit(0.0)) for place in exact}
    is_exact = F.col("machine_rounded").isNull() & F.col("message_rounded").isNull()
    unreadable = F.coalesce("unreadable", F.lit(0))
    pathless, has_machines = F.coalesce("pathless", F.lit(True)), F.coalesce("has_machines", F.lit(False))
    covered = F.coalesce(F.json_array_length(F.get_json_object("coverage", "$.uncovered")) == 0, F.lit(False))
    return counted.select(
        *LEDGER,
        "snapshot_id",
        "sequence",
        "started_at",
        "restored_from",
        "tolerance",
        "total_given",
        "total_exact",
        both["machine"].alias("in_machines"),
        both["message"].alias("in_flight"),
        F.when(is_exact, F.try_add(exact["machine"], exact["message"]).cast(EXACT)).alias("exact"),
        (both["machine"] + both["message"]).alias("total"),
        unreadable.alias("unreadable"),
        pathless.alias("pathless"),
        (pathless & ~has_machines & (F.col("channel_count") == 0)).alias("is_bare"),
        (F.coalesce("unmade", F.lit(0)) > 0).alias("is_unmade"),
        (F.col("consistent") & covered & (unreadable == 0)).alias("usable"),
    )


def with_expected(found: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """What each snapshot is compared with: the total given, else what the first had that can be judged.

    A restore begins anew (`ray_snapshot.verdicts.Standards`). `carried` (columns `LEDGER`, `carried_exact`,
    `carried_total`, `carried_restored_from`): the standards from before these snapshots. `next_exact`, `next_total`: with
    what the next snapshot is compared.
    """
    by_run = Window.partitionBy(*LEDGER).orderBy("sequence")
    numbered = found.withColumn("begins", is_restored(by_run).cast("int")).withColumn(
        "generation", F.sum("begins").over(by_run)
    )
    if carried is None:
        nothing = {"carried_exact": F.lit(None).cast(EXACT), "carried_total": F.lit(None).cast("double")}
        known = numbered.withColumns(nothing)
    else:
        joined = numbered.join(F.broadcast(carried), list(LEDGER), "left_outer")
        is_first = F.col("generation") == F.first("generation").over(by_run)
        is_same = is_first & F.col("restored_from").eqNullSafe(F.col("carried_restored_from"))
        older = {name: F.when(is_same, F.col(name)) for name in ("carried_exact", "carried_total")}
        known = joined.withColumns(older)
    by_time = Window.partitionBy(*LEDGER, "generation").orderBy("sequence")
    own = F.when(F.col("usable") & ~F.col("pathless") & ~F.col("is_unmade"), F.struct("exact", "total"))
    is_older = F.col("carried_total").isNotNull()
    standard = F.first(own, ignorenulls=True)
    before = standard.over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    after = standard.over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))

    def expected(own: Column, kind: str) -> Column:
        return F.when(is_older, F.col(f"carried_{kind}")).otherwise(own[kind])

    given = F.col("total_given").isNotNull()
    return known.withColumns(
        {
            "expected_exact": F.when(given, F.col("total_exact")).otherwise(expected(before, "exact")),
            "expected": F.when(given, F.col("total_given")).otherwise(expected(before, "total")),
            "next_exact": expected(after, "exact"),
            "next_total": expected(after, "total"),
        }
    )


def judged(expected: DataFrame) -> DataFrame:
    """`difference` and `holds`: exact where no float is involved, within the tolerance otherwise."""
    exact = F.col("exact") - F.col("expected_exact")
    difference = F.coalesce(exact.cast("double"), F.col("total") - F.col("expected"))
    allowed = F.col("tolerance") * F.greatest(F.lit(1.0), F.abs("expected"))
    same = F.when(exact.isNotNull(), exact == 0).otherwise(F.abs(difference) <= allowed)
    empty = F.col("is_bare") | (F.col("pathless") & (F.col("expected") == 0))
    untold = F.col("is_unmade") & F.when(same, F.col("total_given").isNull()).otherwise(difference < 0)
    known = F.col("usable") & F.col("expected").isNotNull() & ~empty & ~untold
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


def ends(breaks: DataFrame) -> DataFrame:
    """The two snapshots between which each ledger broke, a row for each; `is_after` is true for the later one."""
    broken = breaks.where(F.col("first_broken").isNotNull() & F.col("last_right").isNotNull())
    both = F.array(
        F.struct(F.col("last_right").alias("snapshot_id"), F.lit(False).alias("is_after")),
        F.struct(F.col("first_broken").alias("snapshot_id"), F.lit(True).alias("is_after")),
    )
    return F.broadcast(broken.select(*LEDGER, F.explode(both).alias("end")).select(*LEDGER, "end.*"))


def _before_after(name: str, how: Callable[[Column], Column]) -> tuple[Column, Column]:
    """The value of a column in the snapshot before the break, and in the one after it."""
    return how(F.when(~F.col("is_after"), F.col(name))), how(F.when(F.col("is_after"), F.col(name)))


def changed_machines(machines: DataFrame, settings: DataFrame, ends: DataFrame) -> DataFrame:
    """One row a machine whose amount is another where a ledger broke than before; null where it was not there.

    `unexplained`: it neither sent nor accepted anything in between, or is not there at one end.
    """
    held = in_machines(machines, F.broadcast(settings), "machine", "sent_count", "accepted_count")
    held = held.withColumn("amount", F.coalesce(F.col("exact").cast("double"), "rounded", F.lit(0.0)))
    pairs = held.join(ends, ["snapshot_id", "detector"], "inner").groupBy(*LEDGER, "machine")
    columns = {}
    for name, short in (("amount", ""), ("sent_count", "sent_"), ("accepted_count", "accepted_")):
        columns[f"{short}before"], columns[f"{short}after"] = _before_after(name, F.max)
    found = pairs.agg(*(column.alias(name) for name, column in columns.items()))
    difference = F.coalesce("after", F.lit(0.0)) - F.coalesce("before", F.lit(0.0))
    sent, accepted = (F.col(f"{name}_after") - F.col(f"{name}_before") for name in ("sent", "accepted"))
    return found.where(difference != 0).select(
        *LEDGER,
        "machine",
        "before",
        "after",
        difference.alias("difference"),
        sent.alias("sent"),
        accepted.alias("accepted"),
        F.coalesce((sent == 0) & (accepted == 0), F.lit(True)).alias("unexplained"),
        F.abs(difference).alias("size"),
    )


def changed_channels(channels: DataFrame, messages: DataFrame, settings: DataFrame, ends: DataFrame) -> DataFrame:
    """One row a channel with other amounts in flight where a ledger broke than before, or whose counts do not add up.

    `missing`: messages that were sent and are neither accepted, settled nor in flight.
    """
    amounts = in_messages(messages, F.broadcast(settings), *CHANNEL)
    amount = F.coalesce(F.col("exact").cast("double"), F.col("rounded"), F.lit(0.0))
    carried = amounts.groupBy("snapshot_id", "detector", *CHANNEL).agg(F.sum(amount).alias("amount"))
    missing = F.col("sent_count") - F.col("accepted_count") - F.col("settled_count") - F.col("in_flight_count")
    rows = (
        channels.select("snapshot_id", *CHANNEL, "sent_count", "accepted_count", missing.alias("missing"))
        .join(ends, "snapshot_id", "inner")
        .join(carried, ["snapshot_id", "detector", *CHANNEL], "left_outer")
        .na.fill(0.0, ["amount"])
    )
    columns = {}
    for name in ("amount", "sent_count", "accepted_count", "missing"):
        columns[f"{name}_before"], columns[f"{name}_after"] = _before_after(name, F.max)
    found = rows.groupBy(*LEDGER, *CHANNEL).agg(*(column.alias(name) for name, column in columns.items()))
    before, after = (F.coalesce(f"amount_{end}", F.lit(0.0)) for end in ("before", "after"))
    lost = F.coalesce("missing_after", F.lit(0))
    return found.where((before != after) | (lost != 0)).select(
        *LEDGER,
        *CHANNEL,
        before.alias("before"),
        after.alias("after"),
        (F.col("sent_count_after") - F.coalesce("sent_count_before", F.lit(0))).alias("sent"),
        (F.col("accepted_count_after") - F.coalesce("accepted_count_before", F.lit(0))).alias("accepted"),
        lost.alias("missing"),
        (F.abs(lost) * 1e9 + F.abs(after - before)).alias("size"),
    )


def draw(frames: dict[str, DataFrame], path: str) -> None:
    """What machines hold, what is in flight, and the difference from what it has to be, over time; a line a ledger."""
    from ray_snapshot.spark_jobs.engine import pictures
    from ray_snapshot.views.charts import Quantity

    columns = {
        "in_machines": Quantity("in machines"),
        "in_flight": Quantity("in flight"),
        "difference": Quantity("too much or too little"),
    }
    broken = frames["breaks"].where(F.col("first_broken").isNotNull()).select("first_broken_at", "detector")
    marks = [(row["first_broken_at"], f"{row['detector']} broke") for row in some_rows(broken, 10)]
    found = pictures.series(frames["ledger"], list(columns), by=["detector"])
    pictures.lines(path, "The ledger over time", columns, found, marks)


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit conservation.py HISTORY`."""
    from ray_snapshot.spark_jobs.engine.command import main as run_job

    return run_job("conservation", argv)


if __name__ == "__main__":
    sys.exit(main())
