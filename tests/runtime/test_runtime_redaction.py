"""A system whose machines have secrets under redacted names: none of them reaches its history."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray
from pydantic import BaseModel, SecretStr

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

SECRETS = tuple(f"hunter2-{which}" for which in ("first", "second", "third", "fourth", "fifth"))


class Vault(BaseModel):
    name: str = "vault"
    key: SecretStr = SecretStr(SECRETS[3])


class Door(rs.SnapshotMixin):
    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.password = password
        self.vault = Vault()
        self.seen: list[Any] = []

    def login(self, user: str, password: str) -> None:
        self.seen.append({"user": user, "password": password})

    def check(self, *, password: str) -> None:
        """Given by its keyword."""

    def token(self) -> str:
        return SECRETS[4]

    def fetch(self, other: Any) -> None:
        ray.get(other.token.remote())

    def later(self, options: dict[str, str]) -> None:
        self.seen.append(options)

    def ask(self, other: Any) -> None:
        other.login.send("bob", SECRETS[1])
        self.handle.login.send_after(3_600.0, "bob", password=SECRETS[2])


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
        system.start()
        doors[0].login.send("bob", SECRETS[1])
        doors[0].later.send({"password": SECRETS[2], "user": "bob"})
        doors[1].ask.send(doors[0])
        ray.get([doors[1].check.remote(password=SECRETS[1]), doors[1].fetch.remote(doors[0])], timeout=60)
        for _ in range(3):
            snap = system.snapshot(timeout=60)
    text = "\n".join(texts_of(tmp_path))
    assert [secret for secret in SECRETS if secret in text] == []
    history = rs.History(tmp_path)
    machines = {row.machine: row.state for row in history.machines(snap.snapshot_id)}
    assert machines["one"]["password"] == {"$redacted": "password"}
    assert machines["one"]["vault"]["key"] == {"$redacted": "SecretStr"}
    (timer,) = history.messages(snap.snapshot_id)
    assert timer.args == ["bob", {"$kwargs": {"password": {"$redacted": "password"}}}]
    (door,) = history.classes("Door")
    assert {item["name"]: item["type"] for item in door.fields}["user"] == "builtins.str"
    assert door.json_schema["vault"]["properties"]["name"]["default"] == "vault"
