"""What a person is told of what has not begun for want of room."""

from __future__ import annotations

from datetime import UTC, datetime

from calls_by_hand import App
from rooms_by_hand import Room, last_cpu, wait_row

from ray_snapshot.detectors.pending import why_pending


def test_it_is_told_of_each_pending_thing_why() -> None:
    app, room = last_cpu(cpus=2)
    room.told["holders"][0]["amounts"] = {"CPU": 1}
    app.actor("slow-0", status="active")
    app.runs("slow-0", "driver", "slow")
    room.holds("slow-0", "n1", CPU=1)
    room.told["holders"][-1]["task"] = True
    late = app.queues("after()", "driver", "after", number=1)
    app.waits.append(wait_row("after()", late, "Trainer-0/0/prepare()/1", 1))
    room.group("spare", {"CPU": 4})

    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and Trainer-0 holds CPU 1 of 2; slow-0 holds CPU 1 of 2",
        "after() waits for its arguments, by prepare()",
        "placement group spare has not been made: it needs CPU 4, and no node has more than CPU 2",
    ]
    assert app.verdict().holds is False, "a task that computes gives its CPU back"


def test_a_group_that_somebody_asks_for_again_and_again_has_an_owner_and_who_holds_it_is_told() -> None:
    """No call waits for it that was recorded. A group with a name is called by that, and what it has is reserved, too."""
    app = App().actor("Owner-0", status="active")
    room = Room(app).node("n1", CPU=4).group("0123456789abcdef", {"CPU": 4}, owners=["Owner-0"])
    room.group("made", {"CPU": 1}, on="n1", owners=["Owner-0"]).group("named", {"CPU": 1}, on="n1", name="spare")
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and Owner-0 holds CPU 1 of 4 by placement group"
        " made; its owner holds CPU 1 of 4 by placement group spare"
    ]

    room.told["groups"] = [one for one in room.told["groups"] if not one["created"]]
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and there is room: it is about to be made"
    ]


def test_an_actor_that_computes_holds_what_it_has_though_it_may_take_a_call_more() -> None:
    """For a verdict it counts as about to give it back; not for the answer why something waits now."""
    app, _ = last_cpu()
    app.machines[1].update(status="active", max_concurrency=2)
    (line,) = why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC)))
    assert line.endswith("it needs CPU 1, and Trainer-0 holds CPU 4 of 4")


def test_it_is_told_that_there_is_room() -> None:
    app, _ = last_cpu(cpus=5)
    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and a node has room: Ray has not begun it all the same"
    ]
