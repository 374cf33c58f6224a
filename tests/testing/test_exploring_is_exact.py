"""What a search must not leave out, invent or forget: each of these was once answered wrongly, without a word."""

import gc
import random
import sys
import time
from typing import Any

import explored_machines as machines
import machines_by_name
import pytest
import ray
from machines_by_name import Named

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import NotDeterministicError, SettingError
from ray_snapshot.runtime import context
from ray_snapshot.testing import hosted, hosted_orders, hosted_runs
from ray_snapshot.testing.stage import Stage


def seen(build: Any, look: Any, **options: Any) -> tuple[set[str], testing.Exploration]:
    """What a look at the machines showed in any state, and the search."""
    shown = set()

    def note(states: Any) -> bool:
        shown.add(repr(look(states)))
        return True

    return shown, testing.explore(build, always=[note], **options)


class Collector(rs.SnapshotMixin):
    """Calls in two actions, and waits for both in a third."""

    def __init__(self) -> None:
        self.refs: list[Any] = []
        self.got: Any = None

    def ask(self, other: rs.MachineHandle) -> None:
        self.refs.append(other.read.remote())

    def collect(self) -> None:
        self.got = ray.get(self.refs)
        self.refs = []


def collecting(system: Any) -> None:
    a = system.spawn(Collector, name="a")
    for number in (1, 2):
        a.ask.send(system.spawn(machines.Account, number, name=f"m{number}"))
    a.collect.send()


@pytest.mark.contract
def test_two_calls_that_are_not_answered_yet_are_two() -> None:
    shown, found = seen(collecting, lambda states: states["a"].got)
    assert found.complete
    assert shown == {"None", "[1, 2]"}
    assert testing.explore(collecting, eventually=[lambda states: states["a"].got == [1, 2]]).ok


class Patient(rs.SnapshotMixin):
    """Calls, and is told where nobody can answer any more."""

    def __init__(self) -> None:
        self.got: Any = None

    def go(self, other: rs.MachineHandle) -> None:
        try:
            self.got = ray.get(other.read.remote())
        except rs.HostDiedError:
            self.got = "died"


def calling(system: Any) -> None:
    system.spawn(Patient, name="a").go.send(system.spawn(machines.Account, 7, name="b"))


@pytest.mark.contract
def test_a_call_to_a_machine_that_has_crashed_is_answered() -> None:
    def came(states: Any) -> bool:
        return "a" not in states or states["a"].got is not None

    found = testing.explore(
        calling, crashes=1, eventually=[came, detectors.Termination()], never=[detectors.Deadlock()]
    )
    assert found.complete, str(found)
    shown, _ = seen(calling, lambda states: "a" in states and (states["a"].got, "b" in states), crashes=1)
    assert {"(None, False)", "('died', False)"} < shown


@pytest.mark.contract
def test_a_timer_for_a_machine_that_has_crashed_is_gone() -> None:
    class Ticking(rs.SnapshotMixin):
        def arm(self, other: rs.MachineHandle) -> None:
            other.tick.send_after(1)

        def tick(self) -> None:
            pass

    def build(system: Any) -> None:
        other = system.spawn(Ticking, name="other")
        system.spawn(Ticking, name="a").arm.send(other)

    lost = testing.explore(build, crashes=1)
    assert lost.complete
    assert lost.ends == 3, "with both, and without either"


class Steps(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.count = 0

    def up(self) -> None:
        self.count += 1


def two_steps(system: Any) -> None:
    one = system.spawn(Steps, name="one")
    one.up.send()
    one.up.send()


def told(*answers: bool | None) -> Any:
    """A predicate with an answer for each count."""

    def told(states: Any) -> bool | None:
        return answers[states["one"].count]

    return told


@pytest.mark.contract
def test_what_cannot_be_told_is_no_counterexample_and_is_said() -> None:
    for answers in ((None, None, None), (False, None, False)):
        found = testing.explore(two_steps, eventually=[told(*answers)])
        assert (found.ok, found.complete) == (True, False), answers
        assert found.why == [f"told could not be told in {answers.count(None)} states"]
    assert not testing.explore(two_steps, eventually=[told(False, False, False)]).ok
    assert testing.explore(two_steps, eventually=[told(False, True, False)]).complete


def test_a_detector_that_cannot_be_told_is_not_said_to_be_stable() -> None:
    for answers in ((None, True, None), (True, None, False)):
        found = testing.check_stable(told(*answers), two_steps)
        assert (found.ok, found.complete) == (True, False), answers
    assert testing.check_stable(told(False, True, True), two_steps).complete
    hosted = testing.explore(two_steps, protocol="observer", always=[told(None, None, None)], most_states=300)
    assert "told could not be told of every snapshot" in hosted.why


@pytest.mark.contract
def test_what_a_search_under_a_protocol_does_not_try_it_does_not_take() -> None:
    with pytest.raises(SettingError, match="crashes are not tried there"):
        testing.explore(two_steps, protocol="observer", crashes=1)


class Alarm(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.count = 0

    def set(self, seconds: float) -> None:
        self.handle.ring.send_after(seconds)

    def ring(self) -> None:
        self.count += 1

    def look(self) -> None:
        self.count = int(self.now() * 10)


def test_worlds_under_a_protocol_that_differ_in_their_timers_are_two() -> None:
    def build(system: Any) -> None:
        for name, seconds in (("a", 1.0), ("b", 1.5)):
            system.spawn(Alarm, name=name).set.send(seconds)

    with Stage(build) as stage:
        player = hosted_runs.Player(
            stage, {"protocol": "observer", "hosts": None, "crashes": 0}, hosted_orders._no_chance
        )
        player.take(("begin",))
        world = player.world
        at_once = world.mark(has_clock=False)
        world.clock = 3.0
        assert world.mark(has_clock=False) == at_once
        assert world.mark(has_clock=True) != at_once
        world.dues["a", "a", 1] = 4.0
        later = world.mark(has_clock=False)
        world.dues["a", "a", 1] = 5.0
        assert world.mark(has_clock=False) not in (at_once, later)
        world.dues.clear()
        world.timeouts["a"] = 4.0
        assert world.mark(has_clock=False) not in (at_once, later)


def test_a_search_under_a_protocol_follows_the_clock_once_it_is_asked() -> None:
    def build(system: Any) -> None:
        a = system.spawn(Alarm, name="a")
        a.set.send(0.5)
        a.look.send()

    marks = []
    with pytest.MonkeyPatch.context() as patch:
        mark = hosted.HostedWorld.mark
        patch.setattr(
            hosted.HostedWorld,
            "mark",
            lambda self, has_clock: marks.append(has_clock) or mark(self, has_clock=has_clock),
        )
        testing.explore(build, protocol="observer", most_states=400)
    assert set(marks) == {False, True}


class Asking(rs.SnapshotMixin):
    """What an action may ask Ray for before any machine has called another."""

    def __init__(self) -> None:
        self.got: Any = None

    def ask(self, what: str) -> None:
        try:
            self.got = {
                "get": lambda: ray.get([]),
                "wait": lambda: ray.wait([]),
                "put": lambda: ray.put(1),
                "get a value": lambda: ray.get(5),
                "get a tuple": lambda: ray.get(()),
                "wait for too many": lambda: ray.wait([], timeout=-1),
            }[what]()
        except (ValueError, TypeError) as error:
            self.got = type(error).__name__


@pytest.mark.parametrize(
    ("what", "answer"),
    [
        ("get", "[]"),
        ("wait", "([], [])"),
        ("put", "'SettingError'"),
        ("get a value", "'ValueError'"),
        ("get a tuple", "'ValueError'"),
        ("wait for too many", "'ValueError'"),
    ],
)
def test_an_action_never_reaches_ray_itself(what: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get", "wait", "put"):
        monkeypatch.setattr(ray, name, lambda *_, **__: pytest.fail("Ray itself was asked"))
    shown, found = seen(lambda system: system.spawn(Asking, name="a").ask.send(what), lambda states: states["a"].got)
    assert found.complete, str(found)
    assert shown == {"None", answer}


class Relay(rs.SnapshotMixin):
    """Calls what raises; `catches` what comes of it."""

    def __init__(self, catches: type[Exception]) -> None:
        self.catches = catches
        self.error: Any = None
        self.said = ""

    def go(self, other: rs.MachineHandle, method: str, *args: Any) -> None:
        try:
            ray.get(getattr(other, method).remote(*args))
        except self.catches as error:
            self.error = error
            self.said = f"{type(error).__name__} {isinstance(error, ValueError)} {error}"


@pytest.mark.contract
def test_an_error_of_a_called_action_is_rays_and_its_own() -> None:
    def build(system: Any) -> None:
        bad = system.spawn(machines.Bad, name="bad")
        relay = system.spawn(Relay, KeyError, name="relay")
        for name, catches in (("a", ray.exceptions.RayTaskError), ("b", ValueError)):
            system.spawn(Relay, catches, name=name).go.send(bad, "fail")
        system.spawn(Relay, ValueError, name="c").go.send(relay, "go", bad, "fail")

    for name in "abc":
        shown, found = seen(build, lambda states, name=name: states[name].said)
        assert found.complete, str(found)
        (said,) = shown - {"''"}
        assert said.startswith("'RayTaskError(ValueError) True ray::")
        assert said.endswith("ValueError: as meant'") or said.endswith("RayTaskError(ValueError): as meant'")


@pytest.mark.contract
@pytest.mark.parametrize("method", ["throw", "ask", "read", "read_day", "read_whole"])
def test_clocks_and_chance_are_guarded_under_every_name(method: str) -> None:
    with pytest.raises(NotDeterministicError, match=r"machines_by_name\.py:\d+: under ray_snapshot\.testing") as caught:
        testing.explore(lambda system: getattr(system.spawn(Named, name="a"), method).send())
    assert f"Named.{method} of a asks " in str(caught.value)
    assert (machines_by_name.time, machines_by_name.chance) == (time.time, random.random), "given back"
    assert sys.getprofile() is None


@pytest.mark.contract
def test_a_date_that_is_no_clock_is_none() -> None:
    shown, _ = seen(lambda system: system.spawn(Named, name="a").count.send(), lambda states: states["a"].value)
    assert shown == {"None", "2026"}


def test_nothing_of_a_search_is_left_behind_by_its_machines() -> None:
    """An object that comes to lie where one of a search lay would be told that search's time."""
    gc.collect()
    before = {id(one) for one in context._ATTACHED.values()}
    testing.explore(lambda system: system.spawn(machines.Keeper, name="a"), always=[lambda states: len(states) == 1])
    gc.collect()
    assert [one for one in context._ATTACHED.values() if id(one) not in before] == []
