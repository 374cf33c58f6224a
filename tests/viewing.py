"""Pages as a program gets them: the whole server but for the network, over histories that a test has written."""

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from incidents import judged
from starlette.testclient import TestClient

from ray_snapshot import Snapshot
from ray_snapshot.glances import Glances
from ray_snapshot.web.app import make_app
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import Terms
from ray_snapshot.web.served import Live, Running, Served

TOKEN = "t" * 32
BASE = "http://127.0.0.1:8266"


class Viewer:
    """A program with the token."""

    def __init__(self, served: Served, client: TestClient) -> None:
        self.served = served
        self.client = client
        client.headers["authorization"] = f"Bearer {TOKEN}"

    def page(self, path: str, status: int = 200) -> str:
        """A page as HTML."""
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text[:2_000]
        assert answer.headers["content-type"].startswith("text/html")
        return answer.text

    def json(self, path: str, status: int = 200) -> Any:
        """The same as JSON."""
        answer = self.client.get(f"/api/v1{path}" if path != "/" else "/api/v1")
        assert answer.status_code == status, answer.text[:2_000]
        return answer.json()


@contextmanager
def viewer(*histories: Path, live: Live | None = None, root: str = "") -> Iterator[Viewer]:
    """Pages over these."""
    served = Served(live=live, root=root)
    for path in histories:
        served.add(path)
    app = make_app(served, Terms(TOKEN, root=root), Events(served))
    with TestClient(app, base_url=BASE, root_path=root) as client:
        yield Viewer(served, client)


class Bank:
    """A system that runs, and whose last glances are asked for."""

    def __init__(self, history: Path | None = None) -> None:
        self.glances = Glances()
        self.is_silent = False
        """Whether its cluster has not answered yet."""
        self.trouble = ""
        self.history = None if history is None else str(history)

    def take(self, *snapshots: Snapshot, generation: int = 0) -> None:
        for one in snapshots:
            self.glances.add(one, judged(one) if one.status == "complete" else [], generation)

    def systems(self) -> list[Running]:
        if self.is_silent:
            return []
        seen = {"totals": self.glances.totals, "last": self.glances.last}
        about = {"run_id": "run-1", "history": self.history, **seen}
        return [Running("bank", about, tuple(self.glances.kept), trouble=self.trouble)]

    def not_asked(self) -> list[str]:
        return []


class Told(HTMLParser):
    """What a page says, and what is in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self._is_hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._is_hidden = tag in ("style", "script")
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value or "" for name, value in attributes if name in ("href", "src", "action")]
        if tag == "script":
            self.scripts.append(dict(attributes))

    def handle_endtag(self, tag: str) -> None:
        self._is_hidden = self._is_hidden and tag not in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._is_hidden:
            self.text += f"{data} "

    @property
    def words(self) -> str:
        """Its text, in one line."""
        return " ".join(self.text.split())
