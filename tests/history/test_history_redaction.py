"""Redaction: what is secret is in no byte of a history, however it was recorded."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from histories import START, snapshot, verdict
from pydantic import BaseModel, SecretBytes, SecretStr

import ray_snapshot as rs
from ray_snapshot import redaction
from ray_snapshot.encoding import to_json
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS
from ray_snapshot.snapshot import Absent, Snapshot

SECRET = "hunter2-und-Größe"


@pytest.fixture(autouse=True)
def nothing_redacted_elsewhere() -> Iterator[None]:
    redaction.forget()
    yield
    redaction.forget()


def texts_of(path: Path) -> Iterator[tuple[Path, str]]:
    """Every byte of a history, Parquet files uncompressed as well."""
    for file in path.rglob("*"):
        if file.is_file():
            yield file, file.read_bytes().decode("utf-8", "replace")
            if file.suffix == ".parquet":
                with pq.ParquetFile(file) as parquet:
                    yield file, json.dumps(parquet.read().to_pylist(), default=str, ensure_ascii=False)
                    yield file, str(parquet.metadata)


def places_of(secret: str, path: Path) -> list[str]:
    escaped = json.dumps(secret)[1:-1]
    return [str(file) for file, text in texts_of(path) if secret in text or escaped in text]


@dataclass
class Login:
    user: str
    password: str


class Settings(BaseModel):
    name: str = "s"
    key: SecretStr = SecretStr(SECRET)
    raw: SecretBytes = SecretBytes(SECRET.encode())


Pair = namedtuple("Pair", "user password")


class Slotted:
    __slots__ = ("_password", "user")

    def __init__(self) -> None:
        self._password, self.user = SECRET, "bob"


class Mangled:
    def __init__(self) -> None:
        self.__password = SECRET


@pytest.mark.parametrize(
    "value",
    [
        {"password": SECRET},
        {"Password": SECRET, "deep": [{"x": ({"PASSWORD": {"again": SECRET}},)}]},
        {"before": f"it is {SECRET}!", "password": SECRET, "after": [SECRET], SECRET: 1},
        [{"$kwargs": {"password": SECRET}}],
        Login("bob", SECRET),
        Pair("bob", SECRET),
        Slotted(),
        Mangled(),
        {"password": [SECRET, "other"], "log": f"tried {SECRET}"},
        {"password": SECRET.encode(), "log": f"tried {SECRET}", "raw": b"x" + SECRET.encode()},
        {"password": SECRET, "error": ValueError(f"no {SECRET}", {"a": SECRET})},
        {"password": SECRET, "many": [f"{SECRET}{number}" for number in range(20_000)]},
        {"login": {"password": SECRET, "rest": "x" * 9_000_000}},
        {("password", 1): Login("a", SECRET), 5: {"password": SECRET}},
        Settings(),
        {"settings": Settings(), "told": f"{Settings().key.get_secret_value()}"},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_named_field_is_never_written_nor_its_value_elsewhere(value: Any) -> None:
    rs.redact("password")
    text = to_json(value).text
    assert SECRET not in text
    assert "$redacted" in text
    json.loads(text)


def test_what_is_not_named_is_written_as_it_was() -> None:
    value = {"user": "bob", "passwords": 3, "word": "pass", "n": [1, 2.5, None, True]}
    before = to_json(value)
    rs.redact("password", "_token_")
    assert to_json(value) == before
    assert json.loads(to_json({"token": 5, "user": "bob"}).text) == {"token": {"$redacted": "token"}, "user": "bob"}


@pytest.mark.parametrize("name", ["", "__", 5, None])
def test_what_names_nothing_is_refused(name: Any) -> None:
    with pytest.raises(rs.SettingError, match="name fields"):
        rs.redact("password", name)


class Door:
    def open(self, user: str, password: str, *more: str) -> None: ...

    @staticmethod
    def knock(times: int) -> None: ...


def test_positional_arguments_are_taken_out_by_the_names_of_their_parameters() -> None:
    rs.redact("password")
    redaction.know(Door)
    assert redaction.arguments("open", ["bob", SECRET, "x"]) == ["bob", {"$redacted": "password"}, "x"]
    assert redaction.arguments("knock", [3]) == [3]
    assert redaction.scrubbed(f"no {SECRET} here") == "no [redacted] here", "it is known from then on"
    unknown = redaction.arguments("enter", [SECRET, 1, None, True])
    assert unknown == [{"$redacted": "argument"}, {"$redacted": "argument"}, None, True]


def secret_snapshot() -> Snapshot:
    login = {"user": "bob", "password": SECRET}
    return Snapshot.from_rows(
        machines=[{"machine": "a", "state": {"login": login, "note": f"used {SECRET}"}}],
        messages=[{"source": "b", "target": "a", "method": "login", "args": ["bob", {"$kwargs": login}]}],
        snapshot_id="bank-1",
        system="bank",
        started_at=START,
        status="aborted",
        abort_reason=f"a raised ValueError: {SECRET}",
        coverage={"uncovered": [{"password": SECRET}]},
    )


@pytest.mark.parametrize("is_known_before", [True, False])
def test_no_byte_of_a_history_has_a_secret(tmp_path: Path, is_known_before: bool) -> None:
    if is_known_before:
        rs.redact("password")
    given = secret_snapshot()
    rs.redact("password")
    trace = {
        "run_id": "by-hand",
        "machine": "a",
        "number": 1,
        "method": "login",
        "colour": 0,
        "accepted": json.dumps([{"method": "login", "args": ["bob", {"password": SECRET}]}]),
        "sent": json.dumps([{"args": [SECRET]}], ensure_ascii=True),
        "acted_at": START,
        "raised": f"ValueError {SECRET}",
    }
    with HistoryWriter(tmp_path) as writer:
        writer.add(given)
        writer.add_actions(pa.Table.from_pylist([trace], schema=ACTIONS), system="bank")
        writer.add_verdicts(
            [
                verdict(
                    "bank-1",
                    evidence={"password": SECRET, "x": SECRET},
                    sentence=f"{SECRET}!",
                    detector_spec={"password": SECRET},
                )
            ]
        )
        kind = {"class_name": "Door", "version": "1", "run_id": "by-hand", "module": "app", "first_seen_at": START}
        schema = {"properties": {"password": {"default": SECRET}}}
        writer.add_classes([{**kind, "fields": "[]", "json_schema": json.dumps(schema)}], system="bank")
    History(tmp_path).compact()
    assert places_of(SECRET, tmp_path) == []
    (machine,) = History(tmp_path).machines("bank-1")
    assert machine.state["login"] == {"user": "bob", "password": {"$redacted": "password"}}
    assert machine.state["note"] == "used [redacted]"


class Packed:
    """Rows of machines that have come with a snapshot, and were not read yet."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def rows(self) -> pa.Table:
        return self.table

    def repeats(self, names: pa.ChunkedArray) -> bool:
        return False


def noting(snapshot_id: str, *more: dict[str, Any]) -> Snapshot:
    """Its first machine, and a message, hold the secret without its name."""
    return Snapshot.from_rows(
        machines=[{"machine": "a", "state": {"note": f"used {SECRET}"}}, *more],
        messages=[{"source": "b", "target": "a", "method": "say", "args": [f"it is {SECRET}"]}],
        snapshot_id=snapshot_id,
        system="bank",
        started_at=START,
    )


def test_a_secret_that_is_met_at_the_commit_is_taken_out_of_all_tables(tmp_path: Path) -> None:
    whole = noting("bank-1", {"machine": "b", "state": {"password": SECRET}})
    before = noting("bank-0")
    rs.redact("password")  # the process that has recorded them did not know of it
    machines = whole.tables["machines"]
    absent = Absent({"C": 1}, {"h": 1}, {"h": 0.0}, 9, lambda _: machines[1:], lambda *_: [], Packed(machines[1:]))
    with HistoryWriter(tmp_path) as writer:
        writer.add(before)
        writer.add(Snapshot({**whole.tables, "machines": machines[:1]}, absent))
        writer.add_verdicts([verdict("bank-0", sentence=f"{SECRET}!", evidence={"x": SECRET})])
    assert places_of(SECRET, tmp_path) == []
    assert [one.machine for one in History(tmp_path).machines("bank-1")] == ["a", "b"]


def test_the_search_finds_what_is_not_redacted(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(secret_snapshot())
        writer.add(snapshot(1))
    assert {Path(place).relative_to(tmp_path).parts[0] for place in places_of(SECRET, tmp_path)} == {
        "snapshots",
        "machines",
        "messages",
    }
