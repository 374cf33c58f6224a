"""The page of measured figures: a line a figure, the latest of each, of one machine."""

from pathlib import Path

import pytest

from benchmarks import figures_page
from benchmarks.measure import Result

NAMES = ["send", "copy", "rest"]


def figure(name: str, ratio: float) -> tuple[Result, float]:
    return Result(name, ratio, ratio / 2, ratio * 2, "<= 2", {"ms": 12345.678, "plain_ms": 1.0}), 0.25


def test_a_figure_that_is_measured_again_takes_the_place_of_the_older_one(tmp_path: Path) -> None:
    page = tmp_path / "measured.md"
    figures_page.written(page, [figure("copy", 1.0), figure("rest", 3.0)], NAMES)
    figures_page.written(page, [figure("send", 1.5), figure("copy", 4.0)], NAMES)
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert [row.split("|")[1:7] for row in rows] == [
        [" `send` ", " 1.5 ", " 0.75 ", " 3.0 ", " <= 2 ", " yes "],
        [" `copy` ", " 4.0 ", " 2.0 ", " 8.0 ", " <= 2 ", " no "],
        [" `rest` ", " 3.0 ", " 1.5 ", " 6.0 ", " <= 2 ", " no "],
    ]
    assert "ms 12,350.0, plain_ms 1.0" in rows[0]


def test_figures_of_two_machines_do_not_stand_on_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "measured.md"
    figures_page.written(page, [figure("copy", 1.0)], NAMES)
    before = page.read_text()
    monkeypatch.setattr(figures_page, "machine", lambda: "96 cores")
    with pytest.raises(ValueError, match="of another machine"):
        figures_page.written(page, [figure("copy", 2.0)], NAMES)
    assert page.read_text() == before
