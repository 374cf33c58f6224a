"""A web address on this machine that keeps what is posted to it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Posted:
    """What came, and what is answered: the given codes first, then 200."""

    def __init__(self, codes: list[int], location: str | None) -> None:
        self.codes = codes
        self.location = location
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.address = ""


@contextmanager
def address(*codes: int, location: str | None = None) -> Iterator[Posted]:
    """An address as long as the block runs."""
    posted = Posted(list(codes), location)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.paths.append(self.path)
            posted.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(posted.codes.pop(0) if posted.codes else 200)
            if posted.location is not None:
                self.send_header("location", posted.location)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    posted.address = f"http://127.0.0.1:{server.server_port}/hook/a-secret"
    try:
        yield posted
    finally:
        server.shutdown()
        server.server_close()
