"""A checkpoint as the beginning of runs without Ray: what is taken over, where it leads, and what cannot be taken over."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpointed import RUN_ID, STARTED_AT, handle, record
from hypothesis import given, settings
from hypothesis import strategies as st
from moment_machines import Careful, Chatty, Eater, Fork, Gate, Orderly, Stubborn, Till, nobody_starves, one_more

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import CheckpointError, MachineFailedError, NotRestorableError, SettingError
from ray_snapshot.history import checkpoints
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.testing import Moment
from ray_snapshot.testing.acts import LOAD
from ray_snapshot.testing.moments import Flying, Held, Unmade
from ray_snapshot.testing.records import Inside, Rest, State, Unborn
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.stepping import Walk, in_flight
from ray_snapshot.testing.values import decoded


def coins(run: Any) -> dict[str, int]:
    return {name: machine.coins for name, machine in run.machines.items()}


def till(amount: int, peer: Any = None) -> tuple[type, Any]:
    return Till, {"coins": amount, "peer": peer, "paid_at": None}


@pytest.fixture(scope="module")
def tills(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Three tills, of which one has stopped; mail, timers and creations in flight, of machines and of the driver."""
    history = tmp_path_factory.mktemp("tills") / "history"
    machines = {"a": till(3, handle("b")), "b": till(5), "c": till(0)}
    messages = [
        ("a", "b", "take", (2,)), ("a", "b", "take", (4,)), ("driver", "a", "pay", (handle("b"), 3, 0)),
        ("driver", "a", "note_time", ()), ("a", "c", "take", (9,)),
        ("b", "a", "take", (1,), 2.5), ("b", "a", "take", (8, 1), 1.5),
    ]  # fmt: skip
    creations = [("a", "d", Till, (7,)), ("driver", "e", Till, (1, handle("a")))]
    return history, record(history, machines, messages, creations, stopped=["c"])


def test_everything_in_a_checkpoint_is_taken_over(tills: tuple[Path, str]) -> None:
    found = testing.from_snapshot(*tills)
    with Stage(found) as stage:
        walk = Walk(stage)
        assert [(name, status) for name, _, status, _ in walk.machines()] == [
            ("a", "passive"), ("b", "passive"), ("c", "stopped"), ("d", "not constructed; created by a"),
            ("e", "not constructed; created by driver"),
        ]  # fmt: skip
        assert dict(walk.channels()) == {
            "a -> b": "take(2), take(4)", "a -> c": "take(9)", "driver -> a": "pay(b, 3, 0), note_time()",
            "b -> a (timer)": "take(8, 1) in 1.5 s, take(1) in 2.5 s",
        }  # fmt: skip
        texts = [choice.text for choice in walk.choices()]
        assert "e is constructed (1, a)" in texts
        assert "b accepts take(2) from a" in texts
        assert not [text for text in texts if text.startswith("c ")]


def test_all_orders_from_there_end_as_the_messages_say(tills: tuple[Path, str]) -> None:
    found = testing.from_snapshot(*tills)
    end = {"a": 3 - 3 + 1 + 8 - 8, "b": 5 + 2 + 4 + 3 + 8, "c": 0, "d": 7, "e": 1}

    def is_end(states: Any) -> bool:
        return {name: state.coins for name, state in states.items()} == end

    explored = testing.explore(found, eventually=[is_end, detectors.Termination()])
    assert explored.ok, str(explored)
    assert [reason[:31] for reason in explored.why] == ["machines ask for the time, by s"]


@pytest.mark.parametrize("protocol", ["chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier"])
def test_a_run_under_a_protocol_goes_on_from_there(tills: tuple[Path, str], protocol: str) -> None:
    found = testing.from_snapshot(*tills)
    for seed in range(2):
        run = testing.simulate(found, seed=seed, protocol=protocol, snapshots=2, hosts=None if seed % 2 else 2)
        assert coins(run) == {"a": 1, "b": 22, "c": 0, "d": 7, "e": 1}
        assert all(not snapshot.problems() for snapshot in run.snapshots)
        assert run.snapshots[-1].machines["c"].status == "stopped"
        assert testing.replay(found, run.schedule).steps == run.steps


def test_the_clock_goes_on_where_it_was(tills: tuple[Path, str]) -> None:
    run = testing.simulate(testing.from_snapshot(*tills))
    assert STARTED_AT <= run.machines["a"].paid_at <= STARTED_AT + 2.5


def test_a_program_may_do_more_behind_it(tills: tuple[Path, str]) -> None:
    first = testing.from_snapshot(*tills)

    def program(system: Any) -> None:
        first(system)
        assert system.restored
        one_more(system)
        system.spawn(Careful, name="new").note.send(1)

    run = testing.simulate(program)
    assert run.machines["b"].coins == 122
    assert run.machines["new"].seen == [1]

    def again(system: Any) -> None:
        first(system)
        system.spawn(Till, 1, name="a")

    with pytest.raises(MachineFailedError, match="a machine 'a' exists already"):
        testing.simulate(again)


def test_joins_wait_for_what_the_program_declares(tmp_path: Path) -> None:
    senders = dict.fromkeys(("a", "b"), (Careful, ()))
    snapshot = record(tmp_path / "h", {"gate": (Gate, {"pairs": []}), **senders}, [("a", "gate", "left", (1,))])
    found = testing.from_snapshot(tmp_path / "h", snapshot)

    def declared(system: Any) -> None:
        found(system)
        system.connect("a", "gate", port="left")
        system.connect("b", "gate", port="right")

    assert testing.explore(declared, never=[detectors.Deadlock()]).broken == "deadlock"
    run = testing.simulate(Moment("whole", found.machines, [*found.flying, Flying("b", "gate", "right", (2,))]))
    assert run.machines["gate"].pairs == [(1, 2)]


# ---- which orders -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two eaters; each has asked for its first fork."""
    history = tmp_path_factory.mktemp("table") / "history"
    machines: dict[str, tuple[type, Any]] = {f"f{one}": (Fork, {"holder": None, "queue": []}) for one in range(2)}
    for one in range(2):
        machines[f"p{one}"] = (Eater, {"forks": [f"f{one}", f"f{1 - one}"], "has": [], "meals": 0})
    return history, record(history, machines, [(f"p{one}", f"f{one}", "ask", (f"p{one}",)) for one in range(2)])


def test_the_deadlock_is_reached_by_a_shortest_order_and_another_order_goes_to_the_end(table: tuple[Path, str]) -> None:
    found = testing.from_snapshot(*table)
    reached = testing.explore(found, never=[detectors.Deadlock()]).counterexample
    assert reached is not None
    assert len(reached.steps) == 7
    again = testing.replay(found, reached.schedule)
    assert {name: machine.meals for name, machine in again.machines.items() if name[0] == "p"} == {"p0": 0, "p1": 0}
    avoided = testing.explore(found, eventually=[detectors.Deadlock()]).counterexample
    assert avoided is not None
    end = testing.replay(found, avoided.schedule)
    assert nobody_starves(end.machines)
    assert end.is_over


def test_a_mended_class_takes_the_place_of_the_recorded_one(tmp_path: Path) -> None:
    """At the moment before they ask: with the mended class no order is left that deadlocks."""
    machines: dict[str, tuple[type, Any]] = {f"f{one}": (Fork, {"holder": None, "queue": []}) for one in range(2)}
    for one in range(2):
        machines[f"p{one}"] = (Eater, {"forks": [f"f{one}", f"f{1 - one}"], "has": [], "meals": 0})
    snapshot = record(tmp_path / "h", machines, [("driver", f"p{one}", "hungry", ()) for one in range(2)])
    assert not testing.explore(testing.from_snapshot(tmp_path / "h", snapshot), never=[detectors.Deadlock()]).ok
    mended = testing.from_snapshot(tmp_path / "h", snapshot, classes={"Eater": Orderly})
    asked = testing.explore(mended, never=[detectors.Deadlock()], eventually=[nobody_starves])
    assert (asked.ok, asked.complete) == (True, True)


# ---- forward from any state --------------------------------------------------------------------------------------------


def busy(system: Any) -> None:
    """Mail around a ring, timers, creations, a machine that stops."""
    a = system.spawn(Till, 5, system.machine("b"), name="a")
    b = system.spawn(Till, 5, a, name="b")
    c = system.spawn(Till, 5, name="c")
    a.take.send(1, 3)
    b.later.send(2.0, 2)
    b.later.send(0.5, 1)
    c.hire.send("d", 2)
    c.note_time.send()
    a.pay.send(b, 1)
    c.close.send()


def moment_of(space: Space, state: State) -> Moment | None:
    """A state as a moment, as a snapshot would record it; None where a machine waits inside an action."""
    machines, unmade = [], []
    for name, found in space.machines(state):
        kind = space.stage.kinds[found.kind]
        if isinstance(found, Inside):
            return None
        if isinstance(found, Unborn):
            args, kwargs = decoded(found.payload)
            unmade.append(Unmade(found.creator, name, kind, args, kwargs))
        elif isinstance(found, Rest):
            machines.append(Held(name, kind, decoded(found.state), found.is_stopped))
    flying = [
        Flying(source, target, mail.method, *decoded(mail.payload), kind, left or 0.0)
        for (source, target, kind), mails in in_flight(space, state)
        for mail, left in mails
    ]
    return Moment("state", machines, flying, unmade, at=space.values[state[0]].clock)


def looks(walk: Walk) -> Any:
    return [*walk.machines()], [*walk.channels()]


def walked(build: Callable[[Any], object], chance: random.Random) -> tuple[list[Any], list[Moment | None], Any]:
    """A random run: what happened in each step, the moment behind each, and how it ends."""
    steps, moments = [], []
    with Stage(build) as stage:
        walk = Walk(stage)
        moments.append(moment_of(walk.space, walk.state))
        while choices := walk.choices():
            chosen = chance.choice(choices)
            walk.take(chosen.move)
            steps.append(chosen.text)
            moments.append(moment_of(walk.space, walk.state))
        return steps, moments, looks(walk)


def test_from_every_state_of_a_run_the_rest_of_the_run_can_be_taken_and_ends_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2):
        steps, moments, end = walked(busy, chance)
        assert len(steps) > 10
        for place, moment in enumerate(moments):
            assert moment is not None
            with Stage(moment) as stage:
                walk = Walk(stage)
                for text in steps[place:]:
                    walk.take(next(choice.move for choice in walk.choices() if choice.text == text))
                assert looks(walk) == end
                assert not walk.choices()


def test_explored_from_a_checkpoint_the_end_that_the_run_came_to_is_reached(seed: int, tmp_path: Path) -> None:
    """By way of the file: what is pickled there leads where the run went."""
    chance = random.Random(seed)
    steps, moments, (end, _) = walked(busy, chance)
    moment = moments[chance.randrange(len(steps) // 2, len(steps))]
    assert moment is not None
    history = tmp_path / "h"
    machines = {held.name: (held.kind, _renamed(held.state)) for held in moment.machines}
    messages = [replace(one, args=_renamed(one.args), kwargs=_renamed(one.kwargs)) for one in moment.flying]
    creations = [(one.creator, one.name, one.kind, _renamed(one.args)) for one in moment.unmade]
    snapshot = record(
        history, machines, messages, creations, stopped=[one.name for one in moment.machines if one.is_stopped]
    )
    wanted = {name: state for name, _, _, state in end}

    def is_end(states: Any) -> bool:
        return {name: str(state.coins) for name, state in states.items()} == {
            name: _coins(text) for name, text in wanted.items()
        }

    assert testing.explore(testing.from_snapshot(history, snapshot), never=[is_end]).broken == "is_end"


def _coins(text: str) -> str:
    return str(json.loads(text)["coins"])


def _renamed(value: Any) -> Any:
    """The same, with handles of the run that is recorded."""
    from ray_snapshot import MachineHandle

    if isinstance(value, MachineHandle):
        return handle(value._name)
    if isinstance(value, tuple):
        return tuple(map(_renamed, value))
    return {name: _renamed(item) for name, item in value.items()} if isinstance(value, dict) else value


# ---- what cannot be taken over ------------------------------------------------------------------------------------------


def test_a_snapshot_with_obstacles_is_refused_with_them_and_with_what_can_be_taken(tmp_path: Path) -> None:
    history = tmp_path / "h"
    good = record(history, {"a": till(1)})
    bad = record(history, {"a": till(1)}, snapshot_id="20231114T221321000000Z-abcdef-000002", restorable=False,
                 obstacles=["a: it waits inside ask at bank.py:7"])  # fmt: skip
    with pytest.raises(NotRestorableError, match=f"it waits inside ask at bank.py:7; the latest that .* is {good}"):
        testing.from_snapshot(history, bad)


def test_another_key_and_a_damaged_file_are_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return trap.mkdir, ()

    history = tmp_path / "h"
    snapshot = record(history, {"a": (Careful, (Bomb(),))})
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "quite another key")
    with pytest.raises(CheckpointError, match="was not written with this key"):
        testing.from_snapshot(history, snapshot)
    assert not trap.exists()


def test_actors_of_a_watched_app_are_refused(tmp_path: Path) -> None:
    history = tmp_path / "h"
    snapshot = record(history, {"a": till(1)})
    key = checkpoints.checkpoint_key()
    whole = checkpoints.read(history, snapshot, key)
    about = {**whole.about, "sections_of_actors": 1}
    checkpoints.write(history, Checkpoint(about, [b"an actor", *whole.sections]), key)
    with pytest.raises(NotRestorableError, match=r"actors of a watched app: .*`ray-snapshot restore HISTORY"):
        testing.from_snapshot(history, snapshot)


def test_a_class_that_is_not_here_is_said_with_the_remedy_and_another_may_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lost_tills.py").write_text(
        "from moment_machines import Till\n\n\nclass Purse(Till):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import lost_tills  # type: ignore[import-not-found]

    history = tmp_path / "h"
    versions = {"uncovered": [], "versions": {"Python": "2.7.18"}}
    snapshot = record(
        history, {"a": (lost_tills.Purse, till(4)[1])}, [("driver", "a", "take", (1,))], coverage=versions
    )
    monkeypatch.delitem(__import__("sys").modules, "lost_tills")
    (tmp_path / "lost_tills.py").unlink()
    with pytest.raises(
        NotRestorableError, match=r"the class of a .*No module named 'lost_tills'.* taken under Python 2.7.18"
    ):
        testing.from_snapshot(history, snapshot)
    found = testing.from_snapshot(history, snapshot, classes={"Purse": Till})
    assert testing.simulate(found).machines["a"].coins == 5
    with pytest.raises(SettingError, match="is no class of machines"):
        testing.from_snapshot(history, snapshot, classes=[int])


@pytest.mark.parametrize(("kind", "said"), [(Stubborn, "not mine"), (Chatty, "sent in restore_state")])
def test_a_machine_that_does_not_take_its_state_back_is_named(tmp_path: Path, kind: type, said: str) -> None:
    record(tmp_path / "h", {"a": till(1), "odd": (kind, (1,))})
    found = testing.from_snapshot(tmp_path / "h", "latest")
    for run in (testing.explore, testing.simulate):
        with pytest.raises(MachineFailedError, match=f"odd does not take its state back: .*{said}"):
            run(found)


def test_a_method_that_is_called_like_the_hook_is_an_ordinary_message(tmp_path: Path) -> None:
    record(tmp_path / "h", {"odd": (Careful, (1,))}, [("driver", "odd", LOAD, ((5,),))])
    assert testing.simulate(testing.from_snapshot(tmp_path / "h", "latest")).machines["odd"].seen == [5]


def test_handles_of_another_system_stay_its_own(tmp_path: Path) -> None:
    from ray_snapshot.runtime.handles import handle_of

    record(tmp_path / "h", {"a": (Careful, (handle("a"), handle_of("feedfeedfeedfeed", "far"))), "b": till(1)})
    seen = testing.simulate(testing.from_snapshot(tmp_path / "h", "latest")).machines["a"].seen
    assert [one._run_id for one in seen] == ["testing", "feedfeedfeedfeed"]
    assert RUN_ID not in str([one._run_id for one in seen])


NAMES = ("a", "b", "c")
Payment = tuple[str, str, int]


class Payer(rs.SnapshotMixin):
    """Knows what it had behind each of its actions."""

    def __init__(self) -> None:
        self.past = [10]

    def pay(self, to: Any, amount: int) -> None:
        self.past.append(self.past[-1] - amount)
        to.get.send(amount)

    def get(self, amount: int) -> None:
        self.past.append(self.past[-1] + amount)


def _paying(payments: list[Payment]) -> Callable[[Any], None]:
    def paying(system: Any) -> None:
        handles = {name: system.spawn(Payer, name=name) for name in NAMES}
        for source, target, amount in payments:
            handles[source].pay.send(handles[target], amount)

    return paying


payments = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 9)), min_size=1, max_size=3
)


@given(payments, st.integers(0, 1_000))
@settings(max_examples=10, derandomize=True)
def test_what_is_accepted_in_the_cut_of_a_snapshot_was_sent_in_it(payments: list[Payment], seed: int) -> None:
    run = testing.simulate(_paying(payments), seed=seed, snapshots=2)
    assert run.is_over
    for taken, snapshot in zip(run.cuts, run.snapshots, strict=True):
        inside = [event for event in run.events if event.number <= taken.counts.get(event.machine, 0)]
        sent = {message for event in inside for message in event.sent}
        assert all(message in sent for event in inside for message in event.accepted)
        states = {name: one.state["past"] for name, one in snapshot.machines.items() if name in NAMES}
        assert states == {name: run.machines[name].past[: taken.counts.get(name, 0)] for name in states}
