"""Rows of machines at rest that stay with their host: what a snapshot says without them, and how it gets them."""

from __future__ import annotations

import gc
import operator
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot import adding, detectors, redaction
from ray_snapshot.columns import inner, packed, unpacked
from ray_snapshot.errors import SettingError, SnapshotRowsLostError
from ray_snapshot.glances import glance_of
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.runtime import leases as leases_module
from ray_snapshot.runtime.analyst.host_rows import HostsWithRows
from ray_snapshot.runtime.host import kept
from ray_snapshot.runtime.host.config import KEEP_FROM, asked_keeping
from ray_snapshot.runtime.host.kept import KeptTables
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.runtime.kept_rows import KeptRows, PartialAnswer
from ray_snapshot.runtime.leases import Leases
from ray_snapshot.runtime.report import Resting
from ray_snapshot.schema import MACHINES
from ray_snapshot.snapshot import Absent, Snapshot
from ray_snapshot.verdicts import evaluate


@rs.detector(partial=lambda part: len(part.machines), merge=operator.add, stable=False)
def few(count: int) -> Any:
    """At most three machines."""
    return count <= 3, {"count": count}


HEADER = packed(Snapshot.from_rows(snapshot_id="x").tables["snapshots"])

ASKED = [
    detectors.Termination(),
    detectors.Termination(machines=["m*"]),
    detectors.Deadlock(),
    detectors.TokenConservation(total=10, messages={"pay": "$[0]"}),
    detectors.TokenConservation(state={"Purse": "$.tokens"}, messages={"pay": "$[0]"}),
    detectors.UniqueToken(state="$.tokens"),
    detectors.Reached("$.tokens", 1),
    detectors.Reached("$.tokens", 1, machines=["m1", "m9", "m*", "x*"]),
    few,
]
STATES = st.one_of(
    st.fixed_dictionaries({"tokens": st.one_of(st.integers(0, 4), st.sampled_from([0.5, None, "no number"]))}),
    st.just({}),
)
CLASSES = st.sampled_from(["Purse", "Vault"])


def resting(count: int, *, status: str = "passive", inputs: dict[str, Inputs] | None = None) -> Resting:
    """Rows as a host has them."""
    rows = [
        {"machine": f"m{at}", "class_name": "Purse", "host": "h", "status": status, "state": "{}", "state_bytes": 2}
        for at in range(count)
    ]
    table = pa.Table.from_pylist(rows, schema=inner(MACHINES))
    return Resting(Rows(table), pa.table({}), LinkCounts("h"), inputs or {}, ())


def names_of(packed: Any) -> list[str]:
    found: list[str] = unpacked(packed)["machine"].to_pylist()
    return found


# ---- what a host keeps ---------------------------------------------------------------------------------------------


def test_kept_rows_are_those_of_their_snapshot_whatever_came_later() -> None:
    tables = KeptTables("h", 1)
    said = tables.keep(1, resting(3), 10)
    tables.keep(2, resting(2), 20)
    assert said is not None
    assert (said.host, said.classes, said.state_bytes, said.recorded_at) == ("h", {"Purse": 3}, 6, 10)
    assert names_of(tables.packed(1)) == ["m0", "m1", "m2"]
    assert names_of(tables.packed(2)) == ["m0", "m1"]
    assert names_of(tables.packed(1, ["m2", "another"])) == ["m2"]
    at = unpacked(tables.packed(2))["recorded_at"].cast(pa.int64()).to_pylist()
    assert at == [20, 20]


def test_what_cannot_be_said_in_counts_is_sent() -> None:
    tables = KeptTables("h", 3)
    assert tables.keep(1, resting(2), 0) is None, "too few"
    assert tables.keep(2, resting(3, status="stopped"), 0) is None
    assert tables.keep(3, resting(3, inputs={"m1": Inputs((), {})}), 0) is None
    assert KeptTables("h", None).keep(4, resting(3), 0) is None
    assert [tables.packed(number) for number in (1, 2, 3)] == [None] * 3


def test_the_oldest_are_dropped_and_a_lease_holds_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_SNAPSHOTS", 3)
    tables = KeptTables("h", 1)
    for number in range(1, 7):
        tables.keep(number, resting(number), 0)
        if number == 2:
            tables.lease([2], [])
    assert [number for number in range(1, 7) if tables.packed(number) is not None] == [2, 4, 5, 6]
    tables.lease([], [2])
    assert tables.packed(2) is None
    tables.lease([1], [])
    assert tables.packed(1) is None, "it was asked for too late"


def test_what_was_judged_is_dropped_after_a_while_but_for_the_last_and_what_is_leased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = KeptTables("h", 1)
    for number in range(1, 5):
        tables.keep(number, resting(number), 0)
        tables.judged([number])
    assert all(tables.packed(number) is not None for number in range(1, 5)), "a program may lease them yet"
    tables.lease([2], [])
    monkeypatch.setattr(kept, "GRACE_S", -1.0)
    tables.judged([4])
    assert [number for number in range(1, 5) if tables.packed(number) is not None] == [2, 4]


def test_rows_are_sent_or_gone_where_anything_is_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)
    monkeypatch.setattr(redaction, "is_active", True)
    assert tables.packed(1) is None
    assert tables.partial(1, HEADER, "key").is_gone
    assert tables.keep(2, resting(3), 0) is None


def test_threads_that_read_a_snapshot_see_all_of_it_once() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    inside = threading.Barrier(2, timeout=30)

    def fetch(names: Sequence[str] | None) -> pa.Table:
        inside.wait()
        return elsewhere.fetch(names)

    absent = part.parted[1]
    object.__setattr__(absent, "fetch", fetch)
    readers = [threading.Thread(target=part.load) for _ in range(3)]
    for one in readers:
        one.start()
    item = detectors.TokenConservation(total=4)
    here, before = part.parted
    assert before is absent
    inside.wait()
    assert evaluate(item, part).holds is True
    for one in readers:
        one.join(30)
    assert elsewhere.asked.count(None) == 1
    assert part.tables["machines"].num_rows == 4
    assert here.num_rows == 1


def test_columns_that_are_shared_count_once_and_the_last_are_kept_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    same = resting(100)
    monkeypatch.setattr(kept, "MOST_BYTES", int(1.5 * same.machines.base.nbytes))
    monkeypatch.setattr(kept, "FEWEST", 2)
    tables = KeptTables("h", 1)
    for number in range(1, 6):
        hidden = same.machines if number % 2 else same.machines.without("machine", ["m1"])
        tables.keep(number, replace(same, machines=hidden), 0)
    assert all(tables.packed(number) is not None for number in range(1, 6))
    for number in range(6, 9):
        tables.keep(number, resting(100), 0)
    assert [number for number in range(1, 9) if tables.packed(number) is not None] == [7, 8]


@given(st.lists(st.sampled_from(["m0", "m1", "m2", "m3"]), max_size=4), st.booleans())
def test_rows_without_some_are_as_a_filter_has_them(hidden: list[str], compact: bool) -> None:
    rows = resting(4).machines.without("machine", hidden)
    rows = rows.compact() if compact else rows
    left = [name for name in ("m0", "m1", "m2", "m3") if name not in hidden]
    assert rows.table("machine")["machine"].to_pylist() == left
    assert rows.count == len(left)
    assert rows.plus(resting(1).machines.table()).table()["machine"].to_pylist() == [*left, "m0"]


def test_from_how_many_rows_on_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, meant in (("", 1_000), ("1", 1), ("50000", 50_000)):
        monkeypatch.setenv(KEEP_FROM, told)
        assert asked_keeping() == meant
    for told in ("0", "-1", "1.5", "many"):
        monkeypatch.setenv(KEEP_FROM, told)
        with pytest.raises(SettingError, match="a number of machines, 1 or more"):
            asked_keeping()


# ---- a snapshot without them ---------------------------------------------------------------------------------------


class Elsewhere:
    """Rows that a snapshot has to ask for, as several hosts have them."""

    def __init__(self, rows: pa.Table, parts: Sequence[pa.Table]) -> None:
        self.rows = rows
        self.parts = parts
        self.asked: list[Any] = []

    def partials(self, item: Any, snapshot: Snapshot) -> list[Any]:
        self.asked.append(item.name)
        header = Snapshot({"snapshots": snapshot.tables["snapshots"]})
        return [item.partial(header.with_machines(part)) for part in self.parts]

    def fetch(self, names: Sequence[str] | None) -> pa.Table:
        self.asked.append(names)
        if names is None:
            return self.rows
        return self.rows.filter(pa.array([name in names for name in self.rows["machine"].to_pylist()], pa.bool_()))


def without(whole: Snapshot, absent: Sequence[str], cuts: Sequence[int] = ()) -> tuple[Snapshot, Elsewhere]:
    """The same, but that rows of these machines are elsewhere, in the order given; `cuts`: where they are parted."""
    table = whole.tables["machines"]
    is_absent = pa.array([name in absent for name in table["machine"].to_pylist()], pa.bool_())
    away = table.filter(is_absent)
    ordered = away.take([away["machine"].to_pylist().index(name) for name in absent]) if absent else away
    ends = [0, *sorted(min(cut, len(absent)) for cut in cuts), len(absent)]
    parts = [ordered[first:last] for first, last in pairwise(ends)]
    elsewhere = Elsewhere(away, parts)
    classes: dict[str, int] = {}
    for name in away["class_name"].to_pylist():
        classes[name] = classes.get(name, 0) + 1
    size = sum(value or 0 for value in away["state_bytes"].to_pylist())
    said = Absent(classes, {"": away.num_rows}, {"": 0.0}, size, elsewhere.fetch, elsewhere.partials)
    here = {**whole.tables, "machines": table.filter(pa.array([not one for one in is_absent.to_pylist()], pa.bool_()))}
    return Snapshot(here, said), elsewhere


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[Snapshot, list[str], list[int]]:
    """A snapshot, which of its passive machines are elsewhere, and where these are parted."""
    names = [f"m{at}" for at in range(draw(st.integers(1, 6)))]
    machines = []
    for name in sorted(names):
        row: dict[str, Any] = {
            "machine": name,
            "class_name": draw(CLASSES),
            "state": {"tokens": draw(st.integers(0, 4))},
        }
        status = draw(st.sampled_from(["passive"] * 4 + ["active", "blocked", "stopped"]))
        if status == "blocked":
            row |= {"waits_for": [draw(st.sampled_from(names))], "wait_mode": "all"}
        machines.append({**row, "status": status})
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(0, 4)), max_size=3))
    messages = [{"source": a, "target": b, "method": "pay", "args": [n]} for a, b, n in pairs]
    whole = Snapshot.from_rows(machines=machines, messages=messages, coverage={"hosts": 1, "uncovered": []})
    passive = [row["machine"] for row in machines if row["status"] == "passive"]
    absent = draw(st.permutations([name for name in passive if draw(st.booleans())]))
    return whole, absent, draw(st.lists(st.integers(0, len(absent)), max_size=3))


@given(snapshots())
def test_every_answer_is_that_of_the_whole(given: tuple[Snapshot, list[str], list[int]]) -> None:
    whole, absent, cuts = given
    for item in ASKED:
        assert (evaluate(item, whole).holds is None) <= ("cannot be told" in evaluate(item, whole).sentence)
        found, expected = (evaluate(item, one) for one in (without(whole, absent, cuts)[0], whole))
        assert (found.holds, found.evidence, found.sentence) == (expected.holds, expected.evidence, expected.sentence)
    part, _ = without(whole, absent)
    told, expected_told = glance_of(part, 1, ()), glance_of(whole, 1, ())
    assert (told.classes, told.backlogs) == (expected_told.classes, expected_told.backlogs)
    assert part.problems() == whole.problems() == []
    assert part.tables["machines"].equals(whole.tables["machines"])
    assert dict(part.tables).keys() == dict(whole.tables).keys()


def test_nothing_is_asked_for_that_counts_can_say_and_rows_once_for_all() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    for item in (detectors.Termination(), detectors.Deadlock()):
        evaluate(item, part)
    glance_of(part, 1, ())
    part.verify()
    assert elsewhere.asked == []
    assert part.rows_of(["b"])["machine"].to_pylist() == ["b"]
    assert elsewhere.asked == [["b"]]
    assert (part.machines["d"].state, len(part.machines), part.parted[1]) == ({"tokens": 1}, 4, None)
    part.to_arrow()
    assert elsewhere.asked == [["b"], None]


def test_of_a_deadlock_only_rows_of_those_concerned_are_fetched() -> None:
    machines = [{"machine": name, "waits_for": [on]} for name, on in ("ab", "ba", "cd")]
    whole = Snapshot.from_rows(
        machines=[*machines, *({"machine": name} for name in "defgh")], messages=[{"source": "e", "target": "f"}]
    )
    part, elsewhere = without(whole, "defgh")
    found, expected = evaluate(detectors.Deadlock(), part), evaluate(detectors.Deadlock(), whole)
    assert found.holds is True
    assert (found.evidence, found.sentence) == (expected.evidence, expected.sentence)
    assert [sorted(names or "everything") for names in elsewhere.asked] == [["a", "b", "c", "d", "e", "f"]]


def test_a_machine_that_is_not_there_is_a_problem_before_any_row_is_fetched() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name} for name in "abcd"])
    part, elsewhere = without(whole, "bcd")
    part.__dict__["machine_count"] = 5
    assert part.problems() == ["machine_count is 5, but the table machines has 4 rows"]
    assert elsewhere.asked == []


def _lost(*_: Any) -> Any:
    raise SnapshotRowsLostError("rows of snapshot x are lost", snapshot_id="x", hosts=["h"])


def test_what_is_lost_is_said_and_no_verdict_is_made_up() -> None:
    whole = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "ab"])
    part = Snapshot(
        {**whole.tables, "machines": whole.tables["machines"][:1]}, Absent({"": 1}, {"": 1}, {"": 0.0}, 0, _lost, _lost)
    )
    said = evaluate(detectors.TokenConservation(total=2), part)
    assert (said.holds, said.alarm) == (None, False)
    assert said.sentence == "conservation cannot be told: rows of snapshot x are lost."
    with pytest.raises(SnapshotRowsLostError):
        _ = part.machines["b"]


def test_what_was_added_up_is_remembered_when_rows_are_gone() -> None:
    """The snapshot that later ones are compared with may be old: its sum is known, and what changed since is left out."""
    standing = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 1}} for name in "ab"])
    before, _ = without(standing, "b")
    item = detectors.TokenConservation()
    evaluate(item, before, earlier=before)
    for name in ("fetch", "partials"):
        object.__setattr__(before.parted[1], name, _lost)
    now = Snapshot.from_rows(machines=[{"machine": name, "state": {"tokens": 2}} for name in "ab"])
    said = evaluate(item, now, earlier=before)
    assert (said.holds, said.evidence["expected"], said.evidence["found"]) == (False, 2, 4)
    assert (said.evidence["since"], "changed" in said.evidence) == (before.snapshot_id, False)


def test_what_a_users_detector_makes_of_rows_is_not_remembered() -> None:
    taken = Snapshot.from_rows(machines=[{"machine": name} for name in "abc"])

    @rs.detector(partial=lambda part: [*part.machines], merge=operator.add)
    def first(names: list[str]) -> Any:
        return True, {"first": names.pop(0)}

    assert [evaluate(first, taken).evidence["first"] for _ in range(2)] == ["a", "a"]


# ---- who asks, and who keeps -------------------------------------------------------------------------------------------


class Host:
    """Stands for the actor of a host: `KeptRows` is given what it answers at once (`asked_of`)."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(
            remote=lambda *args, **more: self.told.append((name, *args, *more.values())) or self.answer
        )


@pytest.fixture
def asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(refs: Any, what: str, timeout: float) -> Any:
        if any(isinstance(ref, Exception) for ref in refs):
            raise rs.SnapshotTimeoutError(f"waited {timeout:g} s for {what}")
        return refs

    monkeypatch.setattr("ray_snapshot.runtime.cluster.ask", ask)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)


@pytest.mark.usefixtures("asked_of")
def test_that_rows_are_lost_is_found_out_once() -> None:
    host = Host(TimeoutError())
    rows = KeptRows("x-1", 1, {"h": host})
    for ask in (rows.fetch, rows.fetch, lambda: rows.partials(few, HEADER)):
        with pytest.raises(SnapshotRowsLostError, match="cannot be had: waited 30 s for rows of snapshot x-1"):
            ask()
    assert len(host.told) == 1


@pytest.mark.usefixtures("asked_of")
@pytest.mark.parametrize("answer", [None, PartialAnswer(is_gone=True)])
def test_rows_that_are_not_kept_any_more_are_lost(answer: Any) -> None:
    rows = KeptRows("x-1", 1, {"h": Host(answer)})
    with pytest.raises(SnapshotRowsLostError, match="asked for too late"):
        rows.fetch() if answer is None else rows.partials(few, HEADER)


def test_who_has_left_ray_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    host = Host()
    with pytest.raises(SnapshotRowsLostError, match="this program has left Ray"):
        KeptRows("x-1", 1, {"h": host}).fetch()
    assert host.told == []


def held(leases: Leases, host: Any, number: int, name: str = "h") -> tuple[Snapshot, Elsewhere]:
    """A snapshot that a program holds."""
    whole = Snapshot.from_rows(machines=[{"machine": name} for name in "ab"])
    part, elsewhere = without(whole, "b")
    object.__setattr__(part.parted[1], "fetch", lambda names, seconds=0.0: elsewhere.fetch(names))
    leases.take(part, KeptRows(f"x-{number}", number, {name: host}))
    return part, elsewhere


def test_what_a_program_has_dropped_or_read_is_given_back() -> None:
    leases, host = Leases(), Host()
    first = held(leases, host, 1)
    second = held(leases, host, 2)
    third = held(leases, host, 3)
    del second
    gc.collect()
    third[0].load()
    fourth = held(leases, host, 4)
    assert host.told == [("lease", [1], []), ("lease", [2], []), ("lease", [3], []), ("lease", [4], [2, 3])]
    leases.load()
    assert [one[0].parted[1] for one in (first, fourth)] == [None, None]


def test_rows_are_given_back_to_hosts_that_keep_none_of_the_next_snapshot() -> None:
    leases, one, another = Leases(), Host(), Host()
    held(leases, one, 1)
    held(leases, another, 2, name="g")
    assert one.told == [("lease", [1], []), ("lease", [], [1])]
    assert another.told == [("lease", [2], [])]


def test_a_lease_is_told_to_whom_it_can_be_told() -> None:
    leases, one, another = Leases(), Host(), Host()
    held(leases, one, 1)
    held(leases, SimpleNamespace(), 2)
    held(leases, another, 3)
    assert one.told == [("lease", [1], []), ("lease", [], [1])]
    assert another.told == [("lease", [3], [])]


def test_hosts_hear_what_is_judged_once_for_many_snapshots() -> None:
    timers: list[Callable[[], None]] = []
    hosts, one, another = HostsWithRows(timers.append), Host(), Host()
    for number in (1, 2):
        rows = KeptRows(f"x-{number}", number, {"g": one, "h": another})
        hosts.know(rows)
        hosts.judged(rows)
    assert (len(timers), one.told, another.told) == (1, [], [])
    timers[0]()
    assert one.told == another.told == [("through_with", [1, 2], [])]


def test_a_host_hears_at_once_what_its_history_is_through_with_though_another_is_gone() -> None:
    timers: list[Callable[[], None]] = []
    hosts, one, gone = HostsWithRows(timers.append), Host(), SimpleNamespace()
    rows = KeptRows("x-1", 1, {"gone": gone, "h": one})
    hosts.know(rows)
    hosts.judged(rows)
    hosts.release({"gone": [1], "h": [1]})
    assert one.told == [("through_with", [1], [1])]
    timers[0]()
    assert len(one.told) == 1


def test_who_takes_a_snapshot_while_the_system_ends_gets_all_of_it() -> None:
    leases, host = Leases(), Host()
    leases.load()
    part, elsewhere = held(leases, host, 1)
    assert part.parted[1] is None
    assert elsewhere.asked == [None]


def test_the_end_waits_for_rows_so_long_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "MOST_S", 0.0)
    leases, host = Leases(), Host()
    part, elsewhere = held(leases, host, 1)
    leases.load()
    assert elsewhere.asked in ([], [None])
    assert len(leases._held) == 0
    del part


def test_what_a_detector_raises_where_the_rows_are_is_told_with_its_place() -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)

    @rs.detector(partial=lambda part: 1 // 0, merge=operator.add)
    def wrong(count: int) -> bool:
        return count > 0

    key, blob = adding.pickled(wrong)
    assert tables.partial(1, HEADER, key).is_unknown
    assert "ZeroDivisionError" in tables.partial(1, HEADER, key, blob).error
    assert tables.partial(2, HEADER, key).is_gone
    key, blob = adding.pickled(few)
    assert [pickle.loads(tables.partial(1, HEADER, key, one).value) for one in (blob, None)] == [3, 3]


def _exits(_: Snapshot) -> Any:
    sys.exit("as meant")


@pytest.mark.parametrize(
    ("partial", "words"),
    [(_exits, "SystemExit: as meant"), (lambda _: threading.Lock(), "a lock, cannot be pickled")],
    ids=["exits", "unpicklable"],
)
def test_whatever_a_partial_does_is_the_detectors_fault(partial: Any, words: str) -> None:
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 0)
    key, blob = adding.pickled(rs.detector(partial=partial, merge=operator.add, name="odd")(_is_any))
    assert words in tables.partial(1, HEADER, key, blob).error


def _is_any(total: Any) -> bool:
    return bool(total)


def test_a_detector_that_cannot_be_sent_says_so() -> None:
    lock = threading.Lock()
    item = rs.detector(partial=lambda part: bool(lock) + len(part.machines), merge=operator.add, name="odd")(_is_any)
    with pytest.raises(rs.DetectorError, match="odd cannot be sent to where rows are"):
        adding.pickled(item)


def test_a_function_of_what_all_come_to_has_one_parameter() -> None:
    with pytest.raises(rs.DetectorError, match="its function has one parameter"):
        rs.detector(partial=len, merge=operator.add)(lambda total, earlier: True)


def test_what_is_timeless_is_asked_anew_of_other_rows_only() -> None:
    tables = KeptTables("h", 1)
    same, asked = resting(3), list[int]()

    class Counting:
        name = "counting"
        is_timeless = True

        def partial(self, part: Snapshot) -> int:
            asked.append(len(part.machines))
            return len(part.machines)

        def merge(self, one: int, other: int) -> int:
            return one + other

    tables._partials._items["key"] = Counting()
    for number, rows in enumerate((same, same, resting(2), same)):
        tables.keep(number, rows, 0)
        assert pickle.loads(tables.partial(number, HEADER, "key").value) == rows.machines.count
    assert asked == [3, 2, 3]
    tables._partials._items["of a moment"] = of_a_moment = Counting()
    of_a_moment.is_timeless = False
    for _ in range(2):
        tables.partial(3, HEADER, "of a moment")
    assert asked == [3, 2, 3, 3, 3]


def test_a_part_is_of_its_snapshot() -> None:
    """What a detector may read of a part is what the whole would say."""
    tables = KeptTables("h", 1)
    tables.keep(1, resting(3), 1_000_000)
    seen: list[Any] = []

    class Looking:
        name = "looking"

        def partial(self, part: Snapshot) -> int:
            machines = part.tables["machines"].to_pylist()
            seen.append(
                (part.snapshot_id, part.run_id, part.system, part.sequence, part.machine_count, part.started_at)
            )
            seen.append(
                {(row["run_id"], row["snapshot_id"], row["recorded_at"], row["record_delay_ms"]) for row in machines}
            )
            return 1

        def merge(self, one: int, other: int) -> int:
            return one + other

    began = datetime.fromtimestamp(0.5, UTC)
    whole = Snapshot.from_rows(snapshot_id="x-1", run_id="run-1", system="bank", sequence=7, started_at=began)
    tables._partials._items["key"] = Looking()
    assert not tables.partial(1, packed(whole.tables["snapshots"]), "key").error
    assert seen[0] == ("x-1", "run-1", "bank", 7, 3, began)
    assert seen[1] == {("run-1", "x-1", datetime.fromtimestamp(1, UTC), 500.0)}


def test_both_functions_are_needed() -> None:
    with pytest.raises(rs.DetectorError, match="needs both, partial= and merge="):
        rs.detector(partial=len)


# ---- on Ray --------------------------------------------------------------------------------------------------------


class Purse(rs.SnapshotMixin):
    """Holds coins."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def add(self, coins: int) -> None:
        self.coins += coins

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_snapshot_is_read_as_of_its_moment_also_when_its_system_has_closed() -> None:
    with rs.System("kept-rows", detectors=[detectors.Termination()]) as system:
        purses = system.spawn_many(Purse, [(10,) for _ in range(20)], per_host=10)
        system.start()
        before = _at_rest(system)
        coins = detectors.TokenConservation(total=200, state="$.coins")
        assert system.wait_for(coins, timeout=60).sentence == "Conserved: 200 in all, 0 of it in flight."
        system.wait_for(few_coins, timeout=60)
        purses[3].add.send(5)
        system.wait_for("termination", timeout=60)
        after = _at_rest(system)
        here, absent = before.parted
        assert absent is not None
        assert after.parted[1] is not None
        assert absent.count + here.num_rows == before.machine_count == 21
        assert after.machines["Purse-3"].state == {"coins": 15}
    assert before.machines["Purse-3"].state == {"coins": 10}
    assert sorted(before.machines) == sorted(["driver", *(f"Purse-{at}" for at in range(20))])


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_rows_go_with_their_host() -> None:
    system = rs.System("lost-rows", detectors=[])
    purses = system.spawn_many(Purse, [(10,) for _ in range(4)])
    system.start()
    taken = _at_rest(system)
    os.kill(ray.get(purses[0].pid.remote(), timeout=60), signal.SIGKILL)
    with pytest.raises(SnapshotRowsLostError, match=f"rows of snapshot {taken.snapshot_id} .* cannot be had"):
        taken.load()
    with pytest.raises(rs.HostDiedError):
        system.snapshot(timeout=20)
    system.close()
    with pytest.raises(SnapshotRowsLostError):
        _ = taken.machines["Purse-0"]


@rs.detector(
    partial=lambda part: sum((row.state or {}).get("coins", 0) for row in part.machines.values()), merge=operator.add
)
def few_coins(coins: int) -> bool:
    return coins == 200


def _at_rest(system: rs.System) -> Snapshot:
    """A snapshot in which machines are at rest: they are once they were copied twice with nothing in between."""
    for _ in range(10):
        taken = system.snapshot()
        absent = taken.parted[1]
        if absent is not None and absent.count >= 4:
            return taken
    raise AssertionError("no machine came to rest")
