"""A Ray cluster of two raylets on this machine: prints its address and the ids of its nodes, and ends with its stdin.

`python two_nodes.py FOLDER`: the second node's workers find modules in this folder before all others. A line on stdin is the
folder of one more node, whose id is printed; `-` takes that node away.
"""

import os
import sys
from typing import Any

from ray.cluster_utils import Cluster


def main(folder: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args=_options("first"))
    second = cluster.add_node(**_options("second", folder))
    print(cluster.address, cluster.head_node.node_id, second.node_id, flush=True)
    third: Any = None
    for line in map(str.strip, sys.stdin):
        if line == "-":
            cluster.remove_node(third)
            cluster.wait_for_nodes()
            print("-", flush=True)
        else:
            third = cluster.add_node(**_options("third", line))
            print(third.node_id, flush=True)
    cluster.shutdown()


def _options(place: str, folder: str | None = None) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    common = {"num_cpus": 4, "include_dashboard": False, "object_store_memory": 100 << 20}
    return {**common, "resources": {place: 10}, "env_vars": {"PYTHONPATH": path}}


if __name__ == "__main__":
    main(sys.argv[1])
