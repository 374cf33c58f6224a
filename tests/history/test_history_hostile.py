"""Hostile histories by hand: the truth or one clear line that names file and remedy; nothing runs, nothing hangs.

Any damage by chance: `tests/hostile/fuzzing.py`.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from histories import snapshot, verdict

from ray_snapshot import cli
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, HistoryWriter

pytestmark = pytest.mark.contract

FLAG = "RAY_SNAPSHOT_EXECUTED"


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"import os; os.environ[{FLAG!r}] = '1'",)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "history"
    with HistoryWriter(path) as writer:
        for number in (1, 2, 3):
            writer.add(snapshot(number))
            writer.add_verdicts([verdict(f"bank-{number:05d}")])
            writer.flush()
    return path


@pytest.fixture
def path(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "history")
    return tmp_path / "history"


@pytest.fixture(autouse=True)
def nothing_was_executed() -> Any:
    os.environ.pop(FLAG, None)
    yield
    assert FLAG not in os.environ, "something was executed"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code of a command and its one line on stderr; fails if there is more, or a traceback."""
    code = cli.main(arguments)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (code == 2), said
    assert "Traceback" not in "".join(said)
    return code, "".join(said)


COMMANDS = (
    ("list",),
    ("show",),
    ("verdicts",),
    ("verify",),
    ("compact",),
    ("vacuum", "--keep-hours", "0"),
    ("vacuum", "--keep", "1d"),
)


def all_commands(capsys: pytest.CaptureFixture[str], path: Path) -> list[str]:
    """What every command says of a history that may be damaged: each ends, with the truth or one line."""
    said = []
    for command, *options in COMMANDS:
        code, line = answer(capsys, command, str(path), *options)
        assert code in (0, 1, 2)
        assert not line or str(path) in line, "the line names the history"
        said.append(line)
    return [line for line in said if line]


# By hand


def first_file(path: Path, table: str) -> Path:
    return Path(History(path).files(table)[0])


@pytest.mark.parametrize(
    "trick",
    [
        "../../outside.parquet",
        "../channels/x.parquet",
        "/etc/passwd",
        "file:///etc/passwd",
        "..%2F..%2Foutside.parquet",
        "s3://b/x",
    ],
)
def test_a_log_cannot_name_a_file_outside_of_its_table(
    path: Path, capsys: pytest.CaptureFixture[str], trick: str
) -> None:
    shutil.copy(first_file(path, "machines"), path.parent / "outside.parquet")
    for log in (path / "machines" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["path"] = trick
        log.write_text("\n".join(map(json.dumps, actions)))
    code, said = answer(capsys, "show", str(path))
    assert code == 2
    assert "table machines" in said
    answer(capsys, "compact", str(path))
    answer(capsys, "vacuum", str(path), "--keep-hours", "0")
    assert (path.parent / "outside.parquet").exists()


@pytest.mark.parametrize("target", ["outside", "/dev/zero", "itself"])
def test_a_link_in_the_place_of_a_file_is_not_followed(
    path: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    file = first_file(path, "machines")
    outside = path.parent / "outside.parquet"
    file.rename(outside)
    file.symlink_to(outside if target == "outside" else file if target == "itself" else target)
    code, _ = answer(capsys, "verify", str(path))
    assert code == 1, "the other snapshots are whole"
    with pytest.raises(RaySnapshotError, match=r"table machines cannot be read: .*is no file; .*put it back"):
        History(path).table("machines")
    assert outside.exists()


def test_a_pickle_in_the_place_of_a_state_stays_text(path: Path) -> None:
    file = first_file(path, "machines")
    rows = pq.read_table(file, partitioning=None)
    text = pickle.dumps(Trap(), protocol=0).decode("latin-1")
    states = pa.array([text] * rows.num_rows)
    pq.write_table(rows.set_column(rows.schema.get_field_index("state"), "state", states), file)
    assert sum(bool(problems) for _, problems in History(path).verify()) == 1
    with pytest.raises(RaySnapshotError, match="table machines cannot be read"):
        History(path).machines()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 100_000, '"\\ud800"', "NaN"])
def test_json_that_no_reader_should_take_harms_nobody(
    path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    file = first_file(path, "machines")
    rows = pq.read_table(file, partitioning=None)
    states = pa.array([text] * rows.num_rows)
    pq.write_table(rows.set_column(rows.schema.get_field_index("state"), "state", states), file)
    all_commands(capsys, path)


def test_a_record_of_a_writer_that_somebody_forged_removes_nothing_that_exists(path: Path) -> None:
    records = path / "_writers"
    records.mkdir(exist_ok=True)
    about = {"key": "system:", "snapshot_ids": ["bank-00001", "bank-00002", 5, None]}
    for name in ("../../x", "abcdefabcdef"):
        (records / f"{name.replace('/', '_')}.json").write_text(json.dumps(about) + "\n{torn")
    (records / "deadbeefdead.json").write_text("[1, 2]")
    (records / "feedfeedfeed.json").write_bytes(pickle.dumps(Trap()))
    HistoryWriter(path).close()
    assert [problems for _, problems in History(path).verify()] == [[]] * 3
