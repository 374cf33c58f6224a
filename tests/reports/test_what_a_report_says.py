"""What is gathered for a report: of which snapshot, in which words, and of what came before it."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from incidents import CROWD, OF_MACHINES, START, deadlocked, healthy, incident, judged, written

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.history import History
from ray_snapshot.reports import waits
from ray_snapshot.reports.gathering import ALARM, CLEAR, UNKNOWN, choose, gather
from ray_snapshot.reports.markdown import markdown
from ray_snapshot.reports.page import html
from ray_snapshot.reports.texts import cut, pretty
from ray_snapshot.reports.waits import wait_records
from ray_snapshot.schema import WAITS


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(incident(tmp_path / "history"))


def test_a_deadlock_is_told_with_places_and_advice_and_the_machines_concerned(history: History) -> None:
    report = gather(history, "bank-00005", has_charts=False)
    assert (report.level, report.headline) == (ALARM, "bank: deadlock")
    assert report.waiting is not None
    assert report.waiting.heading == "What can never move again"
    assert report.waiting.lines == (
        "a in Account.transfer (/srv/app/bank.py:41) waits for b (Account.deposit)",
        "b in Account.transfer (/srv/app/bank.py:41) waits for a (Account.deposit)",
    )
    assert report.waiting.behind == ("driver waits for a (Account.transfer)",)
    assert [one.sentence for one in report.verdicts if one.is_alarm] == ["As told above."]
    assert "Raise max_concurrency of Account to 2" in report.waiting.advice[0]
    assert [card.name for card in report.cards] == ["a", "b", "driver"]
    assert report.cards[0].about == "Account on pid-7"
    assert report.cards[0].calls == ("transfer (/srv/app/bank.py:41), called by driver",)
    assert (report.cards[0].inbox, report.cards[0].inbox_count) == (("deposit[10] from b",), 1)
    assert '"balance": 90' in (report.cards[0].state or "")
    assert ("Ray of the run", "2.60.0") in report.versions
    assert report.gaps == ()


def test_what_came_before_is_told_from_the_last_snapshot_without_the_alarm(history: History) -> None:
    past = gather(history, "bank-00005", has_charts=False).past
    assert past.sentences == (
        "The history has 5 earlier complete snapshots of its run.",
        "The alarm of deadlock began 1.0 s earlier, in bank-00004 (2026-03-01 12:00:04 UTC); the last snapshot known to be"
        " without it is bank-00003 (2026-03-01 12:00:03 UTC).",
        "Changes since then: ray-snapshot ask HISTORY diff bank-00003 bank-00005",
    )
    assert past.steps[0] == "2.0 s before the snapshot: a begins to wait for b"


def test_what_happened_before_a_deadlock_stands_on_the_page_and_in_the_text(tmp_path: Path) -> None:
    died = {"kind": "died", "machine": "c", "class": "Account", "at": START.isoformat(), "cause": "exit code 3"}
    snapshot = deadlocked(1, coverage={"uncovered": [], "happened": [died]})
    report = gather(History(written(tmp_path / "history", [snapshot])), "bank-00001", has_charts=False)
    assert report.waiting is not None
    (said,) = report.waiting.before
    assert said.startswith("c died at ")
    assert said in html(report)
    assert "Before that:" in markdown(report)


def test_a_thousand_actors_that_are_stuck_alike_are_a_line_of_each_part(tmp_path: Path) -> None:
    stuck = deadlocked(5, CROWD, protocol="calls")
    report = gather(History(written(tmp_path / "history", [stuck])), "bank-00005", has_charts=False)
    assert report.waiting is not None
    alike = "account-[2-999] (998) in Account.transfer (/srv/app/bank.py:41) waits for account-0 (Account.deposit)"
    assert report.waiting.behind == ("driver waits for account-0 (Account.transfer)", alike)
    assert report.past.steps[1] == "2.0 s before the snapshot: account-[1-999] begin to wait for account-0"
    assert [card.name for card in report.cards][:4] == ["account-0", "account-1", "driver", "account-2"]
    assert report.cards[0].inbox == ("deposit[10] (999 calls) from account-[1-999]",)
    assert len(markdown(report)) < 10_000
    assert len(html(report)) < 50_000


def test_an_alarm_that_begins_with_the_snapshot_says_so(history: History) -> None:
    assert "began with this snapshot" in gather(history, "bank-00004", has_charts=False).past.sentences[1]


def test_the_run_is_drawn_up_to_the_snapshot_and_no_further(history: History) -> None:
    titles = [title for title, svg in gather(history, "bank-00004").past.charts if "<svg" in svg]
    assert titles == ["What the detectors said", "The run up to this snapshot"]
    assert gather(history, "bank-00000").past.charts == ()


def test_without_an_alarm_there_is_none_and_what_waits_is_shown_all_the_same(tmp_path: Path) -> None:
    history = History(written(tmp_path / "history", [healthy(0), healthy(1)]))
    report = gather(history, choose(history, None), has_charts=False)
    assert (report.level, report.headline, report.waiting) == (CLEAR, "bank: no alarm", None)
    assert report.past.sentences[-1] == "Changes since then: ray-snapshot ask HISTORY diff bank-00000 bank-00001"


def test_verdicts_that_the_history_has_not_are_found_now(tmp_path: Path) -> None:
    history = History(written(tmp_path / "history", [deadlocked(0)], verdicts={}))
    report = gather(history, "bank-00000", has_charts=False)
    assert [(one.detector, one.word, one.evaluator) for one in report.verdicts] == [
        ("deadlock", "ALARM: holds", "report"),
        ("termination", "does not hold", "report"),
    ]
    assert report.past.sentences == ("The history has no earlier complete snapshot of its run.",)


def test_what_was_not_observed_makes_it_unknown_and_is_named(tmp_path: Path) -> None:
    coverage = {"uncovered": ["threads of the program"], "without_state": ["a"]}
    history = History(written(tmp_path / "history", [deadlocked(0, coverage=coverage)]))
    report = gather(history, "bank-00000", has_charts=False)
    assert report.gaps[:2] == (
        "not observed: threads of the program",
        "recorded in the middle of an action, without its state: a",
    )
    assert ("of the run", "not recorded") in report.versions


def test_who_might_be_stuck_is_told_as_such_in_heading_and_drawing(tmp_path: Path) -> None:
    (good, _) = judged(deadlocked(0))
    verdict = Verdict(**{**good.model_dump(), "holds": None, "alarm": False, "sentence": "Perhaps."})
    history = History(written(tmp_path / "history", [deadlocked(0)], verdicts={"bank-00000": [verdict]}))
    report = gather(history, "bank-00000", has_charts=False)
    assert (report.level, report.headline) == (UNKNOWN, "bank: whether it is deadlocked cannot be told")
    assert report.waiting is not None
    assert report.waiting.heading == "What would be stuck if nothing else acts"
    page = html(report)
    assert "never move again" not in page
    assert "Stuck behind" not in page


def test_what_waits_is_shown_where_nothing_is_stuck(tmp_path: Path) -> None:
    one = Snapshot.from_rows(
        machines=[{"machine": "a", "waits_for": ["b"]}, {"machine": "b", "status": "active"}],
        snapshot_id="bank-00000", system="bank", started_at=START,
    )  # fmt: skip
    report = gather(History(written(tmp_path / "history", [one])), "bank-00000", has_charts=False)
    assert report.level == CLEAR
    assert report.waiting is not None
    assert (report.waiting.heading, report.waiting.lines) == ("What waits", ("a waits for b",))
    evidence = {"places": ["a in A.pay for 130 s"]}
    stall = Verdict(detector="stall", holds=True, alarm=True, evidence=evidence, snapshot_id="bank-00000")
    stalled = History(written(tmp_path / "stalled", [one], verdicts={"bank-00000": [stall]}))
    shown = gather(stalled, "bank-00000", has_charts=False).waiting
    assert shown is not None
    assert (shown.heading, shown.lines) == ("Where it stands", ("a in A.pay for 130 s",))


def test_evidence_with_members_of_another_detector_is_no_deadlock(tmp_path: Path) -> None:
    (stuck, _) = judged(deadlocked(0))
    idle = Verdict(
        **{**stuck.model_dump(), "detector": "idle", "detector_spec": None, "alarm": False, "snapshot_id": "bank-00001"}
    )
    history = History(written(tmp_path / "history", [healthy(1)], verdicts={"bank-00001": [idle]}))
    assert gather(history, "bank-00001", has_charts=False).waiting is None


def test_the_gravest_of_several_evaluators_counts_and_no_snapshot_is_before_itself(tmp_path: Path) -> None:
    (stuck, _) = judged(deadlocked(1))
    other = Verdict(**{**stuck.model_dump(), "holds": False, "alarm": False, "evaluator": "spark"})
    before, _ = judged(healthy(0))
    said = {"bank-00000": [before], "bank-00001": [stuck, other]}
    past = gather(
        History(written(tmp_path / "history", [healthy(0), deadlocked(1)], verdicts=said)),
        "bank-00001",
        has_charts=False,
    ).past
    assert "began with this snapshot" in past.sentences[1]
    assert past.sentences[-1].endswith("diff bank-00000 bank-00001")


@pytest.mark.parametrize(
    "coverage", [[], {"uncovered": None}, {"uncovered": 7, "apart": None, "versions": []}], ids=repr
)
def test_a_coverage_of_a_stranger_is_read_as_far_as_it_can_be(tmp_path: Path, coverage: Any) -> None:
    text = json.dumps(coverage)
    history = History(written(tmp_path / "history", [deadlocked(0, coverage=text, obstacles=[None, "x"])], verdicts={}))
    assert gather(history, "bank-00000", has_charts=False).versions[0] == ("of the run", "not recorded")


@pytest.mark.parametrize("row", [{"duration_ms": None}, {"in_flight_count": None, "machine_count": None}], ids=repr)
def test_a_row_without_its_counts_is_not_drawn(tmp_path: Path, row: dict[str, Any]) -> None:
    others = [healthy(0), healthy(1, **row, status="complete"), healthy(2)]
    history = History(written(tmp_path / "history", others, verdicts={}))
    assert gather(history, "bank-00002").past.charts


def test_times_that_cannot_be_drawn_leave_the_rest_of_the_report(tmp_path: Path) -> None:
    early = [healthy(n, started_at=datetime(1, 1, 1, 0, 0, n, tzinfo=UTC)) for n in range(3)]
    report = gather(History(written(tmp_path / "history", early)), "bank-00002")
    assert report.headline == "bank: no alarm"
    assert report.past.charts == ()
    assert report.past.sentences[-1].startswith("The run cannot be drawn: ValueError: ")


def test_an_aborted_snapshot_is_reported_as_one_that_says_nothing(tmp_path: Path) -> None:
    one = healthy(0, status="aborted", abort_reason="a host died")
    report = gather(History(written(tmp_path / "history", [one], verdicts={})), "bank-00000", has_charts=False)
    assert report.level == UNKNOWN
    assert report.headline == "bank: nothing can be told, the snapshot was aborted (a host died)"
    assert report.gaps == ("the snapshot was aborted (a host died)",)
    assert "A consistent snapshot" not in html(report)


@pytest.mark.parametrize(
    ("given", "system", "expected"),
    [
        (None, None, "ring-00009"),
        (None, "bank", "bank-00005"),
        ("-3", "bank", "bank-00004"),
        ("latest", "bank", "bank-00006"),
    ],
)
def test_the_newest_alarm_of_the_newest_run_is_reported_unless_another_is_named(
    tmp_path: Path, given: str | None, system: str | None, expected: str
) -> None:
    others = [
        healthy(6),  # the alarm is over
        deadlocked(7, snapshot_id="ring-00007", system="ring", run_id="run-2"),
        healthy(8, snapshot_id="ring-00008", system="ring", run_id="run-3"),
        healthy(9, snapshot_id="ring-00009", system="ring", run_id="run-3"),
    ]
    path = incident(tmp_path / "history")
    written(path, others)
    assert choose(History(path), given, system) == expected


def test_a_history_without_snapshots_says_so(tmp_path: Path) -> None:
    history = History(written(tmp_path / "history", []))
    with pytest.raises(HistoryNotFoundError, match="no snapshot in the history"):
        choose(history, None)


BAD: list[Any] = [None, 7, "text", [], [None, 7, {}, {"machine": 7}], {"machine": "a"}, [{"machine": "a", "waits_for": 3}],
       [{"machine": "a", "waits_for": [1, None], "waits_for_calls": {}, "k": "many", "call_site": 9, "needs": []}]]  # fmt: skip


@pytest.mark.by_day(7)
@pytest.mark.parametrize("bad", BAD, ids=repr)
@pytest.mark.parametrize("name", ["members", "stuck_behind", "cores", "advice", "member_count", "depends_on"])
def test_evidence_of_a_stranger_is_shown_as_far_as_it_can_be_read(tmp_path: Path, name: str, bad: Any) -> None:
    (good, _) = judged(deadlocked(0))
    verdict = Verdict(**{**good.model_dump(), "evidence": {**good.evidence, name: bad}})
    history = History(written(tmp_path / "history", [deadlocked(0)], verdicts={"bank-00000": [verdict]}))
    report = gather(history, "bank-00000", has_charts=False)
    assert report.headline == "bank: deadlock"
    assert html(report)
    assert markdown(report)


def test_waits_are_listed_though_their_times_are_none_of_pythons() -> None:
    found = deadlocked(0)
    rows = found.tables["waits"]
    at = rows.schema.get_field_index("waiting_since")
    far = pa.array([2**63 - 1] * rows.num_rows, pa.int64()).cast(rows.schema.field(at).type)
    records, more = wait_records(Snapshot({**found.tables, "waits": rows.set_column(at, "waiting_since", far)}))
    assert [(one["machine"], one["waits_for"]) for one in records] == [("a", ["b"]), ("b", ["a"]), ("driver", ["a"])]
    assert more == 0


def test_what_waits_beside_those_that_are_listed_is_counted_not_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "MOST_WAITS", 50)
    one = [{"machine": "a", "on_machine": f"b{number}", "satisfied": False} for number in range(80)]
    others = [{"machine": f"c{number}", "on_machine": "a", "satisfied": number == 0} for number in range(5)]
    table = pa.Table.from_pylist(one + others, schema=WAITS)
    records, more = wait_records(Snapshot({**deadlocked(0).tables, "waits": table}))
    assert [(record["machine"], len(record["waits_for"])) for record in records] == [("a", 50)]
    assert more == 4


@pytest.mark.parametrize("length", range(1, 60))
def test_a_text_that_is_cut_is_shorter_than_before(length: int) -> None:
    text = "x" * length
    assert cut(text, 10) == text or len(cut(text, 10)) < length
    assert cut(text, 10).startswith(text[:10])
    assert len(cut(text, 10)) <= 10 + len(" … (50 more characters)")


def test_a_state_has_a_list_of_numbers_and_what_is_short_in_one_line() -> None:
    told = pretty({"weights": [0.5] * 60, "batch": [{"n": 1, "at": [1, 2]}, {"text": "x" * 90}]}, 2_000)
    assert [line.strip()[:14] for line in told.split("\n")] == [
        "{",
        '"weights": [0.',
        '"batch": [',
        '{"n": 1, "at":',
        '{"text": "xxxx',
        "]",
        "}",
    ]
    assert pretty([1] * 9_000, 30) == "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … (cut)"


def test_of_an_app_that_is_watched_an_actor_is_an_actor(tmp_path: Path) -> None:
    path = written(tmp_path / "h", [healthy(0, protocol="calls"), deadlocked(1, protocol="calls")])
    page = html(gather(History(path), "bank-00001", has_charts=False))
    words = re.sub(r"<style>.*?</style>|<details.*?</details>", "", page, flags=re.DOTALL)
    assert OF_MACHINES.findall(words) == []
