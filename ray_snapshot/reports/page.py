"""A report as one HTML file: no scripts, nothing from a network, light and dark, and readable on paper.

Everything in it comes from a history that a stranger may have made: the template escapes all of it, charts are shown as
images, in which nothing can run, and a policy in the page forbids scripts and requests whatever the page holds.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from functools import cache
from typing import Any

from ray_snapshot.reports.gathering import Report
from ray_snapshot.reports.texts import at, plain
from ray_snapshot.views.wait_picture import Picture
from ray_snapshot.views.wait_svg import svg

MOST = 2_000_000
"""Bytes of a page."""


def html(report: Report) -> str:
    """The page; where it would be too large, first evidence is left out, then states and charts, then the drawing."""
    lean = replace(report, verdicts=tuple(replace(one, evidence=_LEFT_OUT) for one in report.verdicts))
    leaner = replace(lean, cards=tuple(replace(card, state=_LEFT_OUT) for card in report.cards))
    leaner = replace(leaner, past=replace(report.past, charts=()))
    without = None if report.waiting is None else replace(report.waiting, picture=Picture())
    pages = (_page(one) for one in (report, lean, leaner, replace(leaner, waiting=without, cards=())))
    page = ""
    for page in pages:
        if len(page) < MOST // 4 or len(page.encode("utf-8", "replace")) < MOST:
            break
    return page


_LEFT_OUT = "(left out: the page would be too large)"


def _page(report: Report) -> str:
    links = {card.machine: f"#card-{row}" for row, card in enumerate(report.cards)}
    drawing = svg(report.waiting.picture, links) if report.waiting is not None else ""
    images = (
        (title, base64.b64encode(chart.encode("utf-8", "replace")).decode()) for title, chart in report.past.charts
    )
    charts = [(title, f"data:image/svg+xml;base64,{image}") for title, image in images]
    page: str = _template().render(report=report, taken_at=at(report.taken_at), drawing=drawing, charts=charts)
    return page


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("ray_snapshot.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain"] = plain
    return made.get_template("report.html.j2")
