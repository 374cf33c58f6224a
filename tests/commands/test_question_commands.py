"""`ray-snapshot conservation | since | diff | sql`: what they print, on which width, and with which exit code."""

import io
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from incidents import OF_MACHINES, healthy
from rich.console import Console

from ray_snapshot import Snapshot, Verdict, cli, questions
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS
from ray_snapshot.views import tables

EVIL = "a\x1b[2J\x9b31m\u202e\u2066\x07\rz"
FORBIDDEN = {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2066)} - {"\n"}
Said = tuple[int, list[str], list[str]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A made-up history of 24 snapshots in which ten are lost, and three machines lock each other."""
    folder = str(tmp_path_factory.mktemp("commands") / "h")
    size = ["--machines", "48", "--snapshots", "24", "--seed", "3", "--anomalies", "leak,deadlock"]
    assert cli.main(["synth", *size, "--out", folder]) == 0
    return folder


def text(said: Said) -> str:
    return "\n".join(said[1])


# ---- what they say -----------------------------------------------------------------------------------------------------


@pytest.mark.contract
def test_conservation_says_where_the_ledger_broke_and_what_changed_there(run: Any, rows: Any, history: str) -> None:
    said = run("conservation", history, "--limit", "2")
    assert (said[0], said[2]) == (0, [])
    for title in ("Ledger", "Where it broke", "Machines that changed there", "Channels that changed there"):
        assert title in text(said)
    assert "(22 earlier not shown; --limit 0 shows all)" in said[1]
    found = rows("conservation", history)
    assert [row["holds"] for row in found].count(False) > 10
    assert list(found[0]) == questions.conservation(History(history))["ledger"].column_names
    assert [row["sequence"] for row in rows("conservation", history, "--limit", "2")] == [22, 23], "the latest"
    assert rows("conservation", history, "--detector", "conservation", "--system", "synth") == found


def test_conservation_says_how_to_find_the_action_where_the_run_was_traced(
    run: Any, history: str, tmp_path: Path
) -> None:
    assert "blame" not in text(run("conservation", history))
    copy = shutil.copytree(history, tmp_path / "h")
    (broken,) = questions.conservation(History(copy))["breaks"].to_pylist()
    action = {
        "run_id": broken["run_id"],
        "machine": "a",
        "number": 1,
        "method": "go",
        "colour": 0,
        "acted_at": datetime.now(UTC),
    }
    with HistoryWriter(copy) as writer:
        writer.add_actions(
            pa.Table.from_pylist(
                [{**action, "accepted": "[]", "sent": "[]", "acted_at": datetime.now(UTC)}], schema=ACTIONS
            ),
            system="synth",
        )
    assert f"`ray-snapshot blame HISTORY {broken['first_broken']}`" in " ".join(run("conservation", str(copy))[1])


@pytest.mark.contract
def test_conservation_says_what_to_do_where_nothing_is_counted(run: Any, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.add(Snapshot.from_rows(snapshot_id="s-1"))
    code, (line,), _ = run("conservation", str(tmp_path / "h"))
    assert code == 0
    assert line.startswith("nothing to count: no TokenConservation is stored")
    assert run("since", str(tmp_path / "h"))[1] == ["no live verdicts on completed snapshots"]


@pytest.mark.contract
def test_since_says_what_alarms_first_and_since_when(run: Any, rows: Any, history: str) -> None:
    said = run("since", history)
    assert said[0] == 0
    assert re.search(r"deadlock +yes \(alarm\) +\S+-000008", text(said))
    found = rows("since", history)
    assert [row["alarm"] for row in found] == [True, True, False]
    assert found[1]["since_id"].endswith("-000008")


@pytest.mark.contract
def test_since_exits_with_1_and_says_so_where_a_detector_failed(run: Any, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.add(Snapshot.from_rows(snapshot_id="s-1"))
        writer.add_verdicts([Verdict(detector="own", snapshot_id="s-1", evidence={"error": f"KeyError: {EVIL}"})])
    code, out, (line,) = run("since", str(tmp_path / "h"))
    assert (code, len(out)) == (1, 4)
    assert line.startswith("ray-snapshot: detector own of by-hand failed on 1 of 1 snapshots: KeyError: a\\x1b")
    assert run("since", str(tmp_path / "h"), "--json")[0] == 1


@pytest.mark.contract
def test_diff_says_which_two_and_what_changed(run: Any, rows: Any, history: str) -> None:
    said = run("diff", history, "-3", "-2", "--field", "balance", "--limit", "1")
    assert said[0] == 0
    assert [line.split()[0] for line in said[1][:2]] == ["from", "to"]
    assert said[1][0].endswith("-000021")
    assert said[1][1].endswith("-000022")
    assert re.search(r"\(\d+ more not shown; --limit 0 shows all\)", text(said))
    found = rows("diff", history)
    assert {row["sequence"] for row in found} == {23}
    assert {row["field"] for row in found} == {"balance", "done"}
    assert text(run("diff", history, "--field", "nothing")).endswith("no such change")


def test_diff_calls_the_machines_of_a_watched_app_actors(run: Any, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.add(healthy(1, ("a", "b"), protocol="calls"))
        writer.add(healthy(2, ("a", "c"), protocol="calls"))
    said = text(run("diff", str(tmp_path / "h")))
    assert "Actors that appeared, vanished or were replaced" in said
    assert not OF_MACHINES.search(said), said


@pytest.mark.contract
def test_sql_prints_a_table_or_json_and_says_if_there_is_more(run: Any, rows: Any, history: str) -> None:
    query = "SELECT sequence, machine_count, 0.5 AS half, NULL AS none FROM snapshots ORDER BY 1"
    said = run("sql", history, query, "--limit", "2")
    assert said[1] == [
        "sequence  machine_count  half  none",
        "       0             49   0.5  -",
        "       1             49   0.5  -",
        "(there are more than 2 rows; --limit 0 shows more)",
    ]
    assert len(run("sql", history, query, "--limit", "0")[1]) == 25
    found = rows("sql", history, query)
    assert len(found) == 24
    assert found[0] == {"sequence": 0, "machine_count": 49, "half": 0.5, "none": None}
    assert run("sql", history, "SELECT 1 AS a WHERE false")[1] == ["no rows (a)"]
    code, out, err = run("sql", history, query, "--json", "--limit", "1")
    assert (code, len(out), err) == (0, 1, ["(there are more than 1 rows; --limit 0 shows more)"])


# ---- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["conservation", "{history}", "--run", "nothing"], "nothing of run 'nothing'"),
        (["since", "{history}", "--system", "nothing"], "nothing of system 'nothing'"),
        (["since", "{history}", "--detector", "dedlock"], "did you mean deadlock?"),
        (["diff", "{history}", "latest", "latest"], "both are the snapshot"),
        (["diff", "{history}", "-99"], "no snapshot '-99'"),
        (["sql", "{history}", "selekt 1"], "line 1, column 1, at selekt"),
        (["sql", "{history}", "COPY snapshots TO '/tmp/no-such-file.csv'"], "COPY is refused"),
        (["sql", "{history}", "SELECT 'infinity'::timestamp"], "cannot be shown"),
        (["sql", "{history}", "SELECT 1", "--timeout", "nan"], "'--timeout'"),
        (["sql", "{history}/nowhere", "SELECT 1"], "there is no such folder"),
        (["sql", "{history}"], "Missing argument 'QUERY'"),
    ],
)
def test_what_cannot_be_answered_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, run: Any, history: str
) -> None:
    code, out, err = run(*(item.format(history=history) for item in arguments))
    assert (code, out, len(err)) == (2, [], 1)
    assert said in err[0]


@pytest.mark.contract
def test_a_query_that_takes_too_long_is_told_with_what_to_do(run: Any, history: str) -> None:
    endless = "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t"
    code, _, (line,) = run("sql", history, endless, "--timeout", "1")
    assert code == 2
    assert line.endswith("not answered within 1 s: ask for less, or give it more time with --timeout")


# ---- texts of a stranger -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    from ray_snapshot.detectors import TokenConservation

    at = datetime(2026, 3, 1, tzinfo=UTC)
    taken = [
        Snapshot.from_rows(
            snapshot_id=f"odd-{n}", system="odd", run_id=EVIL, sequence=n, started_at=at + timedelta(seconds=n),
            machines=[{"machine": EVIL, "class_name": EVIL, "host": EVIL, "state": {EVIL: f"{EVIL}{n}", "tokens": 5 - n}}],
        )
        for n in range(2)
    ]  # fmt: skip
    ledger = TokenConservation(total=5, name=EVIL)
    path = tmp_path_factory.mktemp("odd") / "h"
    with HistoryWriter(path) as writer:
        for one in taken:
            writer.add(one)
        writer.add_verdicts([ledger.evaluate(one) for one in taken])
    return str(path)


@pytest.mark.parametrize(
    "words",
    [["conservation"], ["since"], ["diff"], ["sql", "SELECT * FROM machines"], ["sql", f'SELECT 1 AS "{EVIL}"']],
)
@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.by_day(5)
def test_what_a_history_says_cannot_move_the_terminal(
    words: list[str], is_terminal: bool, odd: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(tables, "is_terminal", lambda: is_terminal)
    monkeypatch.setattr(tables, "console", lambda: Console(file=screen, width=300, markup=False, highlight=False))
    name, *more = words
    code, out, err = run(name, odd, *more)
    printed = screen.getvalue() + "\n".join([*out, *err])
    assert code == 0
    assert r"a\x1b[2J\x9b31m" in printed
    assert not FORBIDDEN & {*printed}


# ---- a narrow terminal -------------------------------------------------------------------------------------------------


@pytest.mark.by_day(4)
@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    ("words", "heads"),
    [
        (
            ["conservation"],
            ("detector snapshot total difference holds", "detector first broken difference", "machine unexplained"),
        ),
        (["since"], ("detector holds since seconds",)),
        (["diff"], ("machine field before after",)),
    ],
)
def test_no_line_is_wider_than_the_terminal_and_the_columns_that_matter_stay(
    words: list[str], heads: tuple[str, ...], width: int, history: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    monkeypatch.setattr(tables, "console", lambda: Console(file=screen, width=width, markup=False, highlight=False))
    code, _, _ = run(*words, history)
    printed = screen.getvalue()
    assert code == 0
    assert max(map(len, printed.splitlines())) <= width
    for head in heads:  # in one line: else each row would be a block of lines
        assert re.search(rf"^.*{'.* '.join(map(re.escape, head.split()))}.*$", printed, re.MULTILINE), head
    for snapshot_id in re.findall(r"2026\d{4}T\S*", printed):
        assert re.fullmatch(r"\d{8}T\d{12}Z-\w{6}-\d{6}", snapshot_id), "an id is broken"


@pytest.mark.contract
def test_a_long_value_is_cut_in_a_table_and_whole_in_json(run: Any, rows: Any, tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    with HistoryWriter(tmp_path / "h") as writer:
        for n in range(2):
            state = {"text": f"{n}" + "x" * 5_000}
            writer.add(
                Snapshot.from_rows(
                    snapshot_id=f"s-{n}", sequence=n, started_at=at + timedelta(seconds=n),
                    machines=[{"machine": "m", "state": state}],
                )
            )  # fmt: skip
    folder = str(tmp_path / "h")
    assert "x ... (5,001 characters)" in text(run("diff", folder))
    (row,) = rows("diff", folder)
    assert len(row["after"]) == 5_001
    assert "x ... (5,012 characters)" in text(run("sql", folder, "SELECT state FROM machines"))
