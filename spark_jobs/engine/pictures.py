"""Pictures of results, as PNG files: the only place that imports matplotlib, and only when a picture is drawn.

What is drawn is gathered into at most `MOST_POINTS` points a line in Spark, so that a picture of a month costs no more memory
than one of a minute. Imports no job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ray_snapshot.spark_jobs.engine.output import some_rows
from ray_snapshot.views.tables import one_line

MOST_POINTS = 400
"""So many points a line; each is the mean of what lies in its span of time."""

MOST_RUNS = 6
"""So many runs (or ledgers, ...) are drawn, the first ones."""

LONGEST_TITLE = 80
LONGEST_LABEL = 40
"""Characters of a name in a picture: beside a longer one there would be no room for a chart."""

Series = dict[str, dict[str, tuple[list[datetime], list[float]]]]
"""By column, by line (a run, or one ledger of a run): times and values."""

_COLOURS = ("#1b6ca8", "#d1495b", "#3a7d44", "#edae49", "#6f4a8e", "#555555")


def series(frame: DataFrame, columns: Sequence[str], *, by: Sequence[str] = ()) -> Series:
    """The means of `columns` over time, a line a run; `frame` has `system`, `run_id`, `started_at`.

    `by`: the columns that tell the lines of one run apart, where a snapshot has several rows.
    """
    bounds = some_rows(frame.agg(F.min("started_at").alias("low"), F.max("started_at").alias("high")), 1)[0]
    if bounds["low"] is None:
        return {column: {} for column in columns}
    width = max((bounds["high"] - bounds["low"]).total_seconds() / MOST_POINTS, 1e-6)
    low_us = int(bounds["low"].timestamp() * 1e6)
    bucket = F.floor((F.unix_micros("started_at") - low_us) / (width * 1e6))
    key = ("system", "run_id", *by)
    points = frame.groupBy(*key, bucket.alias("bucket")).agg(
        F.min("started_at").alias("at"), *(F.avg(column).alias(column) for column in columns)
    )
    rows = some_rows(points.orderBy(*key, "bucket"), MOST_RUNS * (MOST_POINTS + 1))
    found: Series = {column: {} for column in columns}
    for row in rows:
        line = " ".join([row["system"], row["run_id"][:6], *(str(row[name]) for name in by)])
        for column in columns:
            if row[column] is not None:
                times, values = found[column].setdefault(line, ([], []))
                times.append(row["at"])
                values.append(row[column])
    return found


def lines(path: str, title: str, found: Series, *, marks: Sequence[tuple[datetime, str]] = ()) -> None:
    """One chart a column, a line and a colour a run, the same in each chart; `marks` are named moments."""
    _save(charts(found, marks), title, path)


def charts(found: Series, marks: Sequence[tuple[datetime, str]] = ()) -> Any:
    """What `lines` draws."""
    figure = _figure(len(found))
    axes = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    names = dict.fromkeys(name for by_name in found.values() for name in by_name)
    colours = dict(zip(names, _COLOURS, strict=False))
    drawn: dict[str, Any] = {}
    for chart, (column, by_name) in zip(axes, found.items(), strict=True):
        for name, (times, values) in by_name.items():
            if name in colours:
                marker = "." if len(times) < 50 else ""
                (line,) = chart.plot(times, values, label=name, color=colours[name], linewidth=1.4, marker=marker)
                drawn.setdefault(name, line)
        chart.set_ylabel(column.replace("_", " "), fontsize=9)
        chart.grid(alpha=0.25)
        chart.margins(x=0.01)
        for at, _ in marks:
            chart.axvline(at, color="#888888", linewidth=0.8, linestyle=":")
    _name(axes[0], marks)
    if drawn:
        legend = axes[0].legend([*drawn.values()], [*drawn], fontsize=8, frameon=False, loc="upper left")
        legend.set_in_layout(False)
    axes[-1].tick_params(axis="x", labelrotation=20, labelsize=8)
    return figure


def _name(chart: Any, marks: Sequence[tuple[datetime, str]]) -> None:
    """The names of the marks, written upwards; those of one moment, and those behind the first ten, are left out."""
    named = dict(reversed(marks[:10]))
    for at, text in named.items():
        chart.annotate(
            text,
            (at, 1),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=7,
            va="top",
            ha="right",
            in_layout=False,
        )


def bars(path: str, title: str, values: Mapping[str, Mapping[str, float]]) -> None:
    """By group, by name: horizontal bars side by side, each group scaled to its largest value."""
    names = list(dict.fromkeys(name for group in values.values() for name in group))
    figure = _figure(max(2, len(values) / 3))
    chart = figure.subplots()
    height = 0.8 / max(1, len(names))
    for place, name in enumerate(names):
        for row, (_, group) in enumerate(values.items()):
            largest = max((abs(value) for value in group.values()), default=0) or 1
            value = group.get(name, 0.0)
            chart.barh(
                row + place * height,
                value / largest,
                height,
                color=_COLOURS[place % len(_COLOURS)],
                label=name if row == 0 else None,
            )
            chart.text(
                value / largest + 0.01, row + place * height, f"{value:,.4g}", va="center", fontsize=7, in_layout=False
            )
    chart.set_yticks(
        [row + 0.4 - height / 2 for row in range(len(values))], [_label(text.replace("_", " ")) for text in values]
    )
    chart.invert_yaxis()
    chart.set_xticks([])
    if names:
        chart.legend(fontsize=8, frameon=False, loc="lower right").set_in_layout(False)
    _save(figure, title, path)


def circles(path: str, title: str, graphs: Sequence[tuple[str, Sequence[tuple[str, str, str]]]]) -> None:
    """Graphs (title; edges with a label each), their nodes in a circle, side by side."""
    figure = _figure(2.2)
    shown = graphs[:MOST_RUNS]
    places = figure.subplots(1, max(1, len(shown)), squeeze=False)[0]
    for chart in places:
        chart.set_axis_off()
        chart.set_aspect("equal")
        chart.set_xlim(-1.6, 1.6)
        chart.set_ylim(-1.5, 1.5)
    for chart, (name, edges) in zip(places, shown, strict=False):
        chart.set_title(name, fontsize=9)
        _graph(chart, edges)
    _save(figure, title, path)


def _graph(chart: Any, edges: Sequence[tuple[str, str, str]]) -> None:
    nodes = list(dict.fromkeys(node for source, target, _ in edges for node in (source, target)))
    turn = 2 * math.pi / max(1, len(nodes))
    place = {node: (math.sin(turn * row), math.cos(turn * row)) for row, node in enumerate(nodes)}
    for source, target, label in edges:
        (x, y), (to_x, to_y) = place[source], place[target]
        arrow = {
            "arrowstyle": "->",
            "color": "#d1495b",
            "shrinkA": 18,
            "shrinkB": 18,
            "connectionstyle": "arc3,rad=0.15",
        }
        chart.annotate("", (to_x, to_y), (x, y), arrowprops=arrow)
        chart.text((x + to_x) / 2, (y + to_y) / 2, label, fontsize=7, ha="center", color="#555555", in_layout=False)
    for node, (x, y) in place.items():
        box = {"boxstyle": "round", "fc": "#eaf2f8"}
        chart.text(x, y, node, ha="center", va="center", fontsize=8, bbox=box, in_layout=False)


def _label(text: str, most: int = LONGEST_LABEL) -> str:
    return one_line(text if len(text) <= most else f"{text[: most - 3]}...")


def _figure(rows: float) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["text.parse_math"] = False  # a dollar sign in a name begins no formula
    from matplotlib.figure import Figure

    return Figure(figsize=(9, 1.2 + 1.8 * rows), layout="constrained")


def _save(figure: Any, title: str, path: str) -> None:
    """Write it; names from a history are shown in one line, and cut: layout would take minutes for a long one."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(_label(text.get_text()))
    figure.suptitle(_label(title, LONGEST_TITLE), fontsize=11)
    figure.savefig(path, dpi=110)
