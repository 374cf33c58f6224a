"""`to_json`: strict, readable and bounded whatever it is given, and never an exception."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import json
import pathlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
from clean import clean_environment
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot import MachineHandle, encoding
from ray_snapshot.encoding import HEAD_BYTES, MOST_BYTES, RETRY_EVERY, Patience, to_json
from ray_snapshot.plain import Reducer


def strict(text: str) -> Any:
    """Parse as the strictest reader would: no NaN, no key twice, valid UTF-8."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), f"a key occurs twice in {pairs}"
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text.encode("utf-8")
    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


def encoded(value: Any) -> Any:
    """The parsed text of a value that must come through whole."""
    found = to_json(value)
    assert not found.truncated
    assert found.size == len(found.text.encode())
    return strict(found.text)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


Pair = collections.namedtuple("Pair", "left right")


class Handle:
    def __init__(self, name: str) -> None:
        self.name = name

    def __machine_name__(self) -> str:
        return self.name


class Unwilling:
    """Raises wherever it can."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            raise RuntimeError("no")
        raise AttributeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return 1


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
SURROGATES = st.text(st.characters(codec=None, categories=["Cs", "Lu", "Cc"]), max_size=5)
NUMBERS = st.integers() | st.floats() | st.decimals(allow_nan=False)
HASHABLE = st.recursive(
    st.none() | st.booleans() | NUMBERS | SURROGATES | st.binary(max_size=20) | st.datetimes() | st.uuids(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
ANYTHING = st.recursive(
    HASHABLE
    | st.complex_numbers()
    | st.decimals()
    | st.timedeltas()
    | st.sampled_from([Colour.RED, Level.LOW, len, Point, object()])
    | st.builds(Unwilling)
    | st.builds(MachineHandle, st.just("run"), st.text(max_size=300)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.builds(collections.deque, st.lists(inner, max_size=3))
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(ValueError, inner)
        | st.builds(functools.partial, st.just(print), inner)
    ),
    max_leaves=20,
)  # fmt: skip


@given(PLAIN)
def test_what_json_can_hold_comes_back_as_it_was(value: Any) -> None:
    assert encoded(value) == value


@given(ANYTHING)
def test_anything_becomes_strict_json_whose_size_is_told(value: Any) -> None:
    found = to_json(value)
    strict(found.text)
    assert found.truncated or found.size == len(found.text.encode())


@given(ANYTHING)
def test_what_goes_straight_to_the_encoder_is_written_as_what_does_not(value: Any) -> None:
    assert to_json(value) == encoding._reduced(value, None)


@given(st.floats() | st.floats(width=32).map(np.float32) | st.integers().map(np.float64))
def test_every_float_is_a_number_or_says_what_it_is(value: Any) -> None:
    found = encoded([value])[0]
    assert found == {"$float": str(float(value))} if not np.isfinite(value) else found == float(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (10**400, {"$int": str(10**400)}),
        (10**5000, {"$int": hex(10**5000)}),
        (2**63 - 1, 2**63 - 1),
        (2**63, {"$int": str(2**63)}),
        (Level.LOW, {"$enum": "Level.LOW", "value": 1}),
        (Colour.RED, {"$enum": "Colour.RED", "value": "red"}),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"b", "a"}), {"$set": ["a", "b"]}),
        (b"\xff\x00", {"$bytes": "/wA="}),
        (bytearray(b"hello"), {"$bytes": "aGVsbG8=", "text": "hello"}),
        (complex(1, 2), {"$complex": [1.0, 2.0]}),
        (decimal.Decimal("1.50"), {"$decimal": "1.50"}),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), {"$datetime": "2026-01-02T03:04:05"}),
        (datetime.date(2026, 1, 2), {"$date": "2026-01-02"}),
        (datetime.timedelta(seconds=1.5), {"$timedelta": "0:00:01.500000"}),
        (uuid.UUID(int=5), {"$uuid": str(uuid.UUID(int=5))}),
        (pathlib.PurePosixPath("/a/b"), {"$path": "/a/b"}),
        (range(0, 10, 2), {"$range": [0, 10, 2]}),
        (collections.deque([1, 2]), [1, 2]),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Pair(1, "x"), {"$type": f"{__name__}.Pair", "left": 1, "right": "x"}),
        (Point(1, [2]), {"$type": f"{__name__}.Point", "x": 1, "y": [2]}),
        (Slotted(7), {"$type": f"{__name__}.Slotted", "x": 7}),
        (Handle("a"), {"$machine": "a"}),
        ({"to": [Handle("b")]}, {"to": [{"$machine": "b"}]}),
        (ValueError("x", 1), {"$type": "builtins.ValueError", "args": ["x", 1]}),
        (len, {"$name": "builtins.len"}),
        (Point, {"$name": f"{__name__}.Point"}),
        (json, {"$name": "json"}),
        (threading.Lock(), {"$type": "_thread.lock"}),
        (array.array("i", [1, 2]), {"$array": {"dtype": "i", "shape": [2], "values": [1, 2]}}),
        (np.int64(5), 5),
        (np.bool_(True), True),
        (np.array([[1, 2]]), {"$array": {"dtype": "int64", "shape": [1, 2], "values": [[1, 2]]}}),
        (np.array([np.nan]), {"$array": {"dtype": "float64", "shape": [1], "values": [{"$float": "nan"}]}}),
        (np.datetime64("2026-01-02"), {"$datetime64": "2026-01-02"}),
        (pd.Timestamp("2026-01-02"), {"$datetime": "2026-01-02T00:00:00"}),
        (
            pd.DataFrame({"a": [1]}),
            {"$type": "pandas.core.frame.DataFrame", "shape": [1, 1], "columns": ["a"]},
        ),
        (pa.table({"a": [1, 2]}), {"$type": "pyarrow.lib.Table", "shape": [2, 1], "columns": ["a"]}),
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}),
        ({1: "a", "1": "b"}, {"$dict": [[1, "a"], ["1", "b"]]}),
        ({(1, 2): 3}, {"$dict": [[[1, 2], 3]]}),
        ({True: 1, None: 2}, {"$dict": [[True, 1], [None, 2]]}),
        ("\ud800x", "\\ud800x"),
        ({"\ud800": 1, "\\ud800": 2}, {"$dict": [["\\ud800", 1], ["\\ud800", 2]]}),
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_each_kind_of_value_has_its_documented_form(value: Any, expected: Any) -> None:
    assert encoded(value) == expected


def test_a_secret_is_never_written() -> None:
    login = Login(user="eve", password=pydantic.SecretStr("hunter2"))
    for value in (login, {"login": [login]}, {login.password: login.password}, login.password):
        assert "hunter2" not in to_json(value).text
    assert encoded(login) == {"$type": f"{__name__}.Login", "user": "eve", "password": {"$redacted": "SecretStr"}}


def test_a_cycle_points_to_the_container_that_holds_it() -> None:
    inner: dict[str, Any] = {}
    outer = [1, inner]
    inner["outer"] = outer
    assert encoded(outer) == [1, {"outer": {"$cycle": 2}}]
    point = Point(1, [])
    point.y.append(point)  # type: ignore[arg-type]
    assert encoded(point)["y"] == [{"$cycle": 2}]


def test_a_value_that_occurs_twice_without_a_cycle_is_written_twice() -> None:
    shared = ["x"]
    assert encoded([shared, shared]) == [["x"], ["x"]]


def test_what_refuses_to_be_read_does_not_hide_the_rest() -> None:
    class Poisoned(np.ndarray):
        def tolist(self) -> Any:
            raise RuntimeError("no")

    found = to_json({"good": 1, "bad": np.zeros(2).view(Poisoned), "odd": Unwilling()})
    parsed = strict(found.text)
    assert parsed["good"] == 1
    assert parsed["bad"]["error"] == "RuntimeError"
    assert parsed["odd"] == {"$type": f"{__name__}.Unwilling"}
    assert found.truncated


def test_a_huge_blob_is_cut_alone_and_never_becomes_text(peak_bytes: Any) -> None:
    blob = bytes(100_000_000)
    with peak_bytes() as peak:
        found = to_json({"balance": 5, "blob": blob, "again": [blob, memoryview(blob)]})
    parsed = strict(found.text)
    assert parsed["balance"] == 5
    assert parsed["blob"]["$cut"] == "bytes"
    assert parsed["blob"]["bytes"] == 100_000_000
    assert found.truncated
    assert found.size > 100_000_000
    assert len(found.text) < 10_000
    assert peak() < 1_000_000, "the blob was copied"


@pytest.mark.parametrize(
    "make",
    [
        lambda: "é" * 50_000_000,
        lambda: "\x00" * 5_000_000,
        lambda: {"k" * 9_000_000: 1},
        lambda: np.zeros(20_000_000),
        lambda: np.array(["x" * 100] * 200_000),
        lambda: array.array("d", bytes(80_000_000)),
        lambda: 1 << 100_000_000,
        lambda: list(range(5_000_000)),
        lambda: [float(number) / 3 for number in range(1_000_000)],
        lambda: {number: str(number) for number in range(1_000_000)},
        lambda: set(map(str, range(1_500_000))),
        lambda: ["x" * 1_000] * 20_000,
    ],
    ids=["text", "controls", "key", "zeros", "strings", "array", "int", "ints", "floats", "dict", "set", "list"],
)
def test_whatever_is_too_long_becomes_a_bounded_head_and_says_so(make: Callable[[], Any]) -> None:
    found = to_json(make())
    strict(found.text)
    assert found.truncated
    assert len(found.text.encode()) <= MOST_BYTES
    assert found.size > MOST_BYTES


def test_a_list_of_a_million_items_that_fits_is_whole() -> None:
    assert encoded(list(range(1_000_000)))[-1] == 999_999


def test_a_container_with_too_many_items_becomes_head_and_digest() -> None:
    found = strict(to_json(list(range(5_000_000))).text)["$truncated"]
    assert found["head"][:3] == [0, 1, 2]
    assert found["head"][-1]["$cut"] == "items"
    assert found["head"][-1]["count"] + len(found["head"]) - 1 == 5_000_000
    assert len(json.dumps(found["head"])) < 2 * HEAD_BYTES
    assert found["bytes"] > MOST_BYTES
    assert 0 <= found["read"] < found["bytes"]
    head = json.dumps(found["head"], separators=(",", ":"), ensure_ascii=False)
    assert found["sha256"] == hashlib.sha256(head.encode()).hexdigest(), "of the head: nothing else was read to its end"


def test_what_cannot_fit_is_not_read_to_find_that_out(monkeypatch: pytest.MonkeyPatch) -> None:
    reduced: list[Any] = []
    own = Reducer.reduce
    monkeypatch.setattr(Reducer, "reduce", lambda self, value: reduced.append(1) or own(self, value))
    found = to_json({"rows": [[0]] * 4_500_000})
    assert strict(found.text)["$truncated"]["head"]["rows"][0] == [0]
    assert len(reduced) < 2 * HEAD_BYTES, "only the head was read"


def nested(count: int) -> dict[str, Any]:
    return {"rows": [{"number": number, "names": [str(number)]} for number in range(count)]}


def test_where_the_time_is_over_the_head_is_shown_with_how_much_was_read() -> None:
    value = nested(20_000)
    found = to_json(value, most_ms=0.0)
    cut = strict(found.text)["$truncated"]
    assert found.truncated
    assert cut["read"] < 10_000 < len(to_json(value).text), "one look at the clock was enough"
    assert cut["bytes"] == found.size >= cut["read"]
    assert cut["head"]["rows"][0] == {"number": 0, "names": ["0"]}
    assert found == to_json(value, most_ms=0.0), "the same every time"


def test_what_is_done_in_time_is_what_it_is_without_a_bound() -> None:
    value = nested(1_000)
    assert to_json(value, most_ms=1e6) == to_json(value)


def test_a_machine_whose_state_was_cut_off_is_given_less_time_but_for_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[float] = []
    own = encoding.to_json
    monkeypatch.setattr(encoding, "to_json", lambda value, ms: given.append(ms) or own(value, ms))
    monkeypatch.setattr(encoding, "STATE_MS", 1e-9)
    patience = Patience()
    for _ in range(RETRY_EVERY + 1):
        assert patience.to_json(nested(1_000)).truncated
    assert given == [1e-9, *[1e-9 / RETRY_EVERY] * (RETRY_EVERY - 1), 1e-9]
    monkeypatch.setattr(encoding, "STATE_MS", 1e6)
    assert not patience.to_json(nested(10)).truncated
    patience.to_json(nested(10))
    assert given[-1] == 1e6, "it fits again"


@pytest.mark.parametrize("kind", [np.float64, np.int64, object, "U5"])
def test_a_long_array_is_never_walked_as_a_whole(kind: Any) -> None:
    walked: list[int] = []

    class Seen(np.ndarray):
        def tolist(self) -> Any:
            walked.append(self.size)
            return super().tolist()

    array_of_many = np.zeros(20_000, dtype=kind).view(Seen)
    found = to_json({"weights": array_of_many, "step": 3})
    cut = strict(found.text)
    assert (cut["step"], cut["weights"]["$cut"], cut["weights"]["shape"]) == (3, "array", [20_000])
    assert cut["weights"]["head"] == np.zeros(100, dtype=kind).tolist()
    assert found.truncated
    assert walked == [100]


def test_depth_is_bounded() -> None:
    chain: dict[str, Any] = {}
    for _ in range(100_000):
        chain = {"next": chain}
    found = to_json(chain)
    strict(found.text)
    assert found.truncated
    while chain:  # let go link by link: the interpreter's own recursion is not under test
        chain = chain["next"]


def test_lists_that_share_their_items_do_not_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MOST_BYTES", 100_000)
    value: list[Any] = [1]
    for _ in range(40):
        value = [value, value]
    found = to_json(value)
    strict(found.text)
    assert found.truncated
    assert len(found.text) <= 100_000


def test_near_the_recursion_limit_it_still_answers() -> None:
    def at_depth(left: int) -> Any:
        return to_json({"a": [[Point(1, [2])]]}) if left == 0 else at_depth(left - 1)

    depth = 1
    frame = sys._getframe()
    while frame.f_back:
        frame, depth = frame.f_back, depth + 1
    for left in range(3, 30):
        try:
            found = at_depth(sys.getrecursionlimit() - depth - left)
        except RecursionError:  # the call itself did not fit
            continue
        strict(found.text)


def test_importing_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; from ray_snapshot.encoding import to_json; to_json({'a': {1, 2}});"
        "print([name for name in ('numpy', 'pydantic', 'pandas', 'pyarrow', 'ray') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=clean_environment()) == "[]\n"


@pytest.fixture
def peak_bytes() -> Any:
    """A context manager whose value tells how much Python memory was allocated inside it at most."""
    import contextlib
    import tracemalloc

    @contextlib.contextmanager
    def measure() -> Any:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        found: list[int] = []
        yield lambda: found[0]
        found.append(tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.stop()

    return measure
