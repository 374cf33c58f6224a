"""A system whose machines have secrets: none of them reaches its history, whatever happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray
from pydantic import BaseModel, SecretStr

import ray_snapshot as rs
from ray_snapshot import redaction

pytestmark = pytest.mark.ray

SECRETS = tuple(
    f"hunter2-{which}" for which in ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
)
PIN = 48_151_623


class Vault(BaseModel):
    name: str = "vault"
    key: SecretStr = SecretStr(SECRETS[3])


class Door(rs.SnapshotMixin):
    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.password = password
        self.vault = Vault()
        self.seen: list[Any] = []
        self.derived = self.by_keyword = self.inside = self.fetched = ""
        self.number = 0

    def login(self, user: str, password: str) -> None:
        self.seen.append({"user": user, "password": password, "note": f"{user} gave {password}"})

    def derive(self, password: str) -> None:
        self.derived = "pw=" + password

    def derive_by_keyword(self, *, password: str) -> None:
        self.by_keyword = "pw=" + password

    def derive_inside(self, options: dict[str, Any]) -> None:
        self.inside = "pw=" + options["login"][0]["password"]

    def derive_number(self, password: int) -> None:
        self.number = password

    def token(self) -> str:
        return SECRETS[7]

    def fetch(self, other: Any) -> None:
        self.fetched = "token=" + ray.get(other.token.remote())

    def later(self, options: dict[str, str]) -> None:
        self.seen.append(options)

    def ask(self, other: Any) -> None:
        other.login.send("bob", SECRETS[1])
        self.handle.login.send_after(3_600.0, "bob", password=SECRETS[2])


class Broken(Door):
    def snapshot_state(self) -> Any:
        raise ValueError(f"the password is {self.password}")


@pytest.fixture(autouse=True)
def nothing_redacted_elsewhere() -> Iterator[None]:
    yield
    redaction.forget()


def texts_of(path: Path) -> Iterator[str]:
    for file in path.rglob("*"):
        if file.is_file():
            yield file.read_bytes().decode("utf-8", "replace")
        if file.suffix == ".parquet":
            with pq.ParquetFile(file) as parquet:
                yield json.dumps(parquet.read().to_pylist(), default=str)


def test_no_secret_of_a_running_system_reaches_its_history(ray_cluster: None, tmp_path: Path) -> None:
    rs.redact("password", "token")
    with rs.System("vaults", history=tmp_path, trace=True) as system:
        doors = system.spawn_many(Door, args=[("bob", SECRETS[0])] * 2, names=["one", "two"])
        system.spawn(Broken, "eve", SECRETS[0], name="broken")
        system.start()
        doors[0].login.send("bob", SECRETS[1])
        doors[0].later.send({"password": SECRETS[2], "user": "bob"})
        doors[1].ask.send(doors[0])
        doors[1].derive.send(SECRETS[4])
        doors[1].derive_by_keyword.remote(password=SECRETS[5])
        doors[1].derive_inside.send({"login": [{"password": SECRETS[6]}]})
        ray.get([doors[1].derive_number.remote(PIN), doors[1].fetch.remote(doors[0])], timeout=60)
        for _ in range(3):
            snap = system.snapshot(timeout=60)
    text = "\n".join(texts_of(tmp_path))
    assert [secret for secret in (*SECRETS, str(PIN)) if secret in text] == []
    history = rs.History(tmp_path)
    machines = {row.machine: row.state for row in history.machines(snap.snapshot_id)}
    assert machines["one"]["password"] == {"$redacted": "password"}
    assert machines["one"]["seen"][0]["note"] == "bob gave [redacted]"
    assert [machines["two"][name] for name in ("derived", "by_keyword", "inside")] == ["pw=[redacted]"] * 3
    assert machines["two"]["number"] == {"$redacted": "number"}
    assert machines["two"]["fetched"] == "token=[redacted]"
    assert machines["one"]["vault"]["key"] == {"$redacted": "SecretStr"}
    assert "the password is [redacted]" in json.dumps(machines["broken"])
    (timer,) = history.messages(snap.snapshot_id)
    assert timer.args == ["bob", {"$kwargs": {"password": {"$redacted": "password"}}}]
    (door,) = history.classes("Door")
    assert {item["name"]: item["type"] for item in door.fields}["user"] == "builtins.str"
    assert door.json_schema["vault"]["properties"]["name"]["default"] == "vault"
