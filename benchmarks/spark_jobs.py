"""Spark jobs over the shortest plain Spark SQL that answers the same questions on the same files, and how they grow.

The history is made up (`ray_snapshot.synth`): `ROWS` machine rows, and a tenth of it for the growth. Both arms write their
answers as Parquet. The plain arm is as narrow as its question: it knows the ledger's settings beforehand, has no streaks and
no events but the ends of machines, and believes every row. What a job gives beyond that is at the job's expense.
`RAY_SNAPSHOT_BENCHMARK_ROWS` makes it smaller.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, alternate, timed_s
from ray_snapshot.history import History
from ray_snapshot.synth import Settings, synthesise

NEEDS_RAY = False

ROWS = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_ROWS", "10000000"))
MACHINES = 10_000
PAIRS = 3

BEFORE = "lag(state) over (partition by run_id, machine order by snapshot_id)"
ALONG = "(partition by run_id, source, target, kind order by snapshot_id)"

PLAIN = {
    "conservation": {
        "ledger": """
        with held as (select snapshot_id, sum(cast(get_json_object(state, '$.balance') as bigint)) as in_machines
                      from machines group by 1),
             flying as (select snapshot_id, sum(cast(get_json_object(args, '$[0]') as bigint)) as amount
                        from messages where method = 'deposit' group by 1),
             sums as (select run_id, sequence, snapshot_id, in_machines, coalesce(amount, 0) as in_flight,
                             in_machines + coalesce(amount, 0) as total
                      from snapshots join held using (snapshot_id) left join flying using (snapshot_id)),
             first as (select *, first(total) over (partition by run_id order by sequence) as expected from sums)
        select *, total - expected as difference, total = expected as holds from first""",
        "breaks": """
        select run_id, count(*) as snapshots, count_if(holds) as held, count_if(not holds) as broken,
               min_by(snapshot_id, if(holds, null, sequence)) as first_broken from ledger group by 1""",
    },
    "changes": {
        "changes": f"""
        with pairs as (select run_id, machine, snapshot_id, class_name, state, {BEFORE} as before from machines),
             maps as (select *, from_json(before, 'map<string,string>') as b,
                             from_json(state, 'map<string,string>') as a from pairs where before <> state),
             fields as (select *, explode(map_keys(a)) as field from maps)
        select run_id, machine, class_name, snapshot_id, field, b[field] as before, a[field] as after from fields
        where not (a[field] <=> b[field])""",
        "fields": """
        select run_id, class_name, field, count(*) as changes, count(distinct machine) as machines,
               min(snapshot_id) as first_id, max(snapshot_id) as last_id from changes group by all""",
        "machines": """
        with seen as (select run_id, machine, min(snapshot_id) as first_id, max(snapshot_id) as last_id
                      from machines group by 1, 2),
             ends as (select run_id, min(snapshot_id) as begins, max(snapshot_id) as ends from snapshots group by 1)
        select * from seen join ends using (run_id) where first_id > begins or last_id < ends""",
    },
    "traffic": {
        "intervals": f"""
        with heads as (select snapshot_id, source, target, kind, min(number) as head from messages group by all),
             steps as (select *, lag(head) over {ALONG} = head as still,
                              sent_count - lag(sent_count) over {ALONG} as sent,
                              accepted_count - lag(accepted_count) over {ALONG} as accepted,
                              in_flight_count - lag(in_flight_count) over {ALONG} as growth
                       from channels left join heads using (snapshot_id, source, target, kind))
        select * from steps join (select snapshot_id, started_at from snapshots) using (snapshot_id)""",
        "channels": """
        select run_id, source, target, kind, sum(sent) as sent, sum(accepted) as accepted, max(sent) as peak,
               max(in_flight_count) as most_in_flight, sum(growth) as growth from intervals group by all""",
        "stuck": """
        select run_id, source, target, kind, head, count(*) as snapshots, min(started_at) as since,
               max(in_flight_count) as behind from intervals where still group by all having count(*) >= 2""",
        "growing": """
        select run_id, source, target, kind, count_if(growth > 0) as snapshots from intervals
        group by all having count_if(growth > 0) >= 5""",
        "machines": """
        with host as (select run_id, machine, max_by(host, snapshot_id) as host from machines
                      where snapshot_id in (select max(snapshot_id) from snapshots group by run_id) group by all),
             got as (select run_id, target as machine, sum(accepted) as accepted from channels_result group by all),
             gave as (select run_id, source as machine, sum(sent) as sent from channels_result group by all)
        select *, accepted / avg(accepted) over (partition by run_id) as times_mean
        from got full join gave using (run_id, machine) left join host using (run_id, machine)""",
        "hosts": "select run_id, host, count(*) as machines, sum(accepted) as accepted from machines_result group by all",
        "ages": """
        select snapshot_id, count(*) as in_flight, avg(started_at - sent_at) as mean, max(started_at - sent_at) as oldest
        from messages join (select snapshot_id, started_at from snapshots) using (snapshot_id)
        where kind <> 'timer' group by all""",
    },
    "cost": {
        "delays": """
        with late as (select snapshot_id, host, max(record_delay_ms) as delay_ms, avg(record_delay_ms) as mean_ms,
                             max_by(machine, record_delay_ms) as machine from machines group by 1, 2)
        select run_id, snapshot_id, duration_ms, late.* except (snapshot_id)
        from snapshots join late using (snapshot_id)""",
        "runs": """
        select run_id, count(*) as snapshots, count_if(status = 'aborted') as aborted, median(duration_ms) as median_ms,
               percentile(duration_ms, 0.95) as p95_ms, max(duration_ms) as longest_ms,
               avg(control_message_count) as control_messages, avg(bytes) as bytes from snapshots group by 1""",
        "slow": """
        with times as (select run_id, snapshot_id, duration_ms, median(duration_ms) over (partition by run_id) as median_ms
                       from snapshots),
             last as (select snapshot_id, max_by(host, delay_ms) as host, max(delay_ms) as delay_ms from delays group by 1)
        select * from times join last using (snapshot_id)
        where duration_ms > 3 * median_ms and duration_ms > median_ms + 50""",
        "hosts": """
        with last as (select snapshot_id, max_by(host, delay_ms) as host from delays group by 1)
        select host, avg(mean_ms) as mean_ms, count(last.snapshot_id) as last
        from delays left join last using (snapshot_id, host) group by 1""",
        "aborts": """
        select run_id, abort_machine, abort_reason, count(*) as snapshots from snapshots
        where status = 'aborted' group by all""",
    },
}
"""What a person would write who needs the same answers once: result by result, each from the tables and the results before it
(`NAME`, or `NAME_result` where a table has that name)."""

TABLES = ("snapshots", "machines", "channels", "messages")
DETECTIONS = "spark-detections"
NAMES = [*(f"spark-{job}" for job in PLAIN), DETECTIONS]
GROWTH = [f"spark-{job}-growth" for job in PLAIN]


def run(names: set[str]) -> Iterator[Result]:
    """Yield `spark-JOB` (job over plain SQL) and `spark-JOB-growth` (time of ten times the rows over that of one)."""
    from ray_snapshot.spark_jobs.session import spark_session

    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    spark = spark_session()
    try:
        large = _make(folder / "large", ROWS)
        small = _make(folder / "small", ROWS // 10) if names & set(GROWTH) else large
        for job in PLAIN:
            if f"spark-{job}" in names:
                yield _over_plain(spark, job, large, folder)
            if f"spark-{job}-growth" in names:
                yield _growth(spark, job, large, small, folder)
        if DETECTIONS in names:
            yield _over_reading(spark, large, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _make(path: Path, rows: int) -> History:
    machines = min(MACHINES, rows // 100)
    synthesise(path, Settings(machines, rows // machines), verdicts=False)
    history = History(path)
    history.compact()
    return history


def _over_plain(spark: Any, job: str, history: History, folder: Path) -> Result:
    def plain() -> float:
        return timed_s(lambda: _plain(spark, job, history, folder))

    result = alternate(
        f"spark-{job}", "<= 1.3", ("job_s", lambda: timed_s(lambda: _job(spark, job, history, folder))), ("plain_s", plain),
        pairs=PAIRS,
    )  # fmt: skip
    return Result(result.name, result.ratio, result.low, result.high, result.goal, result.arms | _memory(spark))


def _over_reading(spark: Any, history: History, folder: Path) -> Result:
    """`detections` asks its detectors about whole snapshots; whoever does must read the columns that they look at."""
    from ray_snapshot.questions.needed import needed_columns
    from ray_snapshot.spark_jobs.engine.evaluating import detectors_of

    stored = history.table("verdicts").select(["detector", "detector_spec"]).to_pylist()
    columns = needed_columns(detectors_of({row["detector"]: row["detector_spec"] for row in stored}, []))
    assert columns is not None, "all of them are ready-made"

    def read() -> None:
        for table, names in columns.items():
            files = history.files(table)
            rows = spark.read.option("basePath", str(history.path / table)).parquet(*files)
            rows.select(*names).write.format("noop").mode("overwrite").save()

    jobs = (
        ("job_s", lambda: timed_s(lambda: _job(spark, "detections", history, folder))),
        ("read_s", lambda: timed_s(read)),
    )
    result = alternate(DETECTIONS, "<= 1.5", *jobs, pairs=PAIRS)
    return replace(result, arms=result.arms | _memory(spark), parts={"machine_rows": ROWS})


def _growth(spark: Any, job: str, large: History, small: History, folder: Path) -> Result:
    """Linear growth is a ratio of 10."""

    def of(history: History) -> Callable[[], float]:
        return lambda: timed_s(lambda: _job(spark, job, history, folder))

    arms = (f"rows_{ROWS}_s", of(large)), (f"rows_{ROWS // 10}_s", of(small))
    result = alternate(f"spark-{job}-growth", "<= 10", *arms, pairs=PAIRS)
    return Result(result.name, result.ratio, result.low, result.high, result.goal, result.arms | _memory(spark))


def _job(spark: Any, job: str, history: History, folder: Path) -> None:
    import_module(f"ray_snapshot.spark_jobs.{job}").run(spark, history, str(folder / "out"))


def _plain(spark: Any, job: str, history: History, folder: Path) -> None:
    for table in TABLES:
        files = history.files(table)
        spark.read.option("basePath", str(history.path / table)).parquet(*files).createOrReplaceTempView(table)
    for result, query in PLAIN[job].items():
        path = str(folder / "plain" / result)
        spark.sql(query).write.mode("overwrite").parquet(path)
        view = f"{result}_result" if result in TABLES else result
        spark.read.parquet(path).createOrReplaceTempView(view)


def _memory(spark: Any) -> dict[str, float]:
    """The most memory that Spark's Java has used so far."""
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return {} if peak is None else {"java_peak_mb": int(peak) / 1024}
