"""A cluster with scarce things of several kinds: FOLDER; says its address, and stays until its stdin ends."""

import sys

import ray

SCARCE = {"crew": 2, "bench": 1, "tool": 2, "yard": 2, "desk": 2, "hall": 1}

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1], resources=SCARCE, logging_level="ERROR")
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
