"""The observer variant against its table and its text; and, as a lesson, markers where channels reorder."""

from functools import partial
from itertools import product
from typing import Any

import pytest
from nets import Net
from worlds.mail import rules
from worlds.mail.behaviours import Script
from worlds.mail.machines import Send
from worlds.mail.schedules import check_all, run_script
from worlds.mail.world import World

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol import chandy_lamport as markers
from ray_snapshot.protocol.choosing import CHANDY_LAMPORT, OBSERVER, core_for
from ray_snapshot.protocol.collector import PendingCounts
from ray_snapshot.protocol.colours import Independent, Numbered
from ray_snapshot.protocol.links import Batch
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink, Observer
from ray_snapshot.simulation.mail.oracle import OracleError

SCHEMES: dict[str, tuple[Any, Any]] = {"numbered": (Numbered, 1), "independent": (Independent, frozenset({1}))}
STATES = {
    "new": [],
    "pending": ["request"],
    "recorded": ["request", "boundary"],
    "closed": ["request", "boundary", "close"],
}
EVENTS = ("request", "number", "boundary", "close", "abort", "output", "input", "marker")


def event(name: str, scheme: str) -> Any:
    red = SCHEMES[scheme][1]
    return {
        "request": markers.SnapshotRequested(1),
        "number": markers.NumberSeen(red),
        "boundary": markers.BoundaryReached(),
        "close": markers.SnapshotClosed(1),
        "abort": markers.SnapshotAborted(1),
        "output": markers.OutputOpened("x"),
        "input": markers.InputOpened("u"),
        "marker": markers.MarkerArrived("u", red),
    }[name]


def host(scheme: str, state: str) -> Observer:
    found = Observer(SCHEMES[scheme][0]())
    found.step(markers.OutputOpened("x"))
    found.step(markers.OutputOpened("y"))
    for name in STATES[state]:
        found.step(event(name, scheme))
    return found


def expected(scheme: str, state: str, name: str) -> object:
    """The effects, or the error, as the docstring of the module has them."""
    red = SCHEMES[scheme][1]
    if name == "marker" or (name == "close" and state in ("new", "pending")):
        return ProtocolError
    if name in ("request", "number") and state == "new":
        return (markers.AskForBoundary((1,)),)
    if name == "boundary" and state == "pending":
        return (markers.Record((1,), red), markers.AttachNumber("x", red), markers.AttachNumber("y", red))
    return ()


@pytest.mark.parametrize(("scheme", "state", "name"), list(product(SCHEMES, STATES, EVENTS)))
def test_every_event_in_every_state_has_the_effects_of_the_table_of_the_observer(
    scheme: str, state: str, name: str
) -> None:
    found = host(scheme, state)
    effects = expected(scheme, state, name)
    if effects is not ProtocolError:
        assert found.step(event(name, scheme)) == effects
        return
    before = found.fingerprint()
    with pytest.raises(ProtocolError, match=r"closed before this host recorded it|the observer variant has none"):
        found.step(event(name, scheme))
    assert found.fingerprint() == before


# ---- hosts whose links reorder ----------------------------------------------------------------------------------------


def loose_net(places: dict[str, str]) -> Net:
    return Net(places, core=partial(core_for, OBSERVER), inbox=LooseInbox, in_link=LooseInLink)


def batches(net: Net, source: str, target: str, *sent: Any) -> list[Batch]:
    """One batch for each of these messages between the machines of two hosts."""
    found = []
    for args in sent:
        if args == "record":
            net.record(source.upper(), net.cores[source.upper()].colour + 1)
            continue
        net.send(source, target, args)
        batch = net.cores[source.upper()].output(target.upper()).take()
        assert batch is not None
        found.append(batch)
    return found


def test_a_batch_waits_for_the_declaration_of_its_channels() -> None:
    net = loose_net({"a": "A", "b": "B"})
    first, second = batches(net, "a", "b", 1, 2)
    net.cores["B"].arrive(second)
    assert net.act("B") is None
    net.cores["B"].arrive(first)
    assert [net.act("B") for _ in range(2)] == [("b", [1]), ("b", [2])]


def test_a_double_is_dropped_however_late_it_comes_and_remembering_that_costs_no_memory() -> None:
    net = loose_net({"a": "A", "b": "B"})
    found = batches(net, "a", "b", *range(50))
    for batch in (*found, *found):
        net.cores["B"].arrive(batch)
    link = net.cores["B"].inputs["A"]
    assert net.machine("b").inbox.mailboxes["a"].arrived == 50
    assert isinstance(link, LooseInLink)
    assert link.seen.ranges() == ((0, 49),)


def test_it_sends_no_control_message_over_the_links() -> None:
    net = loose_net({"a": "A", "b": "B"})
    batches(net, "a", "b", "so that there is a link")
    net.record("A", 1)
    assert net.cores["A"].output("B").take() is None
    assert net.cores["A"].open[1].marker_count == 0


# ---- claims of the text ------------------------------------------------------------------------------------------------


def test_it_attaches_the_number_to_all_subsequent_messages() -> None:
    """observer-variant.txt, algorithm, step 2.2; replies, timers and creations are messages too."""
    net = loose_net({"a": "A", "b": "B"})
    core = net.cores["A"]
    before, behind = batches(net, "a", "b", "before", "record", "behind")
    core.create("a", "kid", "B", None, 0.0)
    core.fire(core.set_timer(net.machine("a"), "b", "tick", None, 0.0, 0.0), 1)
    third = core.output("B").take()
    assert third is not None
    colours = [[message[5] for _, messages in batch[3] for message in messages] for batch in (before, behind, third)]
    assert colours == [[0], [1], [1, 1]]
    assert core.colour_of(net.machine("a")) == 1  # what a reply carries


# ---- the lesson: markers where channels reorder ------------------------------------------------------------------------


class MarkersAlone(LooseInLink):
    """The receiving end of a link whose messages carry no colour: what is behind a marker *as it arrives* counts as red.

    That is the marker algorithm as it stands in the paper; `OutLink` writes the colour of each segment too.
    """

    __slots__ = ()

    def in_order(self, batch: Batch) -> list[Batch]:
        return [self._as_it_looks(one) for one in super().in_order(batch)]

    def _as_it_looks(self, batch: Batch) -> Batch:
        source, sequence, declared, segments, acknowledgements = batch
        believed, found = self.colour, []
        for place, (colour, messages) in enumerate(segments):
            believed = max(believed, colour) if place else believed  # a marker is a change of colour within a batch
            found.append((believed, [(*message[:5], believed) for message in messages]))
        return source, sequence, declared, found, acknowledgements


def reordering(protocol: str = OBSERVER) -> World:
    """a sends two messages to b, over channels that reorder."""
    sends = Script((("go", (Send("b", "one", 1),)), ("again", (Send("b", "two", 2),))), ("go", "again"))
    machines = {"a": ("A", sends, ()), "b": ("B", Script(), ())}
    return World(machines, protocol=protocol, is_fifo=False, is_atomic=True)


OVERTAKES = [
    *("act a 1", "flush A", "deliver A B", "accept B"),  # the link is open, and one is accepted
    *("snapshot", "tell request A", "record A", "flush A"),  # the marker is on its way
    *("act a 2", "flush A", "repeat 1", "accept B"),  # two was sent behind it, arrives before it, and is accepted
]
"""a records after its first message; its second one overtakes the marker, or would if there were one."""


def test_markers_over_a_reordering_channel_give_a_wrong_cut_and_the_oracle_names_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EWD864a, additional remark: the algorithm is incorrect when a red message is accepted in a white action."""
    monkeypatch.setattr(rules, "LooseInLink", MarkersAlone)
    world = reordering(CHANDY_LAMPORT)
    run_script(world, [*OVERTAKES, "calm"])
    assert [recorded.states["b"] for recorded in world.central.completed] == [("one", "two")]
    assert world.central.surplus == {1: {("A", "B", "link"): -1}}  # and so do the counts
    with pytest.raises(OracleError, match="snapshot 1: action 2 of b is impossible here: it accepts mail 2 from a"):
        check_all(world)


def test_the_observer_gives_a_right_cut_in_the_very_same_order() -> None:
    world = reordering()
    run_script(world, ["deliver A B" if step == "repeat 1" else step for step in OVERTAKES] + ["calm"])
    check_all(world)
    assert [recorded.states["b"] for recorded in world.central.completed] == [("one",)]


def test_markers_over_a_reordering_channel_lose_white_messages_that_come_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And a collector that did not count would announce it as complete."""
    monkeypatch.setattr(rules, "LooseInLink", MarkersAlone)
    monkeypatch.setattr(PendingCounts, "is_complete", property(lambda self: not self.awaited))
    world = reordering(CHANDY_LAMPORT)
    run_script(
        world,
        [
            *("act a 1", "flush A", "deliver A B", "accept B", "act a 2", "flush A"),  # two is white, and on its way
            *("snapshot", "tell request A", "record A", "flush A"),
            *("repeat 1", "record B", "calm"),  # the marker overtakes it
        ],
    )
    with pytest.raises(OracleError, match=r"snapshot 1: after the white actions, the channels hold .*two"):
        check_all(world)
