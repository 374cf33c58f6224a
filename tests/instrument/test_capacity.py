"""What a task or an actor demands, by its options, is what its process then has of the node, as Ray tells there."""

import gc
import time
from typing import Any

import pytest
import ray
from limited import limit
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from until import until

from ray_snapshot.instrument import capacity
from ray_snapshot.protocol.demands import NOTHING, Demand, demand

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

SEAT = "node:__internal_head__"

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "a half": {"num_cpus": 0.5},
    "none": {"num_cpus": 0},
    "a seat": {"resources": {SEAT: 0.25}},
    "a seat alone": {"num_cpus": 0, "resources": {SEAT: 0.25}},
    "memory": {"memory": 64 * 2**20},
    "memory alone": {"num_cpus": 0, "memory": 64 * 2**20},
    "no accelerator": {"num_gpus": 0},
}


def _task() -> Any:
    """By value, for workers do not find this file."""

    def held() -> Any:
        return capacity.held(0.0)

    return ray.remote(held)


def _actor() -> Any:
    class Holder:
        def held(self) -> Any:
            return capacity.held(0.0)

    return ray.remote(Holder)


def _as_needs(held: Any) -> dict[str, float]:
    return {name: amount for name, amount in held.amounts.items() if not name.startswith("bundle")}


@pytest.mark.by_day(1)
@pytest.mark.parametrize("name", OPTIONS)
def test_tasks_and_actors_have_what_their_options_demand(name: str) -> None:
    options = OPTIONS[name]
    assert _as_needs(ray.get(_task().options(**options).remote())) == dict(capacity.of_task(options).needs)
    actor = _actor().options(**options).remote()
    assert _as_needs(ray.get(actor.held.remote())) == dict(capacity.of_actor(options).needs)


def test_what_demands_nothing_is_known_as_such() -> None:
    assert capacity.of_actor({}) == NOTHING
    assert capacity.of_task({"num_cpus": 0}) == NOTHING


def test_a_demand_names_its_group_its_node_and_its_labels() -> None:
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())
    node = ray.get_runtime_context().get_node_id()
    within = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)

    def of(**options: Any) -> Demand:
        return capacity.of_task({"num_cpus": 1, **options})

    one = {"CPU": 1}
    assert of(scheduling_strategy=within) == demand(one, group.id.hex(), 0)
    assert of(scheduling_strategy=PlacementGroupSchedulingStrategy(None)) == demand(one)
    assert of(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)) == demand(one, node=node)
    assert of(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True)) == demand(one)
    assert of(scheduling_strategy="SPREAD") == demand(one)
    assert of(label_selector={"zone": "a"}) == demand(one, labels=[("zone", "a")])
    assert of(label_selector={"zone": "a"}, fallback_strategy=[{"label_selector": {"zone": "b"}}]) == demand(one)
    held = ray.get(_task().options(num_cpus=1, scheduling_strategy=within).remote())
    assert {f"CPU_group_{group.id.hex()}", f"CPU_group_0_{group.id.hex()}"} <= held.amounts.keys()
    remove_placement_group(group)


def test_tasks_of_an_actor_in_a_group_that_takes_its_tasks_in_demand_room_there() -> None:
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())

    class Captured:
        def demand(self) -> Any:
            return capacity.of_task({})

    inside = PlacementGroupSchedulingStrategy(group, placement_group_capture_child_tasks=True)
    actor = ray.remote(Captured).options(num_cpus=0, scheduling_strategy=inside).remote()
    assert ray.get(actor.demand.remote()) == demand({"CPU": 1}, group.id.hex())
    remove_placement_group(group)


def test_options_that_ray_refuses_are_no_fault_of_ours() -> None:
    assert capacity.demanded(capacity.of_task, {"resources": {"seat": "many"}}) is None


def test_the_cluster_is_told_as_it_is_and_that_nothing_will_make_it_grow() -> None:
    group = placement_group([{"CPU": 10_000}], strategy="STRICT_PACK")
    found = capacity.cluster()
    node = ray.get_runtime_context().get_node_id()
    assert found.nodes[node].amounts["CPU"] == ray.cluster_resources()["CPU"]
    pending = found.groups[group.id.hex()]
    assert (pending.bundles, pending.is_created, pending.strategy) == (({"CPU": 10_000.0},), False, "STRICT_PACK")
    until(lambda: capacity.cluster().grows, good=lambda grows: grows is False)
    remove_placement_group(group)
    assert group.id.hex() not in capacity.cluster().groups


def test_living_actors_are_told_with_what_they_have_and_whether_they_outlive_their_program() -> None:
    class Outliving:
        def ping(self) -> None:
            pass

    actor = ray.remote(Outliving).options(num_cpus=1, name="outliving", lifetime="detached").remote()
    ray.get(actor.ping.remote())
    cluster = capacity.cluster()
    (found,) = [one for one in cluster.actors if one.name == "outliving"]
    assert (found.kind.rpartition(".")[2], found.is_detached, found.amounts) == ("Outliving", True, {"CPU": 1.0})
    assert (found.job, found.node) == (ray.get_runtime_context().get_job_id(), ray.get_runtime_context().get_node_id())
    assert found.node in cluster.free
    assert cluster.other_jobs == ()
    ray.kill(actor)


def test_a_node_type_that_is_not_named_after_a_node_is_an_autoscalers(monkeypatch: pytest.MonkeyPatch) -> None:
    node = ray.get_runtime_context().get_node_id()

    def told(types: str) -> Any:
        text = f'{{"autoscaler_report": {{"active_nodes": {{{types}}}}}}}'.encode()
        monkeypatch.setattr(
            capacity.internal_kv, "_internal_kv_get", lambda key: None if b"v2" in str(key).encode() else text
        )
        return capacity.cluster().grows

    assert told(f'"node_{node}": 1') is False
    assert told(f'"node_{node}": 1, "ray.worker.default": 2') is True
    assert told("") is None


def test_a_process_is_clean_if_garbage_was_collected_since_it_is_quiet_and_a_while_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = capacity._Collections()
    monkeypatch.setattr(capacity, "COLLECTIONS", found)
    limit(monkeypatch, dropped_actor_s=1_000.0)
    quiet = time.time()
    gc.collect()
    assert not capacity.held(quiet).is_clean
    _collected(found)
    assert not capacity.held(quiet).is_clean, "what was dropped may not have ended yet"
    limit(monkeypatch, dropped_actor_s=0.0)
    assert capacity.held(quiet).is_clean
    assert not capacity.held(time.time()).is_clean


def _collected(found: capacity._Collections) -> None:
    """Python skips a collection while another thread is in one, and a process asks again at its next need."""
    until(lambda: found._collect() or found.began)


def test_garbage_is_collected_on_demand_but_not_all_the_time() -> None:
    found = capacity._Collections()
    gc.disable()  # no other one
    try:
        found.collect()
        until(lambda: found.began)
        found.collect()
        assert len(found.began) == 1
    finally:
        gc.enable()


def test_a_collection_that_python_skipped_is_soon_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while another thread is in one: what waits in this process could not be told for half a minute more."""
    found = capacity._Collections()
    with monkeypatch.context() as patch:
        patch.setattr(capacity.gc, "collect", lambda: 0)
        found.collect()
        until(lambda: not found._asked_at)
    found.collect()
    until(lambda: found.began)


def test_no_callback_stays_with_the_collector_for_one_would_swallow_a_ctrl_c() -> None:
    before = list(gc.callbacks)
    found = capacity._Collections()
    _collected(found)
    capacity.held(0.0)
    assert gc.callbacks == before
