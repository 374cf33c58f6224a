"""What a process keeps of calls that are over: nothing; and what of refs that came to it and of actors that it makes.

Two processes in one, and no Ray between them.
"""

from collections.abc import Callable, Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import ray
from limited import limit
from lone_process import Silent, acting
from played import Remote

from ray_snapshot.instrument.here import settle_in
from ray_snapshot.instrument.hooks import calls, tracking
from ray_snapshot.instrument.hooks.headers import HEADER
from ray_snapshot.instrument.process.making import Making
from ray_snapshot.instrument.process.passed import PassedRefs
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.protocol.call_messages import OutReport, Sent
from ray_snapshot.protocol.calls import CONSTRUCTOR, CallLedger, MachineReport, call_id_of
from ray_snapshot.protocol.commands import Acknowledged
from ray_snapshot.runtime import refs

SYSTEM = "app:1"
BOUND_S = 10.0
FEW, MANY = 50, 5_000
AT_ONCE = 50
"""Calls between two acknowledgements."""


class Account:
    """An actor's class, as an app has it."""

    def deposit(self, amount: int) -> int:
        return amount


class Post:
    """A watcher that hands acknowledgements over at once, and is silent otherwise."""

    def __init__(self) -> None:
        self.senders: dict[str, Process] = {}

    def __getattr__(self, name: str) -> Any:
        work = self._acknowledge if name == "acknowledge" else lambda *_: Silent()
        return Remote(work)

    def _acknowledge(self, acks: list[Any]) -> None:
        for one in acks:
            self.senders[one.source].obey(Acknowledged(one))


class Pair:
    """A driver and an actor; calls are carried from the one to the other as Ray would."""

    def __init__(self) -> None:
        post: Any = Post()
        self.driver = Process(SYSTEM, post, CallLedger("driver", acts_unasked=True), {})
        self.actor = Process(SYSTEM, post, CallLedger("Account:00"), {})
        self.processes = self.driver, self.actor
        for process in self.processes:
            post.senders[process.machine] = process
            process.is_flushing = True  # by hand, in `acknowledge`
        self.body = acting(self.actor, Account())
        names = SimpleNamespace(class_name="Account")
        self.handle = SimpleNamespace(
            _ray_method_signatures={"__ray_ready__": [SimpleNamespace(name=HEADER)]},
            _ray_actor_id=b"\0",
            _ray_max_task_retries=0,
            _ray_actor_creation_function_descriptor=names,
        )
        self.call = calls.calling(self._carried)

    def _carried(self, handle: Any, method: str, args: Any, kwargs: Any, **_: Any) -> Any:
        settle_in(self.actor)
        getattr(self.body, method)(*args, **kwargs)
        settle_in(self.driver)
        return ray.ObjectRef(b"1" * 28)

    def make(self, count: int, then: Callable[[Any], None]) -> None:
        settle_in(self.driver)
        for number in range(1, count + 1):
            then(self.call(self.handle, "deposit", [number]))
            if number % AT_ONCE == 0:
                self.acknowledge()

    def acknowledge(self) -> None:
        self.actor.control.carry(("flush",))
        self.actor.is_flushing = True

    def kept(self) -> int:
        return sum(items_in(process) for process in self.processes)


def items_in(one: Any, seen: set[int] | None = None) -> int:
    """How many items all containers have that can be reached through our own objects."""
    seen = set() if seen is None else seen
    if id(one) in seen:
        return 0
    seen.add(id(one))
    if isinstance(one, dict):
        return len(one) + sum(items_in(item, seen) for pair in one.items() for item in pair)
    if isinstance(one, (list, tuple, set)):
        return len(one) + sum(items_in(item, seen) for item in one)
    if not type(one).__module__.startswith("ray_snapshot."):
        return 0
    names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
    return sum(items_in(getattr(one, name), seen) for name in names)


@pytest.fixture
def pair() -> Iterator[Pair]:
    found = Pair()
    yield found
    settle_in(None)
    for process in found.processes:
        process.control.end()
        process.control.thread.join(BOUND_S)


def forget(_: Any) -> None:
    """The app drops the ref."""


def fetch(ref: Any) -> None:
    tracking.get(lambda *_, **__: None, ref)


@pytest.mark.parametrize("then", [forget, fetch])
def test_nothing_is_kept_of_a_call_that_is_over(pair: Pair, then: Callable[[Any], None]) -> None:
    pair.make(FEW, then)
    kept = pair.kept()
    pair.make(MANY, then)
    assert pair.driver.ledger.outputs["Account:00"].last == FEW + MANY
    assert pair.actor.ledger.inputs["driver", 0].count == FEW + MANY
    assert pair.kept() == kept


def test_the_log_keeps_what_is_not_acknowledged_yet_and_a_reply_that_was_read_is_an_acknowledgement(pair: Pair) -> None:
    pair.make(AT_ONCE - 1, forget)
    log = pair.driver.ledger.outputs["Account:00"].log
    assert len(log) == AT_ONCE - 1
    pair.make(AT_ONCE - 1, fetch)
    assert len(log) == AT_ONCE - 1


def test_a_reply_to_an_earlier_incarnation_answers_no_call_of_this_one(pair: Pair) -> None:
    pair.make(1, forget)
    old = refs.tracked(ray.ObjectRef(b"2" * 28), "driver/7/Account:00/1")
    fetch(old)
    assert list(pair.driver.ledger.outputs["Account:00"].log) == [1]


def test_of_refs_that_came_long_ago_only_the_machine_that_answers_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, passed_refs=2)
    refs = PassedRefs()
    calls = [call_id_of("a", 0, target, number) for target, number in (("b", 1), ("b", 2), ("c", 1), ("d", 1))]
    for call_id in calls:
        refs.add(call_id)
    assert refs.known() == (tuple(calls[2:]), ("b",))


def birth(kind: str, ordinal: int) -> dict[str, Any]:
    return {"kind": kind, "name": None, "ordinal": ordinal, "key": f"{ordinal}", "more": "of Ray's"}


def report_of(*targets: str) -> MachineReport:
    """The report of a process with these constructors in its log."""
    sent = MappingProxyType({CONSTRUCTOR: Sent("__init__", None, 0.0)})
    outputs = tuple(OutReport(target, 1, 0, 0, sent) for target in targets)
    return MachineReport("driver", 0, 1, 0, outputs=(*outputs, OutReport("old", 3, 3, 3, MappingProxyType({}))))


def test_actors_of_a_class_are_counted_by_themselves() -> None:
    making = Making()
    assert [making.ordinal(kind) for kind in ("Shop", "Till", "Shop")] == [0, 0, 1]


def test_what_names_an_actor_is_told_until_its_constructor_is_known_to_have_begun() -> None:
    making = Making()
    for machine, ordinal in (("old", 0), ("new", 1), ("newer", 2)):
        making.made(machine, birth("Shop", ordinal))
    first = making.unborn(report_of("new", "newer", "of another maker"))
    shop = {"class": "Shop", "name": None}
    assert first == {f"new{end}": {**shop, "ordinal": n, "key": f"{n}"} for n, end in ((1, ""), (2, "er"))}
    making.made("next", birth("Shop", 3))
    assert [*first] == ["new", "newer"], "what was reported does not change any more"
    assert [*making.unborn(report_of("newer"))] == ["newer"]
    assert making.unborn(report_of("new", "newer")).keys() == {"newer"}
