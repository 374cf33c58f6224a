"""Charts of what was counted, and the rules that all of them keep: colours, units, numbers, times, gaps.

Plain values in, a matplotlib figure out; the one place that imports matplotlib, and only when something is drawn. A name has
one colour, one dash and one mark in every panel of a picture; a legend never lies over data; what is not known is
hatched, and where nothing was recorded nothing is drawn. Names come from a history: they are cut, and shown in one line.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from ray_snapshot.views.tables import one_line

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f4a8e", "#555555")
"""Told apart by the colour-blind, too (Okabe and Ito, with two more)."""

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
MARKS = "osD^v"

LONGEST_TITLE = 80
LONGEST_NAME = 44
"""Characters of a name in a picture: beside a longer one there would be no room for a chart."""

WIDTH = 9.0
"""Inches."""

MOST_MARKS = 10
"""So many named moments are drawn, the first ones."""

GAP = 5.0
"""A pause of so many times the usual one between two points is no line."""

FEW = 60
"""Of so many points each is marked."""

LEAST_BAND = 120
"""A band is at least so many parts of the whole time wide."""

ALARM, HELD, NOT_HELD, UNKNOWN = "alarm", "holds", "does not hold", "cannot be told"
ANSWERS: Mapping[str, Mapping[str, str]] = {
    ALARM: {"facecolor": "#c0392b", "edgecolor": "#7b1f14", "hatch": "xx"},
    HELD: {"facecolor": "#0072b2", "edgecolor": "#0072b2", "hatch": ""},
    NOT_HELD: {"facecolor": "#dfe3e6", "edgecolor": "#dfe3e6", "hatch": ""},
    UNKNOWN: {"facecolor": "#ffffff", "edgecolor": "#808080", "hatch": "////"},
}
"""What a detector says, and how it looks."""
GRAVEST = (ALARM, UNKNOWN, HELD, NOT_HELD)
"""Where several answers share a place, the gravest counts: the first of these."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What an axis counts."""

    label: str
    unit: str = ""
    """As behind a number: s, ms, "per s"; "" for a count."""
    is_whole: bool = False
    """Whether there are only whole ones."""


@dataclass(slots=True)
class Points:
    """One line: at each time a value."""

    times: list[datetime] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, at: datetime, value: float) -> None:
        """A point behind the others."""
        self.times.append(at)
        self.values.append(value)


@dataclass(frozen=True, slots=True)
class Span:
    """How long a detector said the same."""

    begin: datetime
    end: datetime
    answer: str
    """One of `ANSWERS`."""


# ---- names and numbers ---------------------------------------------------------------------------------------------------


def short(text: str, most: int = LONGEST_NAME) -> str:
    """A name in one line, cut."""
    return one_line(text if len(text) <= most else f"{text[: most - 3]}...")


def places(names: Iterable[str]) -> dict[str, int]:
    """A number for each name, from which its colour and its dash follow."""
    return {name: place for place, name in enumerate(sorted(dict.fromkeys(names)))}


def style(place: int) -> dict[str, Any]:
    """Of a line."""
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": DASHES[(place + place // len(PALETTE)) % len(DASHES)]}


def number(value: float) -> str:
    """As a person writes it: 311,500; 3.12 M; 0.25; never with an exponent."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    for limit, word in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if limit <= size < 1e15:
            return f"{_trimmed(f'{value / limit:.2f}')} {word}"
    if size >= 1e15:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    digits = 2 if size >= 1 else min(12, 1 - math.floor(math.log10(size))) if size else 0
    return _trimmed(f"{value:.{digits}f}")


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def spans(moments: Sequence[datetime], answers: Sequence[str]) -> list[Span]:
    """What was answered at these moments, in their order, as spans; a long pause, in which nothing was asked, is in none."""
    pauses = [(after - before).total_seconds() for before, after in pairwise(moments)]
    usual = statistics.median(pauses) if pauses else 0.0
    found: list[Span] = []
    for at, answer, after, pause in zip(moments, answers, [*moments[1:], *moments[-1:]], [*pauses, 0.0], strict=False):
        is_long = len(pauses) > 2 and pause > GAP * usual > 0
        until = (
            at + timedelta(seconds=usual) if is_long else after
        )  # the moment itself: a sum may be past the last there is
        if found and found[-1].answer == answer and found[-1].end == at:
            found[-1] = Span(found[-1].begin, until, answer)
        else:
            found.append(Span(at, until, answer))
    return found


# ---- figures -------------------------------------------------------------------------------------------------------------


def line_chart(
    panels: Sequence[tuple[Quantity, Mapping[str, Points]]],
    title: str,
    marks: Sequence[tuple[datetime, str]] = (),
) -> Any:
    """A panel for each quantity, one below the other over one axis of time; a line for each name. `marks`: named moments."""
    found = places(name for _, lines in panels for name in lines)
    figure = _figure(0.9 + 1.7 * max(1, len(panels)) + _legend_height([*found, *(text for _, text in marks)]))
    axes = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
    drawn: dict[str, Any] = {}
    for axis, (quantity, lines) in zip(axes, panels, strict=False):
        for name, points in lines.items():
            drawn.setdefault(name, _line(axis, points, found[name], name))
        _quantity_axis(axis, quantity, lines.values(), room=12.0 if marks and axis is axes[0] else 3.0)
    handles = [(short(name), drawn[name]) for name in found if name in drawn]
    _legend(figure, [*handles, *_marks(axes, marks).items()])
    _time_axis(axes[-1], any(points.times for _, lines in panels for points in lines.values()))
    return _titled(figure, title)


def _line(axis: Any, points: Points, place: int, name: str) -> Any:
    times, values = _with_gaps(points)
    marker = MARKS[place % len(MARKS)] if len(points.times) <= FEW else ""
    (line,) = axis.plot(times, values, **style(place), linewidth=1.5, marker=marker, markersize=3.5, label=short(name))
    return line


def _with_gaps(points: Points) -> tuple[list[datetime], list[float]]:
    """The line with a hole wherever nothing was recorded for long."""
    pauses = [(after - before).total_seconds() for before, after in pairwise(points.times)]
    usual = statistics.median(pauses) if pauses else 0.0
    found = Points()
    for row, pause in enumerate([0.0, *pauses][: len(points.times)]):
        if len(pauses) > 2 and pause > GAP * usual > 0:
            found.add(found.times[-1] + (points.times[row] - found.times[-1]) / 2, math.nan)
        found.add(points.times[row], float(points.values[row]))
    return found.times, found.values


def _quantity_axis(axis: Any, quantity: Quantity, lines: Iterable[Points], room: float) -> None:
    """What is drawn stands above the panel, which has no room for it at its side; `room`: between the two, in points."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit = f" ({quantity.unit})" if quantity.unit else ""
    axis.set_title(f"{quantity.label}{unit}", fontsize=8.5, loc="left", pad=room)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=quantity.is_whole, min_n_ticks=1))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.tick_params(axis="y", labelsize=8)
    axis.grid(alpha=0.25)
    axis.margins(x=0.01)
    found = [value for points in lines for value in points.values if math.isfinite(value)]
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    if quantity.is_whole:
        margin = max(margin, 0.5)
    is_from_zero = 0 <= low <= 0.7 * high or high == low == 0
    axis.set_ylim(-margin * 0.5 if is_from_zero else low - margin, high + margin)
    if not found:
        axis.set_yticks([])
        axis.text(0.5, 0.5, "nothing recorded", transform=axis.transAxes, ha="center", va="center", color="#808080")


def _time_axis(axis: Any, has_times: bool) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axis.tick_params(axis="x", labelsize=8)
    if not has_times:
        axis.set_xticks([])
        return
    locator = AutoDateLocator(minticks=3, maxticks=8)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axis.set_xlabel("time (UTC)", fontsize=8.5)


def _marks(axes: Sequence[Any], marks: Sequence[tuple[datetime, str]]) -> dict[str, Any]:
    """Numbered lines through all panels; what each means stands in the legend."""
    found: dict[str, Any] = {}
    moments: dict[datetime, list[str]] = {}
    low, high = axes[0].get_xlim()
    near = timedelta(days=max(0.0, high - low) / 60)  # numbers that are nearer than that would lie over each other
    for at, text in sorted(marks):
        last = next(reversed(moments), at)
        moments.setdefault(last if at - last < near else at, []).append(text)
    for row, (at, texts) in enumerate(list(moments.items())[:MOST_MARKS], start=1):
        for axis in axes:
            line = axis.axvline(at, color="#606060", linewidth=0.9, linestyle=":")
        note = {"fontsize": 7, "ha": "center", "va": "bottom", "color": "#404040", "annotation_clip": False}
        axes[0].annotate(str(row), (at, 1.0), xycoords=("data", "axes fraction"), **note)
        more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
        found[f"{row}: {short(texts[0])}{more}"] = line
    if (more_moments := len(moments) - MOST_MARKS) > 0:
        found[f"and {more_moments} more moment{'s' * (more_moments > 1)}"] = _nothing()
    return found


def band_chart(rows: Mapping[str, Sequence[Span]], title: str) -> Any:
    """A band over time for each name, coloured by what was said; where nothing was asked there is none."""
    from matplotlib.dates import date2num
    from matplotlib.patches import Patch

    figure = _figure(1.1 + 0.34 * max(1, len(rows)) + _legend_height(ANSWERS))
    axis = figure.subplots()
    moments = [date2num(at) for spans in rows.values() for span in spans for at in (span.begin, span.end)]
    least = (max(moments) - min(moments)) / LEAST_BAND or 1e-6 if moments else 0.0
    for row, listed in enumerate(rows.values()):
        drawn: dict[str, list[tuple[float, float]]] = {}
        for span in listed:
            begin = date2num(span.begin)
            end = max(date2num(span.end), begin + least)  # of the last snapshot, too, there is something to see
            drawn.setdefault(span.answer, []).append((begin, end - begin))
        for answer in sorted(
            drawn, key=GRAVEST.index, reverse=True
        ):  # where bands are widened to be seen, over the others
            axis.broken_barh(drawn[answer], (row - 0.36, 0.72), linewidth=0.4, **ANSWERS[answer])
    axis.set_yticks(range(len(rows)), [short(name) for name in rows], fontsize=8)
    axis.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axis.margins(x=0.01)
    axis.xaxis_date()
    _time_axis(axis, any(rows.values()))
    said = {span.answer for spans in rows.values() for span in spans}
    _legend(figure, [(name, Patch(**look)) for name, look in ANSWERS.items() if name in said])  # type: ignore[arg-type]
    return _titled(figure, title)


def _figure(height: float) -> Any:
    import matplotlib as mpl

    mpl.rcParams["text.parse_math"] = False  # a dollar sign in a name begins no formula
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def _nothing() -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none")


def _legend_columns(names: Iterable[str]) -> int:
    longest = max((len(short(name)) for name in names), default=1)
    return max(1, min(4, int(100 / (longest + 6))))


def _legend_height(names: Iterable[str]) -> float:
    listed = list(names)
    return 0.19 * math.ceil(len(listed) / _legend_columns(listed))


def _legend(figure: Any, named: Sequence[tuple[str, Any]]) -> None:
    """Below the charts; names may be alike, for long ones are cut."""
    if named:
        names, handles = zip(*named, strict=True)
        columns = _legend_columns(names)
        figure.legend(handles, names, loc="outside lower left", ncols=columns, fontsize=8, frameon=False)


def _titled(figure: Any, title: str) -> Any:
    figure.suptitle(short(title, LONGEST_TITLE), fontsize=11, x=0.01, ha="left")
    return figure
