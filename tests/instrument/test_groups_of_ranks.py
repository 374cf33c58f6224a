"""Which groups of ranks a process is in, where its threads stand in them, and what the watcher makes of that: no torch, no Ray.

`c10d` stands for torch.distributed's module: its table of groups, and functions of its names that wait as its own do.
"""

import json
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from until import until

from ray_snapshot.instrument.deaths import Life
from ray_snapshot.instrument.process.collectives import Collectives, Membership, Stand
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.rank_groups import RankGroups
from ray_snapshot.protocol.calls import MachineReport
from ray_snapshot.runtime.here import frames_of_threads

SOURCE = """
__all__ = ["all_reduce", "all_gather_into_tensor", "recv", "init_process_group", "destroy_process_group", "new_group"]

def all_reduce(tensor, group=None, wait=None):
    wait()

def all_gather_into_tensor(tensor, group=None, wait=None):
    all_reduce(tensor, group, wait)

def destroy_process_group(group=None, wait=None):
    wait()

def new_group(ranks=None, wait=None):
    wait()

def recv(tensor, src=None, group=None, wait=None):
    group_src = None
    wait()

def init_process_group(rank, world_size, wait=None):
    timeout = bound
    _create_c10d_store("10.0.0.1", 29500, rank, world_size, wait)

def _create_c10d_store(hostname, port, rank, world_size, wait):
    wait()
"""


class Backend:
    def __init__(self, group: Any, minutes: int) -> None:
        self.group, self.options = group, SimpleNamespace(_timeout=timedelta(minutes=minutes))

    def _get_sequence_number_for_group(self) -> int:
        number: int = self.group.number
        return number


class Group:
    group_name, group_desc = "0", "default_pg"
    number, devices, answers_after_s = 411, ("cpu",), 0.0

    def __init__(self) -> None:
        self.backends = {"cpu": Backend(self, 30), "cuda": Backend(self, 60)}

    def rank(self) -> int:
        return 1

    @property
    def _device_types(self) -> tuple[str, ...]:
        return self.devices

    def _get_backend(self, device: str) -> Any:
        end = time.monotonic() + self.answers_after_s
        until(lambda: time.monotonic() >= end, seconds=10.0)
        return self.backends[device]


Group.__module__ = "torch.of_this_test"


class Tensor:
    pass


class Work:
    """Of an operation that was begun: its `wait` is in C."""

    def __init__(self, lock: Any) -> None:
        self.wait = lock.acquire


def recorded(number: int, name: str = "all_reduce", group: str = "0", *, retired: bool = False) -> dict[str, Any]:
    """As torch's flight recorder has an operation."""
    about = {"process_group": [group, "about"], "profiling_name": f"gloo:{name}", "state": "scheduled"}
    return {**about, "collective_seq_id": number, "retired": retired}


def of_work(work: Any) -> None:
    work.wait()


def of_what_is_begun(begin: Callable[[], Any]) -> None:
    begin().wait()


IN_BACKWARD: dict[str, Any] = {"__name__": "torch.autograd.graph"}
exec("def _engine_run_backward(lock):\n    lock.acquire()", IN_BACKWARD)


@pytest.fixture
def c10d(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("torch.distributed.distributed_c10d")
    module.bound = timedelta(seconds=60)
    exec(compile(SOURCE, "/lib/site-packages/torch/distributed/distributed_c10d.py", "exec"), vars(module))
    group = Group()
    store = SimpleNamespace(underlying_store=SimpleNamespace(host="10.0.0.1", port=29500))
    module.world = SimpleNamespace(pg_map={group: ("gloo", store)}, pg_group_ranks={group: {0: 0, 1: 1, 5: 2}})
    vars(module)["_world"], module.GroupMember = module.world, SimpleNamespace(WORLD=group)
    module.Work, module.recorded = Work, []
    in_c: Any = ModuleType("torch._C._distributed_c10d")
    vars(in_c)["_dump_fr_trace_json"] = lambda collectives, active: json.dumps({"entries": module.recorded})
    monkeypatch.setitem(sys.modules, in_c.__name__, in_c)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@contextmanager
def inside(function: Callable[..., Any], *args: Any) -> Iterator[int]:
    """A thread is in there, waiting."""
    entered, leave = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leave.wait()

    thread = threading.Thread(target=lambda: function(*args, wait=wait))
    thread.start()
    entered.wait()
    try:
        yield thread.ident or 0
    finally:
        leave.set()
        thread.join()


def told(looks: Collectives, now: float, calls: dict[int, str] | None = None) -> Membership:
    (one,) = looks.look(frames_of_threads(), calls or {}, now, 0.0) or ()
    return one


def test_a_thread_in_a_collective_is_told_with_its_group_since_when_it_stands_there(c10d: Any) -> None:
    looks = Collectives()
    assert told(looks, 1.0) == Membership(told(looks, 1.0).key, "world", 3, 1, 411)
    with inside(c10d.all_reduce, Tensor()) as thread:
        first, later = told(looks, 10.0, {thread: "A.step"}), told(looks, 100.0, {thread: "A.step"})
        assert first.stand is not None
        assert first.stand[:1] + first.stand[2:-1] == ("all_reduce", 10.0, 1_810.0, (), True, "A.step")
        assert first.stand.call_site.rpartition(":")[0] == __file__
        assert later == first
        assert later.what == "in torch.distributed.all_reduce, number 411 of group world"
        c10d.GroupMember.WORLD.devices = ("cpu", "mps")
        unknown = told(looks, 150.0)
        c10d.GroupMember.WORLD.devices = ("cpu",)
        assert unknown.stand is not None
        assert (unknown.number, unknown.stand.since) == (-1, 10.0)
        c10d.GroupMember.WORLD.number += 1
        assert told(looks, 200.0).stand.since == 200.0, "it is another one"  # type: ignore[union-attr]
    assert told(looks, 300.0).stand is None


@contextmanager
def behind(c10d: Any, function: Callable[[Any], Any], *entries: dict[str, Any]) -> Iterator[tuple[Collectives, int]]:
    """A thread waits in C for what was begun before, with these entries of the flight recorder."""
    lock, looks = threading.Lock(), Collectives()
    c10d.recorded[:] = entries
    lock.acquire()
    thread = threading.Thread(target=function, args=(lock,))
    thread.start()
    try:
        yield looks, thread.ident or 0
    finally:
        lock.release()
        thread.join()


WAYS: dict[str, Callable[[Any], Any]] = {
    "work": lambda lock: of_work(Work(lock)),
    "backward": IN_BACKWARD["_engine_run_backward"],
}


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_behind_what_it_has_begun_stands_in_the_first_that_is_under_way(c10d: Any, way: str) -> None:
    entries = recorded(409, retired=True), recorded(410), recorded(411, "broadcast")
    with behind(c10d, WAYS[way], *entries) as (looks, thread):
        one = until(lambda: told(looks, 10.0, {thread: "A.step"}), good=lambda one: one.stand is not None, seconds=10.0)
        assert one.stand is not None
        assert (one.number, one.stand.operation, one.stand.begun) == (410, "all_reduce", 411)
        assert (one.stand.until, one.stand.call) == (1_810.0, "A.step")
        assert [told(looks, 100.0).stand.since] == [10.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("why", ["two groups", "a recv", "another backend", "no collective"])
def test_where_it_may_wait_for_another_operation_it_has_no_number(c10d: Any, why: str) -> None:
    entries = {
        "two groups": [recorded(411), recorded(1, group="1")],
        "a recv": [recorded(409, retired=True), recorded(411)],
        "another backend": [recorded(410)],
        "no collective": [recorded(411, "sparse_all_reduce")],
    }
    if why == "two groups":
        other = Group()
        other.group_name = "1"
        c10d.world.pg_map[other] = c10d.world.pg_map[c10d.GroupMember.WORLD]
        c10d.world.pg_group_ranks[other] = {0: 0, 1: 1, 5: 2}
    with behind(c10d, WAYS["work"], *entries[why]) as (looks, _):

        def look() -> list[Membership]:
            return [one for one in looks.look(frames_of_threads(), {}, 10.0, 0.0) or () if one.stand is not None]

        (one,) = until(look, seconds=10.0)
        assert one.number == -1


def test_what_may_as_well_compute_or_wait_for_another_thing_stands_in_nothing(c10d: Any) -> None:
    with behind(c10d, WAYS["backward"], recorded(411)) as (looks, _):
        until(lambda: told(looks, 10.0).stand, good=bool, seconds=10.0)
        (one,) = looks.look(frames_of_threads(), {}, 20.0, -1.0) or ()
        assert one.stand is None
    others: dict[str, Any] = {"of_work": [lambda lock: of_work(SimpleNamespace(wait=lock.acquire)), recorded(411)]}
    for name, waits in {"_engine_run_backward": [WAYS["backward"]], **others}.items():
        with behind(c10d, *waits) as (looks, thread):
            until(lambda: frames_of_threads()[thread].f_code.co_name, good=name.__eq__, seconds=10.0)
            assert told(looks, 1.0).stand is None


@pytest.mark.parametrize("way", ["without a name", "without a recorder"])
def test_an_operation_without_a_name_or_a_recorder_has_no_number(c10d: Any, way: str) -> None:
    if way == "without a recorder":
        del sys.modules["torch._C._distributed_c10d"]
    waits = WAYS["work"] if way == "without a recorder" else lambda lock: of_what_is_begun(lambda: Work(lock))
    with behind(c10d, waits, recorded(411)) as (looks, _):
        one = until(lambda: told(looks, 10.0), good=lambda one: one.stand is not None, seconds=10.0)
        assert one.number == -1


def test_nothing_that_it_works_with_lives_longer(c10d: Any) -> None:
    tensor = Tensor()
    kept = weakref.ref(tensor)
    with inside(c10d.all_reduce, tensor):
        del tensor
        told(Collectives(), 1.0)
    until(lambda: kept() is None, seconds=10.0)


def test_a_process_that_computes_meanwhile_is_not_quiet(c10d: Any) -> None:
    looks = Collectives()
    with inside(c10d.all_reduce, Tensor()):
        told(looks, 10.0)
        (one,) = looks.look(frames_of_threads(), {}, 20.0, -1.0) or ()
        assert one.stand is not None
        assert not one.stand.is_quiet


def test_what_no_rank_waits_for_is_no_collective_and_of_two_names_the_inner_one_is_told(c10d: Any) -> None:
    with inside(c10d.destroy_process_group):
        assert told(Collectives(), 1.0).stand is None
    with inside(c10d.all_gather_into_tensor, Tensor()):
        assert told(Collectives(), 1.0).stand.operation == "all_reduce"  # type: ignore[union-attr]


def test_the_number_is_that_of_all_backends_and_none_where_one_counts_nothing(c10d: Any) -> None:
    group = c10d.GroupMember.WORLD
    with inside(c10d.new_group):
        assert told(Collectives(), 1.0).number == -1, "it counts nothing"
    group.devices = ("cpu", "cuda", "cpu")
    with inside(c10d.all_reduce, Tensor()):
        one = told(Collectives(), 0.0)
        assert (one.number, one.stand and one.stand.until) == (822, 3_600.0)
        group.number = 0
        assert told(Collectives(), 1.0).number == -1, "it has begun one"
    group.devices = ("cpu", "mps")
    assert told(Collectives(), 1.0).number == -1


def test_counters_are_asked_for_a_short_time_only(c10d: Any) -> None:
    store = c10d.world.pg_map[c10d.GroupMember.WORLD]
    slow = Group()
    slow.group_name, slow.answers_after_s = "1", 0.05
    c10d.world.pg_map = {slow: store, c10d.GroupMember.WORLD: store}
    c10d.world.pg_group_ranks[slow] = {0: 0, 1: 1, 5: 2}
    assert [one.number for one in Collectives().look({}, {}, 1.0, 0.0) or ()] == [411, -1]


def test_recv_needs_one_rank_and_who_joins_has_no_group_yet(c10d: Any) -> None:
    with inside(c10d.recv, Tensor(), 5):
        one = told(Collectives(), 1.0)
        assert one.stand is not None
        assert one.stand.among == (5,)
    c10d.world.pg_map.clear()
    with inside(c10d.init_process_group, 2, 8):
        one = told(Collectives(), 1.0)
        assert (one.key, one.size, one.rank, one.number) == ("joining 10.0.0.1:29500", 8, 2, -1)
        assert one.stand is not None
        assert one.stand.until == 61.0
    assert Collectives().look(frames_of_threads(), {}, 1.0, 0.0) == ()


def test_a_torch_of_another_shape_is_not_known_and_none_at_all_is_no_group(c10d: Any) -> None:
    del c10d.world.pg_map
    assert Collectives().look({}, {}, 1.0, 0.0) is None
    del sys.modules[c10d.__name__]
    assert Collectives().look({}, {}, 1.0, 0.0) == ()


# ---- the watcher ----------------------------------------------------------------------------------------------------

NOW = 1_000.0
ALIVE: dict[str, Life] = {}


def stand(since: float = NOW - 37) -> Stand:
    return Stand("all_reduce", "train.py:99", since, math.inf, (), True, "call")


def report(
    rank: int, *, at: Stand | None = None, key: str = "10.0.0.1:29500 0 3", incarnation: int = 0
) -> ProcessReport:
    groups = (Membership(key, "world", 3, rank, 411 + (at is not None), at),)
    return ProcessReport(MachineReport(f"Rank:{rank}", incarnation, 0, 0), 0.0, groups=groups)


def states(
    groups: RankGroups, reports: list[ProcessReport], lives: dict[str, Life] = ALIVE
) -> dict[tuple[int, str], str]:
    by_name = {one.report.machine: one for one in reports}
    found = groups.rows(by_name, lives, {f"key-{n}": f"Rank:{n}" for n in range(3)}, NOW)
    return {(row["rank"], row["machine"]): row["state"] for one in found for row in one["members"]}


def test_a_group_is_told_while_a_rank_has_stood_in_it_for_long() -> None:
    groups = RankGroups()
    assert states(groups, [report(0), report(1), report(2)]) == {}
    assert states(groups, [report(0, at=stand(NOW - 3)), report(1), report(2)]) == {}
    whole = {(n, f"Rank:{n}"): "" for n in range(3)}
    assert states(groups, [report(0, at=stand()), report(1), report(2)]) == whole


def test_ranks_that_are_gone_are_told_as_what_they_are() -> None:
    groups, waits = RankGroups(), report(0, at=stand())
    states(groups, [waits, report(1), report(2)])
    without = ProcessReport(MachineReport("Rank:2", 0, 0, 0), 0.0)
    dead = {"key-1": Life(True, 0, 0.0)}
    assert states(groups, [waits, without], dead) == {(0, "Rank:0"): "", (1, "Rank:1"): "died", (2, "Rank:2"): "left"}
    unknown = ProcessReport(MachineReport("Rank:2", 0, 0, 0), 0.0, groups=None)
    assert states(groups, [waits, unknown]) == {(0, "Rank:0"): "", (1, "Rank:1"): "unseen", (2, "Rank:2"): "unseen"}


def test_a_process_that_was_started_again_is_another_rank_until_it_has_entered_again() -> None:
    groups, waits = RankGroups(), report(0, at=stand())
    states(groups, [waits, report(1), report(2)])
    again = ProcessReport(MachineReport("Rank:2", 1, 0, 0), 0.0)
    assert states(groups, [waits, report(1), again])[2, "Rank:2"] == "died"
    assert states(groups, [waits, report(1), report(2, incarnation=1)])[2, "Rank:2"] == ""


def test_groups_of_two_jobs_are_two_and_one_that_all_have_left_is_forgotten() -> None:
    groups = RankGroups()
    other = report(1, key="10.0.0.1:29600 0 3")
    assert states(groups, [report(0, at=stand()), other]) == {(0, "Rank:0"): ""}
    states(groups, [])
    assert groups.ranks == {}


def test_of_a_group_that_is_not_made_yet_those_count_that_stand_there() -> None:
    groups, key = RankGroups(), "joining 10.0.0.1:29500"
    both = [report(0, at=stand(), key=key), report(1, at=stand(), key=key)]
    assert states(groups, both) == {(0, "Rank:0"): "", (1, "Rank:1"): ""}
    assert states(groups, [both[0], report(1)]) == {(0, "Rank:0"): ""}
