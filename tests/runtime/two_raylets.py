"""Two raylets, hosts on both, and one of them goes while they work: prints what was left, as a line of JSON."""

import json
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster
from restore_machines import Vault, conservation, patiently, total_of

import ray_snapshot as rs
from ray_snapshot import detectors

COUNT, TOKENS, HOPS = 8, 100, 2_000
OPTIONS: dict[str, Any] = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 100 << 20}


class Here(Vault):
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id())


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={**OPTIONS, "resources": {"place": 1}})
    second = cluster.add_node(**OPTIONS, resources={"place": 1})
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    names = tuple(f"v{number}" for number in range(COUNT))
    alarms: list[Any] = []
    watched = [conservation(COUNT * TOKENS)]
    with rs.System("noded", recover="rollback", every=0.2, detectors=watched) as system:
        system.subscribe(lambda verdict: alarms.append(verdict.sentence) if verdict.alarm else None, repeat=True)
        arguments = [(TOKENS, names) for _ in names]
        many = system.spawn_many(Here, args=arguments, names=list(names), per_host=4, resources={"place": 1})
        system.start()
        before = {ray.get(many[at].node.remote()) for at in (0, 7)}
        for machine in many:
            machine.pass_on.send(1, HOPS)
        patiently(system.snapshot)
        began = time.monotonic()
        cluster.remove_node(second)
        third = cluster.add_node(**OPTIONS, resources={"place": 1})
        after = {patiently(lambda at=at: ray.get(many[at].node.remote(), timeout=120)) for at in (0, 7)}
        back_s = time.monotonic() - began
        system.wait_for(detectors.Termination(), timeout=120)
        tokens = total_of(patiently(system.snapshot))
    moved = second.node_id in before and second.node_id not in after and third.node_id in after
    print(json.dumps({"nodes": len(before), "moved": moved, "tokens": tokens, "alarms": alarms, "back_s": back_s}))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
