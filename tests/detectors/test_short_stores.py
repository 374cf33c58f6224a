"""The hint that a node's object store is short of room: its words, and that it decides nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest
from calls_by_hand import App

import ray_snapshot as rs
from ray_snapshot.detectors.pending import why_pending
from ray_snapshot.detectors.stores import short_of_room
from ray_snapshot.instrument.diagnosis import diagnosis

MIB = 2**20
SLOW = "Ray has not begun it all the same"
ROOM = {"demands": [], "nodes": {"n": {"CPU": 4}}, "groups": [], "holders": [], "unsure": []}


def owner(machine: str, objects: int = 0, mib: float = 0, spilled_objects: int = 0, spilled_mib: float = 0) -> Any:
    found = {"machine": machine, "objects": objects, "size": int(mib * MIB), "spilled_objects": spilled_objects}
    return {**found, "spilled_size": int(spilled_mib * MIB)}


def store(*owners: Any, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"node": "1a2b3c4d5e6f", "capacity": 80 * MIB, "in_use": 65 * MIB, "spilled": 0}
    return {**row, "arguments": 0, "waiting": 0, "told_at": 11.5, "owners": list(owners), "not_looked_at": 0, **more}


def app(*stores: Any, **coverage: Any) -> App:
    """The driver waits for a task that has not begun."""
    found = App().actor("driver")
    found.coverage |= coverage | ({"stores": list(stores)} if stores else {})
    return found.waits_for("driver", found.queues("count()", "driver", "count", number=1))


def snapshot_of(found: App) -> rs.Snapshot:
    return found.snapshot(started_at=datetime.fromtimestamp(15, UTC))


def test_the_hint_says_how_full_a_store_is_and_who_owns_most_of_it() -> None:
    owners = owner("Loader-0", 3, 10), owner("driver", 2, 40, 1, 2.5), owner("add-1", 0, 0, 1, 25)
    assert short_of_room(snapshot_of(app(store(*owners)))) == [
        "the object store of node 1a2b3c4d is short of room: 65.0 MiB of 80.0 MiB in use, as Ray told 4 s before; the largest"
        " owners: driver 40.0 MiB in 2 objects and 2.5 MiB in 1 object that was spilled; Loader-0 10.0 MiB in 3 objects;"
        " add-1 25.0 MiB in 1 object that was spilled"
    ]


def test_the_hint_says_which_tasks_wait_for_room_and_what_keeps_it() -> None:
    row = store(waiting=2, arguments=40 * MIB, spilled=3 * 2**29, told_at=20.0)
    assert short_of_room(snapshot_of(app(row))) == [
        "the object store of node 1a2b3c4d is short of room: 65.0 MiB of 80.0 MiB in use, 1.5 GiB spilled to disk, as Ray"
        " told 0 s before; 2 tasks cannot begin, for there is no room for their arguments; tasks that run keep 40.0 MiB of"
        " arguments there until they end"
    ]
    (alone,) = short_of_room(snapshot_of(app(store(waiting=1))))
    assert alone.endswith("; 1 task cannot begin, for there is no room for its arguments")


def test_a_few_owners_are_named_and_the_others_counted() -> None:
    (line,) = short_of_room(
        snapshot_of(app(store(*(owner(f"A-{n}", 1, n) for n in range(1, 8)), not_looked_at=90_000)))
    )
    assert "owners: A-7 7.0 MiB in 1 object; A-6 " in line
    assert line.endswith("; A-3 3.0 MiB in 1 object; and 2 more; 90,000 refs were not looked at")


def test_without_such_a_store_there_is_no_hint() -> None:
    assert short_of_room(snapshot_of(app())) == []


def test_the_hint_changes_no_verdict_and_no_exit_code() -> None:
    row = store(owner("driver", 2, 40), waiting=1)
    plain, hinted = snapshot_of(app()), snapshot_of(app(row))
    without, found = diagnosis(plain), diagnosis(hinted)
    assert [one.sentence for one in found.verdicts] == [one.sentence for one in without.verdicts]
    assert found.exit_code == without.exit_code
    assert [line for line in found.lines if line not in without.lines] == [f"  hint: {short_of_room(hinted)[0]}"]


@pytest.mark.parametrize(
    ("stores", "text"),
    [([], SLOW), ([store()], SLOW), ([store(waiting=1)], f"{SLOW}, or it is held back until an object store has room")],
)
def test_a_task_with_a_cpu_may_be_held_back_by_a_store(stores: list[Any], text: str) -> None:
    demand = {"source": "driver", "target": "count()", "numbers": [[1, 1]], "needs": {"CPU": 1}, "group": None}
    row = {**demand, "bundle": -1, "nodes": None, "since": 5.0}
    lines = why_pending(snapshot_of(app(*stores, resources={**ROOM, "demands": [row]})))
    assert lines == [f"count() of driver has waited for 10 s: it needs CPU 1, and a node has room: {text}"]
    (soon,) = why_pending(snapshot_of(app(*stores, resources={**ROOM, "demands": [{**row, "since": 5.1}]})))
    assert soon.endswith(text.replace(SLOW, "it is about to begin"))


@pytest.mark.parametrize(
    ("stores", "place"),
    [
        ("full", "coverage.stores: "),
        ({"n": store()}, "coverage.stores: "),
        ([None], "coverage.stores.0: "),
        ([store(), store(in_use=-1)], "coverage.stores.1.in_use: "),
        ([store(capacity=2**80)], "coverage.stores.0.capacity: "),
        ([store(told_at=float("nan"))], "coverage.stores.0.told_at: "),
        ([store("driver")], "coverage.stores.0.owners.0: "),
        ([store({**owner("driver"), "size": "1 GiB"})], "coverage.stores.0.owners.0.size: "),
        ([{name: value for name, value in store().items() if name != "waiting"}], "coverage.stores.0.waiting: "),
    ],
)
def test_a_coverage_of_another_form_is_refused_with_its_place(stores: Any, place: str) -> None:
    found = app()
    found.coverage["stores"] = stores
    with pytest.raises(rs.DetectorError, match=r"snapshot .*: " + place.replace(".", r"\.")):
        short_of_room(snapshot_of(found))
