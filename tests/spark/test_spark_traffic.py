"""The jobs `traffic` and `conservation` on the known history; `tests/questions` holds the latter against the detector."""

from pathlib import Path
from typing import Any

import pytest
from small_histories import bank, rows, snapshot, write

from ray_snapshot.errors import SettingError

pytestmark = pytest.mark.spark

CHANNEL = ("run_id", "source", "target", "kind")


@pytest.fixture(scope="module")
def frames(spark: Any, history: Any) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import traffic

    found: dict[str, Any] = traffic.run(spark, history)
    return found


def test_what_went_over_a_channel_is_the_difference_between_snapshots(frames: dict[str, Any]) -> None:
    found = rows(frames["intervals"], *CHANNEL, "sequence")
    of = {n: found["bank-1", "a", "b", "mail", n] for n in (0, 1, 2, 4)}
    assert (of[0]["sent"], of[0]["accepted"]) == (None, None)  # nobody saw the time before the first snapshot
    assert (of[1]["sent"], of[1]["accepted"], of[1]["seconds"]) == (2, 1, 1.0)
    assert (of[2]["sent"], of[2]["accepted"], of[2]["backlog_growth"]) == (2, 3, -1)
    # Snapshot 3 was aborted: the interval to 4 is two seconds long.
    assert (of[4]["sent"], of[4]["accepted"], of[4]["seconds"], of[4]["sent_per_s"]) == (4, 4, 2.0, 2.0)


def test_channels_are_summed_over_their_run(frames: dict[str, Any]) -> None:
    found = rows(frames["channels"], *CHANNEL)
    deposits, orders = found["bank-1", "a", "b", "mail"], found["table-1", "guest", "hume", "mail"]
    assert (deposits["sent"], deposits["accepted"], deposits["sent_per_s"]) == (14, 13, 2.0)
    assert (orders["sent"], orders["accepted"], orders["backlog_growth"], orders["most_in_flight"]) == (18, 9, 9, 9)


def test_a_channel_that_appears_later_began_at_nought(frames: dict[str, Any]) -> None:
    bill = rows(frames["intervals"], *CHANNEL, "sequence")["table-1", "waiter", "kant", "mail", 1]
    assert (bill["sent"], bill["accepted"], bill["in_flight_count"]) == (1, 0, 1)


def test_a_head_of_line_that_does_not_move_is_told_with_its_message(frames: dict[str, Any]) -> None:
    found = rows(frames["stuck"], *CHANNEL)
    bill, orders = found["table-1", "waiter", "kant", "mail"], found["table-1", "guest", "hume", "mail"]
    assert (bill["number"], bill["method"], bill["snapshots"], bill["seconds"]) == (1, "pay", 6, 5.0)
    assert bill["target_accepted"] == 0
    assert (orders["number"], orders["snapshots"], orders["behind"]) == (10, 3, 9)
    assert len(found) == 2  # the deposits keep moving


@pytest.mark.nightly
def test_a_head_is_stuck_only_while_it_is_the_same_and_counts_start_anew_after_a_restore(
    spark: Any, tmp_path: Path
) -> None:
    from ray_snapshot.spark_jobs import traffic

    def at(n: int, accepted: int, **more: Any) -> Any:
        channel = {"source": "a", "target": "b", "sent_count": 10, "accepted_count": accepted}
        busy = {"source": "c", "target": "b", "sent_count": n, "accepted_count": n}
        message = {"source": "a", "target": "b", "method": "put", "args": []}
        timer = {"source": "a", "target": "a", "kind": "timer", "method": "wake", "args": []}
        rare = [{"source": "d", "target": "b", "sent_count": 5 if n < 5 else 1, "accepted_count": 1}] if n != 5 else []
        return snapshot("line-1", n, channels=[channel, busy, *rare], messages=[message, timer], **more)

    back = {"restored_from": "line-1-0000"}
    taken = [at(0, 7), at(1, 7), at(2, 8), at(3, 8), at(4, 8), at(5, 8, **back), at(6, 8, **back), at(7, 9, **back)]
    frames = traffic.run(spark, write(tmp_path / "line", taken))
    (stuck,) = rows(frames["stuck"], *CHANNEL).values()
    assert (stuck["number"], stuck["snapshots"], stuck["target_accepted"]) == (9, 3, 2)
    found = rows(frames["intervals"], *CHANNEL, "sequence")
    assert found["line-1", "a", "b", "mail", 5]["accepted"] is None
    assert found["line-1", "a", "b", "mail", 7]["accepted"] == 1
    assert found["line-1", "d", "b", "mail", 6]["sent"] == 1


def ledger_of(spark: Any, history: Any, **given: Any) -> dict[Any, dict[str, Any]]:
    from ray_snapshot.spark_jobs import conservation

    return rows(conservation.run(spark, history, **conservation.options(**given))["ledger"], "snapshot_id")


@pytest.mark.nightly
def test_a_ledger_of_ones_own_needs_no_stored_detector(spark: Any, tmp_path: Path) -> None:
    ledger = ledger_of(spark, write(tmp_path / "h", bank()), state="$.balance", total=293.0)
    # Without the deposits in flight, the machines hold 293 exactly where one is on its way.
    assert [key for key, row in ledger.items() if row["holds"]] == ["bank-1-0001"]


@pytest.mark.nightly
def test_what_is_given_takes_the_place_of_what_is_stored_each_of_itself_only(spark: Any, history: Any) -> None:
    ledger = ledger_of(spark, history, total=290.0)
    assert [key for key, row in ledger.items() if row["holds"]] == ["bank-1-0005", "bank-1-0006", "bank-1-0007"]
    assert {row["system"] for row in ledger.values()} == {"bank"}, "a total says nothing of runs without a ledger"
    unread = ledger_of(spark, history, messages=["deposit=$[1]"])
    assert unread["bank-1-0001"]["unreadable"] == 1
    assert unread["bank-1-0000"]["holds"] is True
    more = ledger_of(spark, history, messages=["gift=$[1]"])
    assert [row["in_flight"] for row in more.values() if row["system"] == "bank"][:2] == [0, 7], "deposits still count"


def test_options_that_make_no_ledger_are_refused_before_spark_starts() -> None:
    from ray_snapshot.spark_jobs import conservation

    with pytest.raises(SettingError, match="METHOD=PATH"):
        conservation.options(messages=["deposit"])
    with pytest.raises(SettingError, match="JSON path"):
        conservation.options(state="balance")
