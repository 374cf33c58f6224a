"""`docs/measured.md`: what `python -m benchmarks --page` has measured on one machine, the latest of each figure."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

import ray

from benchmarks.measure import Result

HEAD = Path(__file__).with_name("figures_page.md")

COLUMNS = ("figure", "ratio", "from", "to", "goal", "met", "arms", "beside", "load", "day")
BUSY = 1.0


def load() -> float:
    """How many processes wanted to run, in the last minute."""
    return os.getloadavg()[0]


def written(page: Path, results: list[tuple[Result, float]], names: list[str]) -> None:
    """Put these figures, each with the load before it, into the page, in the order of `names`.

    Raises `ValueError` if the page is of another machine: figures of two do not belong together.
    """
    head = HEAD.read_text().format(machine=machine(), busy=BUSY)
    lines = page.read_text().splitlines() if page.exists() else []
    if lines and head.splitlines()[2] not in lines:
        raise ValueError(f"{page} has the figures of another machine: remove it, and measure them all here")
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for result, before in results:
        row = result.row()
        cells = [row["ratio"], row["low"], row["high"], row["goal"], "yes" if row["met"] else "no"]
        cells += [_told(result.arms), _told(result.parts), f"{before:.1f}", today]
        rows[result.name] = f"| `{result.name}` | " + " | ".join(map(str, cells)) + " |"
    table = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    page.write_text(head + "\n".join([*table, *(rows[name] for name in names if name in rows)]) + "\n")


def _told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {float(f'{value:.4g}'):,}" for name, value in values.items())


def machine() -> str:
    """This machine, in words."""
    cores = Path("/proc/cpuinfo")
    lines = cores.read_text().splitlines() if cores.exists() else []
    model = next((one.partition(":")[2].strip() for one in lines if one.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = f"Python {platform.python_version()}, Ray {ray.__version__}"
    return f"{os.cpu_count()} cores ({model}) with {memory:.0f} GB, {versions}"
