"""The pages in a real browser: clicked through, changed by what happens, read by axe, in light and dark."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from incidents import deadlocked, healthy, incident, judged, written
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from until import until
from viewing import TOKEN

from ray_snapshot.history import HistoryWriter
from ray_snapshot.web.app import make_app
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import Terms
from ray_snapshot.web.served import Served

PROGRAM = "chromium-headless-shell"
NEEDED = "BROWSER_IS_NEEDED"
"""Where this is set, a machine without a browser fails these tests."""

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
BOUND_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests here; behind them nothing of it is left in the process."""
    found = which(PROGRAM)
    if found is None:
        missing = pytest.fail if NEEDED in os.environ else pytest.skip
        missing(f"these tests need a browser: apt-get install {PROGRAM} (as .ci/run does, where they must run)")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield made
        made.close()


@dataclass
class Site:
    """A server, and a browser's page that nothing has gone wrong on."""

    address: str
    served: Served
    events: Events
    page: Page
    troubles: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.address}{path}")
        expect(self.page.locator("h1")).to_be_visible()


@contextmanager
def serving(*histories: Path) -> Iterator[tuple[str, Served, Events]]:
    """The server on a free port."""
    served = Served()
    for path in histories:
        served.add(path)
    events = Events(served)
    config = uvicorn.Config(
        make_app(served, Terms(TOKEN), events), port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        (port,) = (one.getsockname()[1] for item in server.servers for one in item.sockets)
        yield f"http://127.0.0.1:{port}", served, events
    finally:
        server.should_exit = True
        thread.join(30.0)


@contextmanager
def looking(browser: Browser, *histories: Path, **context: Any) -> Iterator[Site]:
    """A browser that has opened the address with the token; no error may be in its console."""
    with serving(*histories) as (address, served, events):
        room = browser.new_context(viewport={"width": 1280, "height": 900}, **context)
        page = room.new_page()
        page.set_default_timeout(BOUND_MS)
        site = Site(address, served, events, page)
        page.on("console", lambda said: site.troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: site.troubles.append(str(error)))
        page.goto(f"{address}/?token={TOKEN}")
        expect(page.locator("h1")).to_be_visible()
        yield site
        room.close()
        assert site.troubles == []


def test_a_person_comes_from_the_alarm_to_the_machine_that_waits(browser: Browser, tmp_path: Path) -> None:
    with looking(browser, incident(tmp_path / "h")) as site:
        page = site.page
        assert TOKEN not in page.url, "the token has vanished from the address"
        expect(page.get_by_role("status")).to_contain_text("Alarm: deadlock in bank")
        page.get_by_role("link", name="who waits for whom").click()
        expect(page.locator("h1")).to_have_text("What can never move again")
        page.locator("svg.waits a").first.click()
        expect(page.get_by_role("heading", name="Where it waits")).to_be_visible()
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_role("heading", name="What the detectors say")).to_be_visible()
        page.get_by_role("link", name="the one before").click()
        page.wait_for_url("**/bank-00004")
        page.get_by_role("link", name="Machines").click()
        page.get_by_label("status").fill("blocked")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_text("3 rows").first).to_be_visible()
        page.get_by_role("columnheader", name="accepted").get_by_role("link").click()
        expect(page.locator("th[aria-sort=ascending]")).to_contain_text("accepted")
        page.get_by_role("link", name="h", exact=True).click()
        page.get_by_label("said").select_option("alarm")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("link", name="bank-00004")).to_be_visible()
        expect(page.get_by_role("link", name="bank-00003")).to_have_count(0)
        page.get_by_role("link", name="ray-snapshot").click()
        expect(page.get_by_text("deadlock: ALARM: holds")).to_be_visible()


def late(route: Route) -> None:
    """A script that comes long after the one that it belongs to: that one must wait for it."""
    answer = [route.fetch() for _ in range(20)][-1]
    route.fulfill(response=answer)


def test_a_page_changes_by_itself_and_what_is_open_in_it_stays_open(browser: Browser, tmp_path: Path) -> None:
    path = written(tmp_path / "h", [healthy(0), healthy(1)])
    with looking(browser, path) as site:
        site.page.route("**/hx-sse.min.js", late)
        site.page.reload()
        expect(site.page.get_by_role("status")).to_contain_text("No alarm")
        site.page.get_by_role("link", name="all snapshots").focus()
        until(lambda: site.events.streams == 1)
        until(lambda: site.events._seen is not None)
        write(path, 2)
        expect(site.page.get_by_role("status")).to_contain_text("Alarm: deadlock in bank", timeout=BOUND_MS)
        assert site.page.evaluate("document.activeElement.textContent") == "all snapshots", (
            "the focus stays where it was"
        )
        site.open("/h/h")
        expect(site.page.get_by_role("link", name="bank-00002")).to_be_visible()
        until(lambda: site.events.streams == 1)
        write(path, 3)
        expect(site.page.get_by_role("link", name="bank-00003")).to_be_visible(timeout=BOUND_MS)


def write(path: Path, number: int) -> None:
    with HistoryWriter(path) as writer:
        writer.add_both(deadlocked(number), judged(deadlocked(number)))


def test_a_hidden_tab_closes_its_stream_and_catches_up_when_it_is_shown(browser: Browser, tmp_path: Path) -> None:
    path = written(tmp_path / "h", [healthy(0)])
    with looking(browser, path) as site:
        until(lambda: site.events.streams == 1 and site.events._seen is not None)
        site.page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
        site.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        write(path, 1)
        until(lambda: (site.page.evaluate("1"), site.events.streams)[1], good=lambda streams: streams == 0)
        site.page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
        site.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(site.page.get_by_role("status")).to_contain_text("Alarm: deadlock in bank", timeout=BOUND_MS)


ONE = "/h/h/s/bank-00005"
PARTS = ("waits", "machines", "channels", "machine?name=a")
READ = ("/", "/h/h", ONE, *(f"{ONE}/{part}" for part in PARTS), "/nothing")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.by_day(1)
def test_axe_finds_nothing_serious_on_any_page(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with looking(browser, incident(tmp_path / "h"), color_scheme=scheme) as site:
        for path in READ:
            site.open(path)
            found = Axe().run(site.page).response["violations"]
            serious = [
                (one["id"], one["nodes"][0]["html"][:300], one["nodes"][0]["failureSummary"])
                for one in found
                if one["impact"] in ("serious", "critical")
            ]
            assert serious == [], path
        site.troubles = [text for text in site.troubles if "404" not in text]


def test_a_drawing_is_moved_and_zoomed_by_the_keyboard_too(browser: Browser, tmp_path: Path) -> None:
    names = tuple(f"machine-{number}" for number in range(2))
    path = written(tmp_path / "h", [many_waits(20), deadlocked(6, (names[0], names[1]))])
    with looking(browser, path) as site:
        site.open("/h/h/s/crowd/waits")
        frame = site.page.locator("[data-zoom]")
        expect(frame).to_have_class("zoomed is-on")
        moved = site.page.locator(".svg-pan-zoom_viewport")
        before = moved.get_attribute("transform")
        frame.focus()
        site.page.keyboard.press("+")
        expect(moved).not_to_have_attribute("transform", before or "")
        zoomed = moved.get_attribute("transform")
        site.page.keyboard.press("ArrowRight")
        expect(moved).not_to_have_attribute("transform", zoomed or "")


def many_waits(count: int) -> Any:
    from ray_snapshot import Snapshot

    machines = [
        {
            "machine": f"w{number}",
            "class_name": "W",
            "status": "blocked",
            "waits_for": [f"w{number + 1}"],
            "wait_mode": "all",
        }
        for number in range(count)
    ]
    machines.append({"machine": f"w{count}", "class_name": "W", "status": "active"})
    return Snapshot.from_rows(machines=machines, snapshot_id="crowd")
