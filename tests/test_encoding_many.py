"""States that are written together are written as each is by itself."""

import enum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ray_snapshot import MachineHandle, encoding_many, redaction
from ray_snapshot.encoding import MOST_BYTES, PLAIN_CHARACTERS, PLAIN_ITEMS, to_json
from ray_snapshot.encoding_many import texts_of
from ray_snapshot.plain import LARGEST_INTEGER


class Level(enum.IntEnum):
    LOW = 1


class Word(str):
    """A text of the program's own class."""

    __slots__ = ()


NUMBERS = st.sampled_from([0, 1, -1, LARGEST_INTEGER, -LARGEST_INTEGER, LARGEST_INTEGER + 1, -LARGEST_INTEGER - 1])
TEXTS = st.text(max_size=5) | st.sampled_from(
    ['},{"', '"', "\\", "\udc00", "é", "\n", "x" * PLAIN_CHARACTERS, "x" * 300]
)
ATOMS = (
    st.none() | st.booleans() | st.floats() | NUMBERS | TEXTS | st.just(Level.LOW) | st.just(Word("w")) | st.just(2**70)
)
HANDLES = st.sampled_from([MachineHandle("run", "a", None), MachineHandle("run", "n" * 300, None)])
ITEMS = (
    st.lists(ATOMS | HANDLES | st.just({"a": 1}), max_size=3)
    | st.just([1] * PLAIN_ITEMS)
    | st.just([1] * (PLAIN_ITEMS + 1))
)
VALUES = ATOMS | HANDLES | ITEMS | st.just({}) | st.just(()) | st.just(b"x")


@st.composite
def states(draw: Any) -> list[dict[str, Any]]:
    """Mostly of the same fields, each mostly with values of one sort."""
    names = draw(st.lists(st.sampled_from(["a", "b", "naïve", '"', "n" * 300, "c"]), max_size=3, unique=True))
    columns = [
        draw(st.sampled_from([NUMBERS, TEXTS, st.floats(allow_nan=False), HANDLES, ITEMS, VALUES])) for _ in names
    ]
    rows = [[draw(column) for column in columns] for _ in range(draw(st.integers(1, 4)))]
    found = [dict(zip(names, row, strict=True)) for row in rows]
    if draw(st.integers(0, 9)) == 0:
        found.append({draw(st.sampled_from(["a", "other"])): draw(VALUES)})
    return found


@given(states())
@example([{"a": 1, "b": 2}, {"b": 2, "a": 1}])
@example([{"a": 1, "b": 2}, {"a": 1}, {"b": 2}])
@example([{"a": [{"x": 1}, {"y": 2}]}, {"a": [1]}])
@example([{"a": '},{"'}, {"a": '"},{"a":"'}])
@example([{"a": ["],["]}, {"a": ["]", "["]}])
@example([{"%s": 1, "%": "%d"}, {"%s": 2, "%": "%%"}])
@example([{"a": -0.0}, {"a": 0.0}])
@example([{"a": 1, "b": [1]}, {"a": True, "b": [True, None]}, {"a": 1.0, "b": []}])
def test_together_as_alone(found: list[dict[str, Any]]) -> None:
    texts = texts_of(found)
    if texts is not None:
        assert texts == [to_json(state).text for state in found]


FIELDS = {"n": 1, "f": 0.5, "t": 'a "},{" b', "z": None, "b": True, "l": [1, 2], "h": MachineHandle("run", "m", None)}


def test_most_states_are_written_together() -> None:
    found = texts_of([{**FIELDS, "n": number} for number in range(100)])
    assert found is not None
    assert len({*found}) == 100


def test_a_text_is_no_longer_than_any_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_many, "MOST_BYTES", 20)
    assert MOST_BYTES > 20
    assert texts_of([{"a": "x" * 100}]) is None


def test_nothing_is_written_together_where_something_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "is_active", True)
    assert texts_of([FIELDS]) is None


def test_a_field_that_is_changed_meanwhile_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"a": [1]}

    def change(value: Any) -> str:
        state["a"].append(object())
        return encoded(value)

    encoded = encoding_many.dumped
    monkeypatch.setattr(encoding_many, "dumped", change)
    assert texts_of([state, {"a": [2]}]) is None
