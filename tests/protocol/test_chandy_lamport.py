"""The marker protocol against its table: every event in every state of what the host knows of the number."""

from itertools import product

import pytest

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol import chandy_lamport as markers
from ray_snapshot.protocol.colours import Independent, Numbered

SCHEMES = {"numbered": (Numbered, 1), "independent": (Independent, frozenset({1}))}


def host(state: str, scheme: str) -> markers.ChandyLamport:
    """A host with outputs to x and y and inputs from u and v, which knows of snapshot 1 what `state` says."""
    protocol = markers.ChandyLamport(SCHEMES[scheme][0]())
    for target in ("x", "y"):
        protocol.step(markers.OutputOpened(target))
    for source in ("u", "v"):
        protocol.step(markers.InputOpened(source))
    if state in ("pending", "recorded", "closed"):
        protocol.step(markers.SnapshotRequested(1))
    if state in ("recorded", "closed"):
        protocol.step(markers.BoundaryReached())
    if state == "closed":
        protocol.step(markers.SnapshotClosed(1))
    return protocol


def table(scheme: str) -> dict[tuple[str, str], object]:
    """(state, event) to the effects, or to the error; as the module's docstring has it."""
    red = SCHEMES[scheme][1]
    nothing: tuple[object, ...] = ()
    asks = (markers.AskForBoundary((1,)),)
    records = (markers.Record((1,), red), markers.SendMarker("x", red), markers.SendMarker("y", red))
    hears = {"new": asks, "pending": nothing, "recorded": nothing, "closed": nothing}
    found: dict[tuple[str, str], object] = {}
    for state, effects in hears.items():
        for event in ("request", "marker", "number"):
            found[state, event] = effects
        for event in ("output", "input", "abort"):
            found[state, event] = nothing
        found[state, "boundary"] = records if state == "pending" else nothing
        found[state, "close"] = ProtocolError if state in ("new", "pending") else nothing
    return found


def event(name: str, scheme: str) -> object:
    red = SCHEMES[scheme][1]
    return {
        "request": markers.SnapshotRequested(1),
        "marker": markers.MarkerArrived("u", red),
        "number": markers.NumberSeen(red),
        "boundary": markers.BoundaryReached(),
        "close": markers.SnapshotClosed(1),
        "abort": markers.SnapshotAborted(1),
        "output": markers.OutputOpened("z"),
        "input": markers.InputOpened("w"),
    }[name]


STATES = ("new", "pending", "recorded", "closed")
EVENTS = ("request", "marker", "number", "boundary", "close", "abort", "output", "input")


@pytest.mark.parametrize(("scheme", "state", "name"), list(product(SCHEMES, STATES, EVENTS)))
def test_every_event_in_every_state_has_the_effects_of_the_table(scheme: str, state: str, name: str) -> None:
    protocol = host(state, scheme)
    expected = table(scheme)[state, name]
    if expected is not ProtocolError:
        assert protocol.step(event(name, scheme)) == expected  # type: ignore[arg-type]
        return
    before = protocol.fingerprint()
    with pytest.raises(ProtocolError, match="closed before this host recorded it"):
        protocol.step(event(name, scheme))  # type: ignore[arg-type]
    assert protocol.fingerprint() == before  # an illegal event leaves it as it was


@pytest.mark.parametrize("scheme", SCHEMES)
def test_inputs_are_complete_when_the_last_awaited_marker_arrives(scheme: str) -> None:
    red = SCHEMES[scheme][1]
    protocol = host("recorded", scheme)
    assert protocol.step(markers.MarkerArrived("u", red)) == ()
    assert protocol.step(markers.MarkerArrived("u", red)) == ()  # a double is stale
    assert protocol.step(markers.MarkerArrived("v", red)) == (markers.InputsComplete(1),)
    assert protocol.step(markers.MarkerArrived("v", red)) == ()


def test_a_host_without_inputs_is_complete_when_it_records() -> None:
    protocol = markers.ChandyLamport()
    protocol.step(markers.SnapshotRequested(1))
    assert protocol.step(markers.BoundaryReached()) == (markers.Record((1,), 1), markers.InputsComplete(1))


def test_an_aborted_number_that_is_pending_is_recorded_all_the_same() -> None:
    protocol = host("pending", "numbered")
    protocol.step(markers.SnapshotAborted(1))
    assert protocol.turning.must_turn
    assert protocol.step(markers.BoundaryReached())[0] == markers.Record((1,), 1)


def test_a_marker_stands_for_every_lower_number_that_its_link_has_not_carried() -> None:
    protocol = host("new", "numbered")
    assert protocol.step(markers.MarkerArrived("u", 3)) == (markers.AskForBoundary((1, 2, 3)),)
    assert protocol.step(markers.BoundaryReached())[0] == markers.Record((1, 2, 3), 3)
    assert protocol.awaited == {1: {"v"}, 2: {"v"}, 3: {"v"}}
    assert protocol.step(markers.MarkerArrived("v", 2)) == (markers.InputsComplete(1), markers.InputsComplete(2))
    assert protocol.step(markers.MarkerArrived("v", 3)) == (markers.InputsComplete(3),)
