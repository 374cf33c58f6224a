"""The one place that starts Spark: on this machine by default, quiet, on loopback, in UTC.

Read `java.py` for where its Java comes from, `tables.py` for how it reads a history.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ray_snapshot.errors import MissingExtraError, SettingError, SparkJobError
from ray_snapshot.spark_jobs.engine.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_LOCAL_CORES = 4
"""A job on a laptop leaves the rest of the machine to its owner; name a master to use more."""

_LOG4J = """\
# Spark's own log goes to a file: the terminal is for the answer.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c: %m%n%ex
"""


def default_master() -> str:
    """Spark in this process's machine, on at most `MOST_LOCAL_CORES` cores."""
    return f"local[{min(MOST_LOCAL_CORES, os.cpu_count() or 1)}]"


def spark_session(master: str | None = None, *, brief: bool = False) -> SparkSession:
    """The Spark session of this process, started if there is none.

    `brief`: for jobs of seconds, where Java would spend more time on compiling Spark well than the jobs take.
    Under `spark-submit` the master, its Java and its log stay as they were submitted.
    Raises `MissingExtraError`, `JavaMissingError`, `SparkJobError` (Spark does not start).
    """
    check_installed()
    from pyspark.sql import SparkSession

    # Spark would print each error as JSON beside the one line that we print.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    running = "PYSPARK_GATEWAY_PORT" in os.environ or SparkSession.getActiveSession() is not None
    session = _build(_SETTINGS) if running else _launch(master or default_master(), brief)
    _register_source(session)
    return session


def _register_source(session: SparkSession) -> None:
    """Spark finds it by itself where this package is installed, but not in an editable installation."""
    from ray_snapshot.spark_jobs.source import HistorySource

    session.dataSource.register(HistorySource)


def _launch(master: str, brief: bool) -> SparkSession:
    local = is_local(master)
    use_java()
    folder = Path(tempfile.mkdtemp(prefix="ray-snapshot-spark-"))
    settings = _SETTINGS | _launch_settings(master, folder, brief)
    if local:
        settings |= _local_settings(folder)
        _use_installed_spark()
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        session = _build(settings)
    except SparkJobError as error:
        raise SparkJobError(f"Spark does not start on {master}: {error}; its log is {folder / 'spark.log'}") from error
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return session


def _build(settings: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("ray-snapshot")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(first_line(error)) from error


def check_installed() -> None:
    """Raise `MissingExtraError` unless Spark's parts are installed."""
    for module in ("pyspark", "pandas"):
        if find_spec(module) is None:
            raise MissingExtraError(
                f"the Spark jobs need {module}, which is not installed: pip install 'ray-snapshot[spark]'", name=module
            )


def first_line(error: BaseException) -> str:
    """The line of a Spark error that says what happened: a task's own exception if one is in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)]
    named = [line.partition("[")[2].replace("] ", ": ", 1) for line in lines if re.search(r"\[[A-Z_.]+\] ", line)]
    return (raised or named or lines or [type(error).__name__])[0][:500]


_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Files are named by the Delta log one by one; Spark must not start a job of its own to list them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Two frames that lie together by a part of what they are joined by are joined where they lie.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}

_BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _launch_settings(master: str, folder: Path, brief: bool) -> dict[str, str]:
    """What must be known before the Java process starts."""
    java = f"-Dlog4j2.configurationFile={_write_log4j(folder)} {_BRIEF_JAVA if brief else ''}"
    return {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", "2g"),
        "spark.driver.extraJavaOptions": java.strip(),
    }


def _local_settings(folder: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.shuffle.partitions": str(2 * MOST_LOCAL_CORES),
    }


def is_local(master: str) -> bool:
    """Whether a master means this process's machine; raises `SettingError` if it is no master at all."""
    if master == "local" or master.startswith("local["):
        return True
    if master.startswith(("spark://", "k8s://", "yarn")):
        return False
    raise SettingError(f"{master!r} is no Spark master: use local[N], spark://HOST:PORT, yarn or k8s://HOST:PORT")


def _write_log4j(folder: Path) -> Path:
    path = folder / "log4j2.properties"
    path.write_text(_LOG4J.format(log=folder / "spark.log"), encoding="utf-8")
    return path


def _use_installed_spark() -> None:
    """Run the Spark that pip installed, with this Python, whatever else the environment points at.

    The Python that drives Spark, its workers and Spark itself must be of one version each.
    """
    import pyspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = Path(pyspark.__file__).parent
    if (home / "jars").is_dir():
        os.environ["SPARK_HOME"] = str(home)
