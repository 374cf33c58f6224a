"""The rules that every chart keeps: what is drawn where, in which colour, with which numbers; and nothing over the data."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ray_snapshot.views import charts
from ray_snapshot.views.charts import Points, Quantity, Span

BEGIN = datetime(2026, 11, 25, 18, 8, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def points(*values: float, every: float = 1.0) -> Points:
    found = Points()
    for number, value in enumerate(values):
        found.add(at(number * every), value)
    return found


def lay_out(figure: Any) -> None:
    """As saving it does."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (1, "1"), (0.25, "0.25"), (2.5, "2.5"), (0.000031, "0.000031"), (99.5, "99.5"),
        (311_500, "311,500"), (3_115_000, "3.12 M"), (5e9, "5 G"), (-1_234.6, "-1,235"),
        (1e18, "1,000,000,000,000,000,000"), (math.nan, "-"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_a_person_does(value: float, written: str) -> None:
    assert charts.number(value) == written


def _colours(figure: Any) -> list[dict[str, Any]]:
    return [
        {line.get_label(): line.get_color() for line in axis.get_lines() if not line.get_label().startswith("_")}
        for axis in figure.axes
    ]


def _legend(figure: Any) -> dict[str, Any]:
    (legend,) = figure.legends
    return dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))


def test_a_name_has_one_colour_in_every_panel_and_in_the_legend() -> None:
    names = [f"system-{number}" for number in range(6)]
    figure = charts.line_chart(
        [
            (Quantity("a"), {name: points(1, 2) for name in names}),
            (Quantity("b"), {name: points(1, 2) for name in reversed(names[2:])}),
        ],
        "two",
    )
    first, second = _colours(figure)
    assert len(set(first.values())) == len(names)
    assert second == {name: first[name] for name in names[2:]}
    assert {name: handle.get_color() for name, handle in _legend(figure).items()} == first
    dashes = {str(line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(dashes) > 1, "colour is not the only sign"


def test_more_names_than_colours_differ_in_their_dashes() -> None:
    found = charts.places(f"system-{number}" for number in range(16))
    assert sorted(found.values()) == list(range(16)), "no colour comes twice while another is free"
    assert len({tuple(map(str, charts.style(place).values())) for place in found.values()}) == 16


def test_what_the_last_snapshot_alone_says_is_seen() -> None:
    spans = [Span(at(0), at(100), charts.NOT_HELD), Span(at(100), at(100), charts.ALARM)]
    figure = charts.band_chart({"bank deadlock": spans}, "bands")
    low, high = figure.axes[0].collections[1].get_paths()[0].get_extents().intervalx
    assert high - low > 0


def test_true_values_are_drawn_and_where_nothing_was_recorded_there_is_a_gap() -> None:
    found = points(*range(10))
    found.times = [*found.times[:5], *(moment + timedelta(seconds=60) for moment in found.times[5:])]
    figure = charts.line_chart([(Quantity("machines", is_whole=True), {"bank": found})], "gap")
    (line,) = figure.axes[0].get_lines()
    drawn = list(line.get_ydata())
    assert [value for value in drawn if not math.isnan(value)] == list(range(10))
    assert [place for place, value in enumerate(drawn) if math.isnan(value)] == [5]


@pytest.mark.parametrize("values", [(1, 1, 1), (0, 1, 0), (3,), (0, 0)])
def test_what_is_counted_in_whole_ones_has_no_halves_on_its_axis(values: tuple[float, ...]) -> None:
    figure = charts.line_chart([(Quantity("machines", is_whole=True), {"bank": points(*values)})], "whole")
    lay_out(figure)
    low, high = figure.axes[0].get_ylim()
    ticks = [tick for tick in figure.axes[0].get_yticks() if low <= tick <= high]
    assert ticks
    assert all(tick == int(tick) for tick in ticks)
    assert low < min(values) <= max(values) < high


def test_ticks_of_time_have_no_tails_of_noughts() -> None:
    figure = charts.line_chart([(Quantity("machines"), {"bank": points(*range(12), every=0.1)})], "short")
    lay_out(figure)
    texts = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert any(texts)
    assert not any(text.endswith("00000") or len(text) > 8 for text in texts), texts


def test_named_moments_are_numbered_and_told_in_the_legend() -> None:
    marks = [(at(1), "a appeared"), (at(1), "b appeared"), *((at(2 + n), f"c{n} vanished") for n in range(12))]
    figure = charts.line_chart([(Quantity("machines"), {"bank": points(*range(20))})], "marks", marks)
    told = [*_legend(figure)]
    assert told[1:3] == ["1: a appeared and 1 more", "2: c0 vanished"]
    assert told[-1] == "and 3 more moments"


@pytest.mark.parametrize("kind", ["lines", "bands"])
def test_the_legend_lies_beside_the_data(kind: str) -> None:
    names = [f"a system of a long name {number}" for number in range(6)]
    if kind == "lines":
        marks = [(at(n), f"machine-{n} appeared") for n in range(5)]
        figure = charts.line_chart([(Quantity("a"), {name: points(1, 2) for name in names})] * 3, "lines", marks)
    else:
        spans = [Span(at(n), at(n + 1), answer) for n, answer in enumerate(charts.ANSWERS)]
        figure = charts.band_chart(dict.fromkeys(names, spans), "bands")
    lay_out(figure)
    below = figure.legends[0].get_window_extent()
    for axis in figure.axes:
        inside = axis.get_window_extent()
        assert not below.overlaps(inside)
        assert inside.height > 20, "there is room for a chart"


def test_what_a_detector_says_is_told_by_colour_and_hatch_and_only_what_it_said_stands_in_the_legend() -> None:
    spans = [Span(at(0), at(2), charts.UNKNOWN), Span(at(4), at(6), charts.ALARM)]
    figure = charts.band_chart({"bank deadlock": spans}, "bands")
    assert [*_legend(figure)] == [charts.ALARM, charts.UNKNOWN]
    unknown, alarm = figure.axes[0].collections
    assert (unknown.get_hatch(), alarm.get_hatch()) == ("////", "xx")
    ends = [band.get_paths()[0].get_extents().intervalx for band in (unknown, alarm)]
    assert ends[0][1] < ends[1][0], "between them nothing was asked, and nothing is drawn"


def test_nothing_to_draw_is_said() -> None:
    assert charts.line_chart([(Quantity("machines"), {})], "none").axes[0].texts[0].get_text() == "nothing recorded"
    assert charts.band_chart({}, "none").axes


def test_a_span_ends_where_something_else_is_said_and_before_a_pause_in_which_nothing_was_asked() -> None:
    moments = [at(0), at(1), at(2), at(3), at(60), at(61), at(62)]
    said = [charts.NOT_HELD] * 2 + [charts.ALARM] * 3 + [charts.NOT_HELD] * 2
    assert charts.spans(moments, said) == [
        Span(at(0), at(2), charts.NOT_HELD),
        Span(at(2), at(4), charts.ALARM),
        Span(at(60), at(61), charts.ALARM),
        Span(at(61), at(62), charts.NOT_HELD),
    ]
    assert charts.spans([], []) == []
    assert charts.spans([at(5)], [charts.ALARM]) == [Span(at(5), at(5), charts.ALARM)]


def test_names_that_are_alike_when_they_are_cut_have_an_entry_each() -> None:
    lines = {f"{'x' * 60}{number}": Points([at(0), at(1)], [1, 2]) for number in range(2)}
    figure = charts.line_chart([(Quantity("machines"), lines)], "lines")
    assert len(figure.legends[0].get_texts()) == 2


def test_a_span_ends_at_the_next_moment_however_far_that_is() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for year in range(1, 9999, 7):
        moments = [datetime(year, 1, 1, microsecond=year, tzinfo=UTC), last]
        assert charts.spans(moments, [charts.HELD] * 2) == [Span(moments[0], last, charts.HELD)]
