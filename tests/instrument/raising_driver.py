"""A program that has a deadlock of its own broken with `rs.watch`, in a call and in the program itself; what came, as JSON."""

from __future__ import annotations

import json
from typing import Any, Literal

import ray

import ray_snapshot as rs


class Account:
    """An account that asks another, which asks it."""

    def pay(self, through: list[Any]) -> int:
        """Ask the next of them for the rest."""
        return 1 + int(ray.get(through[0].pay.remote(through[1:])))


def came_of(victim: Literal["youngest"] | None) -> dict[str, Any]:
    """The error of a call on a ring of two, and who stands in it."""
    with rs.watch("ring", on_deadlock="raise", deadlock_grace=0.5, detectors=[], victim=victim):
        kind = ray.remote(num_cpus=0)(Account)
        a, b = kind.remote(), kind.remote()
        try:
            ray.get(a.pay.remote([b, a]))
        except rs.DeadlockError as error:
            how = "of a call" if isinstance(error, ray.exceptions.RayTaskError) else "of the program"
            return {"how": how, "members": sorted({member["machine"] for member in error.evidence["members"]})}
        finally:
            ray.kill(a)
            ray.kill(b)
        return {"how": "nothing came"}


if __name__ == "__main__":
    ray.init()
    print(json.dumps([came_of("youngest"), came_of(None)]))
