"""Sources and sinks in a running system: what shows, and when, if it goes back, and if sinks die at the worst moments."""

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.exceptions import RayActorError
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors, pipelines

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

BOUND_S = 60.0
SCHEMA = pa.schema([("line", pa.string())])


class Everywhere(pipelines.Source):
    def emit(self, rows: list[Any]) -> None:
        for target in self.targets:
            target.write.send([{"line": str(row)} for row in rows])

    def where(self) -> Any:
        return self.position


class Doomed:
    """Its process dies once at each of these moments of a sink; a file remembers which have been."""

    MOMENTS = ("before staging", "behind staging", "before publishing", "behind publishing", "when restored")

    def snapshot_state(self) -> Any:
        self.die("before staging")
        found = super().snapshot_state()  # type: ignore[misc]
        self.die("behind staging")
        return found

    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        self.die("before publishing")
        super().snapshot_kept(snapshot_id, state)  # type: ignore[misc]
        self.die("behind publishing")

    def restore_state(self, state: Any) -> None:
        super().restore_state(state)  # type: ignore[misc]
        self.die("when restored")

    def die(self, moment: str) -> None:
        deaths = Path(self.path).with_suffix(".deaths")  # type: ignore[attr-defined]
        known = deaths.read_text().splitlines() if deaths.exists() else []
        if self._has_rows() and moment not in known:  # the first snapshot of the system must be taken
            deaths.write_text("\n".join([*known, moment]))
            os._exit(9)

    def _has_rows(self) -> bool:
        committer = self._committer  # type: ignore[attr-defined]
        return bool(committer.rows or committer.ledger.last)


class DoomedParquetSink(Doomed, pipelines.ParquetSink):
    """See `Doomed`."""


class DoomedDeltaSink(Doomed, pipelines.DeltaSink):
    """See `Doomed`."""


class Auditor(rs.SnapshotMixin):
    """When it hears of a snapshot, it looks whether another program could go on from it."""

    def __init__(self, history: str) -> None:
        self.history = history
        self.found: list[bool] = []

    def snapshot_state(self) -> Any:
        return self.history

    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        self.found.append(rs.History(self.history).resolve("latest") >= snapshot_id)

    def what_was_found(self) -> list[bool]:
        return self.found


def in_folder(path: Path) -> list[str]:
    return sorted(line for file in path.glob("*.parquet") for line in pq.read_table(file)["line"].to_pylist())


def in_delta(path: Path) -> list[str]:
    files = deltalake.DeltaTable(str(path)).file_uris()
    return sorted(line for file in files for line in pq.read_table(Path(file))["line"].to_pylist())


def in_sqlite(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [line for (line,) in connection.execute("SELECT line FROM rows ORDER BY line")]


def await_position(source: Any, offset: int) -> None:
    until(lambda: (ray.get(source.where.remote()) or {}).get("offset", 0) >= offset)


@pytest.mark.contract
@pytest.mark.nightly
def test_a_file_that_grows_shows_in_three_sinks_and_goes_back_with_the_system(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("1\n2\nhal")
    with rs.System("growing", checkpoint=True, detectors=[]) as system:
        folder = system.spawn(pipelines.ParquetSink, tmp_path / "folder", SCHEMA, name="folder", role="sink")
        delta = system.spawn(pipelines.DeltaSink, tmp_path / "delta", SCHEMA, name="delta", role="sink")
        keyed = system.spawn(pipelines.UpsertSink, tmp_path / "keyed.sqlite", ["line"], [], name="keyed", role="sink")
        reader = pipelines.TextFile(str(text), follow=True)
        source = system.spawn(Everywhere, reader, [folder, delta, keyed], poll_s=0.02, name="source", role="source")
        system.start()
        source.begin.send()
        await_position(source, 4)
        assert in_folder(tmp_path / "folder") == in_delta(tmp_path / "delta") == []
        first = system.commit()
        shown = in_folder(tmp_path / "folder")
        assert set(shown) <= {"1", "2"}  # what was in flight to a sink comes with the next one
        with text.open("a") as file:
            file.write("f\n4\n")
        await_position(source, text.stat().st_size)
        system.commit()
        system.commit()
        assert in_folder(tmp_path / "folder") == in_delta(tmp_path / "delta") == ["1", "2", "4", "half"]
        system.restore(first)
        assert in_folder(tmp_path / "folder") == shown
        with text.open("a") as file:
            file.write("the end")
        ray.get(source.finish.remote())
        system.wait_for(detectors.Termination(), timeout=BOUND_S)
        system.commit()
        whole = ["1", "2", "4", "half", "the end"]
        assert in_folder(tmp_path / "folder") == in_delta(tmp_path / "delta") == whole
        assert in_sqlite(tmp_path / "keyed.sqlite") == whole


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("kind", [DoomedParquetSink, DoomedDeltaSink])
def test_sinks_that_die_at_the_worst_moments_show_everything_once(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "the key of these tests")
    settings: dict[str, Any] = {"recover": "rollback", "every": 0.2, "most_failures": 100, "detectors": []}
    with rs.System("dying", history=tmp_path / "history", **settings) as system:
        doomed = system.spawn(kind, tmp_path / "doomed", SCHEMA, name="doomed", role="sink")
        other = system.spawn(pipelines.ParquetSink, tmp_path / "other", SCHEMA, name="other", role="sink")
        reader = pipelines.Generated(range, (300,))
        source = system.spawn(Everywhere, reader, [doomed, other], batch=5, pause_s=0.02, name="source", role="source")
        system.start()
        source.begin.send()
        system.wait_for(detectors.Termination(), timeout=2 * BOUND_S)
        system.commit(timeout=2 * BOUND_S)
    whole = sorted(map(str, range(300)))
    assert in_folder(tmp_path / "other") == whole
    assert (in_delta if kind is DoomedDeltaSink else in_folder)(tmp_path / "doomed") == whole
    assert set((tmp_path / "doomed.deaths").read_text().splitlines()) == set(Doomed.MOMENTS)


@pytest.mark.nightly
def test_the_service_the_analyst_and_sinks_are_killed_at_random_and_everything_shows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A service may die between a snapshot's being kept and the sinks' hearing of it: the next one knows no less."""
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "the key of these tests")
    chance = random.Random(seed)
    settings: dict[str, Any] = {"recover": "rollback", "every": 0.2, "most_failures": 100, "detectors": []}
    with rs.System("bereft", history=tmp_path / "history", **settings) as system:
        folder = system.spawn(pipelines.ParquetSink, tmp_path / "folder", SCHEMA, name="folder", role="sink")
        delta = system.spawn(pipelines.DeltaSink, tmp_path / "delta", SCHEMA, name="delta", role="sink")
        reader = pipelines.Generated(range, (400,))
        source = system.spawn(Everywhere, reader, [folder, delta], batch=5, pause_s=0.05, name="source", role="source")
        system.start()
        source.begin.send()
        for _ in range(8):
            time.sleep(chance.uniform(0.2, 1.5))
            kill(
                chance.choice(
                    [lambda: system._service] * 2 + [lambda: system._analyst, lambda: system._spawner.hosts["host-0"]]
                )
            )
        system.wait_for(detectors.Termination(), timeout=2 * BOUND_S)
        system.commit(timeout=2 * BOUND_S)
    whole = sorted(map(str, range(400)))
    assert in_folder(tmp_path / "folder") == whole
    assert in_delta(tmp_path / "delta") == whole


def kill(victim: Callable[[], Any]) -> None:
    """Kill -9, as soon as there is a process to kill; what has just died is replaced by another actor."""

    def killed() -> bool:
        os.kill(ray.get(victim().__ray_call__.remote(lambda _: os.getpid()), timeout=BOUND_S), signal.SIGKILL)
        return True

    until(killed, again=(RayActorError, ProcessLookupError), seconds=BOUND_S)


@pytest.mark.contract
def test_what_anybody_hears_of_or_commits_the_history_lists_already(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with rs.System("listed", history=history, recover="rollback", detectors=[]) as system:
        auditor = system.spawn(Auditor, str(history), name="auditor")
        system.start()
        last = system.commit()
        assert rs.History(history).resolve("latest") == last.snapshot_id
        found = ray.get(auditor.what_was_found.remote(), timeout=BOUND_S)
        assert found
        assert all(found)
