"""Spark jobs over the shortest plain Spark SQL that answers the same question on the same files, and how they grow.

The history is made up (`ray_snapshot.synth`): `ROWS` machine rows, and a tenth of it for the growth. Both arms write their
answer as Parquet. `RAY_SNAPSHOT_BENCHMARK_ROWS` makes it smaller.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, alternate
from ray_snapshot.history import History
from ray_snapshot.synth import Settings, synthesise

NEEDS_RAY = False

ROWS = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_ROWS", "10000000"))
MACHINES = 10_000
PAIRS = 3

BEFORE = "lag(state) over (partition by run_id, machine order by snapshot_id)"
ALONG = "(partition by run_id, source, target, kind order by snapshot_id)"

PLAIN = {
    "conservation": """
        with held as (select snapshot_id, sum(cast(get_json_object(state, '$.balance') as bigint)) as amount
                      from machines group by 1),
             flying as (select snapshot_id, sum(cast(get_json_object(args, '$[0]') as bigint)) as amount
                        from messages where method = 'deposit' group by 1)
        select snapshot_id, held.amount + coalesce(flying.amount, 0) as total, total = {total} as holds
        from snapshots join held using (snapshot_id) left join flying using (snapshot_id)""",
    "changes": f"""
        with pairs as (select machine, snapshot_id, state, {BEFORE} as before from machines),
             maps as (select machine, snapshot_id, from_json(before, 'map<string,string>') as b,
                             from_json(state, 'map<string,string>') as a from pairs where before <> state),
             fields as (select *, explode(map_keys(a)) as field from maps)
        select machine, snapshot_id, field, b[field] as before, a[field] as after from fields
        where not (a[field] <=> b[field])""",
    "traffic": f"""
        with heads as (select snapshot_id, source, target, kind, min(number) as head from messages group by all),
             steps as (select *, lag(head) over {ALONG} = head as still,
                              sent_count - lag(sent_count) over {ALONG} as sent,
                              accepted_count - lag(accepted_count) over {ALONG} as accepted,
                              in_flight_count - lag(in_flight_count) over {ALONG} as growth
                       from channels left join heads using (snapshot_id, source, target, kind))
        select * from steps""",
    "cost": """
        with late as (select snapshot_id, host, max(record_delay_ms) as delay_ms, avg(record_delay_ms) as mean_ms,
                             max_by(machine, record_delay_ms) as machine from machines group by 1, 2)
        select * from snapshots join late using (snapshot_id)""",
}
"""What a person would write who needs the answer once."""

NAMES = [f"spark-{job}" for job in PLAIN]
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
        return _timed(lambda: _plain(spark, job, history, folder))

    result = alternate(
        f"spark-{job}", "<= 1.3", ("job_s", lambda: _timed(lambda: _job(spark, job, history, folder))), ("plain_s", plain),
        pairs=PAIRS,
    )  # fmt: skip
    return Result(result.name, result.ratio, result.low, result.high, result.goal, result.arms | _memory(spark))


def _growth(spark: Any, job: str, large: History, small: History, folder: Path) -> Result:
    """Linear growth is a ratio of 10."""

    def of(history: History) -> Callable[[], float]:
        return lambda: _timed(lambda: _job(spark, job, history, folder))

    return alternate(
        f"spark-{job}-growth", "<= 10", (f"rows_{ROWS}_s", of(large)), (f"rows_{ROWS // 10}_s", of(small)), pairs=PAIRS
    )


def _job(spark: Any, job: str, history: History, folder: Path) -> None:
    import_module(f"ray_snapshot.spark_jobs.{job}").run(spark, history, str(folder / "out"))


def _plain(spark: Any, job: str, history: History, folder: Path) -> None:
    for table in ("snapshots", "machines", "channels", "messages"):
        files = history.files(table)
        spark.read.option("basePath", str(history.path / table)).parquet(*files).createOrReplaceTempView(table)
    query = PLAIN[job].format(total=1)
    spark.sql(query).write.mode("overwrite").parquet(str(folder / "plain"))


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _memory(spark: Any) -> dict[str, float]:
    """The most memory that Spark's Java has used so far."""
    status = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM")), None)
    return {} if peak is None else {"java_peak_mb": int(peak) / 1024}
