"""The addresses: each page, and the same as JSON under `/api/v1`. Nothing is changed by any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ray_snapshot.errors import (
    ClusterError,
    HistoryNotFoundError,
    RaySnapshotError,
    SettingError,
    SystemNotRunningError,
    UnknownMachineError,
)
from ray_snapshot.views.tables import json_text
from ray_snapshot.web import drawn, reading, scraped
from ray_snapshot.web.asked import Asked
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import Guard, Terms
from ray_snapshot.web.html import Pages
from ray_snapshot.web.pages import machine, now, snapshot, snapshots, waits
from ray_snapshot.web.served import Place, Served

API = "/api/v1"
STATIC = Path(__file__).parent / "static"
THREADS = CapacityLimiter(200)
"""So many answers are made at once: those that wait for the same one hold a thread each, and must not hold up others."""

Say = Callable[[Served, Mapping[str, str], Asked], Any]
"""What a page says; raises errors of ours."""


@dataclass(frozen=True, slots=True)
class Page:
    """An address, what is said there, and the template that shows it."""

    path: str
    template: str
    say: Say


def _of_place(say: Callable[[Served, Place, Asked], Any]) -> Say:
    return lambda served, names, asked: say(served, served.place(names["place"]), asked)


def _of_snapshot(say: Callable[[Served, Place, str, Asked], Any]) -> Say:
    """`latest`, and the beginning of an id, are addresses, too."""

    def said(served: Served, names: Mapping[str, str], asked: Asked) -> Any:
        place = served.place(names["place"])
        return say(served, place, reading.resolved(served, place, names["snapshot"]), asked)

    return said


_ONE = "/h/{place}/s/{snapshot}"

PAGES = (
    Page("/", "now.html.j2", lambda served, *_: now.now(served)),
    Page("/h/{place}", "snapshots.html.j2", _of_place(snapshots.snapshots)),
    Page(_ONE, "snapshot.html.j2", _of_snapshot(lambda served, place, one, _: snapshot.snapshot(served, place, one))),
    Page(f"{_ONE}/machines", "machines.html.j2", _of_snapshot(snapshot.machines)),
    Page(f"{_ONE}/channels", "channels.html.j2", _of_snapshot(snapshot.channels)),
    Page(
        f"{_ONE}/channel",
        "channel.html.j2",
        _of_snapshot(snapshot.channel),
    ),
    Page(f"{_ONE}/waits", "waits.html.j2", _of_snapshot(waits.waits)),
    Page(
        f"{_ONE}/machine",
        "machine.html.j2",
        _of_snapshot(
            lambda served, place, one, asked: machine.machine(served, place, one, asked.values.get("name", ""))
        ),
    ),
)


def make_app(served: Served, terms: Terms, events: Events) -> Guard:
    """The pages over what is served, behind their guard."""
    pages = Pages(served.root)
    routes = [Mount("/static", StaticFiles(directory=STATIC), name="static"), Route("/events", events.stream)]
    for page in PAGES:
        routes.append(Route(API + page.path.rstrip("/"), partial(_json, served, page)))
        routes.append(Route(page.path, partial(_html, served, pages, page)))
    routes += [
        Route("/metrics", partial(_metrics, served)),
        Route("/h/{place}/run.svg", partial(_chart, served, drawn.of_run)),
        Route("/live/{system}/run.svg", partial(_chart, served, drawn.of_glances)),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={404: partial(_not_found, pages)}), terms)


# ---- answers -------------------------------------------------------------------------------------------------------------


def status_of(error: RaySnapshotError) -> int:
    """The code of HTTP for an error of ours."""
    if isinstance(error, (HistoryNotFoundError, UnknownMachineError, SystemNotRunningError)):
        return 404
    if isinstance(error, ClusterError):
        return 502
    return 400 if isinstance(error, SettingError) else 500


async def _said(served: Served, page: Page, request: Request) -> Any:
    asked = Asked(dict(request.query_params))
    return await to_thread.run_sync(page.say, served, request.path_params, asked, limiter=THREADS)


async def _html(served: Served, pages: Pages, page: Page, request: Request) -> Response:
    try:
        said = await _said(served, page, request)
        noun = await to_thread.run_sync(reading.noun_of_page, served, request.path_params, limiter=THREADS)
        return HTMLResponse(await to_thread.run_sync(pages.render, page.template, request, said, noun, limiter=THREADS))
    except RaySnapshotError as error:
        return HTMLResponse(pages.trouble(request, error), status_of(error))


async def _json(served: Served, page: Page, request: Request) -> Response:
    try:
        said = await _said(served, page, request)
    except RaySnapshotError as error:
        return _as_json({"error": str(error)}, status_of(error))
    return _as_json(plain_values(said))


def plain_values(said: Any) -> Any:
    """What a page says, as JSON has it."""
    return asdict(said) if is_dataclass(said) and not isinstance(said, type) else said


def _as_json(value: Any, status: int = 200) -> Response:
    return Response(json_text(value), status, media_type="application/json")


async def _not_found(pages: Pages, request: Request, _: Exception) -> Response:
    if request.url.path.removeprefix(pages.root).startswith("/api/"):
        return _as_json({"error": f"there is nothing at {request.url.path}"}, 404)
    error = HistoryNotFoundError(f"there is no page at {request.url.path}", path="")
    return HTMLResponse(pages.trouble(request, error), 404)


async def _chart(served: Served, draw: Callable[[Served, Mapping[str, str], Asked], str], request: Request) -> Response:
    asked = Asked(dict(request.query_params))
    try:
        svg = await to_thread.run_sync(draw, served, request.path_params, asked, limiter=THREADS)
    except RaySnapshotError as error:
        return Response(str(error), status_of(error), media_type="text/plain")
    headers = {"cache-control": "private, max-age=10"}  # verdicts may be added later
    return Response(svg, media_type="image/svg+xml", headers=headers)


async def _metrics(served: Served, _: Request) -> Response:
    text = await to_thread.run_sync(scraped.scraped, served, limiter=THREADS)
    return Response(text, headers={"content-type": scraped.CONTENT_TYPE})
