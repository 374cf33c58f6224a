"""What a program finds in Ray's own tables of its job, as JSON: of an app of two actors and a plain task."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ray

sys.path.append(str(Path(__file__).parents[1]))

from until import until


@ray.remote(num_cpus=0)
class Account:
    def add(self, number: int) -> int:
        return number


@ray.remote(num_cpus=0)
class Teller:
    def __init__(self, account: Any) -> None:
        self.account = account

    def go(self) -> tuple[int, int]:
        """Ask the account; how many refs there are here then."""
        return ray.get(self.account.add.remote(1)), refs()


@ray.remote(num_cpus=0)
def task(number: int) -> int:
    return number


def refs() -> int:
    """How many objects and actors this process has a reference to, as `ray memory` counts them."""
    return len(ray._private.worker.global_worker.core_worker.get_all_reference_counts())


def timeline(job: str) -> dict[str, int]:
    """How many rows there are of each task of this job."""
    rows = [row for row in ray.timeline() or () if row["args"].get("task_id", "").endswith(job)]
    return dict(Counter(row["cat"] for row in rows if row["cat"].startswith("task::")))


def main() -> None:
    ray.init()
    context = ray.get_runtime_context()
    job, account = context.get_job_id(), Account.remote()
    number, inside = ray.get(Teller.remote(account).go.remote())
    assert ray.get(task.remote(number)) == 1
    rows = until(lambda: timeline(job), good=lambda rows: "task::task" in rows and "task::Teller.go" in rows)
    actors = ray._private.state.actors(job_id=ray.JobID.from_hex(job)).values()
    found = {
        "timeline": rows,
        "actors": sorted([row["ActorClassName"], row["Name"]] for row in actors),
        "named": [one for one in ray.util.list_named_actors(all_namespaces=True) if one["name"].endswith(sys.argv[1])],
        "environment": sorted(context.runtime_env),
        "refs": [refs(), inside],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
