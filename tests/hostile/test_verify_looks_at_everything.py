"""`verify` says "all passed" only if every other command can read the history, and says what it does not check."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crafted
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ray_snapshot import cli
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, HistoryWriter, checkpoints
from ray_snapshot.schema import ACTIONS


@pytest.fixture(scope="module")
def pristine(pristine: Path) -> Path:
    row = {"run_id": "run", "machine": "a", "method": "move", "colour": 0, "accepted": "[]", "sent": "[]"}
    rows = [{**row, "number": number, "acted_at": 1_770_000_000_000_000} for number in (1, 2)]
    with HistoryWriter(pristine) as writer:
        writer.add_actions(pa.Table.from_pylist(rows, schema=ACTIONS), system="bank")
    return pristine


@pytest.fixture(autouse=True)
def _its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", crafted.KEY.decode())


Fault = Callable[[Path], None]


def rewritten(table: str, change: Callable[[pa.Table], pa.Table]) -> Fault:
    def rewrite(history: Path) -> None:
        for file in sorted((history / table).glob("system=*/date=*/*.parquet")):
            pq.write_table(change(pq.read_table(file, partitioning=None)), file)

    return rewrite


def changed(table: str, name: str, change: Callable[[Any], Any]) -> Fault:

    def other(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        return rows.set_column(place, field, pa.array(map(change, rows[name].to_pylist()), field.type))

    return rewritten(table, other)


def column(table: str, name: str, value: Any) -> Fault:
    return changed(table, name, lambda _: value)


def doubled(table: str) -> Fault:
    return rewritten(table, lambda rows: pa.concat_tables([rows, rows]))


def no_texts(table: str, name: str) -> Fault:

    def other(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index(name)
        raw = pa.array([b"\xff\xfe"] * rows.num_rows, pa.binary())
        return rows.set_column(place, rows.schema.field(place), raw.view(pa.string()))

    return rewritten(table, other)


def checkpoint_of(history: Path, number: int) -> Path:
    return checkpoints.path_of(history, f"bank-{number:05d}")


def cut(history: Path) -> None:
    path = checkpoint_of(history, 0)
    path.write_bytes(path.read_bytes()[:-1])


def flipped(history: Path) -> None:
    path = checkpoint_of(history, 0)
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)


def swapped(history: Path) -> None:
    shutil.copyfile(checkpoint_of(history, 1), checkpoint_of(history, 0))


FAULTS: dict[str, Fault] = {
    "evidence is no JSON": column("verdicts", "evidence", "{"),
    "evidence is no object": column("verdicts", "evidence", "[]"),
    "a verdict has no detector": column("verdicts", "detector", None),
    "a verdict is of another run": column("verdicts", "run_id", "other"),
    "the detector's data is no JSON": column("verdicts", "detector_spec", "x"),
    "fields are no JSON": column("classes", "fields", "["),
    "fields are no list": column("classes", "fields", "{}"),
    "accepted is no JSON": column("actions", "accepted", "]"),
    "sent is no list": column("actions", "sent", "1"),
    "an action is numbered below 0": column("actions", "number", -1),
    "actions are there twice": doubled("actions"),
    "a file of verdicts is gone": lambda history: crafted.data_file(history, "verdicts").unlink(),
    "a file of actions is gone": lambda history: crafted.data_file(history, "actions").unlink(),
    "a file of classes is gone": lambda history: crafted.data_file(history, "classes").unlink(),
    "accepted counts are negative": column("machines", "accepted_count", -3),
    "a machine count is negative": column("snapshots", "machine_count", -2),
    "bytes are negative": column("snapshots", "bytes", -2),
    "a channel's count is beyond all memory": column("channels", "sent_count", 2**63 - 1),
    "a channel's source is nobody": changed("channels", "source", lambda name: "ghost" if name == "a" else name),
    "machines are of another run": column("machines", "run_id", "other"),
    "messages are of another run": column("messages", "run_id", "other"),
    "channels have no source": rewritten("channels", lambda rows: rows.drop_columns(["source"])),
    "machines have no status": rewritten("machines", lambda rows: rows.drop_columns(["status"])),
    "messages have no number": rewritten("messages", lambda rows: rows.drop_columns(["number"])),
    "actions have their run twice": rewritten("actions", lambda rows: rows.append_column("run_id", rows["run_id"])),
    "classes have their name twice": rewritten(
        "classes", lambda rows: rows.append_column("class_name", rows["class_name"])
    ),
    "a snapshot has no id": changed("snapshots", "snapshot_id", lambda name: None if name == "bank-00001" else name),
    "snapshots have no time": column("snapshots", "started_at", None),
    "a time is none": column("machines", "recorded_at", 2**62),
    "machines are there twice": doubled("machines"),
    "calls are there twice": doubled("calls"),
    "channels are there twice": doubled("channels"),
    "states are no texts": no_texts("machines", "state"),
    "sentences are no texts": no_texts("verdicts", "sentence"),
    "a checkpoint is gone": lambda history: checkpoint_of(history, 0).unlink(),
    "a checkpoint is cut": cut,
    "a checkpoint is damaged": flipped,
    "a checkpoint is another snapshot's": swapped,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.by_day(20)
def test_what_another_command_cannot_read_does_not_pass(
    history: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    FAULTS[fault](history)
    code = cli.main(["verify", str(history)])
    said = capsys.readouterr()
    assert "all passed" not in said.out
    assert code == 1, said.err


def test_a_whole_history_passes_and_it_is_said_what_was_not_checked(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", str(history)]) == 0
    said = capsys.readouterr().out
    assert "3 snapshots verified, all passed" in said
    assert "not checked: whether verdicts follow" in said
    assert "against their key" not in said


@pytest.mark.parametrize(
    "fault", ["a checkpoint is cut", "a checkpoint is damaged", "a checkpoint is another snapshot's"]
)
def test_without_the_key_a_checkpoint_is_checked_by_its_own_digest(
    history: Path, fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_SNAPSHOT_KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    unchecked: list[str] = []
    assert not any(problems for _, problems in History(history).verify(unchecked=unchecked))
    assert "3 checkpoints were not checked against their key" in unchecked[0]
    FAULTS[fault](history)
    assert sum(bool(problems) for _, problems in History(history).verify()) == 1


def test_rows_of_another_system_are_found(history: Path) -> None:
    def elsewhere(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["partitionValues"]["system"] = "other"

    crafted.edit_log(history, "machines", elsewhere)
    problems = [problem for _, found in History(history).verify() for problem in found]
    assert problems
    assert all("of machines are of another system" in problem for problem in problems)


@pytest.mark.contract
def test_a_message_to_a_machine_that_is_not_born_yet_is_no_fault(tmp_path: Path) -> None:
    taken = crafted.snapshot(1)
    machines = taken.tables["machines"]
    kept = type(taken)(
        {
            **taken.tables,
            "machines": machines.filter(pc.equal(machines["machine"], "a")),
            "snapshots": taken.tables["snapshots"].set_column(
                taken.tables["snapshots"].schema.get_field_index("machine_count"), "machine_count", pa.array([1])
            ),
        }
    )
    with HistoryWriter(tmp_path) as writer:
        writer.add(kept)
    found = dict(History(tmp_path).verify())["bank-00001"]
    assert found == ["it is recorded as restorable, and its checkpoint is gone"]


@pytest.mark.parametrize("fault", ["fields are no JSON", "accepted is no JSON"])
def test_a_damaged_table_beside_the_snapshots_is_named(history: Path, fault: str) -> None:
    FAULTS[fault](history)
    (name,) = [checked for checked, problems in History(history).verify() if problems]
    assert name in ("table classes", "table actions")
    with pytest.raises(RaySnapshotError):
        History(history).classes() if name == "table classes" else History(history).actions("run")


@pytest.mark.parametrize("missing", ["snapshot_id", "run_id", "started_at"])
@pytest.mark.parametrize("command", ["compact", "vacuum"])
def test_retention_removes_nothing_where_it_cannot_tell_what_is_old(
    history: Path, command: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    column("snapshots", missing, None)(history)
    before = crafted.fingerprint(history)
    assert cli.main([command, str(history), "--keep", "1d"]) == 2
    assert f"table snapshots is damaged: snapshots has 3 rows without {missing}" in capsys.readouterr().err
    assert crafted.fingerprint(history) == before


@pytest.mark.parametrize("table", ["messages", "verdicts"])
def test_retention_removes_nothing_where_a_table_is_append_only(
    history: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def only_append(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.appendOnly"] = "true"

    crafted.edit_log(history, table, only_append)
    before = crafted.fingerprint(history)
    assert cli.main(["vacuum", str(history), "--keep", "1d"]) == 2
    said = capsys.readouterr().err
    assert f"table {table} is append-only (delta.appendOnly): nothing was removed" in said
    assert crafted.fingerprint(history) == before


@pytest.mark.parametrize(
    ("table", "name", "value", "said"),
    [
        ("actions", "number", None, "table actions is damaged: actions has 2 rows without number"),
        ("actions", "accepted", None, "table actions is damaged: actions has 2 rows without accepted"),
        ("actions", "sent", '[{"target": [], "kind": "mail", "number": 1, "method": "m", "args": []}]', "the target of"),
        ("actions", "sent", '[{"target": "b", "kind": "mail", "number": "1", "method": "m", "args": []}]', "the number of"),
        ("actions", "colour", None, "table actions is damaged: actions has 2 rows without colour"),
        ("machines", "state", "", "snapshot bank-00002 cannot be compared with: JSONDecodeError"),
        ("machines", "machine", None, "table machines is damaged: machines has 2 rows without machine"),
    ],
)  # fmt: skip
def test_the_witness_says_which_table_cannot_be_read(
    history: Path, table: str, name: str, value: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    column(table, name, value)(history)
    assert cli.main(["witness", str(history), "latest"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("table", "name", "line"),
    [
        ("actions", "acted_at", ["witness", "latest"]),
        ("snapshots", "completed_at", ["list"]),
        ("snapshots", "started_at", ["report"]),
        ("machines", "recorded_at", ["show", "latest"]),
        ("messages", "sent_at", ["show", "latest"]),
        ("verdicts", "evaluated_at", ["verdicts", "--json"]),
    ],
)
def test_a_time_before_the_first_year_is_told_as_damage(
    history: Path, table: str, name: str, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    column(table, name, -62_135_596_800_000_001)(history)
    assert cli.main([line[0], str(history), *line[1:]]) == 2
    assert f"table {table} is damaged: {table} has a {name} that is no time; put it back" in capsys.readouterr().err
    assert cli.main(["verify", str(history)]) == 1
    assert f"{table} has a {name} that is no time" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        ["sql", "select count(*) from snapshots where completed_at::varchar > '2'"],
        ["vacuum", "--keep", "1d", "--dry-run"],
    ],
    ids=["sql", "vacuum"],
)
def test_what_looks_at_no_time_goes_on_where_one_is_damaged(
    history: Path, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    column("snapshots", "completed_at", 2**62)(history)
    assert cli.main([line[0], str(history), *line[1:]]) == 0, capsys.readouterr().err


def test_a_damaged_time_of_one_snapshot_keeps_no_other_from_being_shown(history: Path) -> None:
    last = History(history).snapshots()[-1]
    whole = {value: value for value in History(history).table("snapshots")["started_at"].to_pylist()}
    changed("snapshots", "started_at", (whole | {last.started_at: 2**62}).get)(history)
    assert cli.main(["show", str(history), last.snapshot_id]) == 2
    assert cli.main(["show", str(history), "-2"]) == 0


@pytest.mark.parametrize(
    "line", [["show", "no-such"], ["verdicts", "--run", "no-such"], ["list", "--run", "no-such"]], ids=str
)
def test_what_has_no_name_is_not_among_what_there_is(
    history: Path, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, known in (("snapshot_id", "bank-00001"), ("run_id", "run")):
        kept = iter([None, known, known])
        changed("snapshots", name, lambda _, kept=kept: next(kept))(history)
    assert cli.main([line[0], str(history), *line[1:]]) == 2
    assert "fault of ray-snapshot" not in capsys.readouterr().err


def test_rows_of_no_snapshot_are_not_compacted(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = iter([None, "bank-00001", "bank-00002", None, None, None])
    changed("messages", "snapshot_id", lambda _: next(kept))(history)
    assert cli.main(["compact", str(history)]) == 2
    assert "table messages cannot be rewritten: it has 1 rows without snapshot_id" in capsys.readouterr().err


def test_a_message_whose_arguments_are_not_there_has_none(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    column("messages", "args", None)(history)
    assert cli.main(["witness", str(history), "latest"]) in (1, 2)
    assert "fault of ray-snapshot" not in capsys.readouterr().err
