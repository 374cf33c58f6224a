"""What watching takes in memory: the actor that `ray-snapshot run` starts, without a history, over an idle actor."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

import ray_snapshot as rs
from benchmarks.measure import Result
from ray_snapshot.detectors import Deadlock

SNAPSHOTS = 20
GOAL_MB = 150


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure: megabytes that are each process's own, and its share of what several have in common (PSS)."""

    class Idle:
        """Sent by value, so that its process imports nothing of ours for it."""

        def pid(self) -> int:
            return os.getpid()

    kind = ray.remote(num_cpus=0)(Idle)
    plain = kind.remote()
    ray.get(plain.pid.remote())
    with rs.watch("benchmark-watching", detectors=[Deadlock()]) as watch:
        watched = ray.remote(num_cpus=0)(Idle).remote()
        ray.get(watched.pid.remote())
        for _ in range(SNAPSHOTS):
            watch.snapshot()
        time.sleep(1.0)  # the analyst evaluates in its own time
        ours = {"watcher": watch._service, "watched_actor": watched, "plain_actor": plain}
        arms = {f"{name}_{what}_mb": value for name, actor in ours.items() for what, value in _memory_of(actor).items()}
    plain_mb = arms["plain_actor_pss_mb"]
    ratio = arms["watcher_pss_mb"] / plain_mb
    yield Result("watching-memory", ratio, ratio, ratio, f"<= {GOAL_MB / plain_mb:.3g}", arms)


def _memory_of(actor: Any) -> dict[str, float]:
    pid = ray.get(actor.__ray_call__.remote(lambda _: __import__("os").getpid()))
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    kilobytes = {name: int(value) for name, value in re.findall(r"^(Rss|Pss):\s+(\d+) kB", text, re.MULTILINE)}
    return {"pss": kilobytes["Pss"] / 1e3, "rss": kilobytes["Rss"] / 1e3}
