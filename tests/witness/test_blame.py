"""The first action of a traced run behind which something is wrong: found, told, and nothing else blamed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import witness_machines
from witness_machines import Trace, handle, message

import ray_snapshot as rs
from ray_snapshot import Snapshot, cli, detectors
from ray_snapshot.errors import SettingError
from ray_snapshot.history import HistoryWriter
from ray_snapshot.schema import ACTIONS
from ray_snapshot.verdicts import evaluate
from ray_snapshot.witness.blame import blame
from ray_snapshot.witness.log import log_of
from ray_snapshot.witness.steps import actions_of

MONEY = detectors.TokenConservation(total=20, state="$.coins", messages={"take": "$[0]", "__init__": "$[0]"})


@rs.detector(stable=False, alarm_when=True)
def poor(snapshot: Snapshot) -> Any:
    """Somebody has less than nothing."""
    found = [name for name, one in snapshot.machines.items() if one.state["coins"] < 0]
    return bool(found), {"poor": found}


def a_run(*gifts: int, method: str = "give") -> Trace:
    """a and b have 10 each; a gives b these, and b takes them."""
    trace = Trace()
    trace.create("a", 10)
    trace.create("b", 10)
    for number, coins in enumerate(gifts, 1):
        args = [handle("b"), coins]
        trace.act("driver", "send", [], [message({"target": "a"}, number, method, *args)])
        given = [message({"source": "driver"}, number, method, *args)]
        lost = coins - 1 if method == "give_less" else coins
        trace.act("a", method, given, [message({"target": "b"}, number, "take", lost)])
        trace.act("b", "take", [message({"source": "a"}, number, "take", lost)], [])
    return trace


def blamed(trace: Trace, item: Any) -> Any:
    return blame("run", log_of(actions_of(trace.rows)), item, ["witness_machines"])


def test_where_nothing_is_wrong_nobody_is_to_blame() -> None:
    found = blamed(a_run(4, 2), MONEY)
    assert (found.action, found.problem, found.done) == (None, None, 10)


def test_the_action_that_loses_a_coin_is_named_with_what_it_did_and_where_it_is_written() -> None:
    found = blamed(a_run(4, 2, method="give_less"), MONEY)
    assert (found.action.machine, found.action.number, found.action.method) == ("a", 2, "give_less")
    assert (found.before, found.after) == ({"coins": 10}, {"coins": 6})
    assert found.verdict.sentence.startswith("Not conserved: 1 missing (16 in machines, 3 in flight, 20 expected)")
    path, _, line = found.source.rpartition(":")
    assert path == witness_machines.__file__
    assert "def give_less" in Path(path).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_a_function_is_asked_behind_every_action() -> None:
    found = blamed(a_run(4, 9, 1), poor)
    assert (found.action.machine, found.action.number) == ("a", 3)
    assert found.verdict.evidence == {"poor": ["a"]}
    assert found.done == 9


def test_what_an_action_leaves_as_it_was_need_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        "ray_snapshot.verdicts.evaluate", lambda *args, **more: asked.append(1) or evaluate(*args, **more)
    )
    blamed(a_run(4, 2), MONEY)
    assert len(asked) <= 4, "but for the first, which make what there is"


@pytest.mark.parametrize(
    ("item", "words"),
    [(detectors.Deadlock(), "asks who acts and waits"), (detectors.Reached("$.coins", 3), "no answer that is wrong")],
)
def test_what_no_action_can_be_blamed_for(item: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        blamed(a_run(4), item)


def test_what_was_never_right_is_nobodys_fault() -> None:
    found = blamed(a_run(4), detectors.TokenConservation(total=99, state="$.coins", messages={"take": "$[0]"}))
    assert (found.action, found.was_right, found.done) == (None, False, 7)


def test_a_run_that_cannot_be_done_again_says_how_far_it_was_right() -> None:
    trace = a_run(4)
    trace.rows[5]["sent"][0]["args"] = [3]
    trace.rows[6]["accepted"][0]["args"] = [3]
    found = blamed(trace, MONEY)
    assert (found.action, found.done) == (None, 5)
    assert "sends" in str(found.problem)


# ---- the command -----------------------------------------------------------------------------------------------------


def history_of(folder: Path, trace: Trace) -> str:
    """A history with the trace, a snapshot of its end, and what was said of that."""
    texts = [
        {name: json.dumps(row[name]) for name in ("accepted", "sent", "waits") if name in row} for row in trace.rows
    ]
    rows = [{**row, **text} for row, text in zip(trace.rows, texts, strict=True)]
    last = Snapshot.from_rows(
        machines=[{"machine": "a", "class_name": "Purse", "state": {"coins": 3}}],
        snapshot_id="20260301T120000000000Z-run-000001",
        run_id="run",
        system="bank",
        started_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        completed_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
        coverage={"uncovered": []},
    )
    with HistoryWriter(folder) as writer:
        writer.add_actions(pa.Table.from_pylist(rows, schema=ACTIONS), system="bank")
        writer.add(last)
        writer.add_verdicts([evaluate(MONEY, last)])
    return str(folder)


def test_it_is_told_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = history_of(tmp_path / "h", a_run(4, 2, method="give_less"))
    assert cli.main(["blame", history, "--module", "witness_machines"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "conservation: broken by action 2 of a, step 6 of 10 in all"
    assert lines[1] == '  a.give_less({"$machine": "b"}, 4) from driver'
    assert lines[2].startswith(f"  at {witness_machines.__file__}:")
    assert lines[3:5] == ['  state: {"coins": 10} -> {"coins": 6}', "  sends take(3) to b"]
    assert cli.main(["blame", history, "--module", "witness_machines", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["machine"], told["number"], told["before"], told["problem"]) == ("a", 2, {"coins": 10}, None)


def test_that_all_is_right_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = history_of(tmp_path / "h", a_run(4, 2))
    asked = ["--detector", "conservation", "--module", "witness_machines"]
    assert cli.main(["blame", history, "latest", *asked]) == 0
    assert capsys.readouterr().out == "conservation: no action breaks it, of 10\n"


def test_that_it_cannot_be_told_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = a_run(4)
    trace.rows[5]["waited_at"] = "app.py:3"
    assert cli.main(["blame", history_of(tmp_path / "h", trace), "--module", "witness_machines"]) == 4
    assert "cannot be told: not broken by the first 5 actions, and then: action 2 of a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--detector", "nobody"], "no detector 'nobody' was asked in this run"),
        (["--detector", "termination"], "no detector 'termination' was asked in this run"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    asked: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = history_of(tmp_path / "h", a_run(4, 2))
    code = cli.main(["blame", history, *asked])
    said = capsys.readouterr()
    assert (code, said.err.count("\n")) == (2, 1)
    assert words in said.err


def test_a_law_without_a_total_is_held_against_what_was_expected_when_it_alarmed(tmp_path: Path) -> None:
    """The run begins with nothing, so that to make a machine would break it."""
    history = history_of(tmp_path / "h", a_run(4, 2, method="give_less"))
    free = detectors.TokenConservation(state="$.coins", messages={"take": "$[0]", "__init__": "$[0]"}, name="free")
    (last,) = rs.History(history).snapshots()
    said = rs.Verdict(
        detector="free", holds=False, alarm=True, snapshot_id=last.snapshot_id, run_id="run",
        detector_spec=free.spec, evidence={"expected": 20},
    )  # fmt: skip
    with HistoryWriter(history) as writer:
        writer.add_verdicts([said])
    assert cli.main(["blame", history, "--detector", "free", "--module", "witness_machines", "--json"]) == 1


def test_what_nothing_touches_is_right_and_not_unknown() -> None:
    """A detector that adds up need not be asked behind every action, but once it must be."""
    nothing = detectors.TokenConservation(total=7, state={"Nobody": "$.coins"}, messages={"note": "$[0]"})
    found = blamed(a_run(4), nothing)
    assert (found.action, found.was_right) == (None, False)
    assert (
        blamed(a_run(4), detectors.from_spec({"type": "virtual-time", "state": {"Nobody": "$.clock"}})).action is None
    )
