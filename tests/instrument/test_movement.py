"""Since when nothing in a watched app has moved. No Ray."""

from types import SimpleNamespace as Seen
from typing import Any

import pytest

from ray_snapshot.instrument.process.polls import Poll, PolledMethod
from ray_snapshot.instrument.process.usage import Usage
from ray_snapshot.instrument.watcher.movement import Movement

ASKS = Poll(None, "", 0.0, (PolledMethod("A", "size", "app.py:7", 9, "0"),), "until", ())


def since_when(*polls: Poll) -> float:
    """After three looks, a second apart, of a driver that calls actor A: it waits for the second of three calls, which runs."""
    movement, since = Movement(), 0.0
    for now in (1, 2, 3):
        call, wait = Seen(caller="driver", number=now), Seen(call_id=None, waiting_since=now, call_site="app.py:7")
        counts = {"A": now, "B": 7}
        channels = [Seen(source="driver", target=at, sent_count=n, accepted_count=n) for at, n in counts.items()]
        calls: Any = Seen(
            machines={"driver": Seen(calls=(), state=None), "A": Seen(calls=(call,) if now == 2 else (), state=None)},
            waits=[Seen(machine="driver", wait=wait)] if now == 2 else [],
            channels=channels[:: 1 if now == 2 else -1],
        )
        reports: Any = {name: Seen(usage=Usage(0.0, 0.0, 0), polls=()) for name in ("driver", "A")}
        reports["driver"].polls = polls
        since = movement.still_since(calls, reports, float(now), is_covered=True)
    return since


@pytest.mark.parametrize(
    ("polls", "since"), [((ASKS,), 1.0), ((), 3.0), ((Poll(None, "", 0.0, (), "until", ()),), 3.0)]
)
def test_who_asks_in_vain_does_not_move_by_that_nor_does_whom_it_asks(polls: tuple[Poll, ...], since: float) -> None:
    assert since_when(*polls) == since
