"""Who writes into a history in a store holds a lease; one that is over is told by a looker's own clock, and cannot be used."""

import gc
from typing import Any

import pytest
from histories import snapshot, verdict
from limited import limit
from stored import Store, copy
from until import until

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import History, HistoryWriter, commits, leases, objects, upkeep
from ray_snapshot.history.stores import StoreFault
from ray_snapshot.limits import LIMITS


class Clock:
    """A monotonic clock that goes when it is told to; of one computer, so each begins anywhere."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def history(bucket: str) -> StorePath:
    return StorePath(bucket, "history")


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is renewed but by the tests."""
    monkeypatch.setattr(leases, "_renew_often", lambda *_: None)


def over(history: StorePath, looks: leases.Looks, key: str | None = None) -> list[str]:
    return [dead.owner for dead in leases.dead_writers(history, key, looks)]


def test_a_record_that_nobody_renews_is_over_when_it_was_seen_for_long_enough(history: StorePath, never: None) -> None:
    lease, clock = leases.Lease(history, "system:bank", Clock(1e9)), Clock(5.0)
    lease.intend(["one"])
    looks = leases.Looks(clock)
    assert over(history, looks) == [], "it is seen the first time"
    clock.now += LIMITS.lease_s - 1
    assert over(history, looks) == []
    clock.now += 1
    assert over(history, looks, "system:ring") == [], "it is of another key"
    assert over(history, leases.Looks(clock)) == [], "another looker has seen it the first time"
    assert over(history, looks) == [lease.owner]
    assert over(history, looks) == [], "it was taken, so its tag is another: who has taken it may live"


def test_a_record_that_is_renewed_late_counts_as_seen_anew(history: StorePath, never: None) -> None:
    lease, clock = leases.Lease(history, "system:bank", Clock(0.0)), Clock(1e6)
    lease.intend(["one"])
    looks = leases.Looks(clock)
    over(history, looks)
    clock.now += 2 * LIMITS.lease_s
    lease.renew()  # late, but nobody had looked
    assert over(history, looks) == []
    clock.now += LIMITS.lease_s - 1
    lease.check()
    assert over(history, looks) == []
    lease.close()
    assert over(history, looks) == []
    assert leases.owners_there(history) == set()


def test_a_lease_that_was_taken_over_can_be_used_no_more(history: StorePath, never: None) -> None:
    lease, clock = leases.Lease(history, "system:bank", Clock(0.0)), Clock(0.0)
    lease.intend(["one"])
    looks = leases.Looks(clock)
    over(history, looks)
    clock.now += LIMITS.lease_s
    (dead,) = leases.dead_writers(history, None, looks)
    assert (dead.key, dead.snapshot_ids) == ("system:bank", ["one"])
    for use in (lease.renew, lease.check, lambda: lease.intend(["two"])):
        with pytest.raises(
            HistoryWriteError, match=r"did not renew its lease for 30 s, and another process has cleaned up"
        ):
            use()
    lease.close()
    assert leases.owners_there(history) == {lease.owner}, "it is not the loser's any more"
    dead.done()
    assert leases.owners_there(history) == set()


def test_a_lease_whose_renewal_came_through_unheard_goes_on(
    history: StorePath, never: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.Lease(history, "system:bank", Clock(0.0))
    put_if = objects.put_if

    def unheard(*given: Any) -> Any:
        put_if(*given)
        raise StoreFault("the answer was lost")

    for use in (lambda: lease.intend(["one"]), lease.renew, lease.renew):
        monkeypatch.setattr(objects, "put_if", unheard)
        with pytest.raises(StoreFault):
            use()
        monkeypatch.setattr(objects, "put_if", put_if)
        lease.intend(["one"])
        assert objects.read_tagged(lease.path, 10**6)[1] == lease.tag  # type: ignore[index]


def test_check_renews_what_was_not_renewed_for_long(history: StorePath, never: None) -> None:
    lease = leases.Lease(history, "system:bank", clock := Clock(0.0))
    lease.intend([])
    before = lease.tag
    lease.check()
    assert lease.tag == before, "it was just renewed"
    clock.now += LIMITS.renew_lease_s + 1
    lease.check()
    assert lease.tag != before
    assert objects.read_tagged(lease.path, 10**6)[1] == lease.tag  # type: ignore[index]


def test_a_lease_is_renewed_while_somebody_has_it(history: StorePath, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, renew_lease_s=0.02)
    lease = leases.Lease(history, "system:bank")
    lease.intend(["one"])
    path, first = lease.path, lease.tag
    until(lambda: objects.about(path).tag, good=lambda tag: tag != first)
    lease.close()
    lease.intend(["two"])
    second = objects.about(path).tag
    until(lambda: objects.about(path).tag, good=lambda tag: tag != second)
    del lease
    gc.collect()
    last = until(lambda: (objects.about(path).tag, objects.about(path).tag), good=lambda pair: pair[0] == pair[1])[0]
    assert last


def test_of_two_that_clean_up_one_takes_a_record(
    history: StorePath, never: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reads the record just before the first puts its own there."""
    leases.Lease(history, "system:bank").intend(["one"])
    clock = Clock(0.0)
    lookers = [leases.Looks(clock) for _ in range(2)]
    for looks in lookers:
        over(history, looks)
    clock.now += LIMITS.lease_s
    first: list[leases.Dead] = []
    real = objects.read_tagged

    def read(path: StorePath, most: int) -> tuple[bytes, str] | None:
        found = real(path, most)
        monkeypatch.setattr(objects, "read_tagged", real)
        first.extend(leases.dead_writers(history, None, lookers[0]))
        return found

    monkeypatch.setattr(objects, "read_tagged", read)
    second = list(leases.dead_writers(history, None, lookers[1]))
    assert (len(first), second) == (1, [])


def test_who_cleaned_up_and_died_is_cleaned_up_after(history: StorePath, never: None) -> None:
    leases.Lease(history, "system:bank").intend(["one", "two"])
    clock = Clock(0.0)
    for _ in range(2):
        looks = leases.Looks(clock)
        over(history, looks)
        clock.now += LIMITS.lease_s
        (dead,) = leases.dead_writers(history, None, looks)
        assert (dead.key, dead.snapshot_ids) == ("system:bank", ["one", "two"])


def test_a_put_whose_answer_was_lost_is_no_loss_of_the_lease(
    history: StorePath, never: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library asks again by itself, and is told that the tag is another: that of its own first put."""
    lease, real = leases.Lease(history, "system:bank"), objects.put_if
    lease.intend(["one"])

    def twice(path: StorePath, content: bytes, tag: str | None) -> str | None:
        real(path, content, tag)
        return real(path, content, tag)

    monkeypatch.setattr(objects, "put_if", twice)
    lease.renew()
    lease.close()
    lease.intend(["two"])
    assert not lease.is_lost


def test_waiting_ends_when_each_record_is_known_to_live_or_not(history: StorePath, never: None) -> None:
    leases.wait(history, leases.Looks(Clock(0.0), pytest.fail))
    living, clock = leases.Lease(history, "system:ring"), Clock(100.0)
    living.intend(["two"])

    def pause(seconds: float) -> None:
        clock.pause(seconds)
        living.renew()

    leases.wait(history, leases.Looks(clock, pause))
    assert clock.now < 102, "who only renews is not waited for"
    dead = leases.Lease(history, "system:bank")
    dead.intend(["one"])
    begun, looks = clock.now, leases.Looks(clock, pause)
    leases.wait(history, looks)
    assert LIMITS.lease_s <= clock.now - begun < LIMITS.lease_s + 2
    assert over(history, looks) == [dead.owner]


ODD = (b"", b"[]", b"{", b"\xff\xfe", b'{"snapshot_ids": 7}', b'{"snapshot_ids": [1, null]}', b"[" * 100_000)


def test_records_that_a_stranger_has_made_are_removed_and_do_nothing(written: StorePath) -> None:
    history = written
    for number, content in enumerate(ODD):
        objects.put(history / "_writers" / f"stranger-{number}.json", content)
    assert len(clean_up(history)) == len(ODD)
    assert leases.owners_there(history) == set()
    assert [problems for _, problems in History(history).verify()] == [[]]


# ---- writers --------------------------------------------------------------------------------------------------------------


def stopped_at(writer: HistoryWriter, table: str, meanwhile: Any) -> None:
    """Call `meanwhile` before the writer commits to a table: it sleeps there."""
    commit = writer._commit

    def late(name: str, rows: Any) -> None:
        if name == table:
            meanwhile()
        commit(name, rows)

    writer._commit = late  # type: ignore[method-assign]


class Killed(BaseException):
    """What ends a writer."""


def killed_at(writer: HistoryWriter, table: str) -> None:
    """The writer writes what it has, and is killed before it commits to a table."""

    def die() -> None:
        raise Killed

    stopped_at(writer, table, die)
    with pytest.raises(Killed):
        writer.flush()


def clean_up(history: StorePath) -> list[str]:
    """What upkeep does for which the lease of the other is over."""
    clock = Clock(0.0)
    looks = leases.Looks(clock)
    upkeep.clean(history, None, looks)
    clock.now += LIMITS.lease_s
    return upkeep.clean(history, None, looks)


@pytest.fixture(scope="module")
def pristine(store: Store) -> str:
    def fill(address: str) -> None:
        with HistoryWriter(address, system="ring") as other:
            other.add(snapshot(1, system="ring"))

    return store.filled(fill)


@pytest.fixture
def written(pristine: str, history: StorePath) -> StorePath:
    copy(pristine, str(history))
    return history


@pytest.fixture
def slept(history: StorePath, written: StorePath, never: None) -> HistoryWriter:
    writer = HistoryWriter(history, system="bank")
    writer.add(snapshot(2))
    writer.add_verdicts([verdict("bank-00002")])
    return writer


@pytest.mark.parametrize(
    "table", ["snapshots", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("machines", "messages"))]
)
@pytest.mark.parametrize("sees", ["the log only", pytest.param("its record", marks=pytest.mark.nightly)])
def test_a_writer_that_slept_while_others_cleaned_up_commits_no_snapshot(
    history: StorePath, slept: HistoryWriter, table: str, sees: str
) -> None:
    """Also if it looks at its record before it falls asleep: then the log refuses it."""
    owner = slept._owner
    stopped_at(slept, table, lambda: clean_up(history) == [owner.owner] or pytest.fail("not cleaned up"))
    if sees == "its record":
        owner.clock = iter(range(0, 10**6, 100)).__next__  # type: ignore[union-attr, assignment]
    for _ in range(2):
        with pytest.raises(HistoryWriteError, match="did not renew its lease"):
            slept.flush()
    assert [row.snapshot_id for row in History(history).snapshots()] == ["ring-00001"]
    assert [problems for _, problems in History(history).verify()] == [[]]


@pytest.mark.parametrize("table", ["snapshots", "machines"])
@pytest.mark.by_day(1)
def test_a_writer_whose_file_came_late_commits_it_no_more(
    history: StorePath, written: StorePath, never: None, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Others clean up while its file is put; it reads the log behind that, so Delta sees no conflict. The next writer, which
    began before, writes the same snapshot, and looks for no rows of it, for it is newer than all that are listed."""
    first = HistoryWriter(history, system="zoo")
    first.add(snapshot(2, system="zoo"))
    write, others = commits.write, []

    def late(path: Any, name: str, *given: Any, **named: Any) -> Any:
        found = write(path, name, *given, **named)
        if name == table and not others:
            assert clean_up(history) == [first._owner.owner]
            others.append(HistoryWriter(history, system="zoo"))
        return found

    monkeypatch.setattr(commits, "write", late)
    with pytest.raises(HistoryWriteError, match="did not renew its lease"):
        first.flush()
    assert [row.snapshot_id for row in History(history).snapshots()] == ["ring-00001"]
    others[0].add_again(snapshot(2, system="zoo"), [])
    others[0].flush()
    found = History(history)
    assert {row.snapshot_id for row in found.snapshots()} == {"ring-00001", "zoo-00002"}
    assert [problems for _, problems in found.verify()] == [[], []]


@pytest.mark.nightly
def test_a_writer_that_slept_behind_its_commit_has_committed(history: StorePath, slept: HistoryWriter) -> None:
    stopped_at(slept, "classes", lambda: clean_up(history))
    slept.flush()
    assert {row.snapshot_id for row in History(history).snapshots()} == {"ring-00001", "bank-00002"}
    assert [problems for _, problems in History(history).verify()] == [[], []]
    slept.add(snapshot(3))
    with pytest.raises(HistoryWriteError, match="did not renew its lease"):
        slept.flush()


def test_who_ends_a_writer_comes_before_its_commit_or_behind_it(history: StorePath, slept: HistoryWriter) -> None:
    """The end of the writer and its commit are two commits to one log, and the later one sees the earlier."""
    real = commits._commit

    def at_once(table: Any, actions: Any, retries: int, turn: commits.Turn | None = None) -> None:
        if turn is not None and turn.number < commits.OVER and "snapshots" in table.table_uri:
            commits.end(history, "snapshots", turn.owner)
        real(table, actions, retries, turn)

    commits._commit = at_once
    try:
        with pytest.raises(HistoryWriteError, match="did not renew its lease"):
            slept.flush()
    finally:
        commits._commit = real
    assert [row.snapshot_id for row in History(history).snapshots()] == ["ring-00001"]


@pytest.mark.parametrize(
    "table",
    [
        "snapshots",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in ("machines", "channels", "classes", "verdicts")),
    ],
)
def test_a_commit_whose_answer_was_lost_is_not_made_twice(history: StorePath, slept: HistoryWriter, table: str) -> None:
    commit = slept._commit

    def lost(name: str, rows: Any) -> None:
        commit(name, rows)
        if name == table:
            slept._commit = commit  # type: ignore[method-assign]
            raise StoreFault("the store cannot be reached")

    slept._commit = lost  # type: ignore[method-assign]
    with pytest.raises(HistoryWriteError, match="cannot be reached"):
        slept.flush()
    slept.add(snapshot(3))
    slept.close()
    found = History(history)
    assert [problems for _, problems in found.verify()] == [[], [], []]
    assert len(found.table("verdicts")) == 1
    assert len(found.stored.read("machines")) == 9
    assert len(found.stored.read("classes")) == 2


@pytest.mark.nightly
def test_the_next_writer_cleans_up_once_the_lease_of_the_first_is_over(
    history: StorePath, slept: HistoryWriter
) -> None:
    killed_at(slept, "snapshots")
    found = History(history)
    assert set(found.stored.read("machines")["snapshot_id"].to_pylist()) == {"ring-00001", "bank-00002"}
    writer = HistoryWriter(history, system="bank")
    clock = Clock(0.0)
    writer._looks = leases.Looks(clock)
    for seconds, left in ((0, {"bank-00002"}), (LIMITS.lease_s, set())):
        clock.now += seconds
        writer.add(snapshot(4 + len(left)))
        upkeep.clean(history, writer._key, writer._looks)
        writer.flush()
        unlisted = set(found.stored.read("machines")["snapshot_id"].to_pylist()) - {
            row.snapshot_id for row in found.snapshots()
        }
        assert unlisted == left
    assert leases.owners_there(history) == set()
    writer.add(snapshot(2))
    writer.close()
    assert {"bank-00002"} <= {row.snapshot_id for row in found.snapshots()}
    assert not any(problems for _, problems in found.verify())


@pytest.mark.nightly
def test_what_another_writer_writes_again_is_not_removed_with_the_first(
    history: StorePath, slept: HistoryWriter
) -> None:
    """An analyst died, and the next one is writing the same snapshots when an upkeep finds out about the first."""
    killed_at(slept, "snapshots")
    clock = Clock(0.0)
    looks = leases.Looks(clock)
    upkeep.clean(history, None, looks)
    clock.now += LIMITS.lease_s
    again = HistoryWriter(history, system="bank")
    again.add(snapshot(2))
    cleaned: list[str] = []
    stopped_at(again, "snapshots", lambda: cleaned.extend(upkeep.clean(history, None, looks)))
    again.flush()
    assert cleaned == [slept._owner.owner]
    assert {row.snapshot_id for row in History(history).snapshots()} == {"ring-00001", "bank-00002"}
    assert [problems for _, problems in History(history).verify()] == [[], []]
