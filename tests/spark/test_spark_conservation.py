"""The job `conservation` on the known history; `tests/questions` holds what it counts and judges against the detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_histories import bank, rows, write

from ray_snapshot.errors import SettingError

pytestmark = pytest.mark.spark


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
