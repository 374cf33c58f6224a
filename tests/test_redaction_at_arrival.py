"""A secret is learned when it is sent or arrives: what is made of it is clean in the first text that is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, SecretStr

from ray_snapshot import redaction
from ray_snapshot.encoding import to_json

SECRET = "hunter2"


@dataclass
class Login:
    user: str
    password: Any


class Model(BaseModel):
    password: str


class Pair(NamedTuple):
    user: str
    password: str


class Vault(BaseModel):
    key: SecretStr


class Door:
    def login(self, user: str, password: str) -> None: ...

    def open(self, user: str, *, password: str = "") -> None: ...


@pytest.fixture(autouse=True)
def redacting() -> Iterator[None]:
    redaction.redact("password")
    redaction.know(Door)
    yield
    redaction.forget()


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("login", ("bob", SECRET), {}),
        ("open", ("bob",), {"password": SECRET}),
        ("anything", (), {"more": {"password": SECRET}}),
        ("anything", ([{"x": ({"_Password": SECRET},)}],), {}),
        ("anything", (Login("bob", SECRET),), {}),
        ("anything", (Login("bob", Login("eve", SECRET)),), {}),
        ("anything", (Model(password=SECRET),), {}),
        ("anything", (Pair("bob", SECRET),), {}),
        ("anything", (Vault(key=SecretStr(SECRET)),), {}),
        ("anything", ({"password": Vault(key=SecretStr(SECRET))},), {}),
    ],
    ids=str,
)
def test_it_is_learned_wherever_it_stands_under_its_name(method: str, args: Any, kwargs: Any) -> None:
    redaction.met(method, args, kwargs)

    assert to_json({"z": f"pw={SECRET}", "error": f"{SECRET} is wrong"}).text == (
        '{"z":"pw=[redacted]","error":"[redacted] is wrong"}'
    )


def test_what_is_shorter_than_it_says_is_not_looked_for_in_texts() -> None:
    redaction.met("login", ("bob", "abc"), {})
    assert redaction.LEAST_CHARACTERS == 4
    assert "abc" in to_json({"z": "pw=abc"}).text
    assert "abc" not in to_json({"password": "abc"}).text


def test_what_goes_round_or_on_for_ever_is_no_trouble() -> None:
    around: list[Any] = []
    around.append(around)
    redaction.met("anything", (around, [[0] * 100_000]), {"password": SECRET})
    redaction.met("anything", (object(), Door, lambda: None), None)
