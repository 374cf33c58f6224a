"""Channels that are looked at together are found right or wrong as each is by itself."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from making_mutants import Edit, break_

from ray_snapshot import Snapshot
from ray_snapshot import cuts as module
from ray_snapshot.cuts import _channel_problems, _count_problems, _named
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import _table

Row = dict[str, Any]
NAMES = ["a", "b", "1:a", ":", "é", ""]


def alone(found: Snapshot) -> list[str]:
    """The problems of a cut, a channel and a message at a time."""
    problems = _count_problems(found)
    numbers = defaultdict[Any, list[int]](list)
    for row in found.tables["messages"].to_pylist():
        if row["number"] != 0 or row["kind"] == "call":
            numbers[row["source"], row["target"], row["kind"]].append(row["number"])
    known = set()
    for row in found.tables["channels"].to_pylist():
        key = row["source"], row["target"], row["kind"]
        known.add(key)
        balance = row["sent_count"] - row["accepted_count"] - row["settled_count"] + row["duplicate_count"]
        if balance or row["in_flight_count"] or row["duplicate_count"]:
            problems += _channel_problems(key, row, numbers.pop(key, []), may_repeat=False)
            if len(problems) >= LIMITS.told_problems:
                return [*problems, "and perhaps more"]
    strays = [
        f"{_named(key)} {'says 0 in flight, but' if key in known else 'has no row in channels, but'}"
        f" {len(some)} messages are recorded"
        for key, some in numbers.items()
    ]
    return problems + strays[: LIMITS.told_problems]


def cut(channels: list[Row], messages: list[Row]) -> Snapshot:
    """A snapshot of just these rows."""
    found = Snapshot.from_rows(channel_count=len(channels), in_flight_count=len(messages))
    for name, rows in (("channels", channels), ("messages", messages)):
        found.tables[name] = _table(name, rows, found.snapshot_id, found.run_id)
    return found


@st.composite
def cuts(draw: Any) -> Snapshot:
    """Mostly right: channels with some messages in flight, of which a few rows are changed, moved, doubled or lost."""
    channels: list[Row] = []
    messages: list[Row] = []
    for key in draw(
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(["mail", "call"])), max_size=5
        )
    ):
        accepted, count = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        of_channel = dict(zip(("source", "target", "kind"), key, strict=True))
        messages += [{**of_channel, "number": accepted + 1 + number} for number in range(count)]
        counts = {"accepted_count": accepted, "sent_count": accepted + count, "in_flight_count": count}
        channels.append({**of_channel, **counts, "settled_count": 0, "duplicate_count": 0})
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        rows = draw(st.sampled_from([channels, messages]))
        if rows:
            place = draw(st.integers(0, len(rows) - 1))
            row = rows[place]
            change = draw(
                st.sampled_from(["lose", "double", "move", *(name for name in row if name.endswith(("t", "r")))])
            )
            if change == "lose":
                del rows[place]
            elif change == "double":
                rows.append(row)
            elif change == "move":
                rows.append(rows.pop(place))
            elif change == "target":
                rows[place] = {**row, "target": draw(st.sampled_from(NAMES))}
            else:
                rows[place] = {**row, change: draw(st.integers(-1, 4))}
    return cut(channels, messages)


def channel(source: str, target: str, sent: int, accepted: int = 0) -> Row:
    counts = {"sent_count": sent, "accepted_count": accepted, "in_flight_count": sent - accepted}
    return {"source": source, "target": target, "kind": "mail", "settled_count": 0, "duplicate_count": 0, **counts}


def message(source: str, target: str, number: int, kind: str = "mail") -> Row:
    return {"source": source, "target": target, "number": number, "kind": kind}


BOTH = [channel("a", "b", 1), channel("a", "c", 1)]
WRAPPED = {**channel("a", "b", -(2**63) + 1, 2**63 - 1), "in_flight_count": 2}


@given(cuts())
@example(cut([BOTH[0]] * 2, [message("a", "b", 1)]))
@example(cut(BOTH, [message("a", "b", 1), message("a", "c", 1), message("a", "b", 2)]))
@example(cut([channel("a", "b", 2)], [message("a", "b", 2), message("a", "b", 1)]))
@example(cut([channel("a", "b", 3)], [message("a", "b", n) for n in (1, 3, 2)]))
@example(cut([channel("a", "b", 1)], [message("a", "b", n) for n in (0, 1)]))
@example(cut([channel("a", "b", 1)], [message("a", "b", 0, "call")]))
@example(cut([WRAPPED], [message("a", "b", n) for n in (-(2**63), -(2**63) + 1)]))
@example(cut([channel("1", "1:a", 1)], [message("1:1", "a", 1)]))
def test_together_as_alone(found: Snapshot) -> None:
    assert found.problems() == alone(found)


def test_what_is_right_is_not_looked_at_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    channels = [channel(f"m{number}", "b", 3, 1) for number in range(50)]
    messages = [message(f"m{number}", "b", place) for number in range(50)[::-1] for place in (2, 3)]
    found = cut(channels, messages)
    monkeypatch.setattr(module, "_are_all", lambda *_: pytest.fail("looked at by itself"))
    assert found.problems() == []


def test_names_that_are_not_known_are_no_channels_name() -> None:
    found = cut([channel("a", "b", 1)], [message("a", "c", 1)])
    for table in ("channels", "messages"):
        found.tables[table] = found.tables[table].set_column(2, "source", pa.array([None], pa.string()))
    assert found.problems() == alone(found)
    assert len(found.problems()) == 2


@pytest.mark.parametrize("numbers", [[None], [None, 2], [1, None], [1, None, 3]])
def test_a_message_without_its_number_is_told(numbers: list[int | None]) -> None:
    messages = [{**message("a", "b", 0), "number": number} for number in numbers]
    found = cut([channel("a", "b", len(numbers))], messages)
    assert found.problems() == alone(found) == ["channel a -> b (mail) records a message without its number"]


def test_messages_of_channels_by_turns_are_gathered() -> None:
    """As late ones come: a run of them is one message."""
    count = 100
    messages = [message("ab"[number % 2], "c", 1 + number // 2) for number in range(2 * count)]
    assert cut([channel("a", "c", count), channel("b", "c", count)], messages).problems() == []
    del messages[-3]
    found = cut([channel("a", "c", count), channel("b", "c", count)], messages)
    assert (
        found.problems() == alone(found) == ["channel b -> c (mail) says 100 in flight, but 99 messages are recorded"]
    )


TOGETHER = '":".join(map(str, row.values())) for row in channels.select([0, 1, 2]).to_pylist()'
MISTAKES: dict[str, Edit | list[Edit]] = {
    "names run together": (module, f"_as_texts: return pa.array([{TOGETHER}])"),
    "gaps are not seen": (module, "_runs: np.diff(numbers) != 1 => np.zeros(len(numbers) - 1, np.bool_)"),
    "one of two runs is enough": [
        (module, "_right: np.bincount(first + 1, minlength=len(first) + 1)[1:] == 1 => np.ones(len(first), np.bool_)"),
        (module, "_right: np.bincount(place + 1)[place + 1] == 1 => True"),
    ],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        cut([channel("1", "1:a", 1)], [message("1:1", "a", 1)]),
        cut([channel("a", "b", 3)], [message("a", "b", n) for n in (1, 3, 3)]),
        cut(BOTH, [message("a", "b", 1), message("a", "c", 1), message("a", "b", 2)]),
    ]
    right = [alone(one) for one in found]
    assert [one.problems() for one in found] == right
    break_(monkeypatch, MISTAKES[mistake])
    assert [one.problems() for one in found] != right
