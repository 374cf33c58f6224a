"""`tests/histories/before`, made on 29 November 2026, stays readable by every later version, in a folder and in a store.

It has three runs of two systems: `bank` with a trace and asked by every detector; `bank` with checkpoints, rolled back once;
`desks`, an app that was watched, with a redacted field and a deadlock. `program_of_before.py` made it.
"""

import json
import pickletools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import clean_environment, on_cluster, ran
from stored import Store, environment

from ray_snapshot import cli, detectors
from ray_snapshot.addresses import parse
from ray_snapshot.history import History, checkpoints, objects
from ray_snapshot.schema import TABLES
from ray_snapshot.spark_jobs import JOBS

HISTORIES = Path(__file__).parents[1] / "histories"
BEFORE = HISTORIES / "before"
MACHINES = str(HISTORIES / "machines_of_before.py")
KEY = "the key of the history of before"
PROGRAM = str(Path(sys.executable).with_name("ray-snapshot"))

SNAPSHOTS = {"bank": 20, "desks": 6}
VERDICTS = 154
KINDS = {
    *("callable", "deadlock", "garbage", "infeasible", "orphaned-wait", "reached", "termination"),
    *("token-conservation", "unique-token", "virtual-time"),
}


def put(address: str) -> None:
    top = parse(address, ValueError)  # type: ignore[type-var]
    for path in BEFORE.rglob("*"):
        if path.is_file():
            objects.put(top / path.relative_to(BEFORE).as_posix(), path.read_bytes())


@pytest.fixture(scope="module")
def stored(store: Store) -> str:
    return store.filled(put)


@pytest.fixture(params=["folder", "store"])
def history(request: pytest.FixtureRequest) -> str:
    if request.param == "folder":
        return str(BEFORE)
    request.getfixturevalue("bucket")
    return str(request.getfixturevalue("stored"))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    def run(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        code = cli.main([*arguments, "--json"])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.fixture
def its_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What its machines, and a detector of its own, are defined in."""
    monkeypatch.syspath_prepend(str(HISTORIES))
    yield
    sys.modules.pop("machines_of_before", None)


def traced() -> list[str]:
    found = History(BEFORE)
    (run,) = set(found.table("actions")["run_id"].to_pylist())
    return [row.snapshot_id for row in found.snapshots(run_id=run)]


def saved() -> str:
    return History(BEFORE).restorable()[0]


def test_list_show_verdicts_and_verify(
    history: str, said: Callable[..., Any], its_modules: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(checkpoints.KEY_VARIABLE, KEY)
    code, listed = said("list", history, "--limit", "0")
    assert code == 0
    assert Counter(row["system"] for row in listed) == SNAPSHOTS
    assert len({row["run_id"] for row in listed}) == 3
    code, verified = said("verify", history)
    assert (code, [row["snapshot_id"] for row in verified]) == (0, [row["snapshot_id"] for row in listed])
    code, verdicts = said("verdicts", history, "--limit", "0")
    assert (code, len(verdicts)) == (0, VERDICTS)
    held = {row["detector"] for row in verdicts if row["holds"]}
    assert {"deadlock", "infeasible", "conservation", "solvent"} <= held
    shown = [said("show", history, row["snapshot_id"]) for row in (listed[0], listed[-1])]
    assert [code for code, _ in shown] == [0, 0]
    assert '{"$redacted": "password"}' in json.dumps(shown)
    assert "opensesame" not in json.dumps(shown)


def test_each_row_of_each_table_is_read() -> None:
    found = History(BEFORE)
    assert [name for name in TABLES if not found.table(name).num_rows] == []
    assert {row.restored_from for row in found.snapshots()} == {None, saved()}
    for row in found.snapshots():
        taken = found.load(row.snapshot_id)
        assert len(taken.machines) == row.machine_count


@pytest.mark.contract
def test_the_traced_run_is_witnessed_and_blamed(said: Callable[..., Any], its_modules: None) -> None:
    for snapshot in traced():
        code, answer = said("witness", str(BEFORE), snapshot, "--module", MACHINES)
        assert (code, answer[-1]["problem"]) == (0, None), answer[-1]
    blame = ("blame", str(BEFORE), traced()[-1], "--module", MACHINES, "--detector")
    code, (answer,) = said(*blame, "conservation")
    assert (code, answer["was_right"], answer["actions"]) == (0, True, 80)
    code, (answer,) = said(*blame, "machines_of_before:modest")
    assert (code, answer["machine"], answer["number"], answer["after"]["balance"]) == (1, "account-2", 4, 115)


@pytest.mark.ray
@pytest.mark.parametrize("place", ["folder", pytest.param("store", marks=pytest.mark.nightly)])
def test_it_is_restored_and_its_handles_lead_to_its_machines(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    """The program's new history is a folder; from the store it goes on with a Ray of its own."""
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if place == "folder":
            request.getfixturevalue("ray_cluster")
            source, variables = str(BEFORE), on_cluster(ray.get_runtime_context().gcs_address)
        else:
            store = request.getfixturevalue("store")
            source = request.getfixturevalue("stored")
            variables = clean_environment(**environment(store.address), RAY_TMPDIR=folder)
        done = ran(
            PROGRAM,
            "restore",
            source,
            saved(),
            "program_of_before.py",
            str(tmp_path / "new"),
            "saved",
            env={**variables, checkpoints.KEY_VARIABLE: KEY},
            cwd=HISTORIES,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "restored_from": saved(),
        "total": 300,
        "signed": ["<machine notary-clerk>", "time", [1, 2]],
        "counted": 40,
        "rows": [number * number for number in range(40)],
    }


NEEDS: dict[str, dict[str, Any]] = {
    "detections": {"trust": True},
    "possibly": {"predicate": "machines_of_before:is_rich", "modules": ["machines_of_before"]},
}
"""What a job is asked with."""


@pytest.mark.spark
@pytest.mark.by_day(1)
@pytest.mark.parametrize("job", JOBS)
def test_every_job_reads_it(spark: Any, its_modules: None, job: str) -> None:
    answer = import_module(f"ray_snapshot.spark_jobs.{job}").run(spark, History(BEFORE), **NEEDS.get(job, {}))
    frame = answer["fields" if job == "changes" else next(iter(answer))]
    rows = frame.toArrow().to_pylist()
    assert rows
    if job == "detections":
        assert {row["disagreements"] for row in rows} == {0}
    elif job == "deadlocks":
        assert sorted(row["machines"] for row in rows) == [["Desk-0", "Desk-1"], ["Desk-2"]]
    elif job == "possibly":
        assert {row["holds"] for row in rows} == {True, None}  # two runs have no trace


@pytest.mark.spark
def test_the_data_source_reads_it(spark: Any) -> None:
    for name in TABLES:
        count = spark.read.format("ray_snapshot").option("table", name).load(str(BEFORE)).count()
        assert count == History(BEFORE).table(name).num_rows, name


PICKLED = {
    "ray_snapshot.runtime.handles": {"handle_of"},
    "ray_snapshot.runtime.mixin": {"SnapshotMixin"},
    "ray_snapshot.pipelines.sources": {"Source"},
    "ray_snapshot.pipelines.readers": {"Generated"},
}
"""What of ours the pickles of its checkpoints name, by module."""

ALSO = {
    "ray_snapshot.pipelines.readers": {"ParquetFolder", "TextFile"},
    "ray_snapshot.pipelines.sinks": {"DeltaSink", "ParquetSink"},
    "ray_snapshot.pipelines.upsert": {"UpsertSink"},
}
"""What users' checkpoints may name beside that: classes that are spawned as they are."""


def named_in(pickle: bytes) -> Iterator[tuple[str, str]]:
    """(module, name) of all that a pickle names, and those inside it."""
    pushed: list[Any] = []
    memo: list[Any] = []
    for code, value, _ in pickletools.genops(pickle):
        if code.name == "MEMOIZE":
            memo.append(pushed[-1])
            continue
        if code.name == "STACK_GLOBAL":
            yield pushed[-2], pushed[-1]
        elif isinstance(value, bytes) and value[:1] == b"\x80" and value[-1:] == b".":
            yield from named_in(value)
        pushed.append(memo[value] if code.name in ("BINGET", "LONG_BINGET") else value)


def test_what_checkpoints_name_stays_where_it_is() -> None:
    found: dict[str, set[str]] = {}
    for snapshot in History(BEFORE).restorable():
        for section in checkpoints.read(str(BEFORE), snapshot, KEY.encode()).sections:
            for module, name in named_in(section):
                if module.startswith("ray_snapshot"):
                    found.setdefault(module, set()).add(name)
    assert found == PICKLED
    for module, names in [*PICKLED.items(), *ALSO.items()]:
        assert [name for name in names if not hasattr(import_module(module), name)] == []


@pytest.mark.contract
def test_every_detector_of_its_verdicts_can_be_loaded(its_modules: None) -> None:
    specs = {row.detector: row.detector_spec for row in History(BEFORE).verdicts()}
    assert {spec["type"] for spec in specs.values()} == KINDS
    assert {name: detectors.from_spec(spec).name for name, spec in specs.items()} == {name: name for name in specs}
