"""Redaction: what stands under a redacted name is in no byte of a history, whoever has recorded it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from histories import START, verdict

import ray_snapshot as rs
from ray_snapshot import Snapshot
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS
from ray_snapshot.snapshot import Absent

SECRET = "hunter2-of-bob"
LOGIN = {"user": "bob", "password": SECRET}


def texts_of(path: Path) -> Iterator[tuple[Path, str]]:
    """Every byte of a history, Parquet files uncompressed as well."""
    for file in path.rglob("*"):
        if file.is_file():
            yield file, file.read_bytes().decode("utf-8", "replace")
            if file.suffix == ".parquet":
                with pq.ParquetFile(file) as parquet:
                    yield file, json.dumps(parquet.read().to_pylist(), default=str)
                    yield file, str(parquet.metadata)


def tables_with(secret: str, path: Path) -> set[str]:
    return {file.relative_to(path).parts[0] for file, text in texts_of(path) if secret in text}


def logging_in(snapshot_id: str) -> Snapshot:
    return Snapshot.from_rows(
        machines=[{"machine": name, "state": {"login": LOGIN}} for name in "ab"],
        messages=[{"source": "b", "target": "a", "method": "login", "args": ["bob", {"$kwargs": LOGIN}]}],
        snapshot_id=snapshot_id,
        system="bank",
        started_at=START,
        coverage={"uncovered": [LOGIN]},
    )


def write(path: Path, given: Snapshot) -> None:
    """All tables, each with the secret under its name."""
    trace = {
        "run_id": "by-hand",
        "machine": "a",
        "number": 1,
        "method": "login",
        "colour": 0,
        "accepted": json.dumps([{"method": "login", "args": ["bob", LOGIN]}]),
        "sent": json.dumps([{"args": [], "exact": [{"$dict": [[1, 2], ["password", SECRET]]}]}]),
        "waits": json.dumps([{"came": {"values": [LOGIN]}}]),
        "acted_at": START,
    }
    kind = {"class_name": "Door", "version": "1", "run_id": "by-hand", "module": "app", "first_seen_at": START}
    schema = {"properties": {"password": {"default": SECRET}}}
    with HistoryWriter(path) as writer:
        writer.add(given)
        writer.add_actions(pa.Table.from_pylist([trace], schema=ACTIONS), system="bank")
        writer.add_verdicts([verdict("bank-1", evidence=LOGIN, detector_spec=LOGIN)])
        writer.add_classes([{**kind, "fields": "[]", "json_schema": json.dumps(schema)}], system="bank")
    History(path).compact()


TABLES = {"snapshots", "machines", "messages", "actions", "verdicts", "classes"}


def test_the_search_finds_what_is_not_redacted(tmp_path: Path) -> None:
    write(tmp_path, logging_in("bank-1"))
    assert tables_with(SECRET, tmp_path) == TABLES


@pytest.mark.parametrize("is_known_before", [True, False])
def test_no_byte_of_a_history_has_what_stands_under_a_redacted_name(tmp_path: Path, is_known_before: bool) -> None:
    if is_known_before:
        rs.redact("password")
    given = logging_in("bank-1")
    rs.redact("password")
    write(tmp_path, given)
    assert tables_with(SECRET, tmp_path) == set()
    machine = History(tmp_path).machines("bank-1")[0]
    assert machine.state["login"] == {"user": "bob", "password": {"$redacted": "password"}}


class Packed:
    """Rows of machines that have come with a snapshot, and were not read yet."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def rows(self) -> pa.Table:
        return self.table

    def repeats(self, names: pa.ChunkedArray) -> bool:
        return False


def test_rows_that_come_packed_are_looked_at_too(tmp_path: Path) -> None:
    whole = logging_in("bank-1")
    rs.redact("password")  # the process that has recorded them did not know of it
    machines = whole.tables["machines"]
    absent = Absent({"C": 1}, {"h": 1}, {"h": 0.0}, 9, lambda _: machines[1:], lambda *_: [], Packed(machines[1:]))
    with HistoryWriter(tmp_path) as writer:
        writer.add(Snapshot({**whole.tables, "machines": machines[:1]}, absent))
    assert tables_with(SECRET, tmp_path) == set()
    assert [one.machine for one in History(tmp_path).machines("bank-1")] == ["a", "b"]


@pytest.mark.contract
def test_json_that_cannot_be_parsed_is_not_kept(tmp_path: Path) -> None:
    rs.redact("password")
    given = logging_in("bank-1")
    broken = given.tables["machines"].set_column(
        given.tables["machines"].schema.get_field_index("state"), "state", pa.array([f'{{"password": "{SECRET}'] * 2)
    )
    with HistoryWriter(tmp_path) as writer:
        writer.add(Snapshot({**given.tables, "machines": broken}))
    assert History(tmp_path).machines("bank-1")[0].state == {"$redacted": "unreadable"}
