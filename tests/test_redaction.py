"""What stands under a redacted name is never written, however deep, and by whom it was recorded."""

import functools
import json
import re
from collections import namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, SecretBytes, SecretStr

import ray_snapshot as rs
from ray_snapshot import redaction
from ray_snapshot.decoding import exact
from ray_snapshot.encoding import to_json

SECRET = "hunter2-und-Größe"
OUT = {"$redacted": "password"}


@pytest.fixture(autouse=True)
def redacting() -> None:
    rs.redact("password")
    redaction.know(Door, {("name", "word"): "pair"})


@dataclass
class Login:
    user: str
    password: Any


class Model(BaseModel):
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


VALUES = [
    {"password": SECRET},
    {"Password": SECRET, "deep": [{"x": ({"PASSWORD": {"again": SECRET}},)}]},
    [{"$kwargs": {"password": SECRET}}],
    Login("bob", [SECRET]),
    Login("bob", Login("eve", SECRET)),
    Model(password=SECRET),
    Pair("bob", SECRET),
    Slotted(),
    Mangled(),
    {"password": SECRET, "rest": "x" * 9_000_000},
    {"password": SECRET, "many": list(range(20_000))},
    {("password", 1): Login("a", SECRET), 5: {"password": SECRET}, "password": SECRET},
    MappingProxyType({"password": SECRET}),
    {"error": ValueError({"password": SECRET})},
]
ONLY_HERE = [{"password": SECRET}.items(), Settings()]
"""What no other process can tell once it is written."""


@pytest.mark.parametrize("value", [*VALUES, *ONLY_HERE], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("form", [lambda value: value, lambda value: [exact(value)]], ids=["plain", "exact"])
def test_what_stands_under_a_redacted_name_is_never_written(value: Any, form: Any) -> None:
    text = to_json(form(value)).text
    assert "hunter2" not in text
    assert "$redacted" in text
    json.loads(text)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_process_that_knows_the_name_takes_it_out_of_what_another_has_recorded(value: Any) -> None:
    redaction.forget()
    texts = [to_json(value).text, json.dumps(json.loads(to_json([exact(value)]).text))]
    assert all("hunter2" in text for text in texts)
    rs.redact("password")
    for text in texts:
        assert re.search(redaction.pattern(), text)
        assert "hunter2" not in json.dumps(redaction.purged(json.loads(text)))


def test_a_name_in_other_letters_is_looked_for_in_every_text() -> None:
    rs.redact("Größe")
    assert redaction.purged({"größe_": 1, "x": [{"GRÖSSE": 2}]}) == {
        "größe_": {"$redacted": "größe_"},
        "x": [{"GRÖSSE": {"$redacted": "GRÖSSE"}}],
    }
    assert re.search(redaction.pattern(), json.dumps({"größe": 1}))


def test_what_is_not_named_is_written_as_it_was() -> None:
    value = {"user": "bob", "passwords": 3, "word": "password", "n": [1, 2.5, None, True], "text": SECRET}
    redaction.forget()
    before = to_json(value)
    rs.redact("password", "_token_")
    assert to_json(value) == before
    assert redaction.purged(json.loads(before.text)) == json.loads(before.text)
    assert json.loads(to_json({"token": 5, "user": "bob"}).text) == {"token": {"$redacted": "token"}, "user": "bob"}


@pytest.mark.parametrize("name", ["", "__", 5, None])
def test_what_names_nothing_is_refused(name: Any) -> None:
    with pytest.raises(rs.SettingError, match="name fields"):
        rs.redact("password", name)


# Arguments


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Door:
    colour = "red"

    def login(self, user: str, password: str) -> None: ...

    def open(self, user: str, *, password: str = "") -> None: ...

    def try_all(self, user: str, *password: str) -> None: ...

    def try_each(self, user: str, **password: str) -> None: ...

    @staticmethod
    def check(password: str) -> None: ...

    @classmethod
    def make(cls, password: str) -> None: ...

    @logged
    def knock(self, user: str, password: str) -> None: ...

    def pair(self, user: str, password: str) -> None: ...


@pytest.mark.parametrize(
    ("method", "args", "shown"),
    [
        ("login", ["bob", SECRET], ["bob", OUT]),
        ("login", ["bob", None], ["bob", None]),
        ("try_all", ["bob", "one", "two"], ["bob", OUT, OUT]),
        ("check", [SECRET], [OUT]),
        ("make", [SECRET], [OUT]),
        ("knock", ["bob", SECRET], ["bob", OUT]),
        ("pair", ["bob", SECRET], ["bob", OUT]),
        ("name", ["bob"], ["bob"]),
        ("word", [SECRET], [OUT]),
        ("password", [SECRET], [OUT]),
        ("unknown", [SECRET, 1, None, True], [{"$redacted": "argument"}, {"$redacted": "argument"}, None, True]),
    ],
)
def test_positional_arguments_are_taken_out_by_the_names_of_their_parameters(
    method: str, args: list[Any], shown: list[Any]
) -> None:
    assert redaction.arguments(method, args) == shown


def test_keyword_arguments_are_taken_out_by_their_names_and_by_those_of_what_takes_them() -> None:
    assert redaction.keywords("try_each", {"user": "bob", "first": "one"}) == {"user": "bob", "first": OUT}
    assert redaction.keywords("open", {"user": "bob", "password": "one"}) == {"user": "bob", "password": OUT}
    assert redaction.keywords("open", {"user": "bob", "x": "one"}) == {"user": "bob", "x": "one"}
    assert redaction.keywords("password", {"x": "one"}) == {"x": OUT}


class AnswersAnything(dict[str, Any]):
    """Has every attribute, as the dictionaries with dots of several libraries have."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name, "anything")


class Handle:
    def __machine_name__(self) -> str:
        return "bob"


def test_only_a_handle_of_a_machine_is_shown_under_a_redacted_name_not_what_has_every_attribute() -> None:
    shown, secret = Handle(), AnswersAnything(pin=SECRET)
    assert redaction.arguments("login", ["bob", shown]) == ["bob", shown]
    assert redaction.arguments("login", ["bob", secret]) == ["bob", OUT]
