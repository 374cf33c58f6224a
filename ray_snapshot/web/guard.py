"""Who may see the pages: a token, the names that this server answers to, and where a change may come from.

The token stands in the address that is printed; the first answer to it sets a cookie, and leads on to the address without it.
Programs send `Authorization: Bearer TOKEN`. A host name that is none of ours is refused, or else a stranger's page, whose name
leads to this machine (DNS rebinding), could ask. Nothing is changed here, so only GET and HEAD are answered.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""No script but our own files, and no request but to this server. Styles may stand in drawings."""

HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What the guard asks for."""

    token: str
    hosts: frozenset[str] = LOOPBACK
    """Names that this server answers to, without ports."""
    cookie: str = "ray_snapshot"
    root: str = ""
    is_open: bool = False
    """Whether it listens for other machines: then by any number of its own, too."""


class Guard:
    """Between the network and the pages."""

    def __init__(self, app: App, terms: Terms) -> None:
        self.app = app
        self.terms = terms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, lead on, or let the request through."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        path = str(scope["path"]).removeprefix(
            self.terms.root
        )  # as it is routed by: an address is made of what a client says
        answer = self._refused(Request(scope), path)

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "max-age=3600" if path.startswith("/static/") else "no-store")
            await send(message)

        await (answer or self.app)(scope, receive, with_headers)

    def _refused(self, request: Request, path: str) -> Response | None:
        if not self._is_own_name(request.headers.get("host", "")):
            return PlainTextResponse(
                "ray-snapshot serve does not answer to this host name: start it with --allow-host NAME\n", 421
            )
        if path.startswith("/static/"):
            return None
        if self._is_token(_bearer(request)):
            return None
        if (given := request.query_params.get("token")) is not None:
            return self._welcome(request) if self._is_token(given) else _unauthorized(path)
        if not self._is_token(request.cookies.get(self.terms.cookie, "")):
            return _again(request) if _comes_from_elsewhere(request) else _unauthorized(path)
        return None

    def _is_own_name(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["name"].strip("[]")
        return name in self.terms.hosts or (self.terms.is_open and _is_address(name))

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.terms.token.encode())

    def _welcome(self, request: Request) -> Response:
        """Keep the token as a cookie, and go on to the same address without it."""
        answer = _leads_to(_without_token(request))
        answer.set_cookie(
            self.terms.cookie, self.terms.token, httponly=True, samesite="strict", path=self.terms.root or "/"
        )
        return answer


_HOST = re.compile(r"(?P<name>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")


def _is_address(name: str) -> bool:
    """Whether it is a number, and no name that a stranger could have lead here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(request: Request) -> str:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else ""


def _without_token(request: Request) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    return _own_path(request) + (f"?{urlencode(kept)}" if kept else "")


def _own_path(request: Request) -> str:
    """The path, and never another server: `//elsewhere` would be one, and to browsers `/\\elsewhere`, too."""
    return "/" + quote(str(request.scope["path"]).lstrip("/\\"))


def _comes_from_elsewhere(request: Request) -> bool:
    """Whether a person follows a link of another site: a strict cookie is shown only from the second step on."""
    is_page = request.headers.get("sec-fetch-mode") == "navigate"
    return is_page and request.headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _again(request: Request) -> Response:
    query = request.scope["query_string"].decode("latin-1")
    return _leads_to(_own_path(request) + (f"?{query}" if query else ""))


def _leads_to(path: str) -> HTMLResponse:
    """A page that leads on: as it is ours, the browser shows the cookie at the next step."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ray-snapshot</title>'
        f'<meta http-equiv="refresh" content="0;url={escape(path, quote=True)}"></head>'
        f'<body><p><a href="{escape(path, quote=True)}">Go on</a></p></body></html>'
    )


def _unauthorized(path: str) -> Response:
    text = "open the address that `ray-snapshot serve` has printed: it has the token that this page asks for"
    if path.startswith("/api/"):
        return JSONResponse({"error": "send the header `Authorization: Bearer TOKEN`: " + text}, 401)
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ray-snapshot: no token</title></head>'
        f"<body><h1>No token</h1><p>To see this, {escape(text)}.</p></body></html>",
        401,
    )
