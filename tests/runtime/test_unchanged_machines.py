"""What a host keeps of machines that have not acted: its snapshots are the same with it and without it."""

import datetime
import enum
import threading
import uuid
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from limited import limit
from resting import (
    Asked,
    Flat,
    Joined,
    Listener,
    Lively,
    Program,
    Resting,
    Step,
    Telling,
    Trusted,
    Volatile,
    Wanting,
    resting_host,
    rows_of,
    steps,
)
from until import until

import ray_snapshot as rs
from ray_snapshot.encoding import Encoded
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.handles import handle_of
from ray_snapshot.runtime.host.alone import are_alone, is_alone
from ray_snapshot.runtime.host.copier import Copier
from ray_snapshot.runtime.host.unchanged import Unchanged
from ray_snapshot.runtime.report import BodyCopy

LONG = 40


def _never(self: Unchanged, machine: Any) -> None:
    """Nothing is kept."""


def _same(program: Any, *, is_checkpointing: bool) -> bool:
    """Whether a program's snapshots hold the same with what is kept, and copied together, as without it, one by one."""
    program = [*program]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unchanged, "copy_of", _never)
        patch.setattr(Unchanged, "rests", lambda *_: False)
        patch.setattr(Copier, "copy_group", lambda *_: None)
        patch.setattr(Copier, "copy_all", lambda self, machines: [*map(self.copy, machines)])
        expected = rows_of(program, checkpoint=is_checkpointing)
    return bool(rows_of(program, checkpoint=is_checkpointing) == expected)


@pytest.mark.parametrize("is_checkpointing", [False, True])
@pytest.mark.parametrize("times", [pytest.param(3, id="few"), pytest.param(40, id="many", marks=pytest.mark.nightly)])
def test_whatever_happens_snapshots_hold_the_same(is_checkpointing: bool, times: int, seed: int) -> None:
    for number in range(seed, seed + times):
        assert _same(steps(number, LONG), is_checkpointing=is_checkpointing), f"pytest --seed {number}"


ONCE: tuple[Step, ...] = (("snapshot",),)
TWICE = ONCE * 2
PLACED: tuple[Step, ...] = (("place", 0), ("place", 1), ("place", 2))
"""So that pickles of states last."""
AT_REST: tuple[Step, ...] = (*PLACED, ("spawn", 0, Resting), ("spawn", 2, Resting), *TWICE)
FLAT: tuple[Step, ...] = (("spawn", 0, Flat), ("spawn", 1, Flat))
LISTENING: tuple[Step, ...] = (("spawn", 0, Listener), ("place", 0))


def _another_lends(kind: type) -> tuple[Step, ...]:
    return ("spawn", 0, kind), ("spawn", 1, Resting), *TWICE, ("send", 1, "lend"), *ONCE


@pytest.mark.parametrize(
    "program",
    [
        (*FLAT, ("wait", 0), *ONCE, ("go_on", 0)),
        (*FLAT, ("hold", 0), *ONCE),
        (*FLAT, ("stop", 0), *ONCE),
        (*FLAT, ("declare", 0, 1), *ONCE),
        (*FLAT, ("send", 0, "claim"), ("send", 1, "claim"), *ONCE),
        (("redact", 1), *FLAT, *ONCE),
        (*FLAT, ("send", 0, "register"), ("send", 1, "add", 1), *TWICE, ("poke", 1), *ONCE),
        (("spawn", 0, Joined), ("spawn", 1, Resting), *TWICE, ("declare", 0, 1), *ONCE),
        (("spawn", 0, Trusted), ("wait", 0), *TWICE, ("go_on", 0), *ONCE),
        (("spawn", 0, Trusted), ("hold", 0), *TWICE, ("release", 0), *ONCE),
        (("spawn", 0, Resting), *TWICE, ("redact", 1), *ONCE),
        (("spawn", 0, Resting), ("send", 0, "register"), *TWICE, ("poke", 1), *ONCE),
        (("spawn", 0, Resting), ("spawn", 1, Resting), ("send", 0, "lend"), *TWICE, ("send", 1, "use", 3), *ONCE),
        (("spawn", 0, Resting), ("send", 0, "register_weakly"), *TWICE, ("poke", 1), *ONCE),
        (*AT_REST, ("spawn", 4, Resting), *TWICE),
        (("spawn", 0, Volatile), *TWICE, ("poke", 1), *ONCE),
        *map(_another_lends, (Asked, Lively, Telling)),
        (("spawn", 0, Trusted), ("send", 0, "later"), *TWICE, *ONCE),
    ],
)
def test_nothing_is_kept_for_too_long(program: tuple[Step, ...]) -> None:
    assert _same(program, is_checkpointing=False)


@pytest.mark.parametrize(
    "program",
    [
        (*LISTENING, *TWICE, ("send", 0, "add", 1), *ONCE),
        (*LISTENING, *TWICE, ("tell",), *ONCE),
        (*LISTENING, *TWICE, ("stop", 0), *ONCE),
        (*LISTENING, *TWICE, ("redact", 1), *ONCE),
        (*LISTENING, *ONCE, ("send", 0, "add", 5), *TWICE, ("restore", 2), *ONCE),
        (("spawn", 0, Wanting), ("spawn", 1, Resting), ("place", 0), *TWICE, ("declare", 0, 1), *ONCE),
        (("spawn", 0, Resting), *TWICE, ("place", 0), *ONCE),
        (("spawn", 0, Trusted), *TWICE, ("place", 0), *ONCE),
        (*AT_REST, ("send", 0, "add", 1), *ONCE),
        (*AT_REST, ("spawn", 4, Resting), *TWICE),
        AT_REST,
        (*PLACED, ("spawn", 0, Listener), *TWICE, ("tell",), *ONCE),
        (*AT_REST, ("stop", 0), *TWICE, *ONCE),
    ],
)
def test_nothing_is_saved_for_too_long(program: tuple[Step, ...]) -> None:
    assert _same(program, is_checkpointing=True)


def test_of_a_machine_that_rests_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with resting_host() as host:
        program = Program(host)
        program.run([("spawn", 0, Trusted), ("spawn", 1, Resting), ("snapshot",), ("snapshot",)])
        monkeypatch.setattr(Trusted, "snapshot_state", lambda self: pytest.fail("it was asked"))
        monkeypatch.setattr(Resting, "snapshot_state", lambda self: pytest.fail("it was asked"))
        first, second = program.run([("snapshot",)])[-2:]
        assert first == second
        assert first["obstacles"] == []


def test_a_machine_that_is_held_when_it_is_loaded_is_blocked() -> None:
    with resting_host() as host:
        Program(host).run([("spawn", 0, Trusted), ("snapshot",), ("snapshot",)])
        machine, core = host.post.core.machines["m0"], host.post.core
        with host.post.member.lock:
            assert host.post.copier.copy(machine).status == "passive"
            for _ in range(5):
                core.send(machine, "far", "mail", "add", (1,), 0.0)
            core.end_action(machine)
            assert host.post.copier.copy(machine).status == "blocked"


# ---- what is kept at all ----------------------------------------------------------------------------------------------


def _copy(text: str, **how: Any) -> BodyCopy:
    return BodyCopy("M", "passive", Encoded(text, how.pop("truncated", False), len(text)), **how)


def test_what_is_cut_or_long_or_could_not_be_written_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, machine = Unchanged(is_checkpointing=False), _machine(dict)
    refused = [
        _copy("{}", truncated=True),
        _copy("{}", obstacle="snapshot_state raised"),
        BodyCopy("M", "active", None),
        _copy("x" * (LIMITS.cached_state_bytes + 1)),
        _copy("{}", kept=("key", b"x" * LIMITS.cached_state_bytes)),
    ]
    for copy in refused:
        kept.keep(machine, copy)
        assert kept.copies == {"m": None}
        assert kept.held_bytes == 0
    kept.keep(machine, _copy("{}"))
    kept.keep(machine, _copy("{}"))
    assert kept.held_bytes == 2
    limit(monkeypatch, cached_states_bytes=3)
    kept.keep(_machine(dict, "n"), _copy("{}"))
    assert kept.copies["n"] is None
    kept.changed("m")
    kept.changed("m")
    assert kept.held_bytes == 0


class Held(rs.SnapshotMixin):
    """A machine's object."""


class Colour(enum.Enum):
    RED = 1
    MANY = [1]  # noqa: RUF012 - a member of an enum


class Slotted:
    """What its `__dict__` does not tell."""

    __slots__ = ("__dict__", "inner")


class Zone(datetime.tzinfo):
    """What a date may have, and does not tell."""


class Odd:
    """Answers with another `__dict__`."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {}


def _machine(attributes: Callable[[], dict[str, Any]], name: str = "m") -> Any:
    """A machine with these attributes; pytest would hold on to what is made in a line with `assert`."""
    body = Held()
    body.__dict__.update(attributes())
    machine = SimpleNamespace(name=name, body=body, finalizer=weakref.finalize(body, int))
    del body
    return machine


def _is_alone(machine: Any, *, is_checkpointing: bool = False) -> bool:
    """Asked of it alone, and where it can be of it among others, which are alone."""
    found = is_alone(machine, is_checkpointing=is_checkpointing)
    if not is_checkpointing:
        others = [_machine(lambda: {"a": 1}), _machine(lambda: {"a": "text"})]
        assert are_alone([others[0], machine, others[1]]) == [True, found, True]
    return found


SHARED: list[Any] = [1]
KEY = Held()

ALONE: dict[str, Any] = {
    "plain": lambda: {"a": 1, "b": "text", "c": None, "d": (1, 2), "e": frozenset({1}), "f": ()},
    "nested": lambda: {"a": [{"b": [set(), deque()]}], "c": ([1], [2])},
    "object": lambda: {"a": Held(), "b": [Held()]},
    "constants": lambda: {"a": Colour.RED, "b": uuid.uuid4(), "c": datetime.datetime.now(datetime.UTC)},
}

SHARES: dict[str, Any] = {
    "a list of a module": lambda: {"a": SHARED},
    "a list in a tuple": lambda: {"a": (SHARED,)},
    "deep": lambda: {"a": [{"b": [SHARED]}]},
    "a date with a zone of its own": lambda: {"a": datetime.datetime(2026, 1, 1, tzinfo=Zone())},
    "a key that others have": lambda: {(KEY,): 1},
    "twice": lambda: {"a": (same := [1]), "b": same},
    "a thread": lambda: {"a": threading.Thread()},
    "a lock": lambda: {"a": threading.Lock()},
    "a function": lambda: {"a": lambda: None},
    "a list with a default": lambda: {"a": defaultdict(list)},
    "an array of bytes": lambda: {"a": bytearray(b"x")},
    "a member that can change": lambda: {"a": Colour.MANY},
    "slots": lambda: {"a": Slotted()},
    "a strange object": lambda: {"a": Odd()},
    "its class": lambda: {"a": Held},
    "a view": lambda: {"a": {}.keys()},
    "an iterator": lambda: {"a": iter([1])},
    "very many": lambda: {"a": [*range(20_000)]},
}


@pytest.mark.parametrize("name", ALONE)
def test_what_only_the_machine_refers_to_is_its_own(name: str) -> None:
    assert _is_alone(_machine(ALONE[name]))


@pytest.mark.parametrize("name", SHARES)
def test_what_others_may_refer_to_is_not(name: str) -> None:
    assert not _is_alone(_machine(SHARES[name]))


def test_each_reference_is_counted() -> None:
    machine = _machine(lambda: {"items": [1], "inner": Held(), "names": {"a"}})
    assert _is_alone(machine)
    for take in (
        lambda: machine.body,
        lambda: machine.body.__dict__,
        lambda: machine.body.items,
        lambda: machine.body.inner,
        lambda: machine.body.inner.__dict__,
        lambda: weakref.ref(machine.body),
        lambda: weakref.ref(machine.body.inner),
        lambda: weakref.ref(machine.body.names),
        lambda: machine.body.snapshot_state,
        lambda: iter(machine.body.items),
        lambda: threading.Thread(target=machine.body.is_active),
    ):
        taken = [take()]
        assert not _is_alone(machine)
        taken.clear()
        assert _is_alone(machine)


@pytest.mark.parametrize("take", [lambda body: body, vars, weakref.ref], ids=["object", "attributes", "weak"])
def test_among_machines_of_plain_values_each_reference_is_counted(take: Callable[[Any], Any]) -> None:
    machines = [_machine(lambda number=number: {"number": number}) for number in range(3)]
    assert are_alone(machines) == [True, True, True]
    taken = [take(machines[1].body)]
    assert are_alone(machines) == [True, False, True]
    taken.clear()
    assert are_alone(machines) == [True, True, True]


def test_what_is_pickled_must_be_plain_and_its_handles_placed() -> None:
    handle = handle_of("alone", "m")
    assert _is_alone(_machine(lambda: {"a": handle}))
    for attributes in (lambda: {"a": handle}, lambda: {"a": Held()}, lambda: {"a": Colour.RED}):
        assert not _is_alone(_machine(attributes), is_checkpointing=True)
    handle_of("alone", "m", "host-1")
    assert _is_alone(_machine(lambda: {"a": handle, "b": [{"c": 1}]}), is_checkpointing=True)


# ---- what changes beside it ------------------------------------------------------------------------------------------


def test_rows_that_are_not_written_stop_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core would leave out machines of which there are no rows, also in a snapshot that nobody waits for."""
    with resting_host() as host:
        Program(host).run([("spawn", 0, Resting), ("snapshot",)])
        post = host.post

        def full(_: Any) -> None:
            raise MemoryError("no room")

        monkeypatch.setattr(post.at_rest.rows, "take", full)
        host.send("m0", "add", 1)
        until(lambda: post.core.machines["m0"].accepted == 1 and post.floor.is_idle)
        with post.member.lock:
            post.core.request(2)
            post.recorder.record()
            post.core.abort(2)
            post.core.request(3)
            post.recorder.record()
            post.recorder.copy_slice()
        until(lambda: "MemoryError: no room" in str(host.failure()))


def test_there_is_room_again_where_machines_have_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    with resting_host() as host:
        program = Program(host)
        program.run([*(("spawn", number, Resting) for number in range(3)), ("snapshot",), ("snapshot",)])
        rows = host.post.at_rest.rows
        limit(monkeypatch, resting_bytes=rows.size)
        assert not rows.has_room
        program.run([*(("send", number, "add", 1) for number in range(3)), ("snapshot",), ("snapshot",), ("snapshot",)])
        assert len(rows.shapes) == 3
