"""What a snapshot's coverage tells of resources, and whom an error may reach, from ledgers and looks at the cluster by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import ray

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock
from ray_snapshot.instrument.capacity import Cluster, Group, LivingActor, Node
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.condemned import Found, condemned
from ray_snapshot.instrument.watcher.resources import Looks, concerns, garbage
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.demands import IMPLICIT, Demand, Held, Owned, Store, Stored, demand
from ray_snapshot.protocol.tasks import call_of_task, task_name, worker_name
from ray_snapshot.runtime.collected import SnapshotHeader

NOW = 100.0
ONE_CPU = demand({"CPU": 1})
NODE = {"n": Node({"CPU": 4.0, "GPU": 1.0})}
STILL = Cluster(NODE, {}, grows=False)
SAME = Looks(STILL, STILL)


@dataclass
class Cut:
    """A driver and actors, of which `held` tells what they have."""

    actors: tuple[str, ...] = ()
    held: dict[str, Held] = field(default_factory=dict)
    ledgers: dict[str, CallLedger] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    tells_callers: bool = False

    def __post_init__(self) -> None:
        for name in (DRIVER, *self.actors):
            self.ledgers[name] = CallLedger(name, acts_unasked=name == DRIVER)
            self.facts[name] = {"class": name.partition("-")[0], "shown": name, "pid": 1, "is_private": True}

    def starts(self, machine: str, key: str, wanted: Demand | None = ONE_CPU, *, at: float = 0.0, **more: Any) -> str:
        """A task `f` that has not begun."""
        name = task_name("f", key)
        self.ledgers[machine].start_task("f", name, (), at, demand=wanted, **more)
        return name

    def waits(self, machine: str, *calls: str) -> None:
        self.ledgers[machine].wait(None, calls, len(calls), 0.0)

    def completed(self) -> CompletedCallSnapshot:
        coordinator = Coordinator()
        coordinator.calls.tells_callers = self.tells_callers
        for name in self.ledgers:
            coordinator.join(name, 0, 0)
        number = coordinator.start(0, 9)
        assert number is not None
        for name, ledger in self.ledgers.items():
            ledger.request(number)
            ledger.record(lambda: None)
            held = self.held.get(name, Held("n", {}, is_clean=True))
            coordinator.report_calls(replace(ledger.report(number), held=held))
        found = coordinator.completed(number)
        assert found is not None
        return found.calls

    def collected(self, looks: Looks | None = SAME) -> CollectedCalls:
        header = SnapshotHeader(1, "app", "1", "calls", [], NOW)
        completed = self.completed()
        recorded = {name: ProcessReport(ledger.report(1), 0.0) for name, ledger in self.ledgers.items()}
        return CollectedCalls(header, completed, recorded, self.facts, tells_callers=self.tells_callers, looks=looks)

    def snapshot(self, looks: Looks | None = SAME) -> Snapshot:
        return self.collected(looks).snapshot()


def resources_of(cut: Cut, looks: Looks = SAME) -> Mapping[str, Any]:
    found: Mapping[str, Any] = cut.snapshot(looks).coverage["resources"]
    return found


def trainer() -> Cut:
    """Trainer-0 has all CPUs, and waits for a task; the driver waits for Trainer-0."""
    cut = Cut(("Trainer-0",), {"Trainer-0": Held("n", {"CPU": 4.0})})
    header = cut.ledgers[DRIVER].submit("Trainer-0", "go", (), 0.0)
    call = cut.ledgers["Trainer-0"].accept(header, "go", 0.0)
    cut.ledgers["Trainer-0"].wait(call, [call_of_task(cut.starts("Trainer-0", "1"))], 1, 0.0)
    cut.waits(DRIVER, call)
    return cut


def test_demands_holdings_and_nodes_are_told_and_that_nobody_can_move_is_concluded() -> None:
    snapshot = trainer().snapshot()
    told = snapshot.coverage["resources"]
    assert told["demands"] == [
        {
            "source": "Trainer-0",
            "target": "f()",
            "numbers": [[1, 1]],
            "needs": {"CPU": 1.0},
            "group": None,
            "bundle": -1,
            "nodes": None,
            "since": 0.0,
        }
    ]
    assert (told["nodes"], told["groups"], told["unsure"]) == ({"n": {"CPU": 4.0}}, [], [])
    (holder,) = told["holders"]
    assert (holder["machine"], holder["amounts"], holder["by"]) == (
        "Trainer-0",
        {"CPU": 4.0},
        [DRIVER, "Trainer-0/0/f()/1"],
    )
    assert Deadlock().evaluate(snapshot).holds is True


def test_actors_that_are_no_machines_and_what_else_is_taken_while_other_programs_run_are_told() -> None:
    cut = trainer()
    cut.facts["Trainer-0"]["key"] = "aa"
    more = {"name": "", "namespace": "jobs", "node": "n", "amounts": {"CPU": 1.0}}
    mine = LivingActor("aa", "Trainer", job="01", is_detached=False, **more)
    other = LivingActor("bb", "Cache", job="02", is_detached=True, **more)
    cluster = replace(STILL, nodes={"n": Node({"CPU": 8.0})}, actors=(mine, other), free={"n": {"CPU": 1.0}})

    def outside(after: Cluster) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = cut.snapshot(Looks(after, after)).coverage["resources"]["outside"]
        return told

    actor = {**more, "key": "bb", "kind": "Cache", "job": "02", "detached": True}
    assert outside(cluster) == [actor]
    assert outside(replace(cluster, other_jobs=("03",))) == [actor, {"job": "03", "node": "n", "amounts": {"CPU": 2.0}}]


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        (Looks(STILL, None), "which Ray did not list"),
        (Looks(None, STILL), "as they were before the snapshot"),
        (Looks(STILL, Cluster({"n": Node({"CPU": 5.0})}, {}, grows=False)), "came or went"),
        (Looks(STILL, replace(STILL, groups={"g": Group("", (), (), "PACK", is_created=True)})), "came or went"),
        (Looks(STILL, replace(STILL, grows=True)), "autoscaler"),
        (Looks(STILL, replace(STILL, grows=None)), "whether an autoscaler"),
    ],
)
def test_what_may_bring_room_makes_the_verdict_unknown(looks: Looks, why: str) -> None:
    verdict = Deadlock().evaluate(trainer().snapshot(looks))
    assert verdict.holds in (None, False)
    if verdict.holds is None:
        assert any(why in text for text in verdict.evidence["depends_on"])
    assert any(why in text for text in looks.unsure())


def test_what_has_waited_for_a_moment_is_about_to_begin() -> None:
    cut = Cut()
    cut.starts(DRIVER, "1", at=NOW - LIMITS.scheduling_s / 2)
    assert not concerns(cut.completed(), NOW)
    cut = Cut()
    cut.starts(DRIVER, "1", at=NOW - LIMITS.scheduling_s / 2)
    cut.starts(DRIVER, "2", at=NOW - 2 * LIMITS.scheduling_s)
    assert [one["numbers"] for one in resources_of(cut)["demands"]] == [[[2, 2]]]


def test_calls_of_one_demand_are_one_row_with_ranges() -> None:
    cut = Cut()
    for key, wanted in enumerate([ONE_CPU, ONE_CPU, demand({"CPU": 2}), ONE_CPU]):
        cut.starts(DRIVER, str(key), wanted)
    rows = resources_of(cut)["demands"]
    assert [(one["needs"]["CPU"], one["numbers"]) for one in rows] == [(1.0, [[1, 2], [4, 4]]), (2.0, [[3, 3]])]


def test_a_constructor_speaks_for_all_that_is_sent_to_its_actor() -> None:
    cut = Cut()
    cut.ledgers[DRIVER].create("actor:Helper:1", "__init__", (), 0.0, demand=ONE_CPU)
    cut.ledgers[DRIVER].submit("actor:Helper:1", "ping", (), 0.0)
    (row,) = resources_of(cut)["demands"]
    assert (row["source"], row["numbers"]) == (None, None)


def test_bundles_of_a_group_are_told_under_the_names_of_ray() -> None:
    group = Group("mine", ({"CPU": 1.0}, {"CPU": 2.0}), ("n", "n"), "PACK", is_created=True)
    cluster = replace(STILL, groups={"g": group})
    cut = Cut()
    cut.starts(DRIVER, "1", demand({"CPU": 1}, "g"))
    nodes = resources_of(cut, Looks(cluster, cluster))["nodes"]
    assert nodes == {"n": {"CPU": 4.0, "CPU_group_g": 3.0, "CPU_group_0_g": 1.0, "CPU_group_1_g": 2.0}}


def test_each_node_has_one_of_a_resource_that_ray_does_not_list() -> None:
    cut = Cut()
    cut.starts(DRIVER, "1", demand({f"{IMPLICIT}app": 0.5}))
    assert resources_of(cut)["nodes"] == {"n": {f"{IMPLICIT}app": 1.0}}
    assert IMPLICIT == ray._raylet.IMPLICIT_RESOURCE_PREFIX  # type: ignore[attr-defined]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_task_whose_thread_or_loop_waits_keeps_its_cpu(keeps: bool) -> None:
    """Ray takes a CPU back from a `ray.get` of the main thread, and from nothing else."""
    cut = Cut()
    name = worker_name("w", 1)
    cut.ledgers[name] = CallLedger(name)
    cut.facts[name] = {"class": "worker", "shown": "worker-0", "pid": 1}
    cut.held[name] = Held("n", {"CPU": 4.0})
    outer = cut.starts(DRIVER, "1")
    cut.facts[outer] = {"class": "", "shown": "outer-0"}
    call = cut.ledgers[name].accept_task(outer, "f", 0.0)
    cut.ledgers[name].wait(call, [call_of_task(cut.starts(name, "2"))], 1, 0.0, keeps_cpu=keeps)
    cut.waits(DRIVER, call_of_task(outer))
    assert Deadlock().evaluate(cut.snapshot()).holds is keeps


def test_a_demand_may_be_bound_to_a_node_or_to_labels() -> None:
    nodes = {"a": Node({"CPU": 1.0}, {"zone": "x"}), "b": Node({"CPU": 1.0}, {"zone": "y"})}
    cluster = Cluster(nodes, {}, grows=False)
    cut = Cut()
    wanted = [
        demand({"CPU": 1}, node="b"),
        demand({"CPU": 1}, node="gone"),
        demand({"CPU": 1}, labels=[("zone", "x")]),
        demand({"CPU": 1}, labels=[("zone", "!x")]),
    ]
    for key, one in enumerate(wanted):
        cut.starts(DRIVER, str(key), one)
    rows = resources_of(cut, Looks(cluster, cluster))["demands"]
    assert [one["nodes"] for one in rows] == [["b"], None, ["a"], None]


def idle(*, is_clean: bool = True) -> Cut:
    """Idle-0 is at rest, has all CPUs, and the driver has its handle and waits for a task."""
    cut = Cut(("Idle-0",), {"Idle-0": Held("n", {"CPU": 4.0}), DRIVER: Held("n", {}, is_clean=is_clean)})
    cut.ledgers[DRIVER].hold("Idle-0")
    cut.waits(DRIVER, call_of_task(cut.starts(DRIVER, "1", at=10.0)))
    return cut


def _a_worker_has_it(cut: Cut) -> None:
    """Ray may end one that idles."""
    worker = worker_name("1", 1)
    cut.ledgers[worker] = CallLedger(worker)
    cut.facts[worker] = {"class": "worker", "shown": worker, "pid": 2}
    cut.ledgers[worker].hold("Idle-0")


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        (lambda cut: None, True),
        (lambda cut: cut.held.update({DRIVER: Held("n", {}, is_clean=False)}), None),
        (lambda cut: cut.facts["Idle-0"].update(name="idle", is_private=False), None),
        (lambda cut: cut.ledgers[DRIVER].holds.discard("Idle-0"), None),
        (_a_worker_has_it, None),
    ],
    ids=["clean", "in garbage", "others may know it", "no handle is left", "a worker has it"],
)
def test_a_handle_counts_if_all_garbage_was_collected_and_nobody_else_may_end_its_actor(
    change: Any, holds: bool | None
) -> None:
    cut = idle()
    change(cut)
    assert Deadlock().evaluate(cut.snapshot()).holds is holds


def test_who_may_have_a_handle_in_garbage_is_asked_to_collect_it() -> None:
    assert list(garbage(idle(is_clean=False).completed(), NOW)) == [DRIVER]
    assert list(garbage(idle().completed(), NOW)) == []
    assert list(garbage(idle(is_clean=False).completed(), 10.0 + LIMITS.garbage_look_s / 2)) == []
    assert list(garbage(trainer().completed(), NOW)) == [], "an actor that is stuck in a call is kept by that"


def test_nobody_is_asked_to_collect_while_anything_acts() -> None:
    cut = idle(is_clean=False)
    header = cut.ledgers[DRIVER].submit("Idle-0", "go", (), 0.0)
    cut.ledgers["Idle-0"].accept(header, "go", 0.0)
    assert list(garbage(cut.completed(), NOW)) == []


def test_an_actor_that_has_a_name_may_be_found_by_anybody() -> None:
    cut = idle()
    cut.facts["Idle-0"]["name"] = "idle"
    assert [one["by"] for one in resources_of(cut)["holders"]] == [None]


# ---- object stores -----------------------------------------------------------------------------------------------------


def _held(node: str, store: Store | None, **owned: Owned) -> Held:
    return Held(node, {}, stored=Stored(store, owned, not_looked_at=1))


def test_of_a_store_that_is_short_of_room_the_latest_is_told_and_every_owner_on_any_node() -> None:
    def store(in_use: int, told_at: float) -> Store:
        return Store(100, in_use, spilled=7, arguments=5, waiting=0, told_at=told_at)

    cut = Cut(("A-0", "B-0"))
    cut.held = {
        DRIVER: _held("n", store(10, 1.0), n=Owned(2, 40)),
        "A-0": _held("n", store(90, 2.0), m=Owned(1, 10), n=Owned(0, 0, 1, 25)),
        "B-0": _held("m", store(80, 2.0), n=Owned(1, 5)),
    }
    (row,) = cut.snapshot().coverage["stores"]
    assert {name: value for name, value in row.items() if name != "owners"} == {
        "node": "n",
        "capacity": 100,
        "in_use": 90,
        "spilled": 7,
        "arguments": 5,
        "waiting": 0,
        "told_at": 2.0,
        "not_looked_at": 3,
    }
    assert row["owners"] == [
        {"machine": DRIVER, "objects": 2, "size": 40, "spilled_objects": 0, "spilled_size": 0},
        {"machine": "A-0", "objects": 0, "size": 0, "spilled_objects": 1, "spilled_size": 25},
        {"machine": "B-0", "objects": 1, "size": 5, "spilled_objects": 0, "spilled_size": 0},
    ]


def test_what_a_worker_owns_is_told_once_of_the_task_that_it_runs() -> None:
    cut = trainer()
    worker, key = worker_name("1", 1), "2"
    cut.ledgers[worker] = CallLedger(worker)
    cut.facts[worker] = {"class": "worker", "shown": worker, "pid": 2, "is_private": True}
    cut.starts(DRIVER, key)
    cut.ledgers[worker].accept_task(task_name("f", key), "f", 0.0)
    cut.facts[task_name("f", key)] = {"class": "f", "shown": "f-0", "pid": 2, "is_private": True}
    cut.held[worker] = _held("n", Store(100, 90, 0, 0, 0, 1.0), n=Owned(1, 5))
    (row,) = cut.snapshot().coverage["stores"]
    assert [(one["machine"], one["size"]) for one in row["owners"]] == [("f-0", 5)]
    assert row["not_looked_at"] == 1


def test_of_stores_with_room_nothing_is_told() -> None:
    cut = trainer()
    cut.held["Trainer-0"] = _held("n", Store(100, 80, 7, 5, 0, 1.0), n=Owned(2, 40))
    assert "stores" not in cut.snapshot().coverage


WORKER = worker_name("w", 1)
ON = "driver/0/Z-0/1"


def asked(cut: Cut, *, is_retried: bool = False) -> str:
    """A call that runs on Account-0; what it waits for, the test says."""
    header = cut.ledgers[DRIVER].submit("Account-0", "pay", (), 0.0, is_retried=is_retried)
    return cut.ledgers["Account-0"].accept(header, "pay", 0.0)


def for_a_reply(ledger: CallLedger, call: str) -> None:
    ledger.wait(call, [ON], 1, 0.0)


def test_a_call_that_waits_for_a_reply_is_found_by_its_id_in_the_snapshot() -> None:
    cut = Cut(("Account-0",))
    call = asked(cut)
    for_a_reply(cut.ledgers["Account-0"], call)
    assert condemned(cut.collected(), "driver/0/Account-0/1") == Found("Account-0", call)


def test_of_a_task_it_is_its_worker() -> None:
    cut = Cut((WORKER,))
    task = cut.starts(DRIVER, "7", wanted=None)
    call = cut.ledgers[WORKER].accept_task(task, "f", 0.0)
    for_a_reply(cut.ledgers[WORKER], call)
    (shown,) = [row["call_id"] for row in cut.snapshot().calls if row["call_id"]]
    assert condemned(cut.collected(), shown) == Found(WORKER, call_of_task(task))


@pytest.mark.parametrize(
    ("on", "how"), [((), {"is_local": True}), ((ON,), {"timeout_at": 9.0, "may_act": True}), ((), {"at_yield": True})]
)
def test_what_no_reply_ends_or_what_ends_by_itself_gets_no_error(on: tuple[str, ...], how: dict[str, Any]) -> None:
    cut = Cut(("Account-0",))
    cut.ledgers["Account-0"].wait(asked(cut), on, 1, 0.0, **how)
    assert "something else than a reply" in condemned(cut.collected(), "driver/0/Account-0/1")


def test_what_ray_would_run_again_gets_no_error() -> None:
    cut = Cut(("Account-0",))
    for_a_reply(cut.ledgers["Account-0"], asked(cut, is_retried=True))
    assert "Ray would run it again" in condemned(cut.collected(), "driver/0/Account-0/1")
    cut = Cut((WORKER,))
    task = cut.starts(DRIVER, "7", wanted=None, is_retried=True)
    for_a_reply(cut.ledgers[WORKER], cut.ledgers[WORKER].accept_task(task, "f", 0.0))
    (shown,) = [row["call_id"] for row in cut.snapshot().calls if row["call_id"]]
    assert "Ray would run it again" in condemned(cut.collected(), shown)


def test_what_has_not_begun_gets_no_error() -> None:
    cut = Cut(("Account-0",))
    cut.ledgers[DRIVER].submit("Account-0", "pay", (), 0.0)
    assert condemned(cut.collected(), "driver/0/Account-0/1") == "it has not begun"


# ---- who may end it -----------------------------------------------------------------------------------------------------


def stuck(**facts: object) -> Cut:
    """Account-0 waits, and the driver for it; Dog-0 has a handle of it."""
    cut = Cut(("Account-0", "Dog-0"), tells_callers=True)
    call = asked(cut)
    for_a_reply(cut.ledgers["Account-0"], call)
    cut.waits(DRIVER, call)
    cut.ledgers["Dog-0"].hold("Account-0")
    cut.facts["Account-0"] |= facts
    return cut


def test_who_has_its_handle_may_end_what_is_blocked_and_of_the_program_nothing_is_told() -> None:
    assert stuck().snapshot().coverage["ended_by"] == {"Account-0": ["Dog-0", DRIVER]}


def test_by_a_name_or_a_placement_group_anything_that_acts_may() -> None:
    assert stuck(name="account").snapshot().coverage["ended_by"] == {"Account-0": None}
    cut = stuck()
    cut.held["Account-0"] = Held("n", {"CPU_group_0_ab": 1.0, "CPU_group_ab": 1.0})
    assert cut.snapshot().coverage["ended_by"] == {"Account-0": None}


def test_it_is_told_only_where_deadlocks_are_to_be_broken() -> None:
    cut = stuck()
    cut.tells_callers = False
    assert "ended_by" not in cut.snapshot().coverage
