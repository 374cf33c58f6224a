"""Pages over a history that a stranger has made: nothing of it runs, nothing of it leads elsewhere, and it freezes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from incidents import written
from viewing import BASE, Told, Viewer, viewer

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.history import HistoryWriter

EVIL = """<script>alert(1)</script><img src=x onerror=alert(2)>"'`{{7*7}}{%x%} javascript:alert(3) \u202e\x1b[31m"""
LARGE = 8_000_000

ONE = f"/h/h/s/{quote('s<b>-1')}"


def evil() -> Snapshot:
    call = {"call_id": EVIL, "method": EVIL, "call_site": EVIL}
    return Snapshot.from_rows(
        machines=[
            {"machine": EVIL, "class_name": EVIL, "host": EVIL, "status": EVIL, "state": {EVIL: EVIL}},
            {"machine": "large", "class_name": "Large", "status": "blocked", "state": {"text": "x" * LARGE}},
        ],
        messages=[{"source": EVIL, "target": "large", "kind": EVIL, "method": EVIL, "args": [EVIL]}],
        calls=[{"machine": EVIL, "caller": EVIL, **call}, {"machine": "large", **call}],
        waits=[{"machine": EVIL, "call_id": EVIL, "on_machine": "large"}, {"machine": "large", "on_machine": EVIL}],
        snapshot_id="s<b>-1",
        system="stranger",
        protocol=EVIL,
        run_id=EVIL,
        obstacles=[EVIL],
        coverage={"uncovered": [EVIL], "without_state": [EVIL], "versions": {EVIL: EVIL}},
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    path = tmp_path_factory.mktemp("stranger") / "h"
    verdict = Verdict(
        detector=EVIL, holds=True, alarm=True, sentence=EVIL, evidence={EVIL: [EVIL]}, snapshot_id="s<b>-1", run_id=EVIL
    )
    with viewer(written(path, [evil()], {"s<b>-1": [verdict]})) as found:
        yield found


PAGES = (
    "/",
    "/h/h",
    f"/h/h?{urlencode({'system': EVIL, 'run': EVIL, 'detector': EVIL})}",
    ONE,
    f"{ONE}/machines",
    f"{ONE}/machines?{urlencode({'search': EVIL[:20], 'class': EVIL})}",
    f"{ONE}/channels",
    f"{ONE}/channel?{urlencode({'source': EVIL, 'target': 'large', 'kind': EVIL})}",
    f"{ONE}/waits",
    f"{ONE}/waits?{urlencode({'class': EVIL})}",
    f"{ONE}/machine?{urlencode({'name': EVIL})}",
    f"{ONE}/machine?name=large",
)


@pytest.mark.parametrize("path", PAGES)
def test_what_a_stranger_has_written_is_shown_and_does_nothing(seen: Viewer, path: str) -> None:
    page = seen.page(path)
    told = Told(page)
    assert all("src" in script and set(script) <= {"src", "defer"} for script in told.scripts), (
        "only our files, nothing inline"
    )
    assert not told.handlers
    assert not {"iframe", "object", "embed", "base"} & set(told.tags)
    assert "<script>alert" not in page
    links = [link for link in told.links if link != "data:,"]  # the page has no icon
    assert all(link.startswith(("/", "?", "#")) and not link.startswith("//") for link in links), links
    assert "{{7*7}}" in page or EVIL[:8] not in told.text
    assert not {"\x1b", "\u202e"} & set(page)
    assert len(page) < 300_000
    assert len(json.dumps(seen.json(path))) < 300_000


@pytest.mark.parametrize("path", ["/", "/h/h", ONE, f"{ONE}/machines", f"{ONE}/waits"])
def test_what_the_pages_lead_to_is_there(seen: Viewer, path: str) -> None:
    for link in Told(seen.page(path)).links:
        target = link if link.startswith("/") else f"{path.partition('?')[0]}{link}"
        if not link.startswith(("#", "data:")) and "/do/" not in link:
            assert seen.client.get(f"{BASE}{target}").status_code == 200, link


def test_pictures_of_a_stranger_hold_no_script(seen: Viewer) -> None:
    answer = seen.client.get("/h/h/run.svg", params={"snapshot": "s<b>-1", "chart": "bands"})
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert seen.client.get("/h/h/run.svg", params={"snapshot": EVIL}).status_code == 404


def test_a_history_that_is_damaged_is_told_in_words(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h") as writer:
        writer.add(Snapshot.from_rows(machines=[{"machine": "a"}], snapshot_id="s-1"))
    with viewer(tmp_path / "h") as seen:
        for path in (tmp_path / "h" / "machines").rglob("*.parquet"):
            path.write_bytes(b"PAR1 nothing PAR1")
        for path in ("/h/h/s/s-1", "/h/h/s/s-1/machines"):
            assert "table machines cannot be read" in Told(seen.page(path, 500)).words
            assert "error" in seen.json(path, 500)
        assert "table machines cannot be read" in Told(seen.page("/")).words
