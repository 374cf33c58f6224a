"""Who asks hosts for rows that have stayed with them, and tells them what they need not keep."""

from __future__ import annotations

import gc
import operator
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from rows_kept import HEADER, Elsewhere, few, without

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.errors import SnapshotRowsLostError
from ray_snapshot.runtime import leases as leases_module
from ray_snapshot.runtime.analyst.host_rows import HostsWithRows
from ray_snapshot.runtime.kept_rows import KeptRows, PartialAnswer
from ray_snapshot.runtime.leases import Leases
from ray_snapshot.snapshot import Snapshot


class Host:
    """Stands for the actor of a host: `KeptRows` is given what it answers at once (`asked_of`)."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(
            remote=lambda *args, **more: self.told.append((name, *args, *more.values())) or self.answer
        )


@pytest.fixture
def asked_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(refs: Any, what: str, timeout: float) -> Any:
        if any(isinstance(ref, Exception) for ref in refs):
            raise rs.SnapshotTimeoutError(f"waited {timeout:g} s for {what}")
        return refs

    monkeypatch.setattr("ray_snapshot.runtime.cluster.ask", ask)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)


@pytest.mark.usefixtures("asked_of")
def test_that_rows_are_lost_is_found_out_once() -> None:
    host = Host(TimeoutError())
    rows = KeptRows("x-1", 1, {"h": host})
    for ask in (rows.fetch, rows.fetch, lambda: rows.partials(few, HEADER)):
        with pytest.raises(SnapshotRowsLostError, match="cannot be had: waited 30 s for rows of snapshot x-1"):
            ask()
    assert len(host.told) == 1


@pytest.mark.usefixtures("asked_of")
@pytest.mark.parametrize("answer", [None, PartialAnswer(is_gone=True)])
def test_rows_that_are_not_kept_any_more_are_lost(answer: Any) -> None:
    rows = KeptRows("x-1", 1, {"h": Host(answer)})
    with pytest.raises(SnapshotRowsLostError, match="asked for too late"):
        rows.fetch() if answer is None else rows.partials(few, HEADER)


def test_who_has_left_ray_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    host = Host()
    with pytest.raises(SnapshotRowsLostError, match="this program has left Ray"):
        KeptRows("x-1", 1, {"h": host}).fetch()
    assert host.told == []


def held(leases: Leases, host: Any, number: int, name: str = "h") -> tuple[Snapshot, Elsewhere]:
    """A snapshot that a program holds."""
    whole = Snapshot.from_rows(machines=[{"machine": name} for name in "ab"])
    part, elsewhere = without(whole, "b")
    object.__setattr__(part.parted[1], "fetch", lambda names, seconds=0.0: elsewhere.fetch(names))
    leases.take(part, KeptRows(f"x-{number}", number, {name: host}))
    return part, elsewhere


def test_what_a_program_has_dropped_or_read_is_given_back() -> None:
    leases, host = Leases(), Host()
    first = held(leases, host, 1)
    second = held(leases, host, 2)
    third = held(leases, host, 3)
    del second
    gc.collect()
    third[0].load()
    fourth = held(leases, host, 4)
    assert host.told == [("lease", [1], []), ("lease", [2], []), ("lease", [3], []), ("lease", [4], [2, 3])]
    leases.load()
    assert [one[0].parted[1] for one in (first, fourth)] == [None, None]


def test_rows_are_given_back_to_hosts_that_keep_none_of_the_next_snapshot() -> None:
    leases, one, another = Leases(), Host(), Host()
    held(leases, one, 1)
    held(leases, another, 2, name="g")
    assert one.told == [("lease", [1], []), ("lease", [], [1])]
    assert another.told == [("lease", [2], [])]


def test_a_lease_is_told_to_whom_it_can_be_told() -> None:
    leases, one, another = Leases(), Host(), Host()
    held(leases, one, 1)
    held(leases, SimpleNamespace(), 2)
    held(leases, another, 3)
    assert one.told == [("lease", [1], []), ("lease", [], [1])]
    assert another.told == [("lease", [3], [])]


def test_hosts_hear_what_is_judged_once_for_many_snapshots() -> None:
    timers: list[Callable[[], None]] = []
    hosts, one, another = HostsWithRows(timers.append), Host(), Host()
    for number in (1, 2):
        rows = KeptRows(f"x-{number}", number, {"g": one, "h": another})
        hosts.know(rows)
        hosts.judged(rows)
    assert (len(timers), one.told, another.told) == (1, [], [])
    timers[0]()
    assert one.told == another.told == [("through_with", [1, 2], [])]


def test_a_host_hears_at_once_what_its_history_is_through_with_though_another_is_gone() -> None:
    timers: list[Callable[[], None]] = []
    hosts, one, gone = HostsWithRows(timers.append), Host(), SimpleNamespace()
    rows = KeptRows("x-1", 1, {"gone": gone, "h": one})
    hosts.know(rows)
    hosts.judged(rows)
    hosts.release({"gone": [1], "h": [1]})
    assert one.told == [("through_with", [1], [1])]
    timers[0]()
    assert len(one.told) == 1


def test_who_takes_a_snapshot_while_the_system_ends_gets_all_of_it() -> None:
    leases, host = Leases(), Host()
    leases.load()
    part, elsewhere = held(leases, host, 1)
    assert part.parted[1] is None
    assert elsewhere.asked == [None]


def test_the_end_waits_for_rows_so_long_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "MOST_S", 0.0)
    leases, host = Leases(), Host()
    part, elsewhere = held(leases, host, 1)
    leases.load()
    assert elsewhere.asked in ([], [None])
    assert len(leases._held) == 0
    del part


# ---- on Ray --------------------------------------------------------------------------------------------------------


class Purse(rs.SnapshotMixin):
    """Holds coins."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def add(self, coins: int) -> None:
        self.coins += coins

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_snapshot_is_read_as_of_its_moment_also_when_its_system_has_closed() -> None:
    with rs.System("kept-rows", detectors=[detectors.Termination()]) as system:
        purses = system.spawn_many(Purse, [(10,) for _ in range(20)], per_host=10)
        system.start()
        before = _at_rest(system)
        coins = detectors.TokenConservation(total=200, state="$.coins")
        assert system.wait_for(coins, timeout=60).sentence == "Conserved: 200 in all, 0 of it in flight."
        system.wait_for(few_coins, timeout=60)
        purses[3].add.send(5)
        system.wait_for("termination", timeout=60)
        after = _at_rest(system)
        here, absent = before.parted
        assert absent is not None
        assert after.parted[1] is not None
        assert absent.count + here.num_rows == before.machine_count == 21
        assert after.machines["Purse-3"].state == {"coins": 15}
    assert before.machines["Purse-3"].state == {"coins": 10}
    assert sorted(before.machines) == sorted(["driver", *(f"Purse-{at}" for at in range(20))])


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_rows_go_with_their_host() -> None:
    system = rs.System("lost-rows", detectors=[])
    purses = system.spawn_many(Purse, [(10,) for _ in range(4)])
    system.start()
    taken = _at_rest(system)
    os.kill(ray.get(purses[0].pid.remote(), timeout=60), signal.SIGKILL)
    with pytest.raises(SnapshotRowsLostError, match=f"rows of snapshot {taken.snapshot_id} .* cannot be had"):
        taken.load()
    with pytest.raises(rs.HostDiedError):
        system.snapshot(timeout=20)
    system.close()
    with pytest.raises(SnapshotRowsLostError):
        _ = taken.machines["Purse-0"]


@rs.detector(
    partial=lambda part: sum((row.state or {}).get("coins", 0) for row in part.machines.values()), merge=operator.add
)
def few_coins(coins: int) -> bool:
    return coins == 200


def _at_rest(system: rs.System) -> Snapshot:
    """A snapshot in which machines are at rest: they are once they were copied twice with nothing in between."""
    for _ in range(10):
        taken = system.snapshot()
        absent = taken.parted[1]
        if absent is not None and absent.count >= 4:
            return taken
    raise AssertionError("no machine came to rest")
