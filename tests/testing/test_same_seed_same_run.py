"""A seed stands for one run: what it gave once, it gives with every later version, under each protocol.

`recorded_runs.json` holds what each run came to. It is written anew (`python tests/testing/test_same_seed_same_run.py`) only
where chance is asked otherwise on purpose.
"""

import gc
import hashlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.errors import NotDeterministicError
from ray_snapshot.protocol.choosing import PROTOCOLS
from ray_snapshot.testing import kept, stage
from ray_snapshot.testing.acts import Act
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.values import encoded, state_of

RECORDED = Path(__file__).with_name("recorded_runs.json")
BUILDS = (
    machines.bank, machines.asking, machines.family, machines.joining, machines.racing, machines.throwing,
    machines.clocked, machines.choosing, machines.hurrying, machines.leaving, machines.keeping,
)  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {"seed": 1, "snapshots": 3},
    {"seed": 2, "snapshots": 2, "hosts": 2, "crashes": 1, "most_steps": 300},
)
COLUMNS = {
    "machines": ("machine", "state", "status"),
    "messages": ("source", "target", "kind", "number", "method", "args"),
    "channels": ("source", "target", "kind", "sent_count", "accepted_count", "in_flight_count"),
}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def _facts(run: testing.Run) -> dict[str, Any]:
    snapshots = [
        snapshot.to_arrow(name).select(columns).to_pylist()
        for snapshot in run.snapshots
        for name, columns in COLUMNS.items()
    ]
    return {
        "count": len(run.schedule),
        "schedule": _digest(run.schedule.steps),
        "steps": _digest([*run.steps]),
        "events": _digest([repr(event) for event in run.events]),
        "snapshots": _digest(snapshots),
        "machines": _digest({name: vars(machine) for name, machine in run.machines.items()}),
        "verdicts": [verdict.holds for verdict in run.verdicts],
        "failed": run.failure is not None,
        "is_over": run.is_over,
    }


def _runs() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for build in BUILDS:
        for protocol in PROTOCOLS:
            for settings in SETTINGS:
                name = f"{build.__name__} {protocol} {settings['seed']}"
                yield name, build, {**settings, "protocol": protocol, "detectors": ["termination", "deadlock"]}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_seed_gives_the_run_that_it_always_gave(build: Any) -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    for name, found, settings in _runs():
        if found is build:
            assert _facts(testing.simulate(build, **settings)) == recorded[name], name


class Giver(rs.SnapshotMixin):
    """Asks, and lets another one, on another host, wait for the answer."""

    def give(self, asked: Any, waiter: Any) -> None:
        waiter.take.send(asked.read.remote())


class Taker(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.got: Any = None

    def take(self, ref: Any) -> None:
        import ray

        self.got = ray.get(ref)


def passing_on(system: Any) -> None:
    asked = system.spawn(machines.Account, 7, name="asked")
    waiter = system.spawn(Taker, name="waiter")
    system.spawn(Giver, name="giver").give.send(asked, waiter)


@pytest.mark.contract
def test_an_answer_to_one_machine_wakes_another_that_waits_for_it() -> None:
    for seed in range(5):
        run = testing.simulate(passing_on, seed=seed, snapshots=1)
        assert run.is_over
        assert run.machines["waiter"].got == 7, f"seed {seed}"


class Sparse(rs.SnapshotMixin):
    """All that it has are atoms; they come and go, in no order of their names."""

    def __init__(self) -> None:
        self.zeal, self.age = 0, 0.5
        self.orders = ""
        self.score = 0

    def live(self, left: int, me: Any) -> None:
        self.orders += ",".join([*vars(self)]) + ";"
        self.age += 0.5
        self.score += left
        if left % 3 == 0:
            self.extra = me
        elif hasattr(self, "extra"):
            del self.extra
            self.zeal += 1
            self.bonus = (left, left > 3) if left % 2 else None
        if left:
            self.handle.live.send(left - 1, me)


class Slotted(Sparse):
    """The same with a slot."""

    __slots__ = ("score",)


@pytest.mark.parametrize("kind", [Sparse, Slotted])
def test_atoms_that_are_not_copied_as_bytes_change_no_run(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def living(system: Any) -> None:
        one = system.spawn(kind, name="one")
        one.live.send(14, one)

    def copied(self: Any, act: Act) -> Any:
        return self.body(*_of(act))

    loose = testing.simulate(living, seed=3, snapshots=4)
    for module in (stage, kept):
        monkeypatch.setattr(module, "are_atoms", lambda _: False)
    monkeypatch.setattr(Stage, "_body_of", copied)
    as_bytes = testing.simulate(living, seed=3, snapshots=4)
    monkeypatch.undo()
    assert len(loose.snapshots) == 4
    assert _facts(loose) == _facts(as_bytes)
    assert encoded(state_of(loose.machines["one"])) == encoded(state_of(as_bytes.machines["one"]))


@pytest.mark.contract
@pytest.mark.parametrize("what", ["sends", "is"])
def test_true_is_not_taken_for_one_where_an_action_is_done_twice(what: str) -> None:
    class Unsure(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.sure: Any = 0

        def look(self, sure: Any) -> None:
            unsure = next(looks)
            self.sure = unsure if what == "is" else 0
            self.handle.look.send(unsure if what == "sends" else 0)

    looks = iter([1, True] * 20)

    def build(system: Any) -> None:
        system.spawn(Unsure, name="one").look.send(3)

    with pytest.raises(NotDeterministicError, match="sends something else" if what == "sends" else "attribute sure"):
        testing.simulate(build, seed=1)


def _of(act: Act) -> tuple[str, int, bytes | None]:
    return act.machine, act.kind, act.before


@pytest.mark.contract
def test_an_action_is_still_done_twice_now_and_then() -> None:
    class Moody(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.count = 0

        def roll(self, left: int, _: int = 0) -> None:
            self.count += 1
            if left:
                self.handle.roll.send(left - 1, next(moods) if self.count > 3 else 0)

    moods = iter(range(100))

    def build(system: Any) -> None:
        system.spawn(Moody, name="moody").roll.send(20)

    with pytest.raises(NotDeterministicError, match="sends something else as its message 1"):
        testing.simulate(build, seed=1)


@pytest.mark.contract
def test_a_run_leaves_the_collector_of_garbage_as_it_was() -> None:
    before = gc.get_threshold()
    run = testing.simulate(machines.bank, seed=1)
    testing.replay(machines.bank, run.schedule)
    assert gc.get_threshold() == before


@pytest.mark.contract
def test_what_happened_can_be_told_when_the_run_is_over_and_the_run_be_pickled() -> None:
    run = testing.simulate(machines.throwing, seed=4, snapshots=1)
    again = pickle.loads(pickle.dumps(run))
    assert again.steps == run.steps
    assert again.events == run.events
    assert len(run.steps) == len(run.events) > 2


if __name__ == "__main__":
    facts = {name: _facts(testing.simulate(build, **settings)) for name, build, settings in _runs()}
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in facts.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
