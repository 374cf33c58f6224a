"""The command line over a history: exit codes, JSON lines, one-line errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clean import clean_environment, ran
from deltalake import DeltaTable
from histories import full_snapshot, snapshot, verdict
from once import once
from started import started

from ray_snapshot import Snapshot
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import TABLES


@pytest.fixture
def history(tmp_path: Path) -> str:
    def make(path: Path) -> None:
        with HistoryWriter(path) as writer:
            for number in range(3):
                writer.add(snapshot(number, run_id="run-a"))
            writer.add(snapshot(0, system="ring", run_id="run-b"))
            writer.add(full_snapshot())
            writer.add_verdicts(
                [verdict(f"bank-{number:05d}", holds=number == 2, alarm=number == 2) for number in range(3)]
            )
            writer.add_verdicts([verdict("bank-00002", "termination", holds=None, alarm=False)])
            writer.add_verdicts([verdict("ring-00000", sentence="[red]\x1b[31mred\nline")])

    return str(once(tmp_path / "history", __name__, make))


def test_list_prints_a_row_a_snapshot_earliest_first(run: Any, rows: Any, history: str) -> None:
    ids = ["full-1", "bank-00000", "ring-00000", "bank-00001", "bank-00002"]
    assert [row["snapshot_id"] for row in rows("list", history)] == ids
    code, out, _ = run("list", history)
    assert code == 0
    assert [line.split()[0] for line in out] == ["snapshot", *ids]
    assert rows("list", history, "--system", "ring")[0]["started_at"] == "2026-03-01T23:59:59.500000+00:00"
    assert [row["snapshot_id"] for row in rows("list", history, "--run", "run-b")] == ["ring-00000"]
    assert [row["snapshot_id"] for row in rows("list", history, "--limit", "2")] == ids[-2:]
    assert run("list", history, "--limit", "2")[1][-1] == "(3 earlier snapshots not shown; --limit 0 shows all)"
    assert run("verdicts", history, "--run", "run-a", "--snapshot", "bank-00000", "--alarms")[1][-1] == "no verdicts"


@pytest.mark.parametrize("command", ["list", "verdicts", "since", "conservation"])
def test_a_limit_that_no_number_of_rows_reaches_is_as_good_as_none(run: Any, history: str, command: str) -> None:
    assert run(command, history, "--json", "--limit", "2" * 400) == run(command, history, "--json", "--limit", "0")


def test_verdicts_can_be_filtered(rows: Any, history: str) -> None:
    assert len(rows("verdicts", history)) == 5
    assert [row["detector"] for row in rows("verdicts", history, "--detector", "termination")] == ["termination"]
    assert len(rows("verdicts", history, "--system", "bank")) == 4
    assert len(rows("verdicts", history, "--run", "run-b")) == 1
    assert len(rows("verdicts", history, "--snapshot", "latest", "--system", "bank")) == 2
    found = rows("verdicts", history, "--alarms", "--system", "bank")
    assert [(row["snapshot_id"], row["holds"], row["evidence"]) for row in found] == [
        ("bank-00002", True, {"members": [{"machine": "a"}]})
    ]


def test_text_from_outside_can_neither_colour_nor_break_a_line(run: Any, history: str) -> None:
    code, out, _ = run("verdicts", history, "--system", "ring")
    assert code == 0
    assert len(out) == 2
    assert out[1].endswith("yes (alarm)  [red]\\x1b[31mred line")


def test_show_prints_one_snapshot_bounded(run: Any, rows: Any, history: str) -> None:
    code, out, _ = run("show", history, "bank-00002", "--limit", "2")
    text = "\n".join(out)
    assert code == 0
    for part in ("snapshot_id            bank-00002", "machines (3)", "messages (3)", "verdicts (2)", "... and 1 more"):
        assert part in text, text
    code, out, _ = run("show", history, "full")
    text = "\n".join(out)
    for part in ("1 of a, b", "app.py:12", "waits (2)", "calls (1)", '{"uncovered": ["tasks"]}'):
        assert part in text, text
    (row,) = rows("show", history, "-1", "--system", "bank")
    assert row["snapshot_id"] == "bank-00002"
    assert [machine["state"] for machine in row["machines"]] == [{"balance": 2}] * 3
    assert [len(row[name]) for name in ("channels", "messages", "waits", "calls", "verdicts")] == [3, 3, 0, 0, 2]
    assert rows("show", history)[0]["snapshot_id"] == "bank-00002"


def test_verify_exits_1_and_names_each_snapshot_that_did_not_pass(run: Any, rows: Any, history: str) -> None:
    code, out, said = run("verify", history)
    assert (code, out[0], said) == (0, "5 snapshots verified, all passed", [])
    assert all(line.startswith("not checked: ") for line in out[1:])
    assert all(row["passed"] for row in rows("verify", history))
    DeltaTable(str(Path(history) / "channels")).update({"sent_count": "9"}, predicate="snapshot_id = 'bank-00001'")
    code, out, _ = run("verify", history)
    assert code == 1
    assert out[0].startswith("bank-00001: channel m")
    assert "5 snapshots verified, 1 did not pass" in out
    assert run("verify", history, "--system", "ring")[0] == 0
    code, out, _ = run("verify", history, "--json")
    assert code == 1
    assert [json.loads(line)["snapshot_id"] for line in out if not json.loads(line)["passed"]] == ["bank-00001"]


@pytest.mark.contract
def test_verify_says_how_many_were_given_up(run: Any, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(2, status="aborted", abort_reason="a host died", machine_count=0))
        writer.add(snapshot(3))
    code, out, _ = run("verify", str(tmp_path))
    assert (code, out[0]) == (0, "2 snapshots verified, all passed")
    assert out[1] == "given up, and without rows: 1 of them; `ray-snapshot history list` says why"


@pytest.mark.contract
def test_verify_and_show_say_that_at_least_once_repeats_by_design(run: Any, tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(2, protocol="at-least-once-barrier", consistent=False))
        writer.add(snapshot(3))
    changes = {"accepted_count": "accepted_count + 2", "duplicate_count": "2"}
    assert not any("repeated" in line for line in run("show", str(tmp_path), "bank-00002")[1])
    DeltaTable(str(tmp_path / "channels")).update(changes, predicate="snapshot_id = 'bank-00002'")
    code, out, _ = run("verify", str(tmp_path))
    assert (code, out[0]) == (0, "2 snapshots verified, all passed")
    assert out[1].startswith("1 of them by at-least-once-barrier, not consistent by design: a restore repeats")
    shown = run("show", str(tmp_path), "bank-00002")[1]
    assert any(line.endswith(" repeated") for line in shown)
    assert any(line.split()[:4] == ["consistent", "no,", "by", "design:"] for line in shown)
    assert run("show", str(tmp_path), "bank-00002", "--json")[1][0].count('"consistent":false') == 1
    said = run("witness", str(tmp_path), "bank-00002")[1][0]
    assert said.startswith("snapshot bank-00002 is no consistent cut, by design of at-least-once-barrier: ")


def test_compact_and_vacuum_say_what_they_did(run: Any, rows: Any, history: str) -> None:
    with HistoryWriter(history) as writer:
        writer.add(snapshot(3))
    assert {row["table"]: row["files_removed"] for row in rows("compact", history)}["machines"] == 2
    assert sum(row["files_deleted"] for row in rows("vacuum", history)) == 0, "a week is kept by default"
    assert rows("vacuum", history, "--keep-hours", "0", "--dry-run")[1]["files_deleted"] == 2
    code, out, _ = run("vacuum", history, "--keep-hours", "0")
    assert code == 0
    assert out[2].split() == ["machines", "2"]
    assert run("verify", history)[0] == 0
    for option in ([], ["--dry-run"]):
        again = rows("vacuum", history, "--keep-hours", "0", *option)
        assert [row["files_deleted"] for row in again] == [0] * len(TABLES), "what was deleted is not there"


def test_a_vacuum_that_keeps_files_says_why(run: Any, history: str) -> None:
    with HistoryWriter(history) as writer:
        writer.add(snapshot(3))
    assert not any("kept" in line for line in run("vacuum", history)[1])
    run("compact", history)
    said = run("vacuum", history)[1][-1]
    assert said.endswith("(--keep-hours 0 takes them all)")
    assert said.split()[1:9] == ["replaced", "files", "are", "kept:", "they", "left", "the", "tables"]
    assert said == run("vacuum", history, "--dry-run")[1][-1]
    for option in ("--dry-run", "--json"):
        assert "kept" not in run("vacuum", history, "--keep-hours", "0", option)[1][-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list"], "Missing argument 'HISTORY'"),
        (["lits", "x"], "No such command 'lits'"),
        (["list", "nowhere"], "no history at "),
        (["list", "HISTORY", "--colour"], "No such option"),
        (["list", "HISTORY", "--limit", "many"], "'--limit'"),
        (["vacuum", "HISTORY", "--keep-hours", "-1"], "'--keep-hours'"),
        (["show", "HISTORY", "nothing"], "no snapshot 'nothing' in the history"),
        (["show", "HISTORY", "bank"], "'bank' begins 3 snapshots"),
        (["verdicts", "HISTORY", "--snapshot", "nothing"], "no snapshot 'nothing'"),
        (["list", "HISTORY", "--system", "nope"], "nothing of system 'nope' in the history "),
        (["list", "HISTORY", "--system", "nope"], "; there are: a.b-c_9, bank, ring"),
        (["verify", "HISTORY", "--system", "nope"], "; there are: a.b-c_9, bank, ring"),
        (["show", "HISTORY", "latest", "--system", "nope"], "; there are: a.b-c_9, bank, ring"),
        (["show", "HISTORY", "-9", "--system", "ring"], "no snapshot '-9' of system 'ring'"),
        (["show", "HISTORY", "-9", "--system", "ring"], "it has 1, the latest is ring-00000"),
        (["list", "HISTORY", "--run", "run-x"], "nothing of run 'run-x'"),
        (["verdicts", "HISTORY", "--detector", "nope"], "of detector 'nope'"),
        (["verdicts", "HISTORY", "--detector", "nope"], "; there are: deadlock, termination"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run: Any, history: str, arguments: list[str], message: str) -> None:
    code, out, err = run(*(history if word == "HISTORY" else word for word in arguments))
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].startswith("ray-snapshot: error: ")
    assert message in err[0]


def test_a_damaged_history_is_one_line_and_exit_code_2(run: Any, history: str) -> None:
    (Path(history) / "snapshots" / "_delta_log" / f"{0:020d}.json").write_text("{\n")
    code, out, err = run("list", history)
    assert (code, out, len(err)) == (2, [], 1)
    assert "table snapshots" in err[0]


def test_a_file_without_the_ids_of_snapshots_is_named_by_who_would_rewrite_it(run: Any, history: str) -> None:
    file = next(file for file in History(history).files("messages") if "system=bank" in file)
    pq.write_table(pa.table({"text": ["another's"]}), file)
    code, _, err = run("vacuum", history, "--keep", "1d")
    assert (code, len(err)) == (2, 1)
    assert f"table messages cannot be rewritten: its file '{Path(file).name}' has no column snapshot_id" in err[0]


def test_of_a_snapshot_that_was_removed_it_is_said_that_it_may_have_been(run: Any, tmp_path: Path) -> None:
    history = str(tmp_path / "old")
    assert run("synth", "--machines", "16", "--snapshots", "3", "--out", history)[0] == 0
    first, second, _ = (row.snapshot_id for row in History(history).snapshots())
    removed = "; it may have been removed (`--keep`, `--keep-every`)"
    for option, left in (("--keep-every", f"it has 1, the latest is {first}"), ("--keep", "there are none yet")):
        assert run("vacuum", history, option, "1d")[0] == 0
        code, out, err = run("show", history, second)
        assert (code, out, len(err)) == (2, [], 1)
        assert err[0].endswith(f"{left}{removed}")
    assert removed not in run("show", history, "latest")[2][0]


def execute(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray_snapshot.cli", *arguments]
    return ran(*command, env=clean_environment(**more))


def test_the_installed_command_answers_with_its_exit_code(history: str) -> None:
    failed = execute("show", history, "nothing")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert execute("list", history, "--json", LC_ALL="C", PYTHONUTF8="0").returncode == 0
    helped = execute()
    assert helped.returncode == 0
    assert "witness" in helped.stdout


@pytest.mark.contract
def test_help_loads_nothing_heavy() -> None:
    heavy = ("ray", "pyspark", "deltalake", "pyarrow", "numpy", "rich", "scipy", "pydantic")
    code = (
        "import sys; from ray_snapshot import cli; cli.main(['--help']);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True, env=clean_environment())
    assert out.splitlines()[-1] == "[]"


def test_a_reader_that_has_seen_enough_ends_the_output_quietly(history: str) -> None:
    command = [sys.executable, "-m", "ray_snapshot.cli", "list", history, "--json"]
    with started(command, env=clean_environment()) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 1


def test_control_c_ends_with_130_and_no_traceback(run: Any, history: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(History, "verify", interrupted)
    assert run("verify", history) == (130, [], [])


@pytest.mark.contract
def test_what_a_machine_waits_for_several_times_is_named_once(run: Any, tmp_path: Path) -> None:
    driver = {"machine": "driver", "waits_for": ["work()", "work-3", *["work()"] * 18]}
    with HistoryWriter(tmp_path / "h") as writer:
        writer.add(Snapshot.from_rows(machines=[driver, {"machine": "work-3"}], snapshot_id="s-1"))
    code, out, err = run("show", str(tmp_path / "h"), "s-1")
    assert (code, err) == (0, [])
    assert any("all of work() (19 times), work-3" in line for line in out)
