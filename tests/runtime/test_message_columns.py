"""Messages that are made columns of together say what each says by itself, in the same order."""

import enum
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from limited import limit

from ray_snapshot import MachineHandle, redaction
from ray_snapshot.columns import inner
from ray_snapshot.encoding import MOST_BYTES, PLAIN_CHARACTERS, PLAIN_ITEMS
from ray_snapshot.limits import LIMITS
from ray_snapshot.plain import LARGEST_INTEGER
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Message
from ray_snapshot.runtime import message_columns
from ray_snapshot.runtime.message_columns import InFlight
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.rows import MESSAGE_ROW, message_row
from ray_snapshot.schema import MESSAGES


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    __slots__ = ()


Run = tuple[str, str, str, list[Message]]
"""Source, target, kind, and messages of one channel."""

EDGES = [0, 1, -1, LARGEST_INTEGER, -LARGEST_INTEGER, LARGEST_INTEGER + 1, -LARGEST_INTEGER - 1, 2**70]
TEXTS = [
    '"],["',
    '"',
    "\\",
    "\udc00",
    "é",
    "\n",
    "\x7f",
    "\x1f",
    "",
    "x" * PLAIN_CHARACTERS,
    "x" * (PLAIN_CHARACTERS + 1),
]
HANDLES = [MachineHandle("run", name, None) for name in ("a", "b", "é", 'q"', "n" * 300)]
ODD = [Level.LOW, Word("w"), b"x", 1j, [1], {"a": [1]}, (1,)]
COLUMNS = [
    st.integers(-3, 3),
    st.sampled_from(EDGES),
    st.floats(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    st.sampled_from(["a", "b", "c d"]),
    st.sampled_from(TEXTS),
    st.sampled_from(HANDLES),
    st.none() | st.integers(-9, 9) | st.sampled_from(["a", True, 0.5, *HANDLES[:2]]),
    st.sampled_from(ODD),
]


@st.composite
def runs(draw: Any) -> list[Run]:
    """Some channels; mostly the arguments at one place of a method are of one sort."""
    methods = {
        name: [draw(st.sampled_from(COLUMNS)) for _ in range(draw(st.integers(0, 3)))]
        for name in draw(st.sampled_from([["m"], ["m", "n"], ["m", "n", "é"]]))
    }
    found: list[Run] = []
    for channel in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([MAIL, MAIL, MAIL, TIMER, CALL]))
        messages: list[Message] = []
        for number in range(draw(st.integers(0, 5))):
            method = draw(st.sampled_from([*methods]))
            args = [draw(column) for column in methods[method]]
            args += [] if draw(st.integers(0, 9)) else [draw(COLUMNS[-2])]
            kwargs = {} if draw(st.integers(0, 9)) else {"key": 1}
            payload = isolate("a", "b", method, tuple(args), kwargs)
            head = {TIMER: 9.0 + number, CALL: f"call/{number}"}.get(kind)
            sent_at = draw(st.sampled_from([0.0, 1.25, 1_763_600_000.123457]))
            messages.append((0, number, method, payload if head is None else (head, payload), sent_at, 0))
        found.append((f"s{channel % 3}", f"t{channel % 2}", kind, messages))
    return found


def together(found: Sequence[Run]) -> pa.Table:
    rows = InFlight()
    for run in found:
        rows.add(*run)
    return rows.table()


def alone(found: Sequence[Run]) -> pa.Table:
    rows = [
        dict(zip(MESSAGE_ROW, message_row(source, target, kind, message), strict=True))
        for source, target, kind, messages in found
        for message in messages
    ]
    return pa.Table.from_pylist(rows, schema=inner(MESSAGES))


@pytest.fixture(params=[3, LIMITS.column_messages], ids="{} at once".format, scope="module")
def _sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, column_messages=request.param)
        limit(patch, packed_arguments=1)
        limit(patch, special_arguments=2)
        yield


@pytest.mark.usefixtures("_sizes")
@given(runs())
@example([("s", "t", MAIL, [(0, 1, "m", (True,), 0.0, 0), (0, 2, "m", (1,), 0.0, 0), (0, 3, "m", (1.0,), 0.0, 0)])])
@example([("s", "t", MAIL, [(0, 1, "m", (-0.0,), 0.0, 0), (0, 2, "m", (0.0,), 0.0, 0)])])
@example([("s", "t", MAIL, [(0, 1, "m", ("\x7f",), 0.0, 0), (0, 2, "m", ("\x00",), 0.0, 0)])])
@example([("s", "t", MAIL, [(0, 1, "m", (-LARGEST_INTEGER - 1,), 0.0, 0), (0, 2, "m", (1,), 0.0, 0)])])
@example([("s", "t", MAIL, [(0, 1, "m", ("é",), 0.0, 0), (0, 2, "m", ("é",), 0.0, 0)])])
@example([("s", "t", MAIL, [(0, 1, "m", ("\udc00",) * 2, 0.0, 0), (0, 2, "m", ("a", "b"), 0.0, 0)])])
def test_together_as_alone(found: list[Run]) -> None:
    assert together(found).to_pylist() == alone(found).to_pylist()
    assert together(found).schema == alone(found).schema


def mail(*payloads: tuple[Any, ...], method: str = "m") -> list[Run]:
    messages = [(0, number, method, payload, 1.0, 0) for number, payload in enumerate(payloads)]
    return [("s", "t", MAIL, messages)]


def one_by_one(patch: pytest.MonkeyPatch) -> list[Any]:
    """What is written by itself from now on."""
    seen: list[Any] = []
    encode = message_columns.to_json
    patch.setattr(message_columns, "to_json", lambda args: seen.append(args) or encode(args))
    return seen


PLAIN = (1, "a", None, True, 0.5, MachineHandle("run", "m", None))


def test_most_arguments_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = one_by_one(monkeypatch)
    found = [
        *mail(*[(number, f"a{number}", *PLAIN) for number in range(100)]),
        *mail(*[()] * 100, method="n"),
        *mail(*[(number / 2, None if number % 2 else number, '"') for number in range(100)], method="o"),
    ]
    assert together(found).to_pylist() == alone(found).to_pylist()
    assert seen == []


@pytest.mark.parametrize(
    "value",
    [
        LARGEST_INTEGER + 1,
        -LARGEST_INTEGER - 1,
        "x" * (PLAIN_CHARACTERS + 1),
        "é",
        float("nan"),
        b"",
        HANDLES[2],
        HANDLES[4],
    ],
    ids=repr,
)
def test_few_are_written_by_themselves_for_one_that_must_be(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = one_by_one(monkeypatch)
    others = [f"a{number}" if isinstance(value, str) else number for number in range(3_000)]
    found = mail(*[(number, value if number == 1_500 else other) for number, other in enumerate(others)])
    assert together(found)["args"].to_pylist() == alone(found)["args"].to_pylist()
    assert 0 < len(seen) <= LIMITS.special_arguments


def test_no_text_of_plain_arguments_is_longer_than_any_may_be() -> None:
    """So nothing looks at the length of those that are written together."""
    assert PLAIN_ITEMS * (PLAIN_CHARACTERS * len("\\u0000") + len('{"$machine":""},')) < MOST_BYTES


def test_what_is_secret_is_not_written_together() -> None:
    redaction.redact("password")
    redaction.know(type("Login", (), {"enter": lambda self, name, password: None}))
    (text,) = {*together(mail(*[("me", "secret")] * 20, method="enter"))["args"].to_pylist()}
    assert json.loads(text) == ["me", {"$redacted": "password"}]
