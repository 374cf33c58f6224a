"""Pages as HTML: templates that escape all they are given, and how numbers, times and addresses are written in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request

from ray_snapshot import __version__
from ray_snapshot.names import word_for
from ray_snapshot.reports.course import STATUSES
from ray_snapshot.reports.texts import at, plain
from ray_snapshot.views.wait_svg import svg
from ray_snapshot.web.asked import Asked


class Pages:
    """The templates."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.environment = Environment(
            loader=ChoiceLoader([PackageLoader("ray_snapshot.web"), PackageLoader("ray_snapshot.reports")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters |= {
            "plain": plain,
            "count": _count,
            "at": at,
            "word": word_for,
            "moment": _moment,
            "ms": _ms,
        }
        self.environment.globals |= {
            "version": __version__,
            "url": self.url,
            "one": self.one,
            "waits_svg": self._waits,
            "statuses": STATUSES,
        }

    def url(self, path: str, **values: Any) -> str:
        """The address of a page of this server."""
        given = {name: value for name, value in values.items() if value is not None}
        return f"{self.root}{path}" + (f"?{urlencode(given)}" if given else "")

    def one(self, place: str, snapshot_id: str, page: str = "", **values: Any) -> str:
        """The address of a snapshot, or of one of its pages."""
        path = f"/h/{quote(place, safe='')}/s/{quote(snapshot_id, safe='')}"
        return self.url(f"{path}/{page}" if page else path, **values)

    def render(self, template: str, request: Request, said: Any, noun: str) -> str:
        """A page that says this; `noun`: what it calls a machine."""
        given = {"said": said, "asked": Asked(dict(request.query_params)), "noun": noun, "path": self._path(request)}
        page: str = self.environment.get_template(template).render(**given)
        return page

    def trouble(self, request: Request, error: Exception) -> str:
        """The page that says why there is none."""
        words = plain(error, 2_000)
        page: str = self.environment.get_template("trouble.html.j2").render(
            words=words[:1].upper() + words[1:], asked=Asked({}), path=self._path(request)
        )
        return page

    def _path(self, request: Request) -> str:
        """Of the page that is asked for, as `url` takes it."""
        return quote(request.url.path.removeprefix(self.root)) or "/"

    def _waits(self, said: Any) -> str:
        """The drawing of a page of waits, its boxes leading to machines, or to those of a class."""
        links = {
            name: self.one(said.place, said.snapshot_id, "machine", name=name)
            for box in said.picture.boxes
            if len(box.machines) == 1
            for name in box.machines
        }
        for title, class_name in said.boxes.items():
            links[title] = self.one(said.place, said.snapshot_id, "waits", **{"class": class_name})
        return svg(said.picture, links)


def _count(value: Any) -> str:
    return "-" if value is None else f"{value:,}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _moment(value: datetime | None) -> str:
    """In a column that says UTC."""
    return at(value).removesuffix(" UTC")
