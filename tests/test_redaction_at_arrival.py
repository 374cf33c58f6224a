"""A secret is learned when it is sent or arrives: what is made of it is clean in the first text that is written."""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from pydantic import BaseModel, SecretStr

from ray_snapshot import redaction
from ray_snapshot.encoding import to_json
from ray_snapshot.plain import Reducer
from ray_snapshot.plain.objects import reduce_opaque

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


class Colour(Enum):
    RED = "red"


class Vault(BaseModel):
    key: SecretStr


@dataclass(slots=True)
class Slotted:
    password: Any


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Door:
    def login(self, user: str, password: str) -> None: ...

    def open(self, user: str, *, password: str = "") -> None: ...

    def try_all(self, user: str, *password: str) -> None: ...

    def try_each(self, user: str, **password: str) -> None: ...

    @staticmethod
    def check(password: str) -> None: ...

    @logged
    def knock(self, user: str, password: str) -> None: ...

    def pair(self, user: str, password: str) -> None: ...


@pytest.fixture(autouse=True)
def redacting() -> Iterator[None]:
    redaction.redact("password")
    redaction.know(Door, {("name", "word"): "pair"})
    yield
    redaction.forget()


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("login", ("bob", SECRET), {}),
        ("open", ("bob",), {"password": SECRET}),
        ("try_all", ("bob", "one", SECRET), {}),
        ("try_each", ("bob",), {"first": SECRET}),
        ("check", (SECRET,), {}),
        ("knock", ("bob", SECRET), {}),
        ("pair", ("bob", SECRET), {}),
        ("word", (SECRET,), {}),
        ("password", ("bob", SECRET), {}),
        ("anything", (Slotted(SECRET),), {}),
        ("anything", ({"password": SECRET.encode()},), {}),
        ("anything", ({"password": deque([PurePosixPath(SECRET)])},), {}),
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


@pytest.mark.parametrize(
    ("secret", "same"),
    [
        (48_151_623, 48_151_623), (-48_151_623, 48_151_623), (48_151_623, 48_151_623.0), (4_815.25, 4_815.25),
        ("48151623", 48_151_623), ("4815.25", 4_815.25), (np.int64(48_151_623), 48_151_623), (1e22, 10**22),
        (Decimal("4815.25"), 4_815.25), (7**3_000, 7**3_000), (np.array([1.0, 4_815.25]), 4_815.25),
    ],
)  # fmt: skip
def test_a_number_is_taken_out_wherever_the_same_number_stands(secret: Any, same: Any) -> None:
    redaction.met("login", ("bob", secret), {})
    out = {"$redacted": "number"}
    found = json.loads(to_json({"code": same, "owed": [-same, 42], "at": {same: 1}}).text)
    assert (found["code"], found["owed"]) == (out, [out, 42])
    assert redaction.purged([same, 42]) == [out, 42]
    if same < 1e100:
        assert repr(same) not in json.dumps(found)
        assert repr(same) not in redaction.scrubbed(f"it is {same}!")
        assert re.search(redaction.pattern() or "-", json.dumps({"x": same})), "rows with it are looked at again"


@pytest.mark.parametrize("secret", ["two\nlines", 'it\'s "so"', "back\\slash", "tab\there", "größe\u2028x", "\x1b[31m"])
def test_a_text_is_found_as_repr_and_json_write_it(secret: str) -> None:
    redaction.met("login", ("bob", secret), {})
    nested = [
        repr(secret), repr({"x": [secret]}), repr(f'"{secret}'), repr(f"'{secret}"), repr(secret.encode()),
        json.dumps(secret), json.dumps([secret], ensure_ascii=False), json.dumps({"x": repr(secret)}), repr(repr(secret)),
    ]  # fmt: skip
    for text in nested:
        assert "[redacted]" in redaction.scrubbed(text), text
        assert "[redacted]" in to_json({"error": ValueError(text)}).text
        assert "[redacted]" in json.dumps(redaction.purged({"x": text}))


class Opaque:
    """Shown by its `repr` alone, as a type written in C is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{'x' * 195}{SECRET}>"


def test_what_is_cut_is_cut_behind_the_secret_not_within_it() -> None:
    redaction.learn(SECRET)
    reducer = Reducer(10_000)
    assert "hunt" not in json.dumps(reduce_opaque(reducer, Opaque()))
    blob = b"x" * 995 + SECRET.encode() + b"y" * 20_000_000
    assert base64.b64encode(b"hunt")[:4].decode() not in to_json({"blob": blob}).text
    assert json.loads(to_json({"blob": blob}).text) == {"blob": {"$redacted": "bytes"}}


def test_bytes_that_are_no_text_are_learned_too() -> None:
    key = bytes(range(128, 160))
    redaction.met("anything", (), {"password": key})
    assert json.loads(to_json({"blob": b"key:" + key}).text) == {"blob": {"$redacted": "bytes"}}
    recorded = {"blob": {"$bytes": base64.b64encode(key).decode()}, "text": repr(key)}
    assert redaction.purged(recorded) == {"blob": {"$redacted": "bytes"}, "text": "b'[redacted]'"}


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("password", SECRET),
        ("_password", [SECRET]),
        ("anything", {"password": SECRET}),
        ("anything", [Login("bob", SECRET)]),
    ],
)
def test_what_a_method_returns_under_a_redacted_name_is_learned(method: str, result: Any) -> None:
    assert not redaction.returned("anything", SECRET)
    assert redaction.returned(method, result)
    assert to_json({"z": f"pw={SECRET}"}).text == '{"z":"pw=[redacted]"}'


def test_what_is_recorded_of_arguments_under_a_redacted_name_is_the_name_alone() -> None:
    out = {"$redacted": "password"}
    assert redaction.arguments("try_all", ["bob", "one", "two"]) == ["bob", out, out]
    assert redaction.keywords("try_each", {"user": "bob", "first": "one"}) == {"user": "bob", "first": out}
    assert redaction.keywords("open", {"user": "bob", "x": "one"}) == {"user": "bob", "x": "one"}
    assert redaction.arguments("word", ["one"]) == [out]
    assert redaction.arguments("name", ["bob"]) == ["bob"]
    assert redaction.arguments("password", ["one"]) == [out]


class AnswersAnything(dict[str, Any]):
    """Has every attribute, as the dictionaries with dots of several libraries have."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name, "anything")


class Refuses:
    """Raises for every attribute that it has not, as a proxy does outside of its context."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"asked for {name}")


class Odd(dict[str, Any]):
    """Cannot be looked into in any way."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("no context")

    def items(self) -> Any:
        raise RuntimeError("no context")

    values = get = items


class OddObject:
    __slots__ = ("password",)

    def __init__(self) -> None:
        self.password = "sesame-2"

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("no context")


@pytest.mark.parametrize("odd", [Odd(), OddObject()], ids=["dictionary", "object"])
def test_an_argument_that_cannot_be_read_does_not_keep_the_later_ones_from_being_learned(odd: Any) -> None:
    redaction.met("login", (odd, odd, {"password": SECRET}), {"more": odd, "password": "sesame-1"})
    redaction.arguments("login", [odd, odd])
    redaction.learn(odd)
    assert redaction.scrubbed(f"{SECRET}, sesame-1") == "[redacted], [redacted]"
    assert redaction.scrubbed("sesame-2") == ("[redacted]" if type(odd) is OddObject else "sesame-2"), (
        "its slots are read"
    )


class Handle:
    def __machine_name__(self) -> str:
        return "bob"


def test_only_a_handle_of_a_machine_is_shown_under_a_redacted_name_not_what_has_every_attribute() -> None:
    shown, secret = Handle(), AnswersAnything(pin=SECRET)
    assert redaction.arguments("login", ["bob", shown]) == ["bob", shown]
    assert redaction.arguments("login", ["bob", secret]) == ["bob", {"$redacted": "password"}]
    assert redaction.keywords("open", {"password": secret}) == {"password": {"$redacted": "password"}}
    assert to_json(f"pin={SECRET}").text == '"pin=[redacted]"', "it is learned, too"


def test_an_argument_is_not_asked_for_anything_of_its_own() -> None:
    value = Refuses()
    redaction.met("login", (value, value), {"more": value})
    assert redaction.arguments("login", [value, value]) == [value, {"$redacted": "password"}]
    assert redaction.keywords("open", {"user": value, "password": value})["user"] is value
    assert redaction.arguments("unknown", [value]) == [{"$redacted": "argument"}]


@pytest.mark.parametrize("value", [{"$redacted": "password"}, "password", "_Password"])
def test_what_stands_for_a_secret_and_its_name_are_no_secrets(value: Any) -> None:
    redaction.met("login", ("bob", value), {"password": value})
    assert to_json({"password": value, "n": "password"}).text == '{"password":{"$redacted":"password"},"n":"password"}'


@pytest.mark.parametrize(
    "short",
    ["abc", 3, 999, 0.5, 10.0, b"abc", True, None, Decimal("0.5"), Decimal("0.00"), Decimal("0.0000"), Fraction(1, 2), time(0),
     timedelta(0)],
)  # fmt: skip
def test_what_is_shorter_than_it_says_is_taken_out_under_its_name_alone(short: Any) -> None:
    redaction.met("login", ("bob", short), {})
    assert redaction.LEAST_CHARACTERS == 4
    value = {"z": "pw=abc 3 999 0.5 10.0 True None 100.00 10.0000 11/2 10:00:00", "n": [3, 999, 0.5, 10.0, True, None]}
    assert json.loads(to_json(value).text) == value
    assert json.loads(to_json({"password": short}).text) == {"password": {"$redacted": "password"}}


def test_what_goes_round_or_on_for_ever_is_no_trouble() -> None:
    around: list[Any] = []
    around.append(around)
    redaction.met("anything", (around, [[0] * 100_000]), {"password": SECRET})
    redaction.met("anything", (object(), Door, lambda: None), None)


def steps_of(function: Any, *args: Any) -> int:
    """How many functions are called meanwhile: time as no other process can change it."""
    steps = [0]

    def count(_frame: Any, event: str, _argument: Any) -> None:
        steps[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return steps[0]


class Node:
    def __init__(self, after: Any) -> None:
        self.left = self.right = after


@pytest.mark.parametrize("is_named", [True, False])
def test_an_object_that_is_reached_in_many_ways_is_looked_into_once(is_named: bool) -> None:
    node = Node(SECRET)
    for _ in range(14):
        node = Node(node)
    assert steps_of(redaction.met, "login", ["bob", node] if is_named else [node, "sesame-1"], None) < 2_000
    assert redaction.scrubbed(SECRET) == ("[redacted]" if is_named else SECRET)


@pytest.mark.parametrize("method", ["login", "password"])
def test_a_long_argument_is_looked_at_no_further_than_it_says_and_does_not_hide_the_next(method: str) -> None:
    long = [list(range(300_000)), [{"password": "sesame-1"}]]
    assert steps_of(redaction.met, method, (long, "sesame-2"), None) < 30 * redaction.MOST_MET
    assert redaction.scrubbed("sesame-2") == "[redacted]"


def test_a_secret_that_goes_round_is_learned() -> None:
    around: dict[str, Any] = {"text": SECRET, "number": 48_151_623}
    around["self"] = [around, (around,), Slotted(around)]
    redaction.learn(around)
    assert redaction.scrubbed(f"{SECRET} 48151623") == "[redacted] [redacted]"


LONG = "".join(f"{number}'é\\n" for number in range(100_000))


@pytest.mark.parametrize("secret", [LONG, LONG.encode(), bytes(range(256)) * 4_000], ids=["text", "utf-8", "bytes"])
def test_of_a_long_secret_a_part_is_held_and_all_that_follows_it_is_taken_out(secret: Any) -> None:
    redaction.learn(secret)
    held = sum(map(len, redaction._texts))
    assert held < 60 * redaction.LONGEST_WHOLE
    for text in (secret, repr(secret), f"see {secret!r}", json.dumps([repr(secret)])):
        if isinstance(text, str):
            head, _, tail = redaction.scrubbed(text).partition("[redacted]")
            assert len(head) < 10, head
            assert tail == ""
        else:
            assert json.loads(to_json(b"x" + text).text) == {"$redacted": "bytes"}
    assert redaction.pattern() == "", "too long for an expression"
    redaction.learn(secret + secret[:10])
    assert sum(map(len, redaction._texts)) == held, "one that grows takes no more"


def test_a_secret_that_is_the_head_of_a_longer_one_hides_nothing_of_it() -> None:
    redaction.learn("k" * redaction.LONGEST_WHOLE)
    assert redaction.scrubbed("k" * redaction.LONGEST_WHOLE + "tail") == "[redacted]tail"
    redaction.learn("k" * redaction.LONGEST_WHOLE + "tail")
    assert redaction.scrubbed("k" * redaction.LONGEST_WHOLE + "tail") == "[redacted]"


@pytest.mark.parametrize(("most", "value"), [("MOST_SECRETS", 100), ("MOST_HELD", 20_000)])
def test_that_more_secrets_are_met_than_can_be_looked_for_is_said_once(
    most: str, value: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redaction, most, value)
    redaction.met("login", ("bob", [f"sesame {number}\n" for number in range(1_000)]), None)
    redaction.met("login", ("bob", [48_151_623 + number for number in range(1_000)]), None)
    assert redaction.secret_count() < 500
    assert redaction.scrubbed("sesame 1\n") == "[redacted]"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ray-snapshot: redact: this process has met too many secrets")
    assert json.loads(to_json({"password": "sesame 999\n"}).text) == {"password": {"$redacted": "password"}}


@pytest.mark.parametrize(
    "secret", [Decimal("12.50"), timedelta(hours=1.5), date(2026, 3, 1), time(9, 30), Fraction(22, 777)], ids=str
)
def test_what_is_written_as_a_number_of_four_digits_is_looked_for(secret: Any) -> None:
    redaction.learn(secret)
    assert redaction.scrubbed(f"it is {secret}") == "it is [redacted]"


EVERYTHING = [
    {1}, b"abc", math.inf, 2**70, 1j, range(3), datetime(2026, 3, 1), date(2026, 3, 1), time(9), timedelta(1), Decimal("1.5"),
    Fraction(1, 3), UUID(int=5), PurePosixPath("a"), re.compile("a"), np.array([1]), np.datetime64("2026"), np.timedelta64(1),
    {(1, 2): 3}, Slotted(1), len, Handle(), ValueError("x"), SecretStr("secret"), Colour.RED,
]  # fmt: skip


@pytest.mark.parametrize("value", EVERYTHING, ids=lambda value: type(value).__name__)
def test_a_secret_that_is_called_like_a_tag_leaves_the_tags_as_they_are(value: Any) -> None:
    text = to_json(value).text
    tags = re.findall(r'"\$([a-z0-9]+)":', text)
    redaction.learn([tag for tag in tags if tag != "redacted"])
    assert [key for key in redaction.purged(json.loads(text)) if key.startswith("$")] == [f"${tag}" for tag in tags][:1]


def test_a_key_of_the_programs_own_that_begins_like_a_tag_is_none() -> None:
    redaction.learn("$2b$12$abcdefghij")
    redaction.learn("sesame")
    assert redaction.purged({"$2b$12$abcdefghij": 1, "$sesame": 2}) == {"[redacted]": 1, "$[redacted]": 2}
