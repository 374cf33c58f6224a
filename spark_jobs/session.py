"""The one place that starts Spark: on this machine by default, quiet, on loopback, in UTC.

Read `java.py` for where its Java comes from, `tables.py` for how it reads a history.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ray_snapshot.errors import MissingExtraError, SettingError, SparkJobError
from ray_snapshot.spark_jobs.java import use_java

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


def spark_session(master: str | None = None) -> SparkSession:
    """The Spark session of this process, started if there is none.

    Under `spark-submit` the master, its Java and its log stay as they were submitted.
    Raises `MissingExtraError`, `JavaMissingError`, `SparkJobError` (Spark does not start).
    """
    check_installed()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from py4j.protocol import Py4JError

    builder = SparkSession.builder.appName("ray-snapshot")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    folder = None
    if not submitted and SparkSession.getActiveSession() is None:
        folder = Path(tempfile.mkdtemp(prefix="ray-snapshot-spark-"))
        for name, value in _launch_settings(master or default_master(), folder).items():
            builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkJobError(
            f"Spark does not start on {master or default_master()}: {first_line(error)}"
            + (f"; its log is {folder / 'spark.log'}" if folder else ""),
            job=None,
        ) from error
    if folder:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return session


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
    return (raised or lines or [type(error).__name__])[0][:500]


_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Files are named by the Delta log one by one; Spark must not start a job of its own to list them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
}


def _launch_settings(master: str, folder: Path) -> dict[str, str]:
    """What must be known before the Java process starts; also sets the environment that it inherits."""
    local = is_local(master)
    use_java()
    settings = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", "2g"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_write_log4j(folder)}",
    }
    if not local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return settings
    _use_installed_spark()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return settings | {
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
    """Run the Spark that pip installed, whatever other one `SPARK_HOME` points at: the two must be of one version."""
    import pyspark

    home = Path(pyspark.__file__).parent
    if (home / "jars").is_dir():
        os.environ["SPARK_HOME"] = str(home)
