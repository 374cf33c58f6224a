"""What a notebook does whose first cell runs again, for `test_a_first_cell_may_run_again`: what came of it, as JSON."""

import json
from contextlib import redirect_stderr
from io import StringIO

import ray

import ray_snapshot as rs
from ray_snapshot.detectors import Termination
from ray_snapshot.instrument.watching import Watch

first: list[Watch] = []
again: list[Watch] = []
other: list[Watch] = []

rs.install("notebook", on_watch=first.append, detectors=[Termination()])
ray.init(log_to_driver=False)
said = [StringIO(), StringIO()]
with redirect_stderr(said[0]):
    rs.install("notebook", on_watch=again.append, detectors=[Termination()])
with redirect_stderr(said[1]):
    rs.install("notebook", on_watch=other.append, every=60.0)
same = first == again == other and len(first) == 1
complete = again[0].snapshot(timeout=30).status == "complete"
ray.shutdown()
print(json.dumps({"same": same, "complete": complete, "said": [one.getvalue() for one in said]}))
