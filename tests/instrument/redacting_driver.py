"""A program that watches itself and has secrets: `redacting_driver.py HISTORY SECRET ...`, for `test_apps_from_outside`."""

from __future__ import annotations

import sys
from typing import Any

import ray
from pydantic import BaseModel, SecretStr

import ray_snapshot as rs


class Vault(BaseModel):
    """What pydantic knows to be secret."""

    name: str = "vault"
    key: SecretStr


@rs.wrap
class Door:
    """It keeps all that it is told."""

    def __init__(self, password: str, key: SecretStr) -> None:
        self.password, self.vault = password, Vault(key=key)
        self.seen: list[Any] = []

    def login(self, user: str, password: str) -> None:
        self.seen.append({"user": user, "password": password})

    def ask(self, other: Any, password: str) -> None:
        ray.get(other.login.remote("bob", password=password))


def main(history: str, first: str, second: str, third: str) -> None:
    """Snapshots while the machines are being made and one waits for the other, and behind that."""
    rs.redact("password")
    kind = ray.remote(Door)
    with rs.watch("doors", history=history) as system:
        one, other = (kind.remote(first, SecretStr(third)) for _ in range(2))
        asked = one.ask.remote(other, second)
        system.snapshot(timeout=30)
        ray.get(asked)
        system.snapshot(timeout=30)


if __name__ == "__main__":
    ray.init()
    main(*sys.argv[1:])
