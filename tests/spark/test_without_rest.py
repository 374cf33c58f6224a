"""What is said of snapshots without the rows of machines at rest is what is said of them whole; mutants say something else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_histories import bank, relapses, snapshot, table, write

from ray_snapshot import Snapshot, adding
from ray_snapshot.detectors import (
    Reached,
    TokenConservation,
    UniqueToken,
    deadlock,
    json_column,
    sums,
    unique_token,
)
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import History, at_rest, bounds, tables, whole_snapshots
from ray_snapshot.questions import needed
from ray_snapshot.spark_jobs.engine import evaluating
from ray_snapshot.synth import ANOMALIES, Settings, synthesise

TIMED = ("evaluated_at", "duration_ms")

OF_STATES = [
    detector.spec
    for detector in (
        TokenConservation(4, "$.a", {"put": "$[0]"}),
        TokenConservation(2, {"Odd": "$.a"}, name="of a class"),
        UniqueToken("$.has", {"put": "$[1]"}),
        UniqueToken({"Odd": "$.has"}, name="token of a class"),
        Reached("$.a", 1),
    )
]
"""Of detectors that add up what is in states."""


def said(history: History, ids: list[str], *, is_whole: bool, extra: Sequence[dict[str, Any]] = ()) -> Any:
    """The rows of verdicts on some snapshots, or the error."""
    rows = [{"snapshot_id": one, "run_id": one[:6], "sequence": 0, "specs": {}, "in_order": False} for one in ids]
    with pytest.MonkeyPatch.context() as patch:
        if is_whole:
            patch.setattr(evaluating, "can_do_without_rest", lambda _: False)
        try:
            batches = list(evaluating.evaluate_assignments(rows, history, extra))
        except RaySnapshotError as error:
            return f"{type(error).__name__}: {error}"
    found = pa.Table.from_batches(batches, evaluating.EVALUATED).drop_columns(list(TIMED))
    return found.sort_by([("snapshot_id", "ascending"), ("detector", "ascending")]).to_pylist()


def ids_of(history: History) -> list[str]:
    return sorted(history.table("snapshots")["snapshot_id"].to_pylist())


def some_ids(histories: list[History]) -> Iterator[tuple[History, list[str]]]:
    """Of each history its snapshots; of the synthetic one, the first, every fifth."""
    for place, history in enumerate(histories):
        yield history, ids_of(history)[:: 1 if place else 5]


def some(seed: int) -> Iterator[Snapshot]:
    """Snapshots by chance: machines of all kinds, a driver, waits in long and in short form, messages of all kinds."""
    chance = random.Random(seed)
    names = [f"m{number:02}" for number in range(chance.randint(1, 12))]
    for number in range(chance.randint(1, 5)):
        quiet = chance.random() < 0.3
        words = ["passive"] if quiet else ["passive", "passive", "passive", "active", "blocked", "stopped", "odd"]
        machines: list[dict[str, Any]] = [
            {"machine": name, "status": chance.choice(words), "incarnation": chance.choice([1, 1, 1, 2, None])}
            for name in names
        ]
        states: list[Any] = [{"a": 1}, {"a": 2, "has": True}, {"a": 1, "has": False}, {"a": 2.5}, {"a": None}, {}, None]
        usual = chance.choice([states[:1], states[:1], states[:2], states[:3], states, [*states[:2], {}, None]])
        for row in machines:
            row |= {"state": chance.choice(usual), "class_name": chance.choice(["Odd", "Even"])}
            if chance.random() < 0.15:
                row |= {"wait_mode": "all", "waits_for": [chance.choice(names)]}
        if chance.random() < 0.7:
            machines.append({"machine": "driver", "status": chance.choice(["passive", "active"]), "sent_count": number})
        waits = [
            {"machine": row["machine"], "on_machine": chance.choice(names), "k": 1, "satisfied": False}
            for row in machines
            if row["status"] == "blocked" or chance.random() < 0.1
        ]
        kinds = ["mail", "mail", "timer", "call"]
        messages: list[dict[str, Any]] = [
            {"source": chance.choice(names), "target": chance.choice([*names, "new"]), "kind": chance.choice(kinds)}
            | {
                "method": chance.choice(["put", "get", "__init__"]),
                "args": [chance.choice([1, 2]), chance.random() < 0.3],
            }
            for _ in range(0 if quiet else chance.randint(0, 4))
        ]
        channels = [
            {
                "source": names[0],
                "target": name,
                "sent_count": 3 + (sent := chance.choice([0, 0, 2])),
                "accepted_count": 3,
            }
            | {"in_flight_count": sent}
            for name in names
        ]
        coverage = {"uncovered": chance.choice([[], [], ["threads"]])}
        if chance.random() < 0.2:
            coverage["undeclared"] = {chance.choice(names): "eat (lacks right)"}
        given: dict[str, Any] = {"consistent": chance.random() < 0.9, "coverage": coverage}
        yield snapshot("some-1", number, machines=machines, waits=waits, messages=messages, channels=channels, **given)


def holder_at_rest() -> Snapshot:
    """The driver waits for a task that needs the CPU of an actor at rest: a deadlock."""
    call = "driver/0/prepare()/1"
    demand = {"source": "driver", "target": "prepare()", "numbers": [[1, 1]], "since": 10.0, "needs": {"CPU": 1}}
    holder = {
        "machine": "Idle-0",
        "node": "n1",
        "amounts": {"CPU": 1},
        "by": ["driver"],
        "checked": True,
        "task": False,
    }
    resources = {
        "demands": [{**demand, "group": None, "bundle": -1, "nodes": None}],
        "nodes": {"n1": {"CPU": 1}}, "groups": [], "holders": [holder], "unsure": [],
    }  # fmt: skip
    return snapshot(
        "room-1", 0, protocol="calls", coverage={"uncovered": [], "resources": resources},
        machines=[{"machine": "driver", "status": "blocked"}, {"machine": "Idle-0"}],
        waits=[{"machine": "driver", "k": 1, "on_machine": "prepare()", "on_call_id": call, "satisfied": False}],
        messages=[
            {"source": "driver", "target": "prepare()", "kind": "call", "call_id": call, "method": "prepare", "number": 1}
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[History]:
    """One of a synthetic month with all that is planted, one made by hand, and some by chance."""
    folder = tmp_path_factory.mktemp("rest")
    synthesise(folder / "made", Settings(machines=240, snapshots=24, anomalies=tuple(ANOMALIES)), verdicts=False)
    made = History(folder / "made")
    made.compact()
    by_hand = write(folder / "hand", [*bank(), *table(), *relapses(), holder_at_rest()])
    return [made, by_hand, *(write(folder / str(seed), list(some(seed))) for seed in range(8))]


def test_the_same_is_said_of_any_snapshot(histories: list[History]) -> None:
    answers = set()
    for history, ids in some_ids(histories):
        found = said(history, ids, is_whole=False)
        assert found == said(history, ids, is_whole=True)
        answers |= {(row["detector"], row["holds"]) for row in found}
    assert answers == {(name, holds) for name in ("termination", "deadlock") for holds in (True, False, None)}


def test_the_same_is_said_by_detectors_that_add_up_what_is_in_states(histories: list[History]) -> None:
    answers = set()
    for history, ids in some_ids(histories):
        found = said(history, ids, is_whole=False, extra=OF_STATES)
        assert found == said(history, ids, is_whole=True, extra=OF_STATES)
        answers |= {(row["detector"], row["holds"]) for row in found}
    assert len(answers) > 2.5 * (2 + len(OF_STATES))


def test_most_snapshots_need_no_more_rows_for_these(histories: list[History]) -> None:
    made = histories[0]
    ids = [one.snapshot_id for one in made.snapshots() if one.status == "complete"][:5]
    rows = [{"snapshot_id": one, "run_id": "r", "specs": {}, "in_order": False} for one in ids]
    by_run = {"r": evaluating.detectors_of({}, OF_STATES)}
    assert len(dict(evaluating._without_rest(made, rows, by_run, set()))) == 5


def test_sums_of_many_snapshots_are_those_of_each(histories: list[History]) -> None:
    detectors = [one for one in evaluating.detectors_of({}, OF_STATES) if isinstance(one, TokenConservation)]
    columns = needed.needed_columns(detectors)
    assert columns is not None
    known = unknown = 0
    for history, ids in some_ids(histories):
        for taken in history.wholes.load_many_without_rest(ids, columns=columns, adding=detectors):
            for detector in detectors:
                key = repr(detector.spec)
                if key not in taken.totals:
                    unknown += 1
                    continue
                known += 1
                assert taken.totals[key] == adding.total(detector, history.load(taken.snapshot_id))
    assert min(known, unknown) > 10


def test_what_is_no_table_of_ours_is_added_up_one_by_one() -> None:
    bare = pa.table({"machine": ["a"]})
    together = adding.Together(1, bare, np.zeros(1, np.int64), bare, np.zeros(1, np.int64))
    assert adding.totals_of_each([TokenConservation(1), UniqueToken()], together) == [{}]


def test_rows_of_other_snapshots_are_not_kept_though_they_lie_in_the_same_groups(histories: list[History]) -> None:
    made = histories[0]
    ids = ids_of(made)[::7]
    found = made.wholes._encoded("machines", ids, ["snapshot_id", "machine"])
    assert set(found["snapshot_id"].to_pylist()) <= set(ids)
    assert found.num_rows == sum(made.table("machines", one).num_rows for one in ids) > 0


def test_texts_that_nobody_asks_for_may_be_no_texts(tmp_path: Path) -> None:
    history = write(tmp_path / "bare", [snapshot("bare-1", 0, machines=[{"machine": "a"}, {"machine": "b"}])])
    (file,) = (tmp_path / "bare" / "machines").rglob("*.parquet")
    rows = pq.read_table(file, partitioning=None)
    place = rows.schema.get_field_index("class_name")
    odd = pa.array([b"\xff"] * rows.num_rows, pa.binary()).view(pa.string())
    pq.write_table(rows.set_column(place, rows.schema.field(place), odd), file)
    found = said(history, ids_of(history), is_whole=False)
    assert found == said(history, ids_of(history), is_whole=True)
    assert [row["holds"] for row in found] == [False, True]


def test_few_rows_are_read_and_most_verdicts_need_no_more(histories: list[History]) -> None:
    made = histories[0]
    ids = [one.snapshot_id for one in made.snapshots() if one.status == "complete"]
    columns = needed.needed_columns(evaluating.detectors_of({}, []))
    assert columns is not None
    for taken in made.wholes.load_many_without_rest(ids, columns=columns):
        here, absent = taken.parted
        assert absent is not None
        assert here.num_rows + absent.count == taken.machine_count == sum(absent.hosts.values()) + here.num_rows
        assert here.num_rows < 0.7 * taken.machine_count
        assert taken.tables["channels"].num_rows < taken.channel_count / 2
        assert sorted(taken.tables["machines"]["machine"].to_pylist()) == sorted(made.load(taken.snapshot_id).machines)
    rows = [{"snapshot_id": one, "run_id": "r", "specs": {}, "in_order": False} for one in ids]
    by_run, undecided = {"r": evaluating.detectors_of({}, [])}, set[str]()
    assert len(dict(evaluating._without_rest(made, rows[:5], by_run, undecided))) == 5
    assert not undecided


def test_groups_of_rows_are_skipped_however_many_snapshots_are_asked_for(tmp_path: Path) -> None:
    synthesise(tmp_path / "long", Settings(machines=80, snapshots=300), verdicts=False)
    long = History(tmp_path / "long")
    long.compact()
    ids = ids_of(long)[:110]
    found = tables.scan_encoded(
        "machines", long.stored.data_files("machines", snapshot_ids=ids), ids, ["snapshot_id", "status"]
    )
    assert 110 * 81 <= found.num_rows < 2 * 110 * 81
    assert pa.types.is_dictionary(found["status"].type)


def test_a_run_in_which_one_was_not_decided_is_loaded_whole(histories: list[History]) -> None:
    by_hand = histories[1]
    rows = [{"snapshot_id": f"table-1-000{n}", "run_id": "table-1", "specs": {}, "in_order": False} for n in range(7)]
    by_run, undecided = {"table-1": evaluating.detectors_of({}, [])}, set[str]()
    found = dict(evaluating._without_rest(by_hand, rows, by_run, undecided))
    assert list(found) == [row["snapshot_id"] for row in rows[:4]]  # from then on two wait for each other
    assert undecided == {"table-1"}


# ---- what others have written into a history -------------------------------------------------------------------------------


def _set(column: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def changed(found: pa.Table) -> pa.Table:
        values = found[column].to_pylist()
        values[row] = values[value] if column == "machine" else value
        place = found.schema.get_field_index(column)
        return found.set_column(place, found.schema.field(place), pa.array(values, found.schema.field(place).type))

    return changed


def _as(kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def changed(found: pa.Table) -> pa.Table:
        return found.cast(
            pa.schema(field.with_type(kind) if field.type == pa.string() else field for field in found.schema)
        )

    return changed


def _hidden(found: pa.Table) -> pa.Table:
    """With rows of a snapshot that is not listed."""
    more = _set("snapshot_id", 0, "bank-1-0001x")(found.slice(0, 1))
    return pa.concat_tables([found.slice(0, 2), more, found.slice(2)])


STRANGE: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "a machine twice": ("machines", _set("machine", 1, 0)),
    "a row is missing": ("machines", lambda found: found.slice(1)),
    "a channel is missing": ("channels", lambda found: found.slice(1)),
    "a row is doubled": ("machines", lambda found: pa.concat_tables([found.slice(0, 1), found])),
    "no status": ("machines", _set("status", 0, None)),
    "another status": ("machines", _set("status", 0, "sleeping")),
    "no machine": ("machines", _set("snapshot_id", 0, None)),
    "no class": ("machines", _set("class_name", 0, None)),
    "no count": ("channels", _set("in_flight_count", 0, None)),
    "less than nothing in flight": ("channels", _set("in_flight_count", 0, -1)),
    "hidden machines": ("machines", _hidden),
    "hidden channels": ("channels", _hidden),
    "long texts": ("machines", _as(pa.large_string())),
    "dictionaries": ("machines", _as(pa.dictionary(pa.int32(), pa.string()))),
    "bytes": ("machines", _as(pa.binary())),
    "a field twice": ("machines", _set("state", 1, '{"balance":1,"balance":2}')),
    "no number": ("machines", _set("state", 1, '{"balance":NaN}')),
    "no JSON": ("machines", _set("state", 1, "{")),
    "a state of null": ("machines", _set("state", 1, "null")),
    "more than 64 bits": ("machines", _set("state", 1, '{"balance":36893488147419103232}')),
    "no column": ("machines", lambda found: found.drop_columns(["incarnation"])),
    "no rows": ("channels", lambda found: found.slice(0, 0)),
    "upside down": ("machines", lambda found: found.take(pa.array(np.arange(found.num_rows)[::-1]))),
}


@pytest.mark.by_day(8)
@pytest.mark.parametrize("encoded", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["encoded", "plain"])
@pytest.mark.parametrize("change", list(STRANGE))
def test_the_same_is_said_of_what_others_have_written(tmp_path: Path, change: str, encoded: bool) -> None:
    history = write(tmp_path / "history", bank())
    name, changed = STRANGE[change]
    for file in (tmp_path / "history" / name).rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            pq.write_table(changed(pq.ParquetFile(file).read()), file, use_dictionary=encoded)
    extra = [TokenConservation(300, "$.balance").spec, *OF_STATES[1:]]
    found = said(history, ids_of(history), is_whole=False, extra=extra)
    assert found == said(history, ids_of(history), is_whole=True, extra=extra)


# ---- mutants ----------------------------------------------------------------------------------------------------


def _differs(histories: list[History]) -> bool:
    def is_said_alike(one: History) -> bool:
        found, expected = (said(one, ids_of(one), is_whole=whole, extra=OF_STATES) for whole in (False, True))
        return bool(found == expected)

    return not all(map(is_said_alike, histories[1:]))


def _none_is_greatest(machines: Any) -> Any:
    return np.zeros(0, np.int64)


def _all_are_at_rest(machines: Any) -> Any:
    return np.ones(machines.table.num_rows, np.bool_)


def _all_who_do_not_wait(machines: Any) -> Any:
    codes, _ = machines.codes("status")
    return np.append(pa.compute.not_equal(machines.texts("status"), "blocked").to_numpy(zero_copy_only=False), False)[
        codes
    ]


def _who_is_named_by_the_coverage_is_at_rest(snapshot: Snapshot) -> Snapshot:
    here, absent = snapshot.parted
    return snapshot if absent is None else snapshot.with_machines(here)


def _with_all_messages(snapshot: Snapshot, machines: pa.Table) -> Snapshot:
    return snapshot.with_machines(machines)


def _by_rows(snapshot: Snapshot, machines: int) -> bool:
    return not machines and not snapshot.tables["channels"].num_rows


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (at_rest, "_greatest", _none_is_greatest),
        (at_rest, "_at_rest", _all_are_at_rest),
        (at_rest, "_at_rest", _all_who_do_not_wait),
        (at_rest, "_with_something_in_flight", lambda channels: np.zeros(channels.table.num_rows, np.bool_)),
        (at_rest, "DRIVER", "nobody"),
        (deadlock, "_concerned", _who_is_named_by_the_coverage_is_at_rest),
        (at_rest, "_alone", _with_all_messages),
        (unique_token, "is_bare", _by_rows),
        (json_column, "_places", lambda _: ()),
        (sums, "_all_but", lambda rows, *_: np.ones(rows.count, np.bool_)),
        (sums, "_counted", lambda place, count: np.zeros(count + 1, np.int64)),
        (whole_snapshots, "_places", lambda table, ids: np.zeros(table.num_rows, np.int64)),
    ],
    ids=[
        *("incarnation", "statuses", "active", "channels", "driver", "coverage", "messages", "bare", "dictionaries"),
        *("unknown", "counts", "places"),
    ],
)
@pytest.mark.nightly
def test_a_mutant_is_caught(
    histories: list[History], monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any
) -> None:
    monkeypatch.setattr(module, name, mutant)
    assert _differs(histories)


def test_a_text_that_stands_for_more_than_its_file_may_is_refused() -> None:
    text = pa.array(["x" * 1_000_000])
    for rows, is_too_much in ((100, False), (1_000, True)):
        column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), text)
        found, allowance = pa.table({"machine": column}), bounds.Allowance(1_000)
        if is_too_much:
            with pytest.raises(ValueError, match="would exhaust memory"):
                bounds.check_encoded(allowance, Path("machines"), found)
        else:
            bounds.check_encoded(allowance, Path("machines"), found)
