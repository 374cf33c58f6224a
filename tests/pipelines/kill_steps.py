"""Kill a process at every change that a sink makes to its output, one after the other, and see what is left.

Run as a script: `kill_steps.py SCENARIO KIND FOLDER`. The moments are found as in `tests/history/crash_steps.py`: whenever the
files are no longer what they were. There is no Ray: a loop here takes the snapshots, keeps them in a file as the
runtime does, and tells the sink. Prints one JSON object a step: what could be seen behind the crash, and at the end of
a second process that goes on from the last snapshot that was kept.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "history"))

import crash_steps

import ray_snapshot.pipelines
from ray_snapshot.pipelines.delta import DeltaOutput
from ray_snapshot.pipelines.two_phases import Committer, Folder

crash_steps.CODE = os.path.dirname(ray_snapshot.pipelines.__file__)

SCHEMA = pa.schema([("n", pa.int64())])
OUTPUTS: dict[str, Callable[[str, pa.Schema], Any]] = {"folder": Folder, "delta": DeltaOutput}
ROWS = 20

pa.array([0])  # imports pandas, if it is there, once for all forks


class Program:
    """A source that counts, a sink, and a snapshot file; what is given up goes with the next one that is kept."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        output = OUTPUTS[kind](str(path / "out"), SCHEMA)
        kept = self.kept()
        if kept is None:
            self.position, self.sink = 0, Committer.begun(output, "sink")
        else:
            self.position, self.sink = kept["position"], Committer.restored(output, kept["ledger"])

    def kept(self) -> Any:
        file = self.path / "kept.json"
        return json.loads(file.read_text()) if file.exists() else None

    def work(self, rows: int = 2) -> None:
        for number in range(self.position, min(ROWS, self.position + rows)):
            self.sink.write([{"n": number}])
        self.position = min(ROWS, self.position + rows)

    def record(self) -> dict[str, Any]:
        return {"ledger": self.sink.stage(), "position": self.position}

    def keep(self, state: dict[str, Any], name: str = "kept.json") -> None:
        begun = self.path / f".{name}"
        begun.write_text(json.dumps(state))
        begun.rename(self.path / name)

    def snapshot(self) -> None:
        state = self.record()
        self.keep(state)
        self.sink.commit(state["ledger"])

    def finish(self) -> None:
        while self.position < ROWS:
            self.work(10)
            self.snapshot()
        self.snapshot()


def commits(path: Path, kind: str) -> None:
    """One snapshot after the other; one that nobody keeps; two that overlap, the second of which is kept first."""
    program = Program(path, kind)
    program.work()
    program.snapshot()
    program.work()
    program.record()  # given up
    program.work()
    program.snapshot()
    program.work()
    first = program.record()
    program.work()
    second = program.record()
    program.keep(second)
    program.sink.commit(second["ledger"])
    program.sink.commit(first["ledger"])
    program.work()
    program.record()  # given up, and nothing comes behind it here
    program.work()


def goes_back(path: Path, kind: str) -> None:
    """From a snapshot behind which others have been published and staged: what they hold is taken back."""
    Program(path, kind).finish()


def base(path: Path, kind: str, scenario: str) -> None:
    path.mkdir()
    if scenario == "commits":
        return
    program = Program(path, kind)
    program.work()
    program.snapshot()
    program.work()
    old = program.record()
    program.keep(old)  # and killed before the sink was told
    program.work()
    program.keep(program.record())
    program.sink.commit(program.record()["ledger"])  # a later one was published, too
    program.work()
    program.record()
    program.keep(old)


SCENARIOS = {"commits": commits, "goes-back": goes_back}


def visible(path: Path, kind: str) -> list[int]:
    out = path / "out"
    if kind == "delta":
        if not deltalake.DeltaTable.is_deltatable(str(out)):
            return []
        files = [Path(uri) for uri in deltalake.DeltaTable(str(out)).file_uris()]
    else:
        files = [file for file in out.glob("*.parquet") if file.name[0] not in "_."]
    return sorted(value for file in files for value in pq.read_table(file)["n"].to_pylist())


def seen(path: Path, kind: str) -> dict[str, Any]:
    kept = path / "kept.json"
    return {"rows": visible(path, kind), "kept": json.loads(kept.read_text())["position"] if kept.exists() else 0}


def after_restart(path: Path, kind: str) -> dict[str, Any]:
    Program(path, kind).finish()
    waiting = [file.name for place in ("_staged", "_rejected") for file in (path / "out" / place).iterdir()]
    return {"rows": visible(path, kind), "waiting": sorted(waiting)}


def main(scenario: str, kind: str, folder: str) -> None:
    pristine, copy = Path(folder) / "base", Path(folder) / "copy"
    forked, work = crash_steps.forked, SCENARIOS[scenario]

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(pristine, copy)
        return copy

    def of_kind(path: Path) -> None:
        work(path, kind)

    assert forked(lambda: base(pristine, kind, scenario))[0] == 0
    code, steps = forked(lambda: crash_steps.steps_of(fresh(), of_kind))
    assert code == 0, f"{scenario} failed by itself"
    for step, where in steps:
        fresh()
        code, _ = forked(lambda step=step: crash_steps.run_until(copy, of_kind, step))  # type: ignore[misc]
        found = {"where": where, "code": code, "left": forked(lambda: seen(copy, kind))[1]}
        print(json.dumps({**found, "restarted": forked(lambda: after_restart(copy, kind))[1]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
