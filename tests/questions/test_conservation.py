"""`questions.conservation` on histories with known answers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_histories import MONEY, bank, column, judged, snapshot, write

from ray_snapshot.detectors import TokenConservation
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, SettingError
from ray_snapshot.history import History
from ray_snapshot.questions import conservation, reading


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return bank(tmp_path_factory.mktemp("asked") / "h")


def test_a_ledger_counts_what_machines_hold_and_what_is_in_flight(history: History) -> None:
    ledger = conservation(history)["ledger"]
    assert column(ledger, "snapshot_id") == [f"bank-1-000{n}" for n in (0, 1, 2, 4, 5)], (
        "an aborted one is none of them"
    )
    assert column(ledger, "in_machines") == [30, 23, 30, 25, 25]
    assert column(ledger, "in_flight") == [0, 7, 0, 0, 0]
    assert column(ledger, "holds") == [True, True, True, False, False]
    assert column(ledger, "difference") == [0, 0, 0, -5, -5]


def test_the_break_is_told_with_the_last_snapshot_that_was_right_and_what_changed(history: History) -> None:
    found = conservation(history)
    (broken,) = found["breaks"].to_pylist()
    assert (broken["first_broken"], broken["last_right"], broken["difference"]) == ("bank-1-0004", "bank-1-0002", -5)
    assert (broken["snapshots"], broken["held"], broken["broken"], broken["unknown"]) == (5, 3, 2, 0)
    (machine,) = found["changed_machines"].to_pylist()
    assert (machine["machine"], machine["before"], machine["after"]) == ("m1", 27, 22)
    assert machine["unexplained"] is True
    assert found["changed_channels"].num_rows == 0


def test_a_channel_whose_counts_do_not_add_up_where_a_ledger_broke_is_told(tmp_path: Path) -> None:
    lost = {"source": "m0", "target": "m1", "kind": "mail", "sent_count": 3, "accepted_count": 2}
    taken = [snapshot("bank-1", 0, [30]), snapshot("bank-1", 1, [23], channels=[lost], consistent=True)]
    (channel,) = conservation(write(tmp_path / "h", taken, judged(taken, MONEY)))["changed_channels"].to_pylist()
    assert (channel["source"], channel["sent"], channel["accepted"], channel["missing"]) == ("m0", 3, 2, 1)


def test_a_ledger_can_be_asked_for_by_its_system_its_run_and_its_name(history: History) -> None:
    assert conservation(history, system="bank", run="bank", detector="money")["ledger"].num_rows == 5
    assert conservation(history, system="ring")["ledger"].num_rows == 0
    for asked, what in (({"system": "bnak"}, "bank"), ({"run": "x"}, "ring-1"), ({"detector": "monkey"}, "money")):
        with pytest.raises(HistoryNotFoundError, match=what):
            conservation(history, **asked)


def test_of_two_ledgers_of_a_run_each_has_its_own_paths_and_one_alone_can_be_asked_for(tmp_path: Path) -> None:
    other = TokenConservation(total=7, state={"Machine": "$.tokens"}, name="other")
    held = {"machine": "m0", "state": {"balance": 30, "tokens": 7}}
    taken = [snapshot("bank-1", n, machines=[held, {"machine": "m1", "class_name": "Other"}]) for n in range(2)]
    history = write(tmp_path / "h", taken, judged(taken, MONEY, other))
    ledger = conservation(history)["ledger"]
    assert column(ledger, "total") == [30, 30, 7, 7]
    assert column(ledger, "holds") == [True] * 4
    assert column(conservation(history, detector="other")["ledger"], "detector") == ["other"] * 2


def test_settings_that_are_none_are_named(tmp_path: Path) -> None:
    taken = [snapshot("bank-1", 0, [30])]
    (said,) = judged(taken, MONEY)
    wrong = said.model_copy(update={"detector_spec": {"type": "token-conservation", "state": "balance"}})
    with pytest.raises(SettingError, match="settings of the detector 'money' are none: JSON path 'balance'"):
        conservation(write(tmp_path / "h", taken, [wrong]))


def test_a_snapshot_that_is_listed_twice_is_told(tmp_path: Path) -> None:
    history = write(tmp_path / "h", [snapshot("bank-1", 0, [30])])
    (file,) = history.files("snapshots")
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(pa.concat_tables([rows, rows]), file)
    with pytest.raises(HistoryFormatError, match="table snapshots is damaged: it lists 1 snapshots twice"):
        conservation(history)


def test_rows_without_what_every_reader_needs_are_refused_by_name(history: History, monkeypatch: Any) -> None:
    def without_names(*_: Any, **__: Any) -> pa.Table:
        return pa.table({"snapshot_id": ["bank-1-0000"], "machine": pa.nulls(1, pa.string())})

    monkeypatch.setattr(History, "rows_of", without_names)
    with pytest.raises(HistoryFormatError, match="table machines is damaged: it has 1 rows without machine"):
        reading.rows_of(history, "machines", ["bank-1-0000"], ["snapshot_id", "machine"])


def test_without_a_total_a_snapshot_is_compared_with_the_first_since_the_restore(tmp_path: Path) -> None:
    own = TokenConservation(state="$.balance")
    taken = [snapshot("bank-1", n, [balance]) for n, balance in enumerate((5, 5, 4))]
    taken += [snapshot("bank-1", n, [balance], restored_from="bank-1-0000") for n, balance in ((3, 4), (4, 4), (5, 5))]
    ledger = conservation(write(tmp_path / "h", taken, judged(taken, own)))["ledger"]
    assert column(ledger, "holds") == [None, True, False, None, True, False]
    assert column(ledger, "expected") == [None, 5, 5, None, 4, 4]
