"""The pages of `serve` for fifty viewers at once over a history of 1,000,000 rows of machines."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.history import synthetic
from benchmarks.measure import Result
from ray_snapshot.history import HistoryWriter

NEEDS_RAY = False
MACHINES, SNAPSHOTS = 10_000, 100
VIEWERS, ROUNDS = 50, 4
PROMISED_S = 0.3
ONE = "/h/h/s/bench-0000{:02}"
PATHS = ("/", "/h/h", ONE, f"{ONE}/machines?page=7", f"{ONE}/machines?sort=accepted&down=1", f"{ONE}/machines?search=0099",
         f"{ONE}/channels", f"{ONE}/waits", f"{ONE}/machine?name=Account-000077")  # fmt: skip


def run(names: set[str]) -> Iterator[Result]:
    """Yield `pages-50-viewers`: the slowest page's median over 300 ms."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "h"
        with HistoryWriter(path) as writer:
            for number in range(SNAPSHOTS):
                writer.add(synthetic(number, MACHINES))
        with _served(path) as (address, token):
            took: dict[str, list[float]] = {one: [] for one in PATHS}
            for _ in range(ROUNDS):
                for one in PATHS:
                    with ThreadPoolExecutor(VIEWERS) as pool:
                        took[one] += pool.map(partial(_seen, address, token, one), range(VIEWERS))
    medians = sorted(median(one[VIEWERS:]) for one in took.values())  # the first round fills what is kept
    if "pages-50-viewers" in names:
        ratios = [one / PROMISED_S for one in medians]
        arms = {"slowest_page_s": medians[-1], "middle_page_s": median(medians), "promised_s": PROMISED_S}
        yield Result("pages-50-viewers", ratios[-1], ratios[0], ratios[-1], "<= 1", arms)


@contextmanager
def _served(path: Path) -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-m", "ray_snapshot.cli", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().split()[-1]
            parts = urlsplit(line)
            yield f"{parts.scheme}://{parts.netloc}", line.partition("token=")[2]
        finally:
            process.terminate()


def _seen(address: str, token: str, path: str, viewer: int) -> float:
    """How many seconds a viewer waits for a page; each looks at one of the last ten snapshots."""
    path = path.format(SNAPSHOTS - 1 - viewer % 10)
    request = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {token}"})
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as answer:
        answer.read()
    return time.perf_counter() - began
