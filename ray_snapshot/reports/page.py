"""A report as one HTML file: no scripts, nothing from a network, light and dark, and readable on paper.

Everything in it comes from a history that a stranger may have made: the template escapes all of it, charts are shown as
images, in which nothing can run, and a policy in the page forbids scripts and requests whatever the page holds.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any

from ray_snapshot.reports.gathering import Report
from ray_snapshot.reports.texts import at, plain
from ray_snapshot.views.wait_svg import svg


def html(report: Report) -> str:
    """The page."""
    links = {card.name: f"#machine-{row}" for row, card in enumerate(report.cards)}
    drawing = svg(report.waiting.picture, links) if report.waiting is not None else ""
    charts = [(title, _image(chart)) for title, chart in report.past.charts]
    page: str = _template().render(report=report, taken_at=at(report.taken_at), drawing=drawing, charts=charts)
    return page


def _image(chart: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(chart.encode("utf-8", "replace")).decode()


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
