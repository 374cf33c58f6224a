"""On a standalone cluster on loopback: two workers, and executors whose Python has nothing but what an archive brings."""

import json
import queue
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq
import pytest
from clean import clean_environment, ran
from small_histories import BANK, live, snapshot, write
from started import started

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
BOUND_S = 240
ENVIRONMENT = clean_environment()


def base_python() -> str:
    """The Python that the virtual environment was made with: it has none of the packages."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(Path(sys.base_prefix, "bin", name))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/howto/spark.md says under "On a cluster"."""
    folder = tmp_path_factory.mktemp("environment")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    what = ["-c", "constraints.txt", "-r", "spark_jobs/executors.txt", str(_copy_of_sources(folder / "sources"))]
    subprocess.run(
        [*pip, "--target", str(folder / "packages"), *what], cwd=ROOT, env=ENVIRONMENT, check=True, timeout=BOUND_S
    )
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as packed:
        packed.add(folder / "packages", ".")
    return folder / "environment.tar.gz"


def _copy_of_sources(folder: Path) -> Path:
    """So that building the wheel leaves nothing in the checkout."""
    for name in ("ray_snapshot", "spark_jobs", "detectors", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@contextmanager
def daemon(home: Path, name: str, *arguments: str, ready: str) -> Iterator[None]:
    """A daemon of Spark's, once it has said that it is `ready`; ends with the block."""
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with started(command, env=ENVIRONMENT, seconds=600) as process:
        assert process.stderr is not None
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_passed_on, args=(process.stderr, lines), daemon=True).start()
        try:
            said = [lines.get(timeout=60)]
            while not re.search(ready, said[-1]):
                said.append(lines.get(timeout=60))
            yield
        except queue.Empty:
            pytest.fail(f"{name} did not say {ready!r} within 60 s: {said[-5:]}")
        finally:
            process.terminate()
            process.wait(60)


def _passed_on(pipe: IO[str], lines: queue.Queue[str]) -> None:
    with suppress(ValueError):  # the daemon has ended, and its pipe was closed
        for line in pipe:
            lines.put(line)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Where Spark is, and the address of a master with two workers of one core each."""
    import pyspark

    from ray_snapshot.spark_jobs.engine.java import find_java

    home = Path(pyspark.__file__).parent
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.out.ref = out\nappender.out.type = Console\n"
        "appender.out.name = out\nappender.out.target = SYSTEM_ERR\nappender.out.layout.type = PatternLayout\n"
        "appender.out.layout.pattern = %m%n\n"
    )
    ENVIRONMENT.update(
        JAVA_HOME=str(find_java()[0].home), SPARK_HOME=str(home), SPARK_CONF_DIR=str(folder), SPARK_LOCAL_IP="127.0.0.1"
    )
    port = free_port()
    address, web = f"spark://127.0.0.1:{port}", ("--webui-port", "0")
    with ExitStack() as stack:
        where = ("--host", "127.0.0.1", *web)
        stack.enter_context(daemon(home, "master.Master", "--port", str(port), *where, ready="Starting Spark master"))
        for one in range(2):
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{one}"), *where)
            stack.enter_context(daemon(home, "worker.Worker", *options, address, ready="Successfully registered"))
        yield home, address


def submitted(
    cluster: tuple[Path, str], archive: Path, folder: Path, *program: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """`spark-submit` as docs/howto/spark.md says under "On a cluster"."""
    home, address = cluster
    settings = {
        "spark.archives": f"{archive}#environment",
        "spark.executorEnv.PYTHONPATH": "environment",
        "spark.pyspark.python": base_python(),
        "spark.pyspark.driver.python": sys.executable,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
    }
    given = [option for name, value in settings.items() for option in ("--conf", f"{name}={value}")]
    command = [str(home / "bin" / "spark-submit"), "--master", address, *given, *program]
    return ran(*command, env=ENVIRONMENT | more, cwd=folder, seconds=BOUND_S)


READER = """
import json
import sys

from ray_snapshot.spark_jobs.session import spark_session

spark = spark_session()
source = spark.read.format("ray_snapshot")
machines = source.option("table", "machines").option("columns", "snapshot_id,machine,state").load(sys.argv[1])
rows = machines.repartition(2).groupBy("machine").count().collect()
print(json.dumps({row["machine"]: row["count"] for row in rows}))
"""


def test_executors_read_a_history_as_a_data_source_with_what_the_archive_brings(
    cluster: tuple[Path, str], archive: Path, tmp_path: Path
) -> None:
    machines = [{"machine": name, "state": {"balance": 150}} for name in "ab"]
    history = write(tmp_path / "history", [snapshot("bank-1", sequence, machines=machines) for sequence in range(6)])
    (tmp_path / "reader.py").write_text(READER)
    done = submitted(
        cluster,
        archive,
        tmp_path,
        str(tmp_path / "reader.py"),
        str(history.path),
        PYTHONPATH=str(archive.parent / "packages"),  # the driver plans a read in the executors' Python
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"a": 6, "b": 6}


@pytest.mark.parametrize(("job", "table", "rows"), [("conservation", "ledger", 6), ("detections", "verdicts", 18)])
def test_a_job_runs_on_a_cluster_whose_python_has_only_what_the_archive_brings(
    cluster: tuple[Path, str], archive: Path, tmp_path: Path, job: str, table: str, rows: int
) -> None:
    machines = [{"machine": name, "state": {"balance": 150}} for name in "ab"]
    taken = [snapshot("bank-1", sequence, machines=machines) for sequence in range(6)]
    history = write(tmp_path / "history", taken, live(taken, BANK))
    missing = subprocess.run([base_python(), "-c", "import pyarrow"], env=ENVIRONMENT, capture_output=True, check=False)
    assert missing.returncode != 0, "this Python has pyarrow, so nothing here would show where it comes from"
    program = str(ROOT / "spark_jobs" / "submit.py")
    done = submitted(cluster, archive, tmp_path, program, str(history.path), job, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert pq.read_table(tmp_path / "out" / table).num_rows == rows
    hosts = set(re.findall(r"Executor added: app-\d+-\d+/(\d+) on worker-", done.stderr))
    assert len(hosts) == 2, done.stderr[-3000:]
