"""`--follow`: the same answers as over the whole history, each snapshot once, wherever it is killed in between."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from small_histories import BANK, BEGIN, live, snapshot, write

from ray_snapshot import Snapshot
from ray_snapshot.cli import main
from ray_snapshot.detectors import TokenConservation
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, HistoryWriteError, SettingError
from ray_snapshot.history import History, HistoryWriter, upkeep
from ray_snapshot.spark_jobs import conservation, detections
from ray_snapshot.spark_jobs.engine import following
from ray_snapshot.spark_jobs.engine.following import Follower
from ray_snapshot.spark_jobs.tables import Selection

pytestmark = pytest.mark.spark
NIGHTLY = pytest.mark.nightly

JOBS: dict[str, tuple[ModuleType, tuple[str, ...]]] = {
    "detections": (detections, ("snapshot_id", "detector")),
    "conservation": (conservation, ("snapshot_id", "detector")),
}
OWN = TokenConservation(state="$.balance", name="own")
"""Without a total: each snapshot is compared with an earlier one."""


def bank(run: str, sequence: int, *, lost: int = 0, consistent: bool = True, unmade: int = 0) -> Snapshot:
    machines = [{"machine": name, "state": {"balance": 150 - lost * (name == "b")}} for name in "ab"]
    births = [{"source": "driver", "target": f"c{n}", "method": "__init__", "args": []} for n in range(unmade)]
    return snapshot(run, sequence, machines=machines, consistent=consistent, messages=births)


def three_parts() -> list[list[Snapshot]]:
    """Two runs; the first loses something in the second part, behind a cut that cannot be judged."""
    return [
        [bank("bank-1", 0), bank("bank-1", 1), bank("bank-2", 0)],
        [bank("bank-1", 2), bank("bank-1", 3, consistent=False), bank("bank-1", 4), bank("bank-2", 1, lost=9)],
        [bank("bank-1", 5, lost=7), bank("bank-2", 2)],
    ]


def add(path: Path, taken: list[Snapshot], earlier: list[Snapshot] = []) -> None:  # noqa: B006 - is only read
    known = {one.snapshot_id for one in taken}
    with HistoryWriter(path) as writer:
        for one in taken:
            writer.add(one)
        writer.add_verdicts([one for one in live([*earlier, *taken], BANK, OWN) if one.snapshot_id in known])


def follower(spark: Any, history: History, out: Path, job: str, **settings: Any) -> Follower:
    module, _ = JOBS[job]
    return Follower(spark, history, out, module.FOLLOWED.name, module.fresh, Selection(), {}, **settings)


def rows(out: Path, job: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    module, key = JOBS[job]
    listed = pa.table(DeltaTable(str(out / module.FOLLOWED.name)).to_pyarrow_table()).to_pylist()
    assert not [one for one, count in Counter(tuple(row[name] for name in key) for row in listed).items() if count > 1]
    return {tuple(row[name] for name in key): plain(row) for row in listed}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("evaluated_at", "duration_ms")}


def whole(spark: Any, history: History, job: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    module, key = JOBS[job]
    listed = module.run(spark, history)[module.FOLLOWED.name].toArrow().to_pylist()
    return {tuple(row[name] for name in key): plain(row) for row in listed}


@pytest.mark.parametrize(
    ("job", "most_here"),
    [("detections", 3), pytest.param("detections", 0, marks=NIGHTLY), pytest.param("conservation", 0, marks=NIGHTLY)],
)
def test_following_turn_by_turn_gives_what_the_job_gives_over_the_whole_history(
    spark: Any, tmp_path: Path, job: str, most_here: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        detections, "MOST_HERE", most_here
    )  # 3: of three parts, the one of four snapshots goes to Spark
    path, earlier = tmp_path / "history", list[Snapshot]()
    for part in three_parts():
        add(path, part, earlier)
        earlier += part
        with follower(
            spark, History(path), tmp_path / "out", job
        ) as following_now:  # each time a new process, as it were
            assert following_now.turn() is not None
            assert following_now.turn() is None
        History(path).compact()

    found, expected = rows(tmp_path / "out", job), whole(spark, History(path), job)
    assert found == expected
    assert len(found) == (18 if job == "conservation" else 36)
    assert {True, False, None} <= {row["holds"] for row in found.values()}


@pytest.mark.parametrize("own", ["given", "stored", "none"])
def test_the_users_own_code_runs_in_sparks_tasks_only(
    tmp_path: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_detector_to_follow.py").write_text(
        "import ray_snapshot as rs\n\n@rs.detector\ndef quiet(snapshot):\n    return True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    name, no_spark = "own_detector_to_follow:quiet", cast("Any", None)
    history = write(tmp_path / "h", [bank("bank-1", 0)])
    spec = {"type": "callable", "name": name} if own == "stored" else OWN.spec
    listed = [{"snapshot_id": "bank-1-0000", "run_id": "bank-1", "sequence": 0}]
    arguments = (no_spark, history, listed, {"bank-1": {"own": json.dumps(spec)}}, {})
    if own == "none":
        found, _ = detections.fresh(*arguments, detectors=["termination"])
        assert found["detector"].to_pylist() == ["deadlock", "own", "termination"]
    else:
        with pytest.raises(AttributeError, match="sparkContext"):
            detections.fresh(*arguments, detectors=[name] if own == "given" else [])


@pytest.mark.by_day(1)
@pytest.mark.parametrize("when", ["_added", "_specs", "evaluate_assignments"])
def test_a_snapshot_that_retention_takes_away_during_a_turn_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    path = tmp_path / "h"
    add(path, [bank("bank-1", 0), bank("bank-1", 1)])
    owner: Any = detections if when == "evaluate_assignments" else following
    before = getattr(owner, when)
    left = ["bank-1-0000"]

    def taken_away(*arguments: Any, **options: Any) -> Any:
        found = list(before(*arguments)) if when == "_added" else before(*arguments, **options)
        upkeep.drop(path, "snapshots", left[:1], "")
        left.clear()
        return found

    monkeypatch.setattr(owner, when, taken_away)
    with follower(None, History(path), tmp_path / "out", "detections") as one:
        assert one.turn() is not None
    assert {snapshot_id for snapshot_id, _ in rows(tmp_path / "out", "detections")} == {"bank-1-0001"}


def test_an_error_that_is_not_retentions_doing_ends_the_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h"
    add(path, [bank("bank-1", 0)])
    monkeypatch.setattr(detections, "evaluate_assignments", lambda *_, **__: iter(History(path).load("bank-9").tables))
    with follower(None, History(path), tmp_path / "out", "detections") as one, pytest.raises(HistoryNotFoundError):
        one.turn()


@pytest.mark.parametrize("job", ["detections", pytest.param("conservation", marks=NIGHTLY)])
def test_an_alarm_goes_on_when_retention_takes_away_what_it_was_compared_with(
    request: pytest.FixtureRequest, tmp_path: Path, job: str
) -> None:
    path, out = tmp_path / "h", tmp_path / "out"
    spark = None if job == "detections" else request.getfixturevalue("spark")
    taken = [bank("bank-1", sequence, lost=9 * (sequence > 1)) for sequence in range(5)]
    add(path, taken[:3])
    for later in (taken[3:4], taken[4:]):
        with follower(spark, History(path), out, job) as one:
            one.turn()
        upkeep.drop(path, "snapshots", ["bank-1-0000", "bank-1-0001"], "")
        add(path, later, taken[: later[0].sequence])
    with follower(spark, History(path), out, job) as one:
        one.turn()

    found = rows(out, job)
    answers = [found[one.snapshot_id, OWN.name] for one in taken]
    assert [row["holds"] for row in answers] == [None, True, False, False, False]
    if job == "detections":
        assert [row["alarm"] for row in answers] == [False, False, True, True, True]
        assert {row["detector_spec"] for row in answers} == {to_json(OWN.spec).text}


@pytest.mark.parametrize("job", ["detections", pytest.param("conservation", marks=NIGHTLY)])
def test_while_machines_are_made_no_more_is_told_where_the_standard_is_gone_than_where_it_is_there(
    request: pytest.FixtureRequest, tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detections, "MOST_HERE", 1_000)
    path, out = tmp_path / "h", tmp_path / "out"
    spark = None if job == "detections" else request.getfixturevalue("spark")
    taken = [bank("bank-1", 0), bank("bank-1", 1)]
    taken += [bank("bank-1", 2, unmade=1), bank("bank-1", 3, unmade=1, lost=9), bank("bank-1", 4, unmade=1, lost=-9)]
    taken += [bank("bank-1", 5, lost=9), bank("bank-1", 6)]
    add(path, taken[:2])
    with follower(spark, History(path), out, job) as one:
        one.turn()
    upkeep.drop(path, "snapshots", ["bank-1-0000", "bank-1-0001"], "")
    add(path, taken[2:], taken[:2])
    with follower(spark, History(path), out, job) as one:
        one.turn()

    found = rows(out, job)
    answers = [found[one.snapshot_id, OWN.name]["holds"] for one in taken]
    assert answers == [one.holds for one in live(taken, OWN)] == [None, True, None, None, False, False, True]


def test_who_follows_goes_on_behind_what_was_compacted_and_vacuumed_meanwhile(tmp_path: Path) -> None:
    path, out = tmp_path / "h", tmp_path / "out"
    taken = [bank("bank-1", sequence) for sequence in range(5)]
    for new in (taken[:1], taken[1:2], taken[2:3], taken[3:]):
        add(path, new, taken[: new[0].sequence])
        if new[0].sequence != 1:
            with follower(None, History(path), out, "detections") as one:
                assert one.turn() is not None
                assert one.turn() is None
        History(path).compact()
        History(path).vacuum(retention_hours=0)

    assert {snapshot_id for snapshot_id, _ in rows(out, "detections")} == {one.snapshot_id for one in taken}


class Killed(BaseException):
    """Stands for the end of the process."""


STEPS = ("_write", "_opened", "write_deltalake", "unlink")
BY_DAY = (("write_deltalake", False),)


def kill(patch: pytest.MonkeyPatch, step: str, *, is_done: bool) -> None:
    """End the process at the next call of a step, before or behind what it does."""
    owner: Any = {"_write": following, "_opened": Follower, "unlink": Path}.get(step)
    if owner is None:
        import deltalake

        owner = deltalake
    before = getattr(owner, step)

    def killed(*arguments: Any, **options: Any) -> Any:
        if is_done:
            before(*arguments, **options)
        raise Killed

    patch.setattr(owner, step, killed)


@pytest.mark.parametrize(
    ("job", "step", "is_done"),
    [
        pytest.param(job, step, is_done, marks=() if (step, is_done) in BY_DAY and job == "detections" else NIGHTLY)
        for job in JOBS
        for step in STEPS
        for is_done in (False, True)
    ],
)
def test_whoever_is_killed_anywhere_goes_on_with_nothing_lost_and_nothing_twice(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, step: str, is_done: bool
) -> None:
    first, second, _ = three_parts()
    path, out = tmp_path / "history", tmp_path / "out"
    add(path, first)
    with follower(spark, History(path), out, job) as one:
        one.turn()
    add(path, second, first)

    with monkeypatch.context() as patch:
        kill(patch, step, is_done=is_done)
        with pytest.raises(Killed), follower(spark, History(path), out, job) as one:
            one.turn()
    with follower(spark, History(path), out, job) as one:
        one.turn()

    assert rows(out, job) == whole(spark, History(path), job)


def test_a_snapshot_waits_for_its_detectors_and_nobody_overtakes_it(spark: Any, tmp_path: Path) -> None:
    path, out = tmp_path / "history", tmp_path / "out"
    now = (datetime.now(UTC) - BEGIN).total_seconds()
    taken = [snapshot("bank-1", sequence, at_s=now + sequence, machines=[]) for sequence in range(2)]
    with HistoryWriter(path) as writer:
        for one in taken:
            writer.add(one)
        writer.add_verdicts(live(taken, BANK)[1:])
    with follower(spark, History(path), out, "detections") as one:
        assert one.turn() is None or one.results.exists() is False
        assert [row["sequence"] for row in one.state.waiting] == [0, 1]
        with HistoryWriter(path) as writer:
            writer.add_verdicts(live(taken, BANK)[:1])
        answers = one.turn()

    assert answers is not None
    assert [row["sequence"] for row in answers.to_pylist() if row["detector"] == BANK.name] == [0, 1]


def test_a_snapshot_that_nobody_judges_waits_only_so_long(spark: Any, tmp_path: Path) -> None:
    path, now = tmp_path / "history", (datetime.now(UTC) - BEGIN).total_seconds()
    write(path, [snapshot("bank-1", 0, at_s=now - 30, machines=[])])

    with follower(spark, History(path), tmp_path / "a", "detections", patience_s=3600) as one:
        assert one.turn() is None
        assert len(one.state.waiting) == 1
    with follower(spark, History(path), tmp_path / "b", "detections", patience_s=10) as one:
        assert one.turn() is not None


def test_two_cannot_follow_into_one_folder_and_other_options_are_refused(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "history", three_parts()[0])
    history, out = History(tmp_path / "history"), tmp_path / "out"
    with (
        follower(spark, history, out, "conservation") as one,
        pytest.raises(HistoryWriteError, match="followed into by another process"),
        follower(spark, history, out, "conservation"),
    ):
        pass
    one.selection = Selection(system="bank")
    with pytest.raises(SettingError, match="followed into with other options"), one:
        pass


def test_a_damaged_state_is_named(spark: Any, tmp_path: Path) -> None:
    add(tmp_path / "history", three_parts()[0])
    history, out = History(tmp_path / "history"), tmp_path / "out"
    with follower(spark, history, out, "conservation") as one:
        one.turn()
    (state,) = (out / "_state").iterdir()
    state.write_text("{")

    with pytest.raises(HistoryFormatError, match=r"000000000001\.json does not say how far the results beside it go"):
        follower(spark, history, out, "conservation").__enter__()


@pytest.mark.nightly
def test_the_command_prints_what_is_new_once(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history"
    first, second, third = three_parts()
    add(path, first)
    command = ["analyze", str(path), "conservation", "--follow", "--once"]
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    add(path, second, first)
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "bank-2-0001" in told
    assert "bank-1-0004" not in told
    add(path, third, first + second)
    assert main([*command, "--json"]) == 0
    assert {json.loads(line)["snapshot_id"] for line in capsys.readouterr().out.splitlines()} == {
        "bank-1-0005",
        "bank-2-0002",
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["traffic", "--follow"], "the job traffic cannot follow a history: detections and conservation can"),
        (["detections", "--once"], "--once says how to --follow"),
        (["detections", "--follow", "--out", "s3://x/y"], "--follow writes to a folder of this machine"),
    ],
)
def test_what_cannot_be_followed_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    add(tmp_path / "history", three_parts()[0])

    assert main(["analyze", str(tmp_path / "history"), *arguments]) == 2
    assert told in capsys.readouterr().err
