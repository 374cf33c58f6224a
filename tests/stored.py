"""A server of an object store on this computer, for one test run, and what stands in the environment of who uses it."""

import http.client
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from clean import clean_environment

CHANGING = ("PUT", "POST", "DELETE")
_RUNNING = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
_OWN = ("host", "connection", "content-length", "transfer-encoding", "expect")


def environment(address: str) -> dict[str, str]:
    """What a user of the store has in the environment."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIDOFTESTS",
        "AWS_SECRET_ACCESS_KEY": "secret-of-tests",
    }


class Store:
    """The server, in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment()
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := _RUNNING.search(line):
                self.address = found[1]
                break
        else:
            raise AssertionError(f"the store did not start: {said}")
        Thread(target=self.process.stderr.read, daemon=True).start()  # or its pipe would be full one day
        self.buckets = 0

    def bucket(self) -> str:
        """The address of a new bucket."""
        self.buckets += 1
        name = f"bucket-{self.buckets}"
        urllib.request.urlopen(urllib.request.Request(f"{self.address}/{name}", method="PUT"), timeout=30).close()
        return f"s3://{name}"

    def filled(self, fill: Callable[[str], None]) -> str:
        """The address of a history in a new bucket, into which `fill` has written."""
        address = f"{self.bucket()}/pristine"
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment(self.address).items():
                patch.setenv(name, value)
            fill(address)
        return address

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


class Proxy:
    """Stands between a store and who uses it: `before` and `after` hear of each request that changes something, by its
    number from 1, and may end who has asked, or raise `Refused` so that no answer comes."""

    def __init__(self, address: str) -> None:
        self.before: Callable[[int, str, str], Any] = lambda number, method, path: None
        self.after: Callable[[int, str, str], Any] = lambda number, method, path: None
        self.count = 0
        self.changes: list[str] = []
        """The paths of the requests that changed something."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                proxy._handle(self, address)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def _handle(self, asked: BaseHTTPRequestHandler, address: str) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        number = 0
        if asked.command in CHANGING:
            self.count += 1
            number = self.count
            self.changes.append(asked.path)
        try:
            if number:
                self.before(number, asked.command, asked.path)
            kept = {name: value for name, value in asked.headers.items() if name.lower() not in _OWN}
            connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
            connection.request(asked.command, asked.path, body, kept)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if number:
                self.after(number, asked.command, asked.path)
        except Refused:
            asked.close_connection = True
            asked.connection.close()
            return
        asked.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                asked.send_header(name, value)
        length = answer.headers.get("Content-Length") if asked.command == "HEAD" else str(len(content))
        asked.send_header("Content-Length", length or "0")
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(content)

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()


class Refused(Exception):
    """No answer comes."""


def copy(source: str, target: str) -> str:
    """Copy all objects from one address to another; returns the latter."""
    import obstore

    from ray_snapshot.addresses import parse
    from ray_snapshot.history import objects, stores

    one, other = parse(source, ValueError), parse(target, ValueError)  # type: ignore[type-var]
    for path, _ in objects.below(one, one):
        new = other / path.relative_to(one)
        if one.root == other.root:
            obstore.copy(stores.client(one), path.key, new.key)
        else:
            objects.put(new, objects.read_bytes(one, path, 10**9))
    return target
