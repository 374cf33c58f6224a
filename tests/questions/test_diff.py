"""`questions.diff`: two snapshots held against each other."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from asked_histories import bank, snapshot, write

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History
from ray_snapshot.questions import diff, differing, reading, two_snapshots
from ray_snapshot.questions.differing import fields_of


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return bank(tmp_path_factory.mktemp("asked") / "h")


def told(found: dict[str, Any]) -> set[tuple[str, ...]]:
    return {
        tuple(row[name] for name in ("machine", "field", "before", "after")) for row in found["changes"].to_pylist()
    }


def test_without_names_the_latest_is_held_against_the_one_before_it_in_its_run(history: History) -> None:
    assert two_snapshots(history, system="bank") == ("bank-1-0004", "bank-1-0005")
    assert two_snapshots(history, None, "bank-1-0004") == ("bank-1-0002", "bank-1-0004"), "3 was aborted"
    assert two_snapshots(history, "ring-1-0000") == ("ring-1-0000", "ring-1-0001"), "the latest of its system"
    assert two_snapshots(history, run="ring") == ("ring-1-0000", "ring-1-0001")
    assert told(diff(history, run="ring")) == {("m0", "balance", "0", "1")}


def test_the_earlier_is_held_against_the_later_whichever_is_named_first(history: History) -> None:
    expected = {("m0", "balance", "10", "3"), ("m1", "balance", "20", "22")}
    assert told(diff(history, "bank-1-0000", "bank-1-0004")) == expected
    assert told(diff(history, "bank-1-0004", "bank-1-0000")) == expected
    assert told(diff(history, "bank-1-0000", "bank-1-0004", machine="m1")) == {("m1", "balance", "20", "22")}
    assert told(diff(history, "bank-1-0000", "bank-1-0004", field="limit")) == set()


def test_machines_that_come_go_and_are_replaced_are_events(tmp_path: Path) -> None:
    old = [{"machine": "a"}, {"machine": "b", "state": {"x": 1}}]
    new = [{"machine": "b", "class_name": "New", "host": "h-2", "incarnation": 2, "state": {"x": 1}}, {"machine": "c"}]
    history = write(tmp_path / "h", [snapshot("s-1", n, machines=rows) for n, rows in enumerate((old, new))])
    found = diff(history)
    assert {(row["machine"], row["event"], row["before"], row["after"]) for row in found["machines"].to_pylist()} == {
        ("a", "vanished", None, None),
        ("b", "moved", "host-0", "h-2"),
        ("b", "replaced", "Machine", "New"),
        ("b", "restarted", "1", "2"),
        ("c", "appeared", None, None),
    }
    assert found["fields"].num_rows == 0


@pytest.mark.parametrize(
    ("names", "error", "why"),
    [
        (("bank-1-0003", "bank-1-0004"), SettingError, "bank-1-0003 was aborted"),
        (("bank-1-0004", "bank-1-0004"), SettingError, "both are the snapshot"),
        (("bank-1-0004", "ring-1-0001"), SettingError, "of the system bank, and ring-1-0001 of ring"),
        ((None, "ring-1-0000"), SettingError, "the first completed snapshot of its run"),
        (("nothing", "latest"), HistoryNotFoundError, "no snapshot 'nothing'"),
    ],
)
def test_what_cannot_be_compared_is_told(history: History, names: Any, error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        diff(history, *names)


def test_a_machine_that_is_in_none_of_the_two_is_told_with_some_that_are(history: History) -> None:
    with pytest.raises(SettingError, match=r"no machine 'm7' in these snapshots; they have m0, m1, \.\.\."):
        diff(history, run="bank-1", machine="m7")


@pytest.mark.parametrize("bytes_at_once", [10**9, 300])
def test_each_snapshot_of_a_run_is_held_against_the_one_before(
    history: History, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int
) -> None:
    monkeypatch.setattr(reading, "BYTES_AT_ONCE", bytes_at_once)
    snapshots = reading.chosen(history, None, None).sort_by([("run_id", "ascending"), ("started_at", "ascending")])
    assert (len(list(reading.in_batches(snapshots))) == 1) is (bytes_at_once > 300)
    rows = pa.concat_tables(differing.changes(history, snapshots)).to_pylist()
    assert [(row["snapshot_id"], row["machine"], row["before"], row["after"]) for row in rows] == [
        ("bank-1-0001", "m0", "10", "3"),
        ("bank-1-0002", "m1", "20", "27"),
        ("bank-1-0004", "m1", "27", "22"),
        ("ring-1-0001", "m0", "0", "1"),
    ]
    (money, ring) = differing.fields_in(pa.Table.from_pylist(rows, differing.CHANGES)).sort_by("system").to_pylist()
    assert (money["changes"], money["machines"], money["first_id"], money["last_id"]) == (
        3,
        2,
        "bank-1-0001",
        "bank-1-0004",
    )
    assert (ring["changes"], ring["machines"]) == (1, 1)


@pytest.mark.contract
def test_a_history_without_a_completed_snapshot_has_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(HistoryNotFoundError, match="nothing to compare"):
        diff(write(tmp_path / "h", [snapshot("s-1", 0, status="aborted")]))


def test_fields_are_texts_a_text_stands_for_itself_and_what_is_inside_is_json() -> None:
    state = '{"a":"x","b":1,"c":{"d":[1,2.5,null,true]},"e":null,"f":"line\\n"}'
    expected = {"a": "x", "b": "1", "c": '{"d":[1,2.5,null,true]}', "e": None, "f": "line\n"}
    assert fields_of(state) == expected
    assert fields_of(None) == {}
    assert fields_of("[1]") == {"(state)": "[1]"}
    assert fields_of('{"a":') == {"(state)": '{"a":'}
