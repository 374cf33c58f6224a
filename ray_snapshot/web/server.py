"""The server: a port, the address to open, and an end with Ctrl-C."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import uvicorn

from ray_snapshot.errors import SettingError
from ray_snapshot.web.app import make_app
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import LOOPBACK, Terms
from ray_snapshot.web.served import Served

PORT = 8266
TRIED = 20
"""So many ports from `PORT` on are tried where none is named."""

TOKEN = "RAY_SNAPSHOT_TOKEN"
"""The variable that sets the token; without it each start has one of its own."""
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Where:
    """Where the server listens, and by which names it is reached."""

    host: str = "127.0.0.1"
    port: int | None = None
    allowed: tuple[str, ...] = ()
    root: str = ""


def serve(served: Served, where: Where, tell: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `tell` gets the address to open once it is listened to. Raises `SettingError`."""
    token = _token()
    listening = _listening(where)
    port = listening.getsockname()[1]
    names = LOOPBACK | {where.host.lower().strip("[]")} | {_without_port(name.lower()) for name in where.allowed}
    terms = Terms(token, frozenset(names), f"ray_snapshot_{port}", where.root, where.host not in LOOPBACK)
    app = make_app(served, terms, Events(served))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        root_path=where.root,
        timeout_graceful_shutdown=1,  # pages that listen for changes do not end by themselves
    )
    server, ended_by = uvicorn.Server(config), []

    def end(number: int, _: object) -> None:
        """Nothing is raised here: it would end whatever page is being answered, and not the server."""
        ended_by.append(number)
        server.should_exit = True

    for name in (signal.SIGTERM, signal.SIGHUP):  # else what lies in temporary folders would stay
        signal.signal(name, end)
    shown = "127.0.0.1" if where.host in ("0.0.0.0", "::") else where.host
    shown = f"[{shown}]" if ":" in shown else shown
    here = f"http://{shown}:{port}"
    path = f"/?token={quote(token, safe='')}"
    tell(f"{where.root}{path} at the proxy that leads to {here}" if where.root else here + path)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # how a server is ended
        return
    finally:
        listening.close()
        for name in (signal.SIGTERM, signal.SIGHUP):  # what is left to do may take long, and a second one ends it
            signal.signal(name, signal.SIG_DFL)
    if ended_by:
        raise SystemExit(128 + ended_by[0])


def _without_port(name: str) -> str:
    return re.sub(r":\d+$", "", name).strip("[]")


def show(address: str) -> None:
    """Open the address in a browser, if there is one."""
    try:
        is_open = webbrowser.open(address)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        print("ray-snapshot: no browser can be started here: open the address yourself", file=sys.stderr)


def _token() -> str:
    given = os.environ.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < SHORTEST_TOKEN or not given.isascii() or not given.isprintable():
        raise SettingError(
            f"{TOKEN}: a token has at least {SHORTEST_TOKEN} plain characters, so that nobody guesses it"
        )
    return given


def _listening(where: Where) -> socket.socket:
    """A socket on the port that is named, or on the first free one."""
    ports = [where.port] if where.port is not None else [*range(PORT, PORT + TRIED), 0]
    for port in ports:
        try:
            return _bound(where.host, port)
        except OSError as error:
            trouble = error
    raise SettingError(
        f"{where.host}:{ports[-1]} cannot be listened to: {trouble.strerror or trouble}; choose another --port"
    )


def _bound(host: str, port: int) -> socket.socket:
    kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    made = socket.socket(kind, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(128)  # before the address is told
    except OSError:
        made.close()
        raise
    return made
