"""A small file that stands for gigabytes is refused by name before it takes them: no command needs more than 1 GB for it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import child
import crafted
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, checkpoints
from ray_snapshot.limits import LIMITS

COMMANDS = [["list"], ["show"], ["show", "--json", "--limit", "0"], ["verdicts"], ["verify"]]
COMMANDS += [["conservation"], ["since"], ["diff"]]


@pytest.fixture(scope="module")
def reader() -> Iterator[child.Child]:
    with child.Child(child.__file__) as found:
        yield found


def repeated(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))


def bomb(history: Path, table: str, rows: int, texts: dict[str, str], *, is_plain: bool = False) -> None:
    for file in [crafted.data_file(history, table)]:
        first = pq.read_table(file, partitioning=None).slice(0, 1).to_pylist()[0]
        schema = pq.read_schema(file)
        columns = [
            repeated(texts.get(field.name, first[field.name]), rows)
            if pa.types.is_string(field.type) and isinstance(first[field.name] or texts.get(field.name), str)
            else pa.repeat(pa.scalar(first[field.name], field.type), rows)
            for field in schema
        ]
        names = schema.names
        pq.write_table(pa.table(columns, names), file, compression="zstd", use_dictionary=not is_plain)
        assert file.stat().st_size < 2_000_000


def log_bomb(history: Path) -> None:
    """A checkpoint of a log that is small and stands for gigabytes."""
    log = history / "machines" / "_delta_log"
    rows = 300_000
    path = log / f"{len(list(log.glob('*.json'))) - 1:020}.checkpoint.parquet"
    added = pa.StructArray.from_arrays([repeated("x" * 100_000, rows)], ["path"])
    pq.write_table(pa.table({"add": added}), path, compression="zstd")
    (log / "_last_checkpoint").write_text(json.dumps({"version": int(path.name[:20]), "size": rows}))


BOMBS: dict[str, Callable[[Path], None]] = {
    "long states": lambda history: bomb(history, "machines", 100_000, {"state": json.dumps("x" * 100_000)}),
    "long names": lambda history: bomb(history, "machines", 100_000, {"machine": "m" * 100_000}),
    "long states, stored one by one": lambda history: bomb(
        history, "machines", 3_000, {"state": json.dumps("x" * 100_000)}, is_plain=True
    ),
    "many machines": lambda history: bomb(history, "machines", 1_000_000, {}),
    "many messages": lambda history: bomb(history, "messages", 100_000, {"args": "[" + "[]," * 20_000 + "[]]"}),
    "long coverage": lambda history: bomb(history, "snapshots", 100_000, {"coverage": json.dumps("x" * 50_000)}),
    "many snapshots": lambda history: bomb(history, "snapshots", 200_000, {}),
    "long evidence": lambda history: bomb(history, "verdicts", 100_000, {"evidence": json.dumps("x" * 50_000)}),
    "many verdicts": lambda history: bomb(history, "verdicts", 200_000, {}),
    "much JSON in one text": lambda history: bomb(history, "machines", 1, {"state": "[" + "[]," * 10_000_000 + "[]]"}),
    "a log": log_bomb,
}


WHOLE = {"many verdicts"}
"""Nothing is wrong with these, for a verdict may be written again; all of it is read."""


@pytest.mark.by_day(6)
@pytest.mark.parametrize("name", BOMBS)
def test_no_command_takes_a_gigabyte_for_a_small_file(history: Path, reader: child.Child, name: str) -> None:
    BOMBS[name](history)
    found = reader.ask([[command, str(history), *options] for command, *options in COMMANDS])
    for code, out, err in found["said"]:
        assert code in (0, 1, 2), err
        assert "Traceback" not in err
        assert name in WHOLE or "all passed" not in out
    assert found["bytes"] < child.MOST_BYTES


@pytest.mark.parametrize("name", ["long states", "many machines", "a log"])
def test_the_file_is_named_before_it_is_read(history: Path, name: str) -> None:
    BOMBS[name](history)
    with pytest.raises(RaySnapshotError, match=r"\.parquet stands for more rows or text than a file of its size may"):
        History(history).machines()


def test_a_record_of_a_log_that_is_far_too_long_is_not_read(history: Path) -> None:
    log = history / "machines" / "_delta_log" / f"{0:020}.json"
    with log.open("ab") as file:
        file.truncate(LIMITS.log_bytes + 1)
    with pytest.raises(RaySnapshotError, match="more than any commit of a history"):
        History(history).machines()


def test_a_checkpoint_that_is_not_as_long_as_it_says_is_not_read(history: Path) -> None:
    path = checkpoints.path_of(history, "bank-00000")
    with path.open("ab") as file:
        file.truncate(1 << 40)  # no block of it is on the disk
    with pytest.raises(RaySnapshotError, match="is damaged"):
        checkpoints.read(history, "bank-00000", crafted.KEY)


def test_a_key_that_is_no_file_of_a_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_SNAPSHOT_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    place = checkpoints.key_file()
    place.parent.mkdir()
    place.symlink_to("/dev/zero")
    with pytest.raises(RaySnapshotError, match=r"cannot be read|is no file of a key"):
        checkpoints.checkpoint_key()
    place.unlink()
    place.write_bytes(b"x" * 100_000)
    with pytest.raises(RaySnapshotError, match="is no file of a key"):
        checkpoints.checkpoint_key()
