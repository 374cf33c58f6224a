"""Histories that a stranger has prepared: what is built here must be refused, with one clear line, and lead nowhere."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.history import HistoryWriter, checkpoints
from ray_snapshot.history.checkpoints import Checkpoint

KEY = b"the key of this test"
STALE = 1_600_000_000
"""When files were last written to that upkeep takes for strays."""


def plain_history(path: Path, snapshots: int = 3) -> Path:
    """A history of a system `bank` with checkpoints and verdicts; a commit per snapshot."""
    with HistoryWriter(path) as writer:
        for number in range(snapshots):
            taken = snapshot(number)
            snapshot_id = taken.snapshot_id
            writer.add(taken)
            writer.add_verdicts(
                [Verdict(detector="termination", snapshot_id=snapshot_id, holds=True, sentence="All is done.")]
            )
            writer.flush()
            about = {"snapshot_id": snapshot_id, "system": "bank", "run_id": "run", "number": number, "aliases": []}
            checkpoints.write(path, Checkpoint(about, [b"section"]), KEY)
    return path


def snapshot(number: int) -> Snapshot:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=number)
    return Snapshot.from_rows(
        machines=[{"machine": name, "state": {"balance": number}} for name in ("a", "b")],
        messages=[{"source": "a", "target": "b", "args": [number]}],
        calls=[{"machine": "a", "call_id": f"c-{number}", "method": "move", "started_at": at}],
        snapshot_id=f"bank-{number:05d}",
        system="bank",
        run_id="run",
        sequence=number,
        restorable=True,
        started_at=at,
        completed_at=at,
    )


@contextmanager
def untouched(outside: Path) -> Iterator[None]:
    before = fingerprint(outside)
    yield
    assert fingerprint(outside) == before, "something outside of the history was touched"


def fingerprint(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (about.st_mode, about.st_ino, about.st_mtime_ns, content)
    return found


def sentinel(folder: Path, history: Path) -> Path:
    """A folder outside, whose files look as if they were a history's, old, and nobody's any more."""
    folder.mkdir()
    shutil.copytree(history, folder / "other")
    for name in ("secret.parquet", f"part-{'a' * 12}-{'b' * 12}.parquet", "bank-99999.checkpoint", "0.json"):
        (folder / name).write_text("{}")
    for path in folder.rglob("*"):
        os.utime(path, (STALE, STALE))
    return folder


def data_file(history: Path, table: str) -> Path:
    return sorted((history / table).glob("system=*/date=*/*.parquet"))[0]


def edit_log(history: Path, table: str, change: Callable[[dict[str, object]], None]) -> None:
    for log in sorted((history / table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            change(action)
        log.write_text("\n".join(map(json.dumps, actions)))


def add_to_log(history: Path, table: str, *actions: dict[str, object]) -> None:
    log = history / table / "_delta_log"
    version = len(list(log.glob("*.json")))
    info = {"commitInfo": {"timestamp": STALE * 1_000, "operation": "WRITE"}}
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, [info, *actions])))


def removal(path: str) -> dict[str, object]:
    values = {"system": "bank", "date": "2026-03-01"}
    return {
        "remove": {
            "path": path,
            "dataChange": True,
            "deletionTimestamp": STALE * 1_000,
            "partitionValues": values,
            "size": 2,
        }
    }


def with_texts(file: Path, column: str, text: str) -> None:
    rows = pq.read_table(file, partitioning=None)
    place = rows.schema.get_field_index(column)
    pq.write_table(
        rows.set_column(place, rows.schema.field(place), pa.array([text] * rows.num_rows, pa.string())), file
    )


def replace_by_link(place: Path, target: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(target)


# ---- what a stranger may do --------------------------------------------------------------------------------------------


def linked_table(history: Path, outside: Path) -> None:
    replace_by_link(history / "machines", outside / "other" / "machines")


def linked_log(history: Path, outside: Path) -> None:
    replace_by_link(history / "machines" / "_delta_log", outside / "other" / "machines" / "_delta_log")


def linked_folder_in_a_log(history: Path, outside: Path) -> None:
    """A folder in a log is a link to another's log: what is expired in it would be cleaned up."""
    (history / "machines" / "_delta_log" / "x").symlink_to(outside / "other" / "machines" / "_delta_log")


def linked_entry_of_a_log(history: Path, outside: Path) -> None:
    name = f"{0:020}.json"
    replace_by_link(history / "machines" / "_delta_log" / name, outside / "other" / "machines" / "_delta_log" / name)


def linked_partition(history: Path, outside: Path) -> None:
    """A partition of a table is a link to another history's, whose live files look like strays."""
    (history / "machines" / "system=z").symlink_to(outside / "other" / "machines" / "system=bank")


def linked_partition_in_use(history: Path, outside: Path) -> None:
    replace_by_link(history / "machines" / "system=bank", outside / "other" / "machines" / "system=bank")


def linked_data_file(history: Path, outside: Path) -> None:
    replace_by_link(data_file(history, "machines"), data_file(outside / "other", "machines"))


def removal_through_a_link(history: Path, outside: Path) -> None:
    """A linked folder inside a table, and a file behind it that is said to have left the table."""
    (history / "machines" / "gone").symlink_to(outside)
    add_to_log(history, "machines", removal("gone/secret.parquet"))


def removal_upwards(history: Path, outside: Path) -> None:
    way = os.path.relpath(outside / "secret.parquet", history / "machines")
    add_to_log(history, "machines", removal(way))


def removal_upwards_encoded(history: Path, outside: Path) -> None:
    way = os.path.relpath(outside / "secret.parquet", history / "machines")
    add_to_log(history, "machines", removal(way.replace("/", "%2F").replace(".", "%2E")))


def removal_by_address(history: Path, outside: Path) -> None:
    add_to_log(history, "machines", removal(f"file://{outside}/secret.parquet"))


def linked_checkpoints(history: Path, outside: Path) -> None:
    """The folder of checkpoints is a link: those of no snapshot of this history look like strays."""
    replace_by_link(history / checkpoints.FOLDER, outside)


def linked_checkpoint(history: Path, outside: Path) -> None:
    place = checkpoints.path_of(history, "bank-00000")
    replace_by_link(place, outside / "other" / "checkpoints" / place.name)


def linked_writers(history: Path, outside: Path) -> None:
    """The folder of writers' records is a link: each record there that nobody holds is cleaned up after."""
    replace_by_link(history / "_writers", outside)


def partition_that_climbs(history: Path, outside: Path) -> None:
    """A system's name that is a way to the outside: a compaction would make its files there."""
    way = f"x/../../../../{outside.name}/climbed"

    def climb(action: dict[str, object]) -> None:
        for added in action.values():
            if isinstance(added, dict) and "partitionValues" in added:
                added["partitionValues"]["system"] = way

    edit_log(history, "machines", climb)


CRAFTS: tuple[Callable[[Path, Path], None], ...] = (
    linked_table,
    linked_log,
    linked_folder_in_a_log,
    linked_entry_of_a_log,
    linked_partition,
    linked_partition_in_use,
    linked_data_file,
    removal_through_a_link,
    removal_upwards,
    removal_upwards_encoded,
    removal_by_address,
    linked_checkpoints,
    linked_checkpoint,
    linked_writers,
    partition_that_climbs,
)
"""Each leads out of the history; `craft(history, outside)`."""
