"""Hostile histories by hand: the truth or one clear line that names file and remedy; nothing runs, nothing hangs.

Any damage by chance: `tests/hostile/fuzzing.py`.
"""

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


@pytest.fixture
def answer(run: Any) -> Any:
    """The exit code of a command and its one line on stderr, which names the history; fails if there is more."""

    def execute(command: str, path: Path, *options: str) -> tuple[int, str]:
        code, _, said = run(command, str(path), *options)
        assert len(said) == (code == 2), said
        assert not said or str(path) in said[0]
        return code, "".join(said)

    return execute


def first_file(path: Path, table: str) -> Path:
    return Path(History(path).files(table)[0])


def with_states(path: Path, text: str) -> None:
    file = first_file(path, "machines")
    rows = pq.read_table(file, partitioning=None)
    states = pa.array([text] * rows.num_rows)
    pq.write_table(rows.set_column(rows.schema.get_field_index("state"), "state", states), file)


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
def test_a_log_cannot_name_a_file_outside_of_its_table(path: Path, answer: Any, trick: str) -> None:
    shutil.copy(first_file(path, "machines"), path.parent / "outside.parquet")
    for log in (path / "machines" / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["path"] = trick
        log.write_text("\n".join(map(json.dumps, actions)))
    code, said = answer("show", path)
    assert code == 2
    assert "table machines" in said
    answer("compact", path)
    answer("vacuum", path, "--keep-hours", "0")
    assert (path.parent / "outside.parquet").exists()


@pytest.mark.parametrize("target", ["outside", "/dev/zero", "itself"])
def test_a_link_in_the_place_of_a_file_is_not_followed(path: Path, answer: Any, target: str) -> None:
    file = first_file(path, "machines")
    outside = path.parent / "outside.parquet"
    file.rename(outside)
    file.symlink_to(outside if target == "outside" else file if target == "itself" else target)
    assert answer("verify", path)[0] == 1, "the other snapshots are whole"
    with pytest.raises(RaySnapshotError, match=r"table machines cannot be read: .*is no file; .*put it back"):
        History(path).table("machines")
    assert outside.exists()


def test_a_pickle_in_the_place_of_a_state_stays_text(path: Path) -> None:
    with_states(path, pickle.dumps(Trap(), protocol=0).decode("latin-1"))
    assert sum(bool(problems) for _, problems in History(path).verify()) == 1
    with pytest.raises(RaySnapshotError, match="table machines cannot be read"):
        History(path).machines()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 100_000, '"\\ud800"', "NaN"])
def test_json_that_no_reader_should_take_harms_nobody(path: Path, answer: Any, text: str) -> None:
    with_states(path, text)
    for command in ("list", "show", "verdicts", "verify", "compact"):
        assert answer(command, path)[0] in (0, 1, 2)
    for option in (("--keep-hours", "0"), ("--keep", "1d")):
        assert answer("vacuum", path, *option)[0] in (0, 1, 2)


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
