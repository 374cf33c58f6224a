"""`docs/scale.md`: the text of `scale_page.md`, with what `python -m benchmarks.scale --page` has measured."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from benchmarks import scale_on_ray
from benchmarks.scale_on_ray import OnRay

if TYPE_CHECKING:
    from benchmarks.scale import Line

TEXT = Path(__file__).with_name("scale_page.md")

COLUMNS = (
    *("graph", "hosts", "lost", "control messages", "of them markers", "kB sent", "kB handed on"),
    *("service (ms)", "a host (ms)"),
)


def page(rows: list[Line], on_ray: OnRay, command: str, *, asymptotic: int, seconds: float) -> str:
    """The whole page; `rows` has one of 64 hosts that are fully joined."""
    joined = next(one for one in rows if (one.graph, one.hosts, one.loss) == ("complete", 64, 0.0))
    return TEXT.read_text().format(
        command=command,
        machine=machine(),
        asymptotic=asymptotic,
        figures=_table(COLUMNS, map(_cells, rows), words=1),
        control=f"{joined.control_messages:,.0f}",
        markers=f"{joined.markers:,.0f}",
        more=f"{joined.control_messages / joined.markers - 1:.2%}",
        few=scale_on_ray.FEW,
        many=scale_on_ray.MANY,
        few_ms=f"{on_ray.few_ms:.1f}",
        many_ms=f"{on_ray.many_ms:.1f}",
        per_host_ms=f"{on_ray.per_host_ms:.2f}",
        fixed_ms=f"{on_ray.fixed_ms:.1f}",
        shares=_shares([one for one in rows if one.graph == "random" and not one.loss], on_ray),
        saturated=f"{float(f'{(1_000 - on_ray.fixed_ms) / on_ray.per_host_ms:.2g}'):,.0f}",
        minutes=f"{seconds / 60:.0f}",
    )


def machine() -> str:
    """This machine, in words."""
    cores = Path("/proc/cpuinfo")
    told = cores.read_text().splitlines() if cores.exists() else []
    model = next((one.partition(":")[2].strip() for one in told if one.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = f"Python {platform.python_version()}, Ray {ray.__version__}"
    return f"{os.cpu_count()} cores ({model}) with {memory:.0f} GB, {versions}"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, words: int = 0) -> str:
    names = list(columns)
    lines = [names, ["---"] * words + ["---:"] * (len(names) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cells(one: Line) -> list[str]:
    counts = (one.control_messages, one.markers, one.kilobytes, one.handed_on_kilobytes, one.service_ms)
    cells = [one.graph, f"{one.hosts:,}", f"{one.loss:.0%}" if one.loss else "none"]
    cells += map(_short, (*counts, one.hosts_ms / one.hosts))
    return cells if one.is_measured else [_slanted(cell) for cell in cells]


def _short(value: float) -> str:
    """Three digits; counts below a million whole."""
    if value >= 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:,.0f}" if value == round(value) or value >= 1_000 else f"{value:.3g}"


def _slanted(cell: str) -> str:
    return f"*{cell}*"


def _shares(rows: list[Line], on_ray: OnRay) -> str:
    """The share of a core, at one snapshot a second."""
    cells = []
    for row in rows:
        alone = on_ray.fixed_ms + on_ray.per_host_ms * row.hosts
        protocol = f"{row.service_ms / 10:.2g}%"
        cells.append(
            [f"{row.hosts:,}", protocol if row.is_measured else _slanted(protocol), _slanted(f"{alone / 10:,.0f}%")]
        )
    return _table(("hosts", "protocol", "one service on Ray"), cells)
