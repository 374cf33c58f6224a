"""A plain actor calls a machine: `python ways_in.py STEP ...`, each step a way to be watched or to start Ray; also a test file.

Steps: `install`, `watch`, `init`, `init-at` and `system-at` (the cluster at CLUSTER), `again` (all once more, as cells of a
notebook that run again).
"""

import os
import sys

import ray

import ray_snapshot as rs
from ray_snapshot.errors import NotAMachineError


class Till(rs.SnapshotMixin):
    def __init__(self):
        self.sum = 0

    def add(self, n):
        self.sum += n
        return self.sum


class Clerk:
    def __init__(self, till):
        self.till = till

    def pay(self, n):
        return ray.get(self.till.add.remote(n))


def begin(step):
    if step == "install":
        rs.install("shop")
    elif step == "watch":
        rs.watch("shop")
    elif step == "init-at":
        ray.init(address=os.environ["CLUSTER"])
    elif step == "init":
        own = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": 2, "include_dashboard": False}
        ray.init(**own)


def main(steps):
    for step in steps:
        begin(step)
    where = {"address": os.environ["CLUSTER"]} if "system-at" in steps else {}
    with rs.System("shop", **where) as system:
        till = system.spawn(Till, name="till")
        ray.get(till.add.remote(0))  # it has begun, so it is in the snapshot
        clerk = ray.remote(num_cpus=0)(Clerk).remote(till)
        try:
            print("paid", ray.get([clerk.pay.remote(3), clerk.pay.remote(4)]))
        except NotAMachineError:
            print("refused")
        print("in the snapshot:", *sorted({name.partition("-")[0] for name in system.snapshot().machines}))


def test_ways_in():
    main(os.environ.get("STEPS", "").split())


if __name__ == "__main__":
    main(sys.argv[1:])
    if "again" in sys.argv:
        main([step for step in sys.argv[1:] if not step.startswith("init")])
