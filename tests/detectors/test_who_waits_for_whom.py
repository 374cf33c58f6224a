"""The tree of `diagnose`: each call waits where it is, for what keeps it there."""

import pytest
from calls_by_hand import App

from ray_snapshot.instrument.diagnosis import diagnosis

UNSEEN = {"uncovered": [f"thread client_{n} (/srv/app.py:9) of driver" for n in range(10)]}


def tree(app: App) -> list[str]:
    lines = diagnosis(app.snapshot()).lines
    begin = lines.index("  who waits for whom:") + 1
    return [line[4:] for line in lines[begin:] if line.startswith("    ")]


def parks(app: App, call: str, *callers: str | None) -> str:
    row = {"machine": call.split("/")[2], "call_id": call, "k": 1, "on_call_id": None, "satisfied": False}
    app.waits += [{**row, "on_machine": other} for other in (row["machine"], *callers)]
    return call


def program(app: App, on: str) -> App:
    """The driver's program waits for a call."""
    app.calls.append({"machine": "driver", "method": "(the program)", "holds_slot": False, "call_site": "app.py:44"})
    return app.waits_for("driver", on)


@pytest.mark.parametrize("slots", [1, 2])
def test_who_waits_for_a_call_that_has_not_begun_waits_for_that_one_and_it_for_the_slot(slots: int) -> None:
    app = App().actor("Store-0", slots).actor("driver").actor("Reader-0")
    fetch = parks(app, app.runs("Store-0", "Reader-0", "fetch", "store.py:20"), "driver", "Reader-0")
    app.waits_for(app.runs("Reader-0", "driver", "read", "app.py:35"), fetch)
    program(app, app.queues("Store-0", "driver", "load"))
    in_front = ["    waits for Store-0 in Store.fetch (store.py:20)"] * (slots == 1)
    assert tree(app)[-2 - len(in_front) :] == [
        "driver in (the program) (app.py:44)",
        "  waits for Store-0 in Store.load, not begun",
        *in_front,
    ]
    assert tree(app)[:3] == [
        "Reader-0 in Reader.read (app.py:35)",
        "  waits for Store-0 in Store.fetch (store.py:20)",
        "    waits for a call of Reader-0 or driver to wake it",
    ]


def test_slots_of_another_group_are_not_in_front() -> None:
    app = App().actor("Store-0", 1).actor("driver")
    app.coverage["groups"] = {"Store-0": {"io": 1, "control": 1}}
    parks(app, app.runs("Store-0", "driver", "fetch", "store.py:20", concurrency_group="io"), "driver")
    program(app, app.queues("Store-0", "driver", "status", concurrency_group="control"))
    assert tree(app)[:2] == ["driver in (the program) (app.py:44)", "  waits for Store-0 in Store.status, not begun"]
    assert tree(app)[2].startswith("Store-0 in Store.fetch"), "it stands by itself"
    app.messages[0]["concurrency_group"] = "io"
    assert tree(app)[1:3] == [
        "  waits for Store-0 in Store.status, not begun",
        "    waits for Store-0 in Store.fetch (store.py:20)",
    ]


def test_who_waits_for_a_lock_waits_for_the_call_that_holds_it_also_if_that_one_works() -> None:
    app = App().actor("Index-0", 4).actor("driver")
    app.runs("Index-0", "driver", "rebuild", "app.py:25")
    look = parks(app, app.runs("Index-0", "driver", "look_up", "app.py:29"), "driver")
    program(app, look)
    app.coverage["primitives"] = {look: "threading.Lock held by Index.rebuild"}
    assert tree(app) == [
        "driver in (the program) (app.py:44)",
        "  waits for Index-0 in Index.look_up (app.py:29, in threading.Lock held by Index.rebuild)",
        "    waits for Index-0 in Index.rebuild (app.py:25)",
    ]
    other = parks(app, app.runs("Index-0", "driver", "rebuild", "app.py:24"), "driver")
    app.coverage["primitives"][other] = "threading.Lock held by Index.rebuild"
    assert "    waits for Index-0 in Index.rebuild (app.py:25)" in tree(app), "not for one that waits for it, too"
    app.runs("Index-0", "driver", "rebuild", "app.py:26")
    assert "    waits for a call of driver to wake it" in tree(app), "which of both holds it is not known"
    app.calls = [one for one in app.calls if one["call_site"] not in ("app.py:25", "app.py:26")]
    assert tree(app)[2] == "    waits for a call of driver to wake it", "its holder is not seen"


def test_a_generator_that_ray_holds_waits_for_its_reader_and_for_nothing_beside() -> None:
    app = App().actor("Source-0").actor("Reader-0", status="active").actor("driver")
    items = app.runs("Source-0", "Reader-0", "items", "app.py:19")
    app.runs("Reader-0", "driver", "read", "app.py:31")
    row = {"machine": "Source-0", "call_id": items, "k": 1, "on_call_id": None, "satisfied": False}
    app.waits += [{**row, "on_machine": None}, {**row, "on_machine": "Reader-0"}]
    program(app, items)
    app.coverage |= {"held_generators": [items], **UNSEEN}
    assert tree(app)[1:] == [
        "  waits for Source-0 in Source.items (app.py:19)",
        "    waits for Reader-0 in Reader.read (app.py:31)",
    ]


def test_what_may_wake_a_call_is_a_call_a_reply_or_something_that_was_not_recorded() -> None:
    app = App().actor("Bridge-0", 4).actor("driver").actor("Slow-0", status="active")
    slow = app.runs("Slow-0", "Bridge-0", "work")
    ask = parks(app, app.runs("Bridge-0", "driver", "ask", "app.py:29"), "driver", None)
    app.waits.append({**app.waits[-1], "on_machine": "Slow-0", "on_call_id": slow})
    program(app, ask)
    assert (
        tree(app)[2]
        == "    waits for a call of driver, or a reply of Slow-0, or something that was not recorded to wake it"
    )


def test_a_verdict_that_cannot_be_told_begins_with_where_most_wait_in_short_lines() -> None:
    """Three fetchers wait for a permit, and a reader for what they fetch; a thread of the driver may call any of them."""
    app = App().actor("Limiter-0", 1_000).actor("Queue-0", 1_000).actor("Reader-0").actor("driver")
    app.coverage |= UNSEEN
    every = ("driver", "Reader-0", *(f"Fetcher-{n}" for n in range(3)))
    for n in range(3):
        acquire = parks(app, app.runs("Limiter-0", f"Fetcher-{n}", "acquire", "ingest.py:66"), *every, None)
        app.coverage.setdefault("primitives", {})[acquire] = "asyncio.Semaphore, no permit left"
        app.actor(f"Fetcher-{n}").waits_for(app.runs(f"Fetcher-{n}", "driver", "run", "ingest.py:126"), acquire)
    get = parks(app, app.runs("Queue-0", "Reader-0", "get", "ingest.py:50"), *every, None)
    read = app.runs("Reader-0", "driver", "run", "ingest.py:164")
    program(app.waits_for(read, get), read)
    found = diagnosis(app.snapshot())
    assert found.exit_code == 4
    assert found.lines[1:3] == [
        "  deadlock: Deadlock cannot be told: Limiter-0 in Limiter.acquire (ingest.py:66, in asyncio.Semaphore, no permit left)"
        " waits to be woken (3 calls);",
        "    6 more wait behind that; they can move only by what was not observed: 10 threads client_[0-9] (/srv/app.py:9) of"
        " driver.",
    ]
    assert max(map(len, found.lines[1:])) <= 160
    assert found.lines[-1] == "  not observed: 10 threads client_[0-9] (/srv/app.py:9) of driver"
