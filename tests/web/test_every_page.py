"""What each page says of a history, as HTML and as JSON."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from incidents import deadlocked, healthy, incident, judged, written
from viewing import Bank, Told, Viewer, viewer

from ray_snapshot import Snapshot
from ray_snapshot.history import HistoryWriter

ONE = "/h/h/s/bank-00005"
PARTS = ("machines", "channels", "waits", "machine?name=a", "channel?source=a&target=b&kind=call")
ALL = ("/", "/h/h", ONE, *(f"{ONE}/{part}" for part in PARTS))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    with viewer(incident(tmp_path_factory.mktemp("histories") / "h")) as found:
        yield found


def test_now_says_what_is_wrong_and_where_it_is_shown(seen: Viewer) -> None:
    told = Told(seen.page("/"))
    assert "Alarm: deadlock in bank" in told.words
    assert "a in Account.transfer" in told.words
    assert "passive" in told.words, "machines of a system are no actors"
    assert f"{ONE}/waits" in told.links
    said = seen.json("/")
    assert (said["level"], [one["name"] for one in said["systems"]]) == ("alarm", ["bank"])
    (system,) = said["systems"]
    assert system["classes"][0] == {"name": "Account", "counts": [0, 2, 0, 0], "total": 2}
    assert not system["is_running"]


def test_the_chart_of_an_app_that_runs_counts_actors() -> None:
    bank = Bank()
    bank.take(*(healthy(number, protocol="calls") for number in range(2)))
    with viewer(live=bank) as seen:
        drawn = seen.client.get("/live/bank/run.svg").text
    assert (">actors<" in drawn, ">machines<" in drawn) == (True, False)


def test_the_list_has_the_latest_first(seen: Viewer) -> None:
    said = seen.json("/h/h")
    assert [one["snapshot_id"] for one in said["listed"]] == [f"bank-{number:05}" for number in range(5, -1, -1)]
    assert [one["answer"] for one in said["listed"]] == ["alarm", "alarm", *4 * ["does not hold"]]
    assert said["listed"][0]["detectors"] == ["deadlock"]


def test_equal_alarms_are_folded_until_all_are_asked_for(tmp_path: Path) -> None:
    with viewer(written(tmp_path / "h", [healthy(0), *map(deadlocked, range(1, 9))])) as seen:
        page = seen.page("/h/h")
        assert "6 more with the same alarm" in Told(page).words
        assert [number for number in range(9) if f">bank-{number:05}<" in page] == [0, 1, 8]
        assert ">bank-00005<" in seen.page("/h/h?alike=1")


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("said=alarm", [5, 4]),
        ("said=alarm&detector=termination", []),
        ("detector=deadlock&said=does+not+hold", [3, 2, 1, 0]),
        ("since=2026-03-01T12:00:04", [5, 4]),
        ("until=2026-03-01T13:00:01%2B01:00", [1, 0]),
        ("system=bank&run=run-1&status=complete&rows=2&page=2", [3, 2]),
        ("rows=4&page=9", [1, 0]),
        ("run=run-2", []),
        ("status=aborted", []),
    ],
)
def test_the_list_is_cut_down_to_what_is_asked_for(seen: Viewer, query: str, numbers: list[int]) -> None:
    assert [int(one["snapshot_id"][-5:]) for one in seen.json(f"/h/h?{query}")["listed"]] == numbers
    assert (f"bank-{numbers[0]:05}" if numbers else "No snapshot is like that.") in seen.page(f"/h/h?{query}")


def test_one_snapshot_says_what_is_known_of_it(seen: Viewer) -> None:
    said = seen.json(ONE)
    assert said["system"] == "bank"
    assert [(one["detector"], one["word"]) for one in said["verdicts"]] == [
        ("deadlock", "ALARM: holds"), ("termination", "does not hold"),
    ]  # fmt: skip
    assert (said["earlier_id"], said["later_id"]) == ("bank-00004", None)
    assert "Nothing: every machine, and" in Told(seen.page(ONE)).words
    assert seen.json("/h/h/s/latest") == said
    assert seen.json("/h/h/s/-1") == said


def test_a_snapshot_that_nobody_judged_is_judged_when_it_is_looked_at(tmp_path: Path) -> None:
    with viewer(written(tmp_path / "h", [deadlocked(0)], verdicts={})) as seen:
        assert [one["word"] for one in seen.json("/h/h/s/latest")["verdicts"]] == ["ALARM: holds", "does not hold"]


def test_who_recorded_last_is_led_to(tmp_path: Path) -> None:
    rows = [{"machine": f"m{number}", "record_delay_ms": float(delay)} for number, delay in enumerate([5, 20, 10])]
    with viewer(written(tmp_path / "h", [Snapshot.from_rows(machines=rows, snapshot_id="s-1")], verdicts={})) as seen:
        (path,) = (link for link in Told(seen.page("/h/h/s/s-1")).links if "sort=delay" in link)
        assert [one["machine"] for one in seen.json(path)["rows"]] == ["m1", "m2", "m0"]


def many(count: int) -> Snapshot:
    machines = [
        {
            "machine": f"m{number:04}",
            "class_name": f"C{number % 2}",
            "status": "passive",
            "accepted_count": count - number,
        }
        for number in range(count)
    ]
    channels = [
        {"source": f"m{number:04}", "target": "m0000", "sent_count": number, "accepted_count": number}
        for number in range(9)
        if number != 3
    ]
    messages = [{"source": "m0003", "target": "m0000", "method": "put", "args": [number]} for number in range(5)]
    return Snapshot.from_rows(machines=machines, channels=channels, messages=messages, snapshot_id="s-1")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    with viewer(written(tmp_path_factory.mktemp("large") / "h", [many(120)], verdicts={})) as found:
        yield found


@pytest.mark.parametrize(
    ("query", "names", "total"),
    [
        ("rows=2", ["m0000", "m0001"], 120),
        ("rows=2&page=60", ["m0118", "m0119"], 120),
        ("rows=2&down=1", ["m0119", "m0118"], 120),
        ("rows=2&sort=accepted", ["m0119", "m0118"], 120),
        ("rows=2&sort=accepted&down=1&page=2", ["m0002", "m0003"], 120),
        ("rows=2&sort=class&page=31", ["m0001", "m0003"], 120),
        ("search=M00&class=C1&rows=1", ["m0001"], 50),
        ("search=11%", [], 0),
        ("status=blocked", [], 0),
    ],
)
def test_machines_are_sorted_searched_and_paged_on_the_server(
    large: Viewer, query: str, names: list[str], total: int
) -> None:
    said = large.json(f"/h/h/s/s-1/machines?{query}")
    assert ([one["machine"] for one in said["rows"]], said["part"]["total"]) == (names, total)
    assert "state" not in (said["rows"] or [{}])[0]


def test_channels_lead_to_what_is_in_flight_message_by_message(large: Viewer) -> None:
    said = large.json("/h/h/s/s-1/channels?full=1")
    assert [(one["source"], one["in_flight_count"]) for one in said["rows"]] == [("m0003", 5)]
    page = large.page("/h/h/s/s-1/channels?machine=m0003")
    link = "/h/h/s/s-1/channel?source=m0003&target=m0000&kind=mail"
    assert link in Told(page).links
    messages = large.json(link)["messages"]
    assert [(one["number"], one["args"]) for one in messages] == [(1 + number, f"[{number}]") for number in range(5)]


def test_waits_are_drawn_and_boxes_lead_to_their_machines(seen: Viewer) -> None:
    page = seen.page(f"{ONE}/waits")
    told = Told(page)
    assert "What can never move again" in told.words
    assert {f"{ONE}/machine?name={name}" for name in ("a", "b")} <= set(told.links)
    assert "Raise max_concurrency of Account" in told.words
    boxes = seen.json(f"{ONE}/waits")["picture"]["boxes"]
    assert {box["title"]: box["kind"] for box in boxes} == {"a": "core", "b": "core", "driver": "behind"}
    assert seen.json(f"{ONE}/waits?class=Account")["heading"] == "What waits, of class Account"


def test_beyond_what_can_be_drawn_classes_are_drawn_with_a_way_in(tmp_path: Path) -> None:
    machines = [
        {"machine": f"w{number}", "class_name": "Worker", "status": "blocked", "waits_for": ["hub"], "wait_mode": "all"}
        for number in range(200)
    ]
    machines.append({"machine": "hub", "class_name": "Hub", "status": "active"})
    with viewer(written(tmp_path / "h", [Snapshot.from_rows(machines=machines, snapshot_id="s-1")], {})) as seen:
        told = Told(seen.page("/h/h/s/s-1/waits"))
        assert "/h/h/s/s-1/waits?class=Worker" in told.links
        assert "200 × Worker" in told.words


def test_a_machine_is_told_as_it_was_and_from_snapshot_to_snapshot(seen: Viewer) -> None:
    said = seen.json(f"{ONE}/machine?name=a")
    assert '"balance": 90' in said["card"]["state"]
    assert said["waits"] == ["a in Account.transfer (/srv/app/bank.py:41) waits for b"]
    assert [(one["source"], one["method"]) for one in said["inbox"]] == [("b", "deposit")]
    assert [(one["snapshot_id"], one["same"]) for one in said["moments"]] == [
        ("bank-00005", 0), ("bank-00004", 3), ("bank-00000", 0),
    ]  # fmt: skip
    assert ["status", "passive", "blocked"] in said["moments"][1]["changes"]
    assert ["state: balance", "100", "90"] in said["moments"][1]["changes"]


def test_every_page_says_what_its_json_says(seen: Viewer) -> None:
    for path in ALL:
        assert seen.json(path), path
        assert Told(seen.page(path)).tags.count("h1") == 1, path


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/h/none", 404, "no history 'none' is served here; there are: h"),
        ("/h/h/s/none", 404, "no snapshot 'none'"),
        (f"{ONE}/machine?name=nobody", 404, "no machine 'nobody'"),
        (f"{ONE}/machines?page=x", 400, "say a whole number"),
        (f"{ONE}/machines?page=0", 400, "say a whole number"),
        (f"{ONE}/machines?rows=100000", 400, "from 1 to 1,000"),
        (f"{ONE}/machines?sort=state", 400, "say one of machine, class"),
        ("/h/h?since=yesterday", 400, "say a time like"),
        ("/h/h?said=maybe", 400, "say one of"),
        (f"{ONE}/machines?search={'x' * 3_000}", 400, "too long to look for"),
    ],
)
def test_what_is_not_there_is_told_in_words(seen: Viewer, path: str, status: int, words: str) -> None:
    assert words in seen.json(path, status)["error"]
    assert words.lower() in Told(seen.page(path, status)).words.lower()


def test_an_address_that_is_none_is_told_in_words(seen: Viewer) -> None:
    assert "there is no page at /nothing" in Told(seen.page("/nothing", 404)).words.lower()
    assert "error" in seen.json("/nothing", 404)


def test_two_folders_of_one_name_are_two_places(tmp_path: Path) -> None:
    paths = [written(tmp_path / name / "h", [healthy(number)]) for number, name in enumerate("ab")]
    with viewer(*paths, paths[0]) as seen:
        assert [one[0] for one in seen.json("/")["histories"]] == ["h", "h-2"]
        assert seen.json("/h/h-2")["listed"][0]["snapshot_id"] == "bank-00001"


def test_what_is_written_while_it_is_looked_at_is_seen(tmp_path: Path) -> None:
    with viewer(written(tmp_path / "h", [healthy(0)])) as seen:
        assert seen.json("/")["level"] == "clear"
        with HistoryWriter(tmp_path / "h") as writer:
            writer.add(deadlocked(1))
            assert seen.json("/h/h")["part"]["total"] == 1
            writer.add_verdicts(judged(deadlocked(1)))
        assert seen.json("/h/h")["part"]["total"] == 2
        assert seen.json("/")["level"] == "alarm"
