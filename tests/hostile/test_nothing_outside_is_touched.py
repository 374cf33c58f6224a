"""Nothing below the folder of a history is followed out of it, whatever reads, writes or removes."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import crafted
import pytest

from ray_snapshot import cli
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, HistoryWriter, checkpoints, inside

COMMANDS = (
    ("list",),
    ("show",),
    ("verdicts",),
    ("verify",),
    ("conservation",),
    ("since",),
    ("diff",),
    ("sql", "SELECT * FROM machines, channels"),
    ("vacuum", "--keep-hours", "0", "--dry-run"),
    ("compact",),
    ("vacuum", "--keep-hours", "0"),
    ("compact", "--keep", "1d"),
    ("vacuum", "--keep", "1d", "--keep-hours", "0"),
)


@pytest.fixture
def outside(pristine: Path, tmp_path: Path) -> Path:
    return crafted.sentinel(tmp_path / "outside", pristine)


@pytest.mark.by_day(5)
@pytest.mark.parametrize("craft", crafted.CRAFTS, ids=lambda craft: craft.__name__)
def test_no_command_touches_what_a_crafted_history_leads_to(
    history: Path, outside: Path, craft: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    craft(history, outside)
    with crafted.untouched(outside):
        for command, *options in COMMANDS:
            code = cli.main([command, str(history), *options])
            said = capsys.readouterr().err.splitlines()
            assert len(said) == (code == 2), (command, said)
        with pytest.raises(RaySnapshotError):  # noqa: PT012 - one of them must refuse, and none touch anything
            with HistoryWriter(history):
                pass
            History(history).files("machines")
            History(history).compact()
            History(history).vacuum(0)
            checkpoints.read(history, "bank-00000", crafted.KEY)


@pytest.mark.parametrize(
    "craft", [craft for craft in crafted.CRAFTS if "linked" in craft.__name__], ids=lambda craft: craft.__name__
)
def test_a_link_is_refused_by_name_before_upkeep_changes_anything(
    history: Path, outside: Path, craft: Callable[[Path, Path], None]
) -> None:
    craft(history, outside)
    before = crafted.fingerprint(history)
    for upkeep in (lambda: History(history).vacuum(0), lambda: History(history).compact()):
        with pytest.raises(RaySnapshotError, match=r"is a link: .*put the real (file|folder) in its place"):
            upkeep()
    with pytest.raises(RaySnapshotError, match="is a link"):
        History(history).retain(timedelta(seconds=1))
    assert crafted.fingerprint(history) == before


@pytest.mark.parametrize(
    "craft",
    [
        crafted.linked_table,
        crafted.linked_log,
        crafted.linked_entry_of_a_log,
        crafted.linked_partition_in_use,
        crafted.linked_data_file,
        crafted.partition_that_climbs,
    ],
    ids=lambda craft: craft.__name__,
)
def test_reading_follows_no_link(history: Path, outside: Path, craft: Callable[[Path, Path], None]) -> None:
    craft(history, outside)
    for read in (
        lambda: History(history).machines(),
        lambda: list(History(history).load_many(f"bank-{number:05d}" for number in range(3))),
        lambda: History(history).files("machines"),
    ):
        with pytest.raises(RaySnapshotError):
            read()


def test_a_partition_that_leads_out_is_refused_by_name(history: Path, outside: Path) -> None:
    crafted.partition_that_climbs(history, outside)
    with pytest.raises(RaySnapshotError, match=r"partition of the system 'x/\.\./\.\./.*no system is named"):
        History(history).compact()


def test_a_writer_writes_into_no_linked_folder(history: Path, outside: Path) -> None:
    crafted.linked_partition_in_use(history, outside)
    writer = HistoryWriter(history)
    writer.add(crafted.snapshot(9))
    with crafted.untouched(outside), pytest.raises(RaySnapshotError, match="is a link"):
        writer.flush()


def test_a_checkpoint_is_written_and_read_through_no_link(history: Path, outside: Path) -> None:
    crafted.linked_checkpoints(history, outside)
    about = {"snapshot_id": "bank-99999", "system": "bank", "run_id": "run"}
    with crafted.untouched(outside):
        with pytest.raises(RaySnapshotError, match="is a link"):
            checkpoints.write(history, checkpoints.Checkpoint(about, [b"x"]), crafted.KEY)
        with pytest.raises(RaySnapshotError, match="is a link"):
            checkpoints.read(history, "bank-99999", crafted.KEY)


def test_the_folder_of_a_history_may_be_a_link_itself(history: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(history)
    found = History(tmp_path / "mine")
    assert len(found.snapshots()) == 3
    found.compact()
    assert len(found.vacuum(0)["machines"]) == 3
    assert checkpoints.read(tmp_path / "mine", "bank-00000", crafted.KEY).snapshot_id == "bank-00000"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
@pytest.mark.parametrize("place", ["checkpoints/bank-00000.checkpoint", "_writers/aaaaaaaaaaaa.json"])
def test_what_is_no_file_in_the_place_of_one_is_not_waited_for(
    history: Path, place: str, make: Callable[[Path], None]
) -> None:
    (history / place).parent.mkdir(exist_ok=True)
    (history / place).unlink(missing_ok=True)
    make(history / place)
    HistoryWriter(history).close()
    History(history).compact()
    History(history).vacuum(0)
    if "checkpoint" in place:
        with pytest.raises(RaySnapshotError, match=r"is no file|Is a directory"):
            checkpoints.read(history, "bank-00000", crafted.KEY)


def test_a_folder_that_is_exchanged_for_a_link_while_it_is_open_is_not_followed(history: Path, outside: Path) -> None:
    """The race between check and use: what was checked is the very folder in which a file is removed."""
    partition = data_file = crafted.data_file(history, "machines")
    partition = partition.parent
    with inside.folder(history, partition) as handle:
        partition.rename(partition.with_name("moved"))
        partition.symlink_to(crafted.data_file(outside / "other", "machines").parent)
        with crafted.untouched(outside):
            os.unlink(data_file.name, dir_fd=handle)
    with pytest.raises(RaySnapshotError, match="is a link"):
        inside.unlink(history, data_file)


@pytest.mark.parametrize(
    "out", [None, "{history}/results/traffic", "file://{history}/results/traffic", "file:{history}/results"]
)
def test_results_are_written_through_no_link(history: Path, outside: Path, out: str | None) -> None:
    pytest.importorskip("pyspark")
    from ray_snapshot.spark_jobs.engine.command import default_out, prepare_out

    given = default_out(str(history), "traffic") if out is None else out.format(history=history)
    (history / "results").symlink_to(outside)
    with crafted.untouched(outside), pytest.raises(RaySnapshotError, match="is a link"):
        prepare_out(given, str(history))
    (history / "results").unlink()
    (history / "results" / "traffic").mkdir(parents=True)
    (history / "results" / "traffic" / "traffic.png").symlink_to(outside / "secret.parquet")
    with crafted.untouched(outside), pytest.raises(RaySnapshotError, match="is a link"):
        prepare_out(given, str(history))


def test_a_pipe_among_results_is_refused_and_not_waited_for(history: Path) -> None:
    pytest.importorskip("pyspark")
    from ray_snapshot.spark_jobs.engine.command import default_out, prepare_out

    out = Path(default_out(str(history), "conservation"))
    out.mkdir(parents=True)
    os.mkfifo(out / "left.json")
    with pytest.raises(RaySnapshotError, match=r"left\.json is no file"):
        prepare_out(str(out), str(history))
