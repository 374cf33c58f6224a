"""A copy of a history in a store: for Spark, which reads files; it is what the history was, and follows it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from histories import snapshot, verdict
from limited import limit
from stored import Store, copy, environment

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryFormatError, SettingError
from ray_snapshot.history import History, HistoryWriter, objects
from ray_snapshot.history.mirror import Mirror
from ray_snapshot.schema import TABLES


@pytest.fixture(scope="module")
def pristine(store: Store) -> str:

    def fill(address: str) -> None:
        with HistoryWriter(address) as writer:
            for number in range(2):
                writer.add(snapshot(number))
                writer.add_verdicts([verdict(f"bank-{number:05d}")])
                writer.flush()

    return store.filled(fill)


@pytest.fixture
def source(pristine: str, bucket: str) -> StorePath:
    copy(pristine, f"{bucket}/h")
    return StorePath(bucket, "h")


@pytest.mark.nightly
def test_a_copy_is_the_history_and_follows_it(source: StorePath, tmp_path: Path) -> None:
    copied = Mirror(source, tmp_path / "h")
    size = copied.missing_bytes()
    copied.refresh()
    here, there = History(tmp_path / "h"), History(source)
    assert 0 < size == copied.copied_bytes < 10**6

    def same() -> None:
        for name in TABLES:
            assert here.table(name).equals(there.table(name))
            assert here.version(name) == there.version(name)
        assert dict(here.verify()) == dict(there.verify())

    same()
    copied.refresh()
    assert copied.copied_bytes == size, "nothing is copied twice"
    with HistoryWriter(source) as writer:
        writer.add(snapshot(7))
    copied.refresh()
    same()
    there.compact()
    there.vacuum(0)
    copied.refresh()
    same()
    assert len(here.snapshots()) == 3


def test_a_copy_that_would_be_too_large_is_refused(
    source: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        HistoryFormatError, match=r"bytes would have to be copied to this computer, and 100 may be: keep fewer"
    ):
        Mirror(source, tmp_path / "h", most_bytes=100).refresh()
    limit(monkeypatch, spare_disk_bytes=10**18)
    with pytest.raises(HistoryFormatError, match="and 0 may be"):
        Mirror(source, tmp_path / "h").refresh()
    assert not list((tmp_path / "h").rglob("*.parquet"))


def test_a_file_that_a_vacuum_takes_while_it_is_copied_is_no_harm(
    source: StorePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, taken = Mirror._copy, list[str]()

    def late(self: Mirror, name: str, version: int, files: Any) -> None:
        if not taken:
            taken.append(name)
            History(source).compact()
            History(source).vacuum(0)
        real(self, name, version, files)

    monkeypatch.setattr(Mirror, "_copy", late)
    Mirror(source, tmp_path / "h").refresh()
    assert dict(History(tmp_path / "h").verify()) == {"bank-00000": [], "bank-00001": []}


def test_a_log_that_names_what_is_not_there_is_told(source: StorePath, tmp_path: Path) -> None:
    for path, _ in objects.below(source, source / "machines"):
        if path.suffix == ".parquet":
            objects.unlink(source, path)
    with pytest.raises(HistoryFormatError, match="table machines cannot be read"):
        Mirror(source, tmp_path / "h").refresh()


def test_spark_on_other_computers_is_refused_before_it_starts(pristine: str, bucket: str) -> None:
    from ray_snapshot.spark_jobs.engine.command import execute
    from ray_snapshot.spark_jobs.engine.request import Request

    with pytest.raises(
        SettingError, match=r"is copied to this computer for a job, and spark://far:7077 runs tasks on others"
    ):
        execute(Request(pristine, "traffic", master="spark://far:7077"))


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_answers_for_a_history_in_a_store(
    spark: Any,
    pristine: str,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ray_snapshot.spark_jobs.engine.command import execute
    from ray_snapshot.spark_jobs.engine.request import Request

    monkeypatch.chdir(tmp_path)
    assert execute(Request(pristine, "progress")) == 0
    said = capsys.readouterr()
    assert f"of {pristine} to this computer, for Spark" in said.err
    assert list((tmp_path / "pristine-results" / "progress").rglob("*.parquet"))


SOURCE = """
import sys
from ray_snapshot.spark_jobs.session import spark_session
from ray_snapshot.spark_jobs.source import HistorySource
spark = spark_session("local[1]", brief=True)
spark.dataSource.register(HistorySource)
print(spark.read.format("ray_snapshot").option("table", "machines").load(sys.argv[1]).count())
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_the_data_source_reads_a_store_itself(pristine: str, store: Store) -> None:
    """Its tasks have the environment with which Spark was started."""
    done = ran(sys.executable, "-c", SOURCE, pristine, env=clean_environment(**environment(store.address)), seconds=300)
    assert done.stdout.split() == ["6"], done.stderr
