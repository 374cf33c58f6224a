"""Hosts that write their own parts of a history, on Ray: the same rows, whoever is killed, and when."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from towns import files_of, strays
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.history import History, HistoryWriter, commits, files, host_files
from ray_snapshot.runtime.host.config import OWN_PARTS
from ray_snapshot.runtime.host.own_parts import OwnParts
from ray_snapshot.snapshot import Snapshot

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

COINS = detectors.TokenConservation(state={"Purse": "$.coins"}, messages={"add": "$[0]"})


class Purse(rs.SnapshotMixin):
    """Holds coins."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def add(self, coins: int) -> None:
        self.coins += coins

    def pay(self, target: rs.MachineHandle, coins: int) -> None:
        self.coins -= coins
        target.add.send(coins)

    def pid(self) -> int:
        return os.getpid()


def at_rest(system: rs.System, count: int) -> Snapshot:
    """A snapshot in which so many machines are at rest, and whose rows have stayed with their hosts."""
    for _ in range(10):
        taken = system.snapshot()
        absent = taken.parted[1]
        if absent is not None and absent.count >= count:
            return taken
    raise AssertionError("no machine came to rest")


def wrong_with(path: Path) -> list[str]:
    return [problem for _, problems in History(path).verify() for problem in problems]


def facts(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    """What is the same in every run."""
    columns = ("machine", "class_name", "host", "status", "state", "accepted_count", "sent_count")
    rows = snapshot.tables["machines"].select(list(columns)).to_pylist()
    return [tuple(row.values()) for row in rows]


def spent(path: Path, own_from: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[Any, ...]], Snapshot]:
    """Some payments; what the last snapshot has, and the snapshot, whose system is closed."""
    monkeypatch.setenv(OWN_PARTS, own_from)
    with rs.System("own-parts", history=path, detectors=[detectors.Termination(), COINS]) as system:
        purses = system.spawn_many(Purse, [(10,) for _ in range(40)], per_host=20)
        system.start()
        for at in range(5):
            purses[at].pay.send(purses[20 + at], at)
            system.wait_for("termination", timeout=60)
        last = at_rest(system, 30) if own_from == "1" else system.snapshot()
        assert system.wait_for(COINS, timeout=60).holds is True
        system.write_history()
        listed = History(path).load(last.snapshot_id)
        if own_from == "1":
            assert last.parted[1] is not None, "nobody has asked for its rows"
        assert last.tables["machines"].equals(listed.tables["machines"])
        found = facts(listed)
    return found, last


@pytest.mark.nightly
def test_rows_that_hosts_write_are_those_that_the_analyst_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (by_hosts, _), (by_analyst, _) = (spent(tmp_path / own, own, monkeypatch) for own in ("1", "0"))
    assert by_hosts == by_analyst
    for own in ("1", "0"):
        path = tmp_path / own
        assert (wrong_with(path), strays(path)) == ([], [])
        said = [(one.holds, one.sentence) for one in History(path).verdicts(detector="conservation")]
        assert {holds for holds, _ in said[1:]} == {True}, said  # the first has nothing to be compared with
    assert max(_hosts_in_a_file(tmp_path / "0")) == 3, "two hosts and the driver"
    assert min(_hosts_in_a_file(tmp_path / "1")) == 1


def _hosts_in_a_file(path: Path) -> list[int]:
    from ray_snapshot.history import tables

    return [len(tables.scan("machines", [file])["host"].unique()) for file in files_of(path)]


def test_what_a_dead_host_had_is_read_from_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_PARTS, "1")
    system = rs.System("own-parts", history=tmp_path, detectors=[])
    purses = system.spawn_many(Purse, [(10,) for _ in range(4)])
    system.start()
    taken = at_rest(system, 4)
    system.write_history()
    os.kill(ray.get(purses[0].pid.remote(), timeout=60), signal.SIGKILL)
    assert taken.machines["Purse-2"].state == {"coins": 10}
    with pytest.raises(rs.HostDiedError):
        system.snapshot(timeout=20)
    with suppress(rs.RaySnapshotError):
        system.close()
    assert (wrong_with(tmp_path), strays(tmp_path)) == ([], [])


# ---- killed at each step -------------------------------------------------------------------------------------------------


def end(*pids: int) -> Callable[..., None]:
    """Kills these processes, its own last."""

    def killing(*_: Any, **__: Any) -> None:
        for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
            os.kill(pid, signal.SIGKILL)
        while os.getpid() in pids:  # until it takes effect
            signal.pause()

    return killing


def behind(work: Any, killing: Callable[..., None]) -> Any:
    def both(*args: Any, **more: Any) -> Any:
        found = work(*args, **more)
        killing()
        return found

    return both


class Armed(Purse):
    """Kills processes at a step of what its host does for the history."""

    def arm(self, step: str, pids: list[int]) -> None:
        killing = end(*pids)
        match step:
            case "before the file":
                OwnParts.give = killing  # type: ignore[method-assign,assignment]
            case "while writing":
                files.FileWriter.finished = killing  # type: ignore[method-assign,assignment]
            case "behind the file":
                OwnParts.give = behind(OwnParts.give, killing)  # type: ignore[method-assign]
            case "behind the commit":
                OwnParts.release = killing  # type: ignore[method-assign,assignment]


class Arming:
    """A detector that tells its process's id, and kills processes at a step of what the analyst does for the history."""

    stable, alarm_when, spec = False, None, None

    def __init__(self, step: str = "nowhere", pids: tuple[int, ...] = (), with_own: bool = False) -> None:
        self.name = f"arming-{step.replace(' ', '-')}"
        self.step, self.pids, self.with_own = step, pids, with_own
        self.is_armed = False

    def evaluate(self, snapshot: Snapshot) -> Any:
        if self.is_armed:
            return True, {"pid": os.getpid()}
        self.is_armed = True
        killing = end(*self.pids, *([os.getpid()] if self.with_own else []))
        append = commits.append

        def appending(path: Any, name: str, *given: Any, **more: Any) -> None:
            if self.step == "behind the report" and name == host_files.TABLE:
                killing()
            append(path, name, *given, **more)
            if self.step == f"behind {name}":
                killing()

        commits.append = appending
        return True, {"pid": os.getpid()}


IN_HOST = ("before the file", "while writing", "behind the file", "behind the commit")
IN_ANALYST = ("behind the report", "behind machines", "behind snapshots")


@pytest.mark.nightly
@pytest.mark.parametrize("who", ["host", "analyst", "both"])
@pytest.mark.parametrize("step", [*IN_HOST, *IN_ANALYST])
def test_a_kill_at_any_step_leaves_no_row_twice_and_none_lost(
    tmp_path: Path, step: str, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_PARTS, "1")
    telling = Arming()
    system = rs.System("own-parts", history=tmp_path, detectors=[telling])
    armed = system.spawn_many(Armed, [(10,) for _ in range(20)], per_host=10)
    system.start()
    at_rest(system, 15)
    system.write_history()
    committed = {row.snapshot_id for row in History(tmp_path).snapshots()}
    host = ray.get(armed[0].pid.remote(), timeout=60)
    analyst = History(tmp_path).verdicts()[-1].evidence["pid"]
    pids = [pid for pid, name in ((host, "host"), (analyst, "analyst")) if who in (name, "both")]
    if step in IN_HOST:
        ray.get(armed[0].arm.remote(step, pids), timeout=60)
    else:
        killed = tuple(pid for pid in pids if pid != analyst)
        with suppress(rs.RaySnapshotError):
            system.wait_for(Arming(step, killed, analyst in pids), timeout=60)
    with suppress(rs.RaySnapshotError):
        for _ in range(3):
            at_rest(system, 9)
        system.write_history()
    with suppress(rs.RaySnapshotError):
        system.close()
    _wait_until_gone([host, analyst])

    HistoryWriter(tmp_path, system="own-parts").close()
    history = History(tmp_path)
    listed = {row.snapshot_id: row for row in history.snapshots()}
    assert committed <= listed.keys()
    assert {listed[one].status for one in committed} == {"complete"}
    assert wrong_with(tmp_path) == []
    whole = sum(row.machine_count for row in listed.values())
    assert history.table("machines").num_rows == whole, "none twice, none of what is not listed"
    assert history.stored.read("machines").num_rows == whole
    assert strays(tmp_path) == []
    for row in listed.values():
        if row.status == "complete":
            assert len(history.load(row.snapshot_id).machines) == 21
        else:
            assert row.machine_count == 0
            assert "to the history" in row.abort_reason or "failed" in row.abort_reason, row.abort_reason


def _wait_until_gone(pids: list[int]) -> None:
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
