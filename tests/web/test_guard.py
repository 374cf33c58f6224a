"""Who may see the pages: the token and its cookie, the names that the server answers to, where changes may come from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from incidents import incident
from starlette.testclient import TestClient
from viewing import BASE, TOKEN, viewer

from ray_snapshot.web.app import make_app
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import POLICY, Terms
from ray_snapshot.web.served import Served

TERMS = Terms(TOKEN, frozenset({"127.0.0.1", "localhost", "pages.example.org"}))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    found = Served()
    found.add(incident(tmp_path_factory.mktemp("guarded") / "h"))
    return found


@pytest.fixture
def browser(served: Served) -> Iterator[TestClient]:
    """One that has nothing yet."""
    with TestClient(make_app(served, TERMS, Events(served)), base_url=BASE, follow_redirects=False) as client:
        yield client


def welcome(browser: TestClient) -> None:
    assert browser.get(f"/?token={TOKEN}").status_code == 200


def test_without_the_token_nothing_is_shown(browser: TestClient) -> None:
    strange = (f"/?token={TOKEN[:-1]}", "/?token=", "/?token=ü")
    for path in ("/", "/h/h", "/api/v1", "/api/v1/h/h", "/events", "/h/h/run.svg", *strange):
        answer = browser.get(path)
        assert answer.status_code == 401, path
        assert "bank" not in answer.text
        assert TOKEN not in answer.text
    assert browser.get("/", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert browser.get("/", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401


def test_the_token_of_the_address_becomes_a_cookie_and_vanishes_from_the_address(browser: TestClient) -> None:
    answer = browser.get(f"/h/h?system=bank&token={TOKEN}&run=a%26b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert 'content="0;url=/h/h?system=bank&amp;run=a%26b"' in answer.text
    assert TOKEN not in answer.text
    assert browser.get("/h/h").status_code == 200


def test_the_address_that_is_led_on_to_is_on_this_server(browser: TestClient) -> None:
    answer = browser.get(f"{BASE}//evil.example/x?token={TOKEN}")
    assert 'url=/evil.example/x"' in answer.text
    answer = browser.get(f"{BASE}/%5Cevil.example/x?token={TOKEN}")
    assert 'url=/evil.example/x"' in answer.text


def test_a_link_of_another_site_is_followed_at_the_second_step(browser: TestClient) -> None:
    """A strict cookie is not shown when a person comes from elsewhere; from our own page on it is."""
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answer = browser.get("/h/h?page=1", headers=headers)
    assert answer.status_code == 200
    assert 'content="0;url=/h/h?page=1"' in answer.text
    assert "bank" not in answer.text
    assert (
        browser.get("/h/h?page=1", headers={"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}).status_code
        == 401
    )
    assert browser.get("/h/h", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8266", "127.0.0.1.evil.example", "127.0.0.1/static/", "127.0.0.1:8266/static/",
        "127.0.0.1@evil.example", "", "[::1", "8.8.8.8",
    ],
)  # fmt: skip
def test_a_strange_host_name_is_refused_whatever_it_shows(browser: TestClient, host: str) -> None:
    answer = browser.get("/", headers={"host": host, "authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 421
    assert "bank" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:9", "LOCALHOST", "pages.example.org"])
def test_its_own_names_are_answered_at_any_port(browser: TestClient, host: str) -> None:
    assert browser.get("/", headers={"host": host, "authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_nothing_is_changed_by_any_address(browser: TestClient) -> None:
    welcome(browser)
    for route in make_app(Served(), TERMS, Events(Served())).app.routes:  # type: ignore[attr-defined]
        assert getattr(route, "methods", None) in (None, {"GET", "HEAD"}), route
    assert browser.post("/h/h").status_code == 405


def test_every_answer_says_what_browsers_may_do_with_it(browser: TestClient) -> None:
    welcome(browser)
    for path in ("/", "/h/h", "/nothing", "/api/v1", "/static/page.js", "/h/h/run.svg?snapshot=bank-00005"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"] == POLICY, path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self';" in POLICY


def test_pages_in_a_folder_of_a_proxy_lead_into_it(served: Served) -> None:
    with viewer(Path(served.places["h"].history.path), root="/snapshots") as seen:
        page = seen.page("/h/h")
        assert 'href="/snapshots/h/h/s/bank-00005"' in page
        assert 'href="/snapshots/api/v1/h/h"' in page
        assert 'src="/snapshots/static/page.js"' in page
        assert 'href="/h/' not in page


def test_where_others_are_let_in_it_answers_to_its_numbers_and_to_no_other_name(served: Served) -> None:
    terms = Terms(TOKEN, is_open=True)
    headers = {"authorization": f"Bearer {TOKEN}"}
    with TestClient(make_app(served, terms, Events(served)), base_url=BASE) as client:
        for host, status in (("192.168.1.7:8266", 200), ("[fd00::7]", 200), ("evil.example", 421)):
            assert client.get("/", headers=headers | {"host": host}).status_code == status
