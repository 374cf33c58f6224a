"""Whatever stands in a history, no command imports it, constructs it or unpickles it, unless the user says so."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hostile_commands import PAGES, READING, as_process, commands_on_histories, lines
from hostile_histories import MODULE, Sentinel, crafted
from viewing import viewer

from ray_snapshot import cli
from ray_snapshot.commands import consent
from ray_snapshot.spark_jobs import JOBS


@pytest.fixture
def sentinel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sentinel]:
    found = Sentinel(tmp_path)
    monkeypatch.chdir(found.program)
    monkeypatch.syspath_prepend(str(found.program))
    yield found
    assert found.executed == ""


def test_every_command_that_takes_a_history_is_tried() -> None:
    assert commands_on_histories() == {*READING}


@pytest.mark.parametrize("name", sorted({*READING} - {"run", "restore", "analyze"}))
@pytest.mark.by_day(4)
def test_no_command_executes_what_a_history_names(
    name: str, sentinel: Sentinel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crafted(tmp_path / "h", sentinel)
    for line in lines(name, tmp_path / "h"):
        assert cli.main(line) in (0, 1, 2, 4)
        assert "Traceback" not in "".join(capsys.readouterr())


def test_no_page_executes_what_a_history_names(sentinel: Sentinel, tmp_path: Path) -> None:
    crafted(tmp_path / "h", sentinel)
    with viewer(tmp_path / "h") as seen:
        for path in PAGES:
            assert seen.client.get(path).status_code in (200, 404, 500), path


@pytest.mark.parametrize("name", ["run", "restore", "witness", "show"])
@pytest.mark.by_day(1)
def test_no_command_executes_it_in_a_process_of_its_own(name: str, sentinel: Sentinel, tmp_path: Path) -> None:
    crafted(tmp_path / "h", sentinel)
    for line in lines(name, tmp_path / "h"):
        done = as_process(line, sentinel.program, PYTHONPATH=str(sentinel.program), RAY_SNAPSHOT_KEY="k" * 32)
        assert "Traceback" not in done.stderr
        assert done.returncode == {"run": 0, "restore": 2, "witness": 2, "show": 0}[name], done.stderr


@pytest.mark.parametrize("trust", [[], ["--trust"], ["--module", "subprocess"]])
@pytest.mark.parametrize("name", ["subprocess:Popen", "os:system", "ray_snapshot.witness.modules:sys.modules"])
def test_the_witness_constructs_no_class_but_machines_even_if_trusted(
    name: str, trust: list[str], sentinel: Sentinel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crafted(tmp_path / "h", sentinel, class_name=name)
    (sentinel.program / f"{MODULE}.py").write_text("class Thing: pass\n")
    assert cli.main(["witness", str(tmp_path / "h"), "latest", *trust]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert any(
        text in said for text in ("is no class of machines", "named by the history alone", "is defined in", "of class")
    )


def test_the_witness_runs_what_the_user_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentinel = Sentinel(tmp_path)
    crafted(tmp_path / "h", sentinel)
    done = as_process(["witness", str(tmp_path / "h"), "latest"], sentinel.program)
    assert (done.returncode, sentinel.executed) == (2, "")
    assert f"{MODULE}:Machine is named by the history alone" in done.stderr
    assert "--module" in done.stderr
    assert "--trust" in done.stderr
    for agreed in (["--trust"], ["--module", MODULE], ["--module", str(sentinel.program / f"{MODULE}.py")]):
        sentinel.file.unlink(missing_ok=True)
        as_process(["witness", str(tmp_path / "h"), "latest", *agreed], sentinel.program)
        assert sentinel.executed == "imported ", agreed


BY_DAY = {"detections"}
"""The job that loads detectors, which could be code; the others are tried at night."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "job", [job if job in BY_DAY else pytest.param(job, marks=pytest.mark.nightly) for job in JOBS]
)
def test_no_spark_job_executes_what_a_history_names(job: str, spark: Any, sentinel: Sentinel, tmp_path: Path) -> None:
    from ray_snapshot.spark_jobs.engine.command import _options
    from ray_snapshot.spark_jobs.engine.request import Request
    from ray_snapshot.spark_jobs.tables import Selection

    history = crafted(tmp_path / "h", sentinel)
    module = import_module(f"ray_snapshot.spark_jobs.{job}")
    needed = {"conservation": {"state": "$.balance"}, "possibly": {"predicate": "deadlock"}}.get(job, {})
    options = _options(module, Request(str(history.path), job, **needed))
    prepare = getattr(module, "prepare", lambda history, selection, **options: options)
    for frame in module.run(spark, history, str(tmp_path / "out"), **prepare(history, Selection(), **options)).values():
        frame.toArrow()


@pytest.mark.spark
def test_detections_says_what_it_did_not_import_and_imports_it_if_trusted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_snapshot.spark_jobs import detections

    sentinel = Sentinel(tmp_path)
    monkeypatch.syspath_prepend(str(sentinel.program))
    history = crafted(tmp_path / "h", sentinel)

    def found(**more: Any) -> dict[str, dict[str, Any]]:
        rows = detections.run(spark, history, **more)["detectors"].toArrow().to_pylist()
        return {row["detector"]: row for row in rows if row["run_id"] == "run-a"}

    assert found()["d0"]["failed"] == 2
    assert f"{MODULE}:detector, which the history alone names" in found()["d0"]["failure"]
    assert detections.named_code(history) == {f"{MODULE}:detector", "subprocess:Popen"}
    assert sentinel.executed == ""
    trusted = found(trust=True)
    assert (trusted["detector"]["held"], trusted["d3"]["failed"]) == (2, 2)


def test_consent_is_asked_for_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, err: asked.append(text) or True)
    assert not consent.is_given(False, {"evil:name"}, "h/")
    assert consent.is_given(True, {"evil:name"}, "h/")
    assert asked == []
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert consent.is_given(False, {"evil:\x1b[2Jname"}, "h/")
    assert not consent.is_given(False, set(), "h/")
    assert len(asked) == 1
    assert "\x1b" not in asked[0]
