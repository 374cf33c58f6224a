"""A machine that the driver has stopped stops behind what comes before that; the protocol's host, without Ray."""

from __future__ import annotations

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime.host.stops import Stops


def due(core: HostCore, count: int) -> str | None:
    stops = Stops()
    stops.ask("a", count)
    found = stops.take(core)
    assert len(stops.asked) == (found is None)
    return found


def receive(core: HostCore, method: str) -> None:
    inbox = core.machine("a").inbox
    mail = inbox.mailbox(DRIVER, MAIL, DRIVER, 1)
    inbox.put(mail, (1, mail.arrived + 1, method, (), 0.0, 0))


def test_a_machine_stops_once_it_has_accepted_what_comes_before() -> None:
    core = HostCore("host-0")
    core.born("a", object())
    assert due(core, 0) == "a"
    assert due(core, 1) is None
    receive(core, "take")
    assert due(core, 1) is None
    assert core.machine("a").inbox.take() is not None
    assert due(core, 1) == "a"
    assert due(core, 2) is None


def test_a_machine_stops_if_what_comes_before_waits_for_the_rest_of_a_join() -> None:
    core = HostCore("host-0")
    core.born("a", object(), [("left", "right")])
    receive(core, "left")
    assert due(core, 1) is None
    assert core.machine("a").inbox.take() is None
    assert due(core, 2) is None
    assert due(core, 1) == "a"
