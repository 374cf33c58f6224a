"""Hosts that write their own parts of a history: the same history as without, at whichever step a process is killed."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from towns import COLUMNS, START, HostOfATown, Town, files_of, machines_of, plain, strays

from ray_snapshot import detectors, redaction
from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryWriteError, SettingError, SnapshotRowsLostError
from ray_snapshot.history import (
    History,
    HistoryWriter,
    commits,
    compaction,
    files,
    host_files,
    leases,
    objects,
    stores,
    upkeep,
)
from ray_snapshot.history.host_files import Given, Pace, WrongFileError, checked
from ray_snapshot.history.stores import StoreFault
from ray_snapshot.runtime.brought import BroughtRows
from ray_snapshot.runtime.host import own_parts, resting
from ray_snapshot.runtime.host.config import OWN_PARTS, asked_own_parts
from ray_snapshot.runtime.host.own_parts import OwnParts
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.schema import SNAPSHOT_TABLES, TABLES
from ray_snapshot.verdicts import evaluate


class Killed(BaseException):
    """Stands for the end of a process: nothing after it runs."""


def seen(path: Path) -> dict[str, Any]:
    """All that a history has, but for when it was written."""
    history = History(path)
    found: dict[str, Any] = {name: history.table(name).sort_by(_order(name)).to_pylist() for name in SNAPSHOT_TABLES}
    found["problems"] = wrong_with(path)
    loaded = [history.load(row["snapshot_id"]) for row in found["snapshots"]]
    found["loaded"] = [{name: one.tables[name].to_pylist() for name in SNAPSHOT_TABLES} for one in loaded]
    found["over time"] = [history.machines(machine=name).table.to_pylist() for name in ("h1-0", "h2-7", "h1-0-awake")]
    return found


def wrong_with(path: Path) -> list[str]:
    """What `verify` finds."""
    return [problem for _, problems in History(path).verify() for problem in problems]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """All rows of machines."""
    found: list[dict[str, Any]] = History(path).table("machines").to_pylist()
    return found


def _order(name: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in ("snapshot_id", *(("machine",) if name == "machines" else ()))]


def listed(path: Path) -> dict[str, str]:
    return {row.snapshot_id: row.status for row in History(path).snapshots()}


# ---- side by side ------------------------------------------------------------------------------------------------------


def run(town: Town, chance: random.Random) -> None:
    """Some snapshots of machines that rest, act and change, over midnight, flushed now and then."""
    bases = {
        host: machines_of(host, [f"{host}-{at}" for at in range(chance.randrange(3, 40))], chance)
        for host in town.hosts
    }
    shown: dict[str, Any] = {}
    for number in range(1, chance.randrange(3, 9)):
        for host in town.hosts:
            if chance.random() < 0.3 and number > 1:  # nothing has changed there
                continue
            if chance.random() < 0.3:
                bases[host] = machines_of(host, bases[host]["machine"].to_pylist(), chance)
            base = Rows(bases[host])
            awake = [name for name in bases[host]["machine"].to_pylist() if chance.random() < 0.2]
            shown[host] = base.without("machine", awake), machines_of(host, [f"{name}-awake" for name in awake], chance)
        town.now += chance.random() * 4
        town.add(town.taken(number, shown, START + town.now))
        if chance.random() < 0.4:
            town.writer.flush()
            for snapshot_id in listed(Path(str(town.path))):
                History(town.path).load(snapshot_id)  # raises unless it is whole: who follows reads it now
    town.writer.close()


def compare(folder: Path, seed: int) -> tuple[int, int]:
    """The same machines with and without files of hosts, packed or not; how many such files there were, and packed parts."""
    expected = seen(_town(folder, seed, None, 10**9)[0])
    assert expected["problems"] == []
    files = packed = 0
    for own_from, least in ((random.Random(seed).choice([1, 20, 60]), 10**9), (None, 1), (60, 1)):
        path, town = _town(folder, seed, own_from, least)
        assert seen(path) == expected, f"seed {seed}, {own_from}, {least}"
        assert all(host.own._owed == {} for host in town.hosts.values()), "hosts need not keep anything"
        files += sum(one.may_write for one in town.asked)
        packed += sum(host.packed for host in town.hosts.values())
    return files, packed


def _town(folder: Path, seed: int, own_from: int | None, least: int) -> tuple[Path, Town]:
    town = Town(folder / f"{seed}-{own_from}-{least}", own_from)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resting, "LEAST_PACKED", least)
        run(town, random.Random(seed))
    if own_from is None:
        assert town.asked == []
    return Path(str(town.path)), town


def test_histories_are_the_same_whoever_writes_the_rows(tmp_path: Path) -> None:
    files, packed = zip(*(compare(tmp_path, seed) for seed in range(2)), strict=True)
    assert sum(files) > 0
    assert sum(packed) > 0


@pytest.mark.nightly
def test_histories_are_the_same_whoever_writes_the_rows_at_length(tmp_path: Path) -> None:
    files, packed = zip(*(compare(tmp_path, seed) for seed in range(100, 200)), strict=True)
    assert sum(files) > 100
    assert sum(packed) > 100


def test_one_file_for_a_host_and_commit_and_none_of_few_rows(tmp_path: Path) -> None:
    town = Town(tmp_path, 50)
    for number in (1, 2):
        town.add(plain(town, number))
    assert [host.own._owed for host in town.hosts.values()] == [{}, {}], "20 and 40 rows are few"
    town.add(plain(town, 3))
    town.add(plain(town, 4))
    town.writer.flush()
    assert [len(one.snapshots) for one in town.asked] == [2, 2]
    assert [file.rows for file in files_of(tmp_path)] == [160], "40 kept rows are no file of their own"
    for number in range(5, 8):
        town.add(plain(town, number))
    town.writer.flush()
    assert sorted(file.rows or 0 for file in files_of(tmp_path)) == [60, 60, 160]
    assert town.released == [("h1", (3, 4)), ("h2", (3, 4)), ("h1", (5, 6, 7)), ("h2", (5, 6, 7))]
    town.now += own_parts.WINDOW_S
    town.add(plain(town, 8))
    assert town.hosts["h1"].own.of(8) is None, "what was shown long ago does not count"


def test_of_two_days_a_host_writes_one_and_sends_the_other(tmp_path: Path) -> None:
    town = Town(tmp_path, 1, ["h1"])
    for number in (1, 2, 3):
        town.add(plain(town, number))
    town.add(plain(town, 4, started_at=START + 20))
    town.writer.flush()
    assert [(one.may_write, len(one.snapshots)) for one in town.asked] == [(True, 3), (False, 1)]
    assert wrong_with(tmp_path) == []
    assert [file.rows for file in files_of(tmp_path)] == [60, 20]


def test_hosts_write_so_many_files_in_a_while(tmp_path: Path) -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert [pace.take(60), pace.take(60)] == [60, 40]
    now[0] += 1.0
    assert pace.take(60) == host_files.FILES_PER_S
    pace.give_back(5)
    assert pace.take(60) == 5
    town = Town(tmp_path, 1)
    town.writer._pace.left = 1.0
    town.writer._pace.clock = lambda: town.writer._pace.last
    town.add(plain(town, 1))
    town.writer.flush()
    assert [one.may_write for one in town.asked] == [True, False]
    assert wrong_with(tmp_path) == []


# ---- files that are not what was said of them -------------------------------------------------------------------------------


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def torn(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-40:-30] = b"\xff" * 10
    path.write_bytes(content)


WRONG: dict[str, Callable[[Path, Given], Given]] = {
    "gone": lambda path, given: (path.unlink(), given)[1],
    "shorter": lambda path, given: (shorter(path), given)[1],
    "longer": lambda path, given: (longer(path), given)[1],
    "torn": lambda path, given: (torn(path), given)[1],
    "fewer rows": lambda _, given: Given(replace(given.file, rows=19)),  # type: ignore[type-var]
    "another name": lambda _, given: Given(replace(given.file, relative="x.parquet")),  # type: ignore[type-var]
    "outside": lambda _, given: Given(replace(given.file, relative="../../x.parquet")),  # type: ignore[type-var]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_is_not_as_it_was_said_is_not_committed_and_no_row_is_lost(tmp_path: Path, wrong: str) -> None:
    town = Town(tmp_path, 1)

    def spoil(given: Given) -> Given:
        if given.file is None:
            return given
        return WRONG[wrong](tmp_path / "machines" / given.file.relative, given)

    town.hosts["h1"].after = spoil
    for number in (1, 2):
        town.add(plain(town, number))
        town.writer.flush()
    assert [(one.host, one.may_write) for one in town.asked] == [
        *(("h1", True), ("h2", True), ("h1", False)),
        *(("h1", False), ("h2", True)),
    ], "it sends its rows from now on"
    assert (wrong_with(tmp_path), strays(tmp_path)) == ([], [])
    assert [row.machine_count for row in History(tmp_path).snapshots()] == [40, 40]


def test_wrong_bounds_are_left_out_and_lose_no_row(tmp_path: Path) -> None:
    town = Town(tmp_path, 1, ["h1"])

    def lie(given: Given) -> Given:
        assert given.file is not None
        said = json.loads(given.file.statistics)
        said["minValues"]["machine"], said["maxValues"]["machine"] = "h1-5", "h1-6"
        said["nullCount"]["machine"] = 7
        return Given(replace(given.file, statistics=json.dumps(said)))

    town.hosts["h1"].after = lie
    town.add(plain(town, 1))
    town.writer.flush()
    assert History(tmp_path).machines(machine="h1-0").table.num_rows == 1
    (action,) = files_of(tmp_path)
    assert action.rows == 20
    log = [json.loads(line) for file in tmp_path.glob("machines/_delta_log/*.json") for line in file.open()]
    (stats,) = [json.loads(line["add"]["stats"]) for line in log if "add" in line]
    assert {key: sorted(stats[key]) for key in ("minValues", "maxValues", "nullCount")} == {
        "minValues": ["snapshot_id"],
        "maxValues": ["snapshot_id"],
        "nullCount": ["snapshot_id"],
    }


def test_a_file_with_rows_of_other_snapshots_is_refused(tmp_path: Path) -> None:
    town = Town(tmp_path, 1, ["h1"])
    town.add(plain(town, 1))
    town.writer.flush()
    (wanted,) = town.asked
    town.hosts["h1"].own._owed[1] = Rows(machines_of("h1", [f"h1-{at}" for at in range(20)], random.Random(1))), 0
    town.hosts["h1"].own._last = None
    other = replace(wanted, snapshots=(replace(wanted.snapshots[0], snapshot_id="another"),))
    (tmp_path / "_writers" / f"{other.owner}.json").touch()
    told = town.hosts["h1"].own.give(other).file
    assert told is not None
    assert checked(other, told) == told
    same_size = replace(told, relative=f"{wanted.partition.folder}/{wanted.name}")
    (tmp_path / "machines" / told.relative).rename(tmp_path / "machines" / same_size.relative)
    with pytest.raises(WrongFileError, match="rows of snapshots from another to another"):
        checked(wanted, same_size)


def test_a_host_that_does_not_see_the_history_sends_its_rows(tmp_path: Path) -> None:
    town = Town(tmp_path / "here", 1, ["h1"])
    elsewhere = tmp_path / "elsewhere"
    HistoryWriter(elsewhere).close()  # a folder of the same name on another computer
    give = town.hosts["h1"].own.give
    town.hosts["h1"].own.give = lambda wanted: give(replace(wanted, path=elsewhere))  # type: ignore[method-assign]
    town.add(plain(town, 1))
    town.writer.flush()
    assert (wrong_with(tmp_path / "here"), strays(tmp_path / "here"), strays(elsewhere)) == ([], [], [])
    assert list(listed(tmp_path / "here").values()) == ["complete"]


def test_a_host_that_cannot_write_sends_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    town = Town(tmp_path, 1, ["h1"])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    town.hosts["h1"].before = lambda: monkeypatch.setattr(files.FileWriter, "finished", full)
    town.hosts["h1"].after = lambda given: (monkeypatch.undo(), given)[1]
    town.add(plain(town, 1))
    town.writer.flush()
    assert "h1 cannot write into" in capsys.readouterr().err
    assert (wrong_with(tmp_path), strays(tmp_path)) == ([], [])


def test_where_anything_is_secret_rows_are_sent_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(tmp_path, 1, ["h1"])
    town.add(plain(town, 1))
    with monkeypatch.context() as secret:
        secret.setattr(redaction, "is_active", True)
        secret.setattr(redaction, "pattern", lambda: "tokens")
        secret.setattr(redaction, "purged", lambda found: {"redacted": len(found)})
        assert plain(town, 2).parted[1] is None
        town.writer.flush()
    assert [one.may_write for one in town.asked] == [False]
    states = {row["state"] for row in rows_of(tmp_path)}
    assert any("redacted" in (state or "") for state in states)
    assert not any("tokens" in (state or "") for state in states)


def test_a_host_that_has_met_a_secret_writes_no_file_and_sends_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The analyst, which knows of no secret, has asked for a file."""
    town = Town(tmp_path, 1, ["h1"])
    host = town.hosts["h1"]

    def given_in_secret(wanted: Any) -> Given:
        with monkeypatch.context() as secret:
            secret.setattr(redaction, "is_active", True)
            secret.setattr(redaction, "pattern", lambda: "tokens")
            secret.setattr(redaction, "purged", lambda found: {"redacted": len(found)})
            return OwnParts.give(host.own, wanted)

    monkeypatch.setattr(host.own, "give", given_in_secret)
    town.add(plain(town, 1))
    town.writer.flush()
    assert [one.may_write for one in town.asked] == [True]
    assert town.asked[0].name not in {file.path.name for file in files_of(tmp_path)}
    states = {row["state"] or "" for row in rows_of(tmp_path)}
    assert any("redacted" in state for state in states)
    assert not any("tokens" in state for state in states)
    assert host.kept.spent() > 0
    assert host.kept.spent() == 0


def test_what_a_dead_host_had_is_read_from_the_history_beside_what_is_here(tmp_path: Path) -> None:
    town, chance = Town(tmp_path, 1, ["h1"]), random.Random(3)
    shown = Rows(machines_of("h1", ["a", "b", "c"], chance)), machines_of("h1", ["d", "e"], chance)
    one, other = (town.taken(number, {"h1": shown}) for number in (1, 2))
    town.add(one)
    town.writer.flush()
    town.hosts["h1"].is_dead = True
    assert sorted(one.rows_of(["b", "d"])["machine"].to_pylist()) == ["b", "d"]
    item = detectors.TokenConservation(state="$.tokens")
    whole = History(tmp_path).load(one.snapshot_id)
    assert evaluate(item, one).evidence == evaluate(item, whole).evidence
    assert one.tables["machines"].equals(whole.tables["machines"])
    with pytest.raises(SnapshotRowsLostError):
        other.load()


# ---- what is killed ----------------------------------------------------------------------------------------------------


def halfway(patch: pytest.MonkeyPatch) -> None:
    """The process ends while it writes: what there is of the file stays."""

    def stop(self: files.FileWriter, rows: pa.Table) -> None:
        self.parquet.write_table(rows)
        self.begun.sink.flush()
        raise Killed

    patch.setattr(files.FileWriter, "write", stop)
    patch.setattr(files.FileWriter, "__exit__", lambda self, *_: None)


HOST_STEPS = ("before the file", "while writing", "behind the file", "behind the report", "behind the commit")


def kill_host(town: Town, host: HostOfATown, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This host dies at that step of the next flush."""

    def while_writing() -> None:
        with monkeypatch.context() as patch:
            halfway(patch)
            with pytest.raises(Killed):
                host.own.give(town.asked[-2])
        host.is_dead = True

    def behind_the_file(given: Given) -> Given:
        assert given.file is not None
        host.is_dead = True
        return given

    ask = town.ask

    def behind_the_report(wanted: Any, seconds: float) -> list[Given]:
        found = ask(wanted, seconds)
        host.is_dead = True
        return found

    match step:
        case "before the file":
            host.is_dead = True
        case "while writing":
            host.before = while_writing
        case "behind the file":
            host.after = behind_the_file
        case "behind the report":
            town.ask = behind_the_report  # type: ignore[method-assign]
        case "behind the commit":
            pass


@pytest.mark.parametrize("step", HOST_STEPS)
def test_a_host_killed_at_any_step_loses_no_snapshot_that_its_file_has(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    town = Town(tmp_path, 1)
    town.add(plain(town, 1))
    town.writer.flush()
    lost, kept_all = plain(town, 2), step in ("behind the report", "behind the commit")
    town.add(lost)
    town.asked.clear()
    kill_host(town, town.hosts["h1"], step, monkeypatch)
    town.writer.flush()
    if step == "behind the commit":
        town.hosts["h1"].is_dead = True
    town.writer.close()
    status = "complete" if kept_all else "aborted"
    assert list(listed(tmp_path).values()) == ["complete", status]
    assert (wrong_with(tmp_path), strays(tmp_path)) == ([], []), "the writer cleans up at once"
    row = History(tmp_path).snapshots()[1]
    assert (row.abort_reason, row.machine_count) == ((None, 40) if kept_all else ("h1 has died", 0))
    assert len(rows_of(tmp_path)) == (80 if kept_all else 40), "no row of an aborted snapshot, and none twice"
    verdicts = History(tmp_path).verdicts()
    assert [one.holds for one in verdicts] == [True, True], "a verdict that was given stays"
    assert ("lists " + lost.snapshot_id in capsys.readouterr().err) is not kept_all
    if kept_all:
        assert len(lost.machines) == 40, "what the dead host had is read from the history"
    else:
        with pytest.raises(SnapshotRowsLostError):
            lost.load()


def test_snapshots_that_are_lost_for_one_reason_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    town = Town(tmp_path, 1)
    first, *_, last = [town.add(one) or one.snapshot_id for one in (plain(town, number) for number in (1, 2, 3))]
    town.hosts["h1"].is_dead = True
    town.writer.flush()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "as aborted" in line]
    assert line.endswith(f"lists {first} to {last} (3 snapshots) as aborted: h1 has died")


def test_rows_that_came_packed_go_with_their_snapshot_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one host came packed, those of the other stayed with it, and it dies."""
    monkeypatch.setattr(resting, "LEAST_PACKED", 1)
    town = Town(tmp_path, 1)
    town.hosts["h1"].own.own_from = None
    awake = COLUMNS.empty_table()
    shown = {host: (Rows(machines_of(host, ["b", "a"], random.Random(1))), awake) for host in town.hosts}
    alone = {"h1": shown["h1"]}
    for number, rows in ((1, alone), (2, shown), (3, alone)):
        town.add(town.taken(number, rows, START + number))
    assert town.hosts["h1"].packed == 2
    town.hosts["h2"].is_dead = True
    town.writer.close()
    assert [*listed(tmp_path).values()] == ["complete", "aborted", "complete"]
    names = [(row["snapshot_id"], row["machine"]) for row in rows_of(tmp_path)]
    first, _, last = sorted(listed(tmp_path))
    assert sorted(names) == [(one, name) for one in (first, last) for name in "ab"]
    assert wrong_with(tmp_path) == []


def test_rows_that_came_packed_are_committed_without_what_is_secret_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "LEAST_PACKED", 1)
    town = Town(tmp_path, None)
    rest = Rows(machines_of("h1", [f"m{at}" for at in range(20)], random.Random(1)))
    for number in (1, 2):
        town.add(town.taken(number, {"h1": (rest, COLUMNS.empty_table())}, START + number))
    assert town.hosts["h1"].packed == 1
    with monkeypatch.context() as secret:
        secret.setattr(redaction, "is_active", True)
        secret.setattr(redaction, "pattern", lambda: "tokens")
        secret.setattr(redaction, "purged", lambda found: {"redacted": len(found)})
        town.writer.close()
    last = max(listed(tmp_path))
    states = [row["state"] or "" for row in rows_of(tmp_path) if row["snapshot_id"] == last]
    assert any("redacted" in state for state in states)
    assert not any("tokens" in state for state in states)


def no_memory(_: BroughtRows) -> pa.Table:
    raise MemoryError


def test_what_stands_before_rows_that_cannot_be_unpacked_is_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resting, "LEAST_PACKED", 1)
    town = Town(tmp_path, None)
    shown = {
        host: (Rows(machines_of(host, ["a" + host], random.Random(1))), COLUMNS.empty_table()) for host in town.hosts
    }
    found = [town.taken(number, shown, START + number) for number in (1, 2)]
    for one in found:
        town.add(one)
    row = {"run_id": found[0].run_id, "machine": "ah1", "number": 1, "method": "put", "colour": 0, "acted_at": 1}
    row |= {"accepted": "[]", "sent": "[]"}
    town.writer.add_actions(pa.Table.from_pylist([row], schema=TABLES["actions"]), system="bank")
    with monkeypatch.context() as patch:
        patch.setattr(BroughtRows, "rows", no_memory)
        with pytest.raises(MemoryError):
            town.writer.flush()
    town.writer.close()
    assert History(tmp_path).action_count(found[0].run_id) == 1
    assert wrong_with(tmp_path) == []


def test_snapshots_without_rows_of_the_dead_host_are_all_there(tmp_path: Path) -> None:
    town = Town(tmp_path, 1)
    whole = random.Random(5)
    town.add(plain(town, 1))
    town.add(town.taken(2, {"h2": (Rows(machines_of("h2", ["h2-1"], whole)), COLUMNS.empty_table())}, START + 0.5))
    town.hosts["h1"].is_dead = True
    town.writer.flush()
    assert list(listed(tmp_path).values()) == ["aborted", "complete"]
    assert [len(one.snapshots) for one in town.asked] == [1, 2, 1], "the file with rows of the first is made anew"
    assert (wrong_with(tmp_path), strays(tmp_path)) == ([], [])
    assert [file.rows for file in files_of(tmp_path)] == [1]


def test_a_host_that_is_late_is_asked_again_and_then_given_up(tmp_path: Path) -> None:
    town, late = Town(tmp_path, 1), [1]

    def answer_late(given: Given) -> Given:
        late[0] -= 1
        return Given(is_late=True) if late[0] >= 0 else given

    town.hosts["h1"].after = answer_late
    town.add(plain(town, 1))
    town.writer.flush()
    assert [one.host for one in town.asked] == ["h1", "h2", "h1"]
    assert town.asked[0].name == town.asked[2].name
    assert (len(files_of(tmp_path)), strays(tmp_path)) == (2, []), "the same file, written once"
    late[0] = 2
    town.add(plain(town, 2))
    town.writer.flush()
    assert list(listed(tmp_path).values()) == ["complete", "aborted"]
    assert "did not give its rows to the history for 50 s" in str(History(tmp_path).snapshots()[1].abort_reason)
    assert strays(tmp_path) == []


ANALYST_STEPS = (
    "before the file",
    "while writing",
    "behind the file",
    "behind the report",
    "behind machines",
    "behind snapshots",
    "behind all",
)


@pytest.mark.by_day(6)
@pytest.mark.parametrize("with_host", [False, True], ids=["analyst", "both"])
@pytest.mark.parametrize("step", ANALYST_STEPS)
def test_an_analyst_killed_at_any_step_leaves_a_snapshot_whole_or_absent(
    tmp_path: Path, step: str, with_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(tmp_path, 1, ["h1"])
    town.add(plain(town, 1))
    town.writer.flush()
    town.add(plain(town, 2))
    host, commit = town.hosts["h1"], town.writer._commit

    def killed(*_: Any) -> Any:
        host.is_dead = with_host
        raise Killed

    def committing(name: str, rows: Any, *also: Any) -> None:
        if step == "behind the report":
            killed()
        commit(name, rows, *also)
        if step == f"behind {name}":
            killed()

    monkeypatch.setattr(town.writer, "_commit", committing)
    if step == "before the file":
        host.before = killed
    if step == "behind the file":
        host.after = killed
    if step == "behind all":
        monkeypatch.setattr(town, "release", killed)
    with monkeypatch.context() as patch:
        if step == "while writing":
            halfway(patch)
        with pytest.raises(Killed):
            town.writer.flush()
    town.die()
    is_whole = step in ("behind snapshots", "behind all")
    assert len(listed(tmp_path)) == 1 + is_whole
    assert wrong_with(tmp_path) == []

    with HistoryWriter(tmp_path, system="bank") as after_it:
        assert strays(tmp_path) == []
        assert len(files_of(tmp_path)) == 1 + is_whole, "rows of what is not listed are gone"
        after_it.add(plain(Town(tmp_path / "other", None, ["h1"]), 3))
    assert (len(listed(tmp_path)), wrong_with(tmp_path)) == (2 + is_whole, [])
    assert len(rows_of(tmp_path)) == 20 * (2 + is_whole)


def test_a_file_that_comes_behind_the_cleaning_is_removed_when_it_is_a_day_old(tmp_path: Path) -> None:
    """The analyst has died while its host was writing, and another has started before the file was there."""
    town = Town(tmp_path, 1, ["h1"])
    town.add(plain(town, 1))

    def late(given: Given) -> Given:
        assert given.file is not None
        there = tmp_path / "machines" / given.file.relative
        content = there.read_bytes()
        there.unlink()
        town.die()
        HistoryWriter(tmp_path, system="bank").close()
        there.write_bytes(content)
        raise Killed

    town.hosts["h1"].after = late
    with pytest.raises(Killed):
        town.writer.flush()
    (stray,) = strays(tmp_path)
    when = Path(stray).stat().st_mtime
    assert upkeep.vacuum(tmp_path, "machines", 0, dry_run=False, moment=when + 3_600 * 23) == []
    assert len(upkeep.vacuum(tmp_path, "machines", 0, dry_run=False, moment=when + 3_600 * 25)) == 1
    assert strays(tmp_path) == []


def test_a_flush_that_fails_goes_on_with_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    town = Town(tmp_path, 1)
    town.add(plain(town, 1))
    real = commits.append

    def fails(*given: Any, **more: Any) -> None:
        raise HistoryWriteError("the disk is full", path=str(tmp_path))

    monkeypatch.setattr(commits, "append", fails)
    with pytest.raises(HistoryWriteError):
        town.writer.flush()
    monkeypatch.setattr(commits, "append", real)
    town.add(plain(town, 2))
    assert town.released == [], "hosts keep what is not committed"
    town.writer.flush()
    assert [one.may_write for one in town.asked] == [True] * 4
    assert (wrong_with(tmp_path), strays(tmp_path), len(files_of(tmp_path))) == ([], [], 4)


def test_where_hosts_cannot_be_asked_the_next_flush_asks_again_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(tmp_path, 1)
    for number in (1, 2):
        town.add(plain(town, number))
    real = host_files.checked

    def unreachable(wanted: Any, told: Any) -> Any:
        if wanted.host == "h2":
            raise StoreFault("the store cannot be reached")
        return real(wanted, told)

    with monkeypatch.context() as patch:
        patch.setattr(host_files, "checked", unreachable)
        with pytest.raises(HistoryWriteError, match="the store cannot be reached"):
            town.writer.flush()
    assert town.writer.buffered_bytes > 0
    town.add(plain(town, 3))
    town.writer.close()
    assert [(one.host, len(one.snapshots)) for one in town.asked] == [
        *(("h1", 2), ("h2", 2)),
        ("h2", 2),
        *(("h1", 1), ("h2", 1)),
    ]
    assert (wrong_with(tmp_path), strays(tmp_path), len(files_of(tmp_path))) == ([], [], 4)
    assert (len(listed(tmp_path)), town.writer.buffered_bytes) == (3, 0)


# ---- in a store ------------------------------------------------------------------------------------------------------------


def test_in_a_store_hosts_write_as_in_a_folder_and_send_where_they_may_not(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = StorePath(bucket, "h")
    town = Town(path, 1)

    def without_credentials() -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    address = os.environ["AWS_ENDPOINT_URL"]
    town.add(plain(town, 1))
    town.hosts["h2"].before = without_credentials
    town.hosts["h2"].after = lambda given: (monkeypatch.setenv("AWS_ENDPOINT_URL", address), given)[1]
    monkeypatch.setattr(stores, "RETRIES", 0)
    monkeypatch.setattr(stores, "RETRY_S", 1)
    town.writer.flush()
    assert sorted(file.rows or 0 for file in files_of(path)) == [20, 20]
    names = {file.relative.rpartition("/")[2] for file in files_of(path)}
    assert town.asked[0].name in names
    assert town.asked[1].name not in names, "its rows were sent"
    history = History(path)
    assert [problems for _, problems in history.verify()] == [[]]
    assert len(history.load(history.snapshots()[0].snapshot_id).machines) == 40


@pytest.mark.nightly
def test_in_a_store_the_file_of_an_analyst_that_died_is_removed_when_its_lease_is_over_and_it_is_a_day_old(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = StorePath(bucket, "h")
    town = Town(path, 1, ["h1"])

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(town.writer, "_commit", killed)
    town.add(plain(town, 1))
    with pytest.raises(Killed):
        town.writer.flush()
    lease: Any = town.writer._owner
    lease.done.set()  # nothing renews it any more
    history, real, now = History(path), objects.now, [0.0]
    looks = leases.Looks(clock=lambda: now[0], pause=lambda seconds: None)

    def there() -> int:
        return sum(1 for _ in upkeep.written(path, "machines"))

    for days, over, left in ((0, False, 1), (2, False, 1), (2, True, 0)):
        monkeypatch.setattr(objects, "now", lambda top, days=days: real(top) + days * 86_400)
        if over:
            upkeep.clean(path, None, looks)
            now[0] += leases.LEASE_S
            upkeep.clean(path, None, looks)
        upkeep.vacuum(path, "machines", 0, dry_run=False, moment=objects.now(path))
        assert there() == left, (days, over)
    assert history.snapshots() == []


# ---- the house's upkeep, and what rows are kept for ------------------------------------------------------------------------


def test_compaction_retention_and_detectors_take_them_as_any_file(tmp_path: Path) -> None:
    town = Town(tmp_path, 1)
    snapshots = [plain(town, number) for number in range(1, 7)]
    for one in snapshots:
        town.add(one)
        town.writer.flush()
    before = seen(tmp_path)
    history = History(tmp_path)
    history.compact()
    assert len(files_of(tmp_path)) == 1
    assert seen(tmp_path) == before
    history.vacuum(0)
    assert strays(tmp_path) == []
    item = detectors.TokenConservation(state="$.tokens")
    for one in snapshots:
        said, expected = evaluate(item, one), evaluate(item, history.load(one.snapshot_id))
        assert (said.holds, said.evidence) == (expected.holds, expected.evidence), "its hosts keep nothing any more"


def test_rows_are_kept_for_the_history_until_it_has_them_and_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnParts(3)
    rows = Rows(machines_of("h1", ["a", "b", "c"], random.Random(1)))
    assert own.keep(1, rows, 7)
    assert own.of(1) == (rows, 7)
    monkeypatch.setattr(own_parts, "MOST_OWED", 2)
    assert [own.keep(number, rows, 7) for number in (2, 3)] == [True, False], "the third goes with its report"
    own.release([1, 9])
    assert own.keep(4, rows, 7)
    own.release([2, 4])
    monkeypatch.setattr(own_parts, "MOST_BYTES", rows.base.nbytes)
    assert [own.keep(number, rows, 7) for number in (5, 6)] == [True, True], "columns that are shared count once"
    assert not own.keep(7, Rows(machines_of("h1", ["a", "b", "c"], random.Random(2))), 7)
    assert not OwnParts(None).keep(1, rows, 7)
    monkeypatch.undo()
    own = OwnParts(1_000)
    wide = machines_of("h1", ["a"], random.Random(1))
    place = wide.schema.get_field_index("state")
    wide = wide.set_column(place, wide.schema.field(place), pa.array(["x" * 128_000]))
    assert [own.keep(1, Rows(rows.base[:1]), 7), own.keep(2, Rows(wide), 7)] == [False, True], "few, but large"


def test_from_how_many_rows_on_hosts_write_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for told, meant in (("", None), ("0", None), ("1", 1), ("65536", 65_536)):
        monkeypatch.setenv(OWN_PARTS, told)
        assert asked_own_parts() == meant
    for told in ("-1", "1.5", "many"):
        monkeypatch.setenv(OWN_PARTS, told)
        with pytest.raises(SettingError, match="a number of machines, such as 65536; 0: hosts write no files"):
            asked_own_parts()


SCALE = 128
"""In an hour of a hundred hosts there are so many times as many rows, in files, blocks and groups alike."""


@pytest.mark.nightly
def test_compaction_keeps_up_with_an_hour_of_a_hundred_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit every five minutes, a compaction every fifteen, which runs while hosts write; the clock is the test's."""
    for name in ("FULL_BLOCK_ROWS", "MOST_BLOCK_ROWS", "LEAST_TILE_ROWS", "SMALL_ROWS", "_CHUNK_ROWS"):
        monkeypatch.setattr(compaction, name, getattr(compaction, name) // SCALE)
    monkeypatch.setattr(files, "ROWS_PER_GROUP", files.ROWS_PER_GROUP // SCALE)
    hosts, count, chance = [f"h{at}" for at in range(100)], 560, random.Random(1)
    town = Town(tmp_path, 65_536 // SCALE, hosts)
    town.writer._pace = Pace(lambda: town.now)
    shown = {
        host: (Rows(machines_of(host, [f"{host}-{at:03}" for at in range(count)], chance)), COLUMNS.empty_table())
        for host in hosts
    }
    removed, left = list[int](), list[int]()

    def compact() -> None:
        removed.append(compaction.compact(tmp_path, "machines", "0" * 12)["files_removed"])

    for minute in range(5, 61, 5):
        town.now = 60.0 * minute
        town.add(town.taken(minute, shown, START + town.now))
        compacting = threading.Thread(target=compact)
        if minute % 15 == 0:
            compacting.start()
        town.writer.flush()
        if minute % 15 == 0:
            compacting.join()
            left.append(len(files_of(tmp_path)))
    town.writer.close()
    assert sum(one.may_write for one in town.asked) == 1_200, "20 files a second would have been allowed"
    compact()
    blocks = 12 * 100 * count // compaction.FULL_BLOCK_ROWS + 1
    assert len(files_of(tmp_path)) <= blocks * compaction.tile_count(2 * compaction.FULL_BLOCK_ROWS), left
    assert max(removed) <= 2 * 300, f"what has come since, and no block twice: {removed}"
    assert max(left) <= len(files_of(tmp_path)) + 400, f"what has come since: {left}"
    assert History(tmp_path).table("machines").num_rows == 12 * 100 * count
    assert (wrong_with(tmp_path), len(listed(tmp_path))) == ([], 12)
    History(tmp_path).vacuum(0)
    assert strays(tmp_path) == []
