"""What the pages say of running systems whatever those answer, or do not: by askers that a test speaks for."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from incidents import deadlocked, healthy, judged, written
from viewing import Told, viewer

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.errors import ClusterError
from ray_snapshot.glances import Glance, Word, glance_of
from ray_snapshot.history import HistoryWriter
from ray_snapshot.web.live import Clusters
from ray_snapshot.web.pages.now import Now, SystemNow, now
from ray_snapshot.web.served import Running, Served

ALARM = Word("deadlock", True, True, "Deadlock: a waits for b.")
CLEAR = Word("deadlock", False, False, "No deadlock.")


def glance(place: int, *words: Word, name: str = "r1", **row: Any) -> Glance:
    found = Snapshot.from_rows(
        machines=[{"machine": "a"}], snapshot_id=f"{name}-{place}", run_id=name, system="bank", **row
    )
    return glance_of(found, place, words)


class Spoken:
    """An asker that says what a test says."""

    def __init__(self, answers: Callable[..., Any]) -> None:
        self.answers = answers

    def ask(self, seconds: float, *question: Any) -> Any:
        return self.answers(*question)

    def close(self) -> None:
        pass


class Cluster:
    """One cluster, with one system; every look goes through `Clusters` as it is."""

    def __init__(self) -> None:
        self.glances: list[Glance] = []
        self.origin = "first"
        self.about: dict[str, Any] = {"run_id": "r1"}
        self.fails: Exception | None = None
        self.finds: Exception | None = None
        self.clusters = Clusters(Served())
        self.clusters.finder = Spoken(self._find)  # type: ignore[assignment]
        self.clusters.askers["here:1"] = Spoken(self._glance)  # type: ignore[assignment]

    def _find(self, *_: Any) -> tuple[Mapping[str, tuple[str, ...]], list[str]]:
        if self.finds is not None:
            raise self.finds
        return {"here:1": ("bank",)}, []

    def _glance(self, _: str, name: str, origin: str, place: int) -> dict[str, Any]:
        assert name == "bank"
        if self.fails is not None:
            raise self.fails
        fresh = self.glances if origin != self.origin else [one for one in self.glances if one.place > place]
        return {**self.about, "origin": self.origin, "history": None, "open": [], "glances": list(fresh)}

    def look(self) -> list[Running]:
        self.clusters._find()
        self.clusters._poll()
        return [
            Running(one.name, one.about, tuple(one.glances), one.place, one.trouble)
            for one in self.clusters._systems.values()
        ]

    def page(self) -> Now:
        served = Served()
        seen = self.look()

        class Seen:
            def systems(self) -> list[Running]:
                return seen

            def not_asked(self) -> list[str]:
                return []

        served.live = Seen()  # type: ignore[assignment]
        return now(served)

    def told(self) -> SystemNow:
        (found,) = self.page().systems
        return found


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_glances_are_asked_for_once_each(cluster: Cluster) -> None:
    cluster.glances = [glance(1, CLEAR)]
    assert [one.place for one in cluster.look()[0].glances] == [1]
    cluster.glances.append(glance(2, ALARM))
    assert [one.place for one in cluster.look()[0].glances] == [1, 2]
    assert cluster.told().level == "alarm"


def test_a_program_that_is_started_again_is_not_mixed_with_the_one_before(cluster: Cluster) -> None:
    cluster.glances = [glance(1, ALARM)]
    assert cluster.told().level == "alarm"
    cluster.glances, cluster.origin, cluster.about = [glance(1, CLEAR, name="r2")], "second", {"run_id": "r2"}
    told = cluster.told()
    assert (told.level, told.run_id, told.snapshot_id) == ("clear", "r2", "r2-1")


def test_a_look_that_fails_takes_no_alarm_away(cluster: Cluster) -> None:
    cluster.glances = [glance(1, ALARM)]
    cluster.look()
    cluster.finds = ClusterError("the clusters of this machine did not answer")
    told = cluster.told()
    assert (told.level, told.snapshot_id) == ("alarm", "r1-1")


@pytest.mark.parametrize("error", [ClusterError("it did not answer"), KeyError("glances"), OSError("no process")])
def test_a_system_that_does_not_answer_is_not_clear(cluster: Cluster, error: Exception) -> None:
    cluster.glances = [glance(1, CLEAR)]
    assert cluster.told().level == "clear"
    cluster.fails = error
    told = cluster.told()
    assert told.level == "unknown"
    assert str(error.args[0]) in told.trouble


def test_a_system_that_has_failed_is_not_clear(cluster: Cluster) -> None:
    cluster.glances, cluster.about = [glance(1, CLEAR)], {"run_id": "r1", "failed": "host-0 died"}
    told = cluster.told()
    assert (told.level, told.trouble) == ("unknown", "host-0 died")


def test_a_snapshot_that_was_given_up_ends_no_alarm(cluster: Cluster) -> None:
    cluster.glances = [glance(1, ALARM), glance(2, status="aborted", abort_reason="host-0 is gone")]
    told = cluster.told()
    assert (told.level, told.snapshot_id) == ("alarm", "r1-1")
    assert ("the last one", "was given up: host-0 is gone") in told.facts


def test_a_system_of_which_nobody_asks_whether_it_is_deadlocked_is_not_clear(cluster: Cluster) -> None:
    cluster.glances = [glance(1, Word("termination", False, False, "Not terminated."))]
    assert cluster.told().level == "unknown"


def test_a_system_without_a_snapshot_is_no_good_news(cluster: Cluster) -> None:
    page = cluster.page()
    assert (page.level, page.headline) == ("none", "No snapshot was taken yet")


# ---- of histories --------------------------------------------------------------------------------------------------------


def test_a_deadlock_that_nobody_has_judged_is_an_alarm(tmp_path: Path) -> None:
    with viewer(written(tmp_path / "h", [deadlocked(0)], verdicts={})) as seen:
        assert "Alarm: deadlock in bank" in Told(seen.page("/")).words


def test_of_many_systems_the_alarm_is_shown(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        for number in range(52):
            one = (deadlocked if number == 7 else healthy)(number, system=f"s{number:02}", run_id=f"run-{number}")
            writer.add(one)
            writer.add_verdicts(judged(one) if number == 7 else [])
    with viewer(tmp_path / "h") as seen:
        said = seen.json("/")
        assert (said["headline"], said["systems"][0]["name"]) == ("Alarm: deadlock in s07", "s07")
        assert (len(said["systems"]), said["more_systems"]) == (50, 2)


def test_the_gravest_of_several_evaluators_counts_on_every_page(tmp_path: Path) -> None:
    one = deadlocked(0)
    found = [
        Verdict(detector="deadlock", holds=True, alarm=True, snapshot_id=one.snapshot_id, run_id="run-1", evaluator="live"),
        Verdict(detector="deadlock", holds=False, snapshot_id=one.snapshot_id, run_id="run-1", evaluator="offline"),
    ]  # fmt: skip
    for number, verdicts in enumerate((found, found[::-1])):
        with viewer(written(tmp_path / f"h{number}", [one], {one.snapshot_id: verdicts})) as seen:
            (listed,) = seen.json(f"/h/h{number}")["listed"]
            assert (listed["answer"], seen.json("/")["level"]) == ("alarm", "alarm")


def test_a_snapshot_of_which_rows_are_missing_is_not_shown_as_whole(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    path = written(tmp_path / "h", [deadlocked(0)])
    DeltaTable(str(path / "machines")).delete("machine = 'a'")
    with viewer(path) as seen:
        assert "some are missing or doubled" in seen.json("/h/h/s/bank-00000", 500)["error"]
        assert "some are missing or doubled" in Told(seen.page("/")).words


def test_rows_that_are_alike_are_on_one_page_each(tmp_path: Path) -> None:
    channels = [
        {"source": "hub", "target": f"m{number:03}", "sent_count": 1, "accepted_count": 1} for number in range(120)
    ]
    machines = [{"machine": name} for name in ("hub", *(one["target"] for one in channels))]
    with viewer(
        written(tmp_path / "h", [Snapshot.from_rows(machines=machines, channels=channels, snapshot_id="s")], {})
    ) as seen:
        for query in ("sort=sent", "sort=sent&down=1", "sort=source&down=1"):
            pages = [seen.json(f"/h/h/s/s/channels?rows=25&page={page}&{query}")["rows"] for page in range(1, 6)]
            targets = [row["target"] for rows in pages for row in rows]
            assert len(set(targets)) == len(targets) == 120, query


def test_now_is_by_the_clock_of_this_machine(tmp_path: Path) -> None:
    with viewer(written(tmp_path / "h", [healthy(0, started_at=datetime.now(UTC))])) as seen:
        assert seen.json("/")["systems"][0]["age"] in {"less than a second", *(f"{number} s" for number in range(60))}
