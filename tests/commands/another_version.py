"""A program whose watcher answers as another version of ours may: FOLDER; stays until its stdin ends."""

import sys
from typing import Any

import ray

from ray_snapshot.names import NAMESPACE, PREFIX


@ray.remote(num_cpus=0)
class Watcher:
    def snapshot(self, *_: Any) -> str:
        return "a snapshot of another form"


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, _temp_dir=sys.argv[1])
    watcher = Watcher.options(name=f"{PREFIX}other", namespace=NAMESPACE).remote()
    ray.get(watcher.__ray_ready__.remote())
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
