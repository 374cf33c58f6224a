"""What a notebook does whose first cell runs again, for `test_a_first_cell_may_run_again`: what came of it, as JSON."""

from __future__ import annotations

import json
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock, Termination

WATCHES: list[Any] = []


def cell(**changed: Any) -> str:
    """Run it: the settings are new objects each time. Returns what is said."""

    class Own:
        name, stable, alarm_when = "own", False, False

        def evaluate(self, snapshot: rs.Snapshot) -> Any:
            return None

    class Fails(Own):
        def __repr__(self) -> str:
            raise KeyError("the user's own")

    @rs.detector
    def small(snapshot: rs.Snapshot) -> bool:
        return True

    @rs.detector
    def large(snapshot: rs.Snapshot) -> bool:
        return True

    sets = {
        "large": [Own(), Fails(), large, Deadlock()],
        "shipped": [Termination()],
        "": [Own(), Fails(), small, Deadlock()],
    }
    given = {"on_deadlock": "raise", "victim": "youngest", "detectors": sets[changed.pop("which", "")], **changed}
    with redirect_stderr(StringIO()) as said:
        rs.install(given.pop("name", "notebook"), on_watch=WATCHES.append, **given)
    return said.getvalue()


cell()
ray.init(log_to_driver=False)
same = cell()
others = ({"every": 60.0}, {"name": "other"}, {"which": "shipped"}, {"which": "large"}, {"victim": None})
said = [cell(**one) for one in others]
complete = WATCHES[0].snapshot(timeout=30).status == "complete"
ray.shutdown()
print(json.dumps({"watches": len({id(one) for one in WATCHES}), "complete": complete, "same": same, "said": said}))
