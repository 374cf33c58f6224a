"""What is drawn: a line for each thing that is counted, with its true values, in one colour wherever it is seen."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from small_histories import BEGIN, live, snapshot, write

from ray_snapshot.detectors import TokenConservation

pytestmark = pytest.mark.spark


def _drawn(monkeypatch: pytest.MonkeyPatch, job: Any, frames: dict[str, Any], path: Path) -> Any:
    """The figure of a job's picture."""
    from ray_snapshot.spark_jobs.engine import pictures

    figures: list[Any] = []
    save = pictures._save

    def keep(figure: Any, to: str) -> None:
        figures.append(figure)
        save(figure, to)

    monkeypatch.setattr(pictures, "_save", keep)
    job.draw(frames, str(path))
    assert path.stat().st_size > 0
    (figure,) = figures
    return figure


def _lines(chart: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in chart.get_lines() if not str(line.get_label()).startswith("_")}


@pytest.mark.nightly
def test_each_ledger_of_a_run_is_a_line_of_its_own(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray_snapshot.spark_jobs import conservation

    coins = TokenConservation(total=30, state="$.coins", name="coins")
    stamps = TokenConservation(total=1_000, state="$.stamps", name="stamps")
    taken = [
        snapshot("till-1", n, machines=[{"machine": "a", "state": {"coins": 30 - n, "stamps": 1_000}}])
        for n in range(4)
    ]
    history = write(tmp_path / "history", taken, live(taken, coins, stamps))
    figure = _drawn(monkeypatch, conservation, conservation.run(spark, history), tmp_path / "conservation.png")
    held, _, difference = figure.axes
    assert {name: list(line.get_ydata()) for name, line in _lines(held).items()} == {
        "till till-1 coins": [30, 29, 28, 27],
        "till till-1 stamps": [1_000] * 4,
    }
    assert {name: list(line.get_ydata()) for name, line in _lines(difference).items()} == {
        "till till-1 coins": [0, -1, -2, -3],
        "till till-1 stamps": [0] * 4,
    }
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {*_lines(held), "1: coins broke"}


def test_a_system_has_one_colour_in_every_panel_and_in_the_legend(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first of them is missing in a panel: `busy` never has a message in flight, so none has an age."""
    from ray_snapshot.spark_jobs import traffic

    def one(run: str, n: int, in_flight: int) -> Any:
        channel = {"source": "a", "target": "b", "sent_count": n + in_flight, "accepted_count": n}
        sent_at = BEGIN - timedelta(seconds=1)
        messages = [{"source": "a", "target": "b", "method": "take", "args": [], "sent_at": sent_at}] * in_flight
        return snapshot(run, n, machines=[{"machine": "a"}, {"machine": "b"}], channels=[channel], messages=messages)

    taken = [one(run, n, in_flight) for run, in_flight in (("busy-1", 0), ("late-1", 1)) for n in range(3)]
    history = write(tmp_path / "history", taken)
    figure = _drawn(monkeypatch, traffic, traffic.run(spark, history), tmp_path / "traffic.png")
    sent, _, ages = figure.axes
    assert [*_lines(sent)] == ["busy busy-1", "late late-1"]
    assert [*_lines(ages)] == ["late late-1"]
    colours = {
        name: {_lines(chart)[name].get_color() for chart in figure.axes if name in _lines(chart)}
        for name in _lines(sent)
    }
    assert all(len(found) == 1 for found in colours.values())
    assert colours["busy busy-1"] != colours["late late-1"]
    (legend,) = figure.legends
    shown = {
        text.get_text(): {line.get_color()} for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert shown == colours


@pytest.mark.nightly
def test_a_detector_is_a_band_and_what_cannot_be_told_is_hatched(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_snapshot.spark_jobs import detections
    from ray_snapshot.views import charts

    def one(n: int) -> Any:
        waits = {"waits_for": ["b"]} if n >= 2 else {}
        others = {"waits_for": ["a"]} if n >= 2 else {}
        more = {"coverage": {"uncovered": ["a thread of a"]}} if n == 1 else {}
        return snapshot("bank-1", n, machines=[{"machine": "a", **waits}, {"machine": "b", **others}], **more)

    history = write(tmp_path / "history", [one(n) for n in range(4)])
    frames = detections.run(spark, history, detectors=["deadlock"])
    drawn: list[Any] = []
    chart = charts.band_chart
    monkeypatch.setattr(charts, "band_chart", lambda rows, title: drawn.append(rows) or chart(rows, title))
    figure = _drawn(monkeypatch, detections, frames, tmp_path / "detections.png")
    (rows,) = drawn
    assert {name: [span.answer for span in spans] for name, spans in rows.items()} == {
        "bank bank-1 deadlock": [charts.NOT_HELD, charts.ALARM],
        "bank bank-1 termination": [charts.HELD, charts.UNKNOWN, charts.NOT_HELD],
    }
    for spans in rows.values():
        assert spans[0].end == spans[1].begin, "what was said is said until something else is"
    drawn_at = {}
    for band in figure.axes[0].collections:
        for path in band.get_paths():
            (left, low), (_, high) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            drawn_at[round((low + high) / 2), left] = band.get_hatch() or ""
    hatches = [hatch for _, hatch in sorted(drawn_at.items())]
    assert hatches == [charts.ANSWERS[span.answer]["hatch"] for spans in rows.values() for span in spans]
