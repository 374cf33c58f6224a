"""An app that goes back by itself, in any order: processes die whenever they like, and each call of the program counts once."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
import ray
from ray.exceptions import RayTaskError
from rolled_back_app import BOUND_S, TOKENS, App, Handle, played

from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.hooks.tracking import _outliving, unhandled
from ray_snapshot.instrument.process.journal import Journal
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.recovering import Base, Limits, Recovering
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.rollback import Phase

SEEDS = 60
BY_NIGHT = 1_500


async def settled(app: App) -> None:
    """All that has begun comes to its end: nobody sends any more."""
    recovering = app.watcher.processes.recovering
    async with asyncio.timeout(BOUND_S):
        while True:
            await app.quiet()
            if not recovering.is_under_way and not app.watcher.processes.rolling.is_rolling:
                return
            await asyncio.sleep(0)  # the cluster is asked in a thread


async def story(app: App, counts: Counter[str]) -> None:
    """Work while processes die, in twos, too, and while the app goes back; then nothing moves any more."""
    await app.begin()
    for _ in range(4):
        await app.run(app.draw.choice([5, 60]))
        await app.die()
        await app.run(app.draw.choice([0, 3, 30]))
        if app.draw.random() < 0.5:
            await app.die()
        await settled(app)
        base = app.watcher.processes.recovering.base
        assert base is not None
        counts["to the beginning" if base.snapshot_id is None else "to a snapshot"] += 1
        assert app.tokens() == TOKENS + app.given, "a call of the program was lost, or counts twice"
    counts["rollbacks"] += app.watcher.processes.rolling.loaded
    await app.snapshot()
    await settled(app)
    last = list(app.analyst.found.values())[-1].snapshot()
    last.verify()
    assert last.restorable, last.obstacles
    assert all(not process.is_closed for process in app.machines.values())


def play_all() -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        played(App(seed, recovers=True), story, counts)
    return counts


@pytest.mark.nightly
def test_each_call_of_the_program_counts_once_whatever_dies() -> None:
    counts = play_all()
    assert counts["to the beginning"] > SEEDS / 4
    assert counts["to a snapshot"] > SEEDS / 4
    assert counts["rollbacks"] > 4 * SEEDS


@pytest.mark.nightly
def test_each_call_counts_once_in_thousands_of_runs(seed: int) -> None:
    """Others every night; the last number that is printed is that of the run that failed."""
    for number in range(seed, seed + BY_NIGHT):
        print(number)
        played(App(number, recovers=True), story, Counter())


async def died_too_often(app: App) -> None:
    await app.begin()
    for _ in range(2):
        await app.run(20)
        await app.die()
        await settled(app)
    assert app.watcher.processes.rolling.loaded == 1
    assert app.watcher.processes.recovering.is_over
    assert not any(process.reloading.is_held for process in app.machines.values()), "it goes on as Ray has left it"
    journal = app.machines["driver"].journal
    assert journal is not None
    for _ in range(2):  # what is kept of calls is cut all the same
        await app.run(40)
        await app.quiet()
    await app.snapshot()
    await settled(app)
    assert len(journal.entries) < app.given


def test_what_dies_too_often_goes_on_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(App, "limits", Limits(most_failures=1))
    played(App(1, recovers=True), died_too_often)
    assert "2 failures within 60 s; 1 are borne" in capsys.readouterr().err


class AnsweredLate:
    """An analyst's `is_kept` that says nothing of the first snapshot before it has said all of the second."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def remote(self, snapshot_id: str, is_listed: bool) -> bool:
        self.asked.append(snapshot_id)
        if len(self.asked) == 1:
            await self.may_answer.wait()
        return True


async def overtaken(app: App) -> None:
    await app.begin()
    app.analyst.is_kept = answers = AnsweredLate()  # type: ignore[assignment]
    recovering = app.watcher.processes.recovering
    for _ in range(2):
        await app.quiet()
        await app.snapshot()
    while recovering.base == Base():
        await app.step()
    answers.may_answer.set()
    while app.watcher.collecting.line.under_way:
        await app.step()
    assert recovering.base is not None
    assert recovering.base.snapshot_id == answers.asked[1]


def test_of_two_snapshots_that_are_kept_at_once_the_later_one_is_gone_back_to() -> None:
    """The journal has been cut behind it: behind the other one calls would be missing."""
    played(App(1, recovers=True), overtaken)


async def lost_for_good(app: App, crashed: bool) -> str:
    """One dies, and while it comes up again, another ends; returns what is said of it."""
    await app.begin()
    while app.watcher.processes.recovering.base in (None, Base()):
        await app.run(15)
        await settled(app)
    app.states["B:b"] = "DEAD", 0
    app.crashed |= {"B:b"} if crashed else set()
    app.watcher.processes.ended("B:b")
    app.actions = [action for action in app.actions if action.process is not app.machines["B:b"]]
    app.network = [call for call in app.network if call.target != "B:b"]
    del app.machines["B:b"]
    app.draw.choice = _but_not("B:b", app.draw.choice)  # type: ignore[method-assign]
    app.states["A:a"] = "ALIVE", 1
    await app.join("A:a")
    app.machines["A:a"].reloading.built()
    await settled(app)
    assert not any(process.reloading.is_held for process in app.machines.values())
    return "went back" if app.watcher.processes.rolling.loaded else "did not"


def _but_not(gone: str, choice: Any) -> Any:
    return lambda items: choice([item for item in items if item != gone])


@pytest.mark.parametrize(("crashed", "outcome"), [(False, "went back"), (True, "did not")])
def test_who_was_ended_on_purpose_is_left_out_and_who_crashed_for_good_is_named(
    crashed: bool, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(App(2, recovers=True), lost_for_good, crashed) == outcome
    said = "B-0 has died, and Ray does not start it again" in capsys.readouterr().err
    assert said == crashed


async def children_end(app: App) -> None:
    """One that comes up again ends with its maker, and was in no snapshot: the others go back without it."""
    await app.begin()
    await app.join("D:d", maker="B:b")
    app.machines["D:d"].reloading.built()
    await settled(app)
    for machine in ("D:d", "B:b"):
        app.states[machine] = "ALIVE", 1
        await app.join(machine, maker=DRIVER if machine == "B:b" else "B:b")
    app.states["D:d"] = "DEAD", 1
    del app.machines["D:d"]
    app.machines["B:b"].reloading.built()
    await app.watcher.processes.recovering.look()
    await settled(app)
    assert app.watcher.processes.rolling.loaded == 1
    assert app.tokens() == TOKENS + app.given


def test_a_child_that_ends_with_its_maker_keeps_nobody_from_going_back() -> None:
    played(App(3, recovers=True), children_end)


async def called_while_all_load(app: App) -> None:
    """A thread of the program is about to number a call when it may not: it is held, and the call is made once."""
    await app.begin()
    await app.join("A:a")
    app.machines["A:a"].body.tokens = TOKENS
    app.machines["A:a"].reloading.built()
    program = app.machines[DRIVER]
    assert program.journal is not None
    while program.reloading.host.phase is not Phase.LOADED:
        await app.carry_all(app.draw.choice(list(app.machines)))
        await asyncio.sleep(0)
    app.given += 1
    entry = program.journal.entry(Handle(app, "B:b"), "move", (1,), {}, {})
    thread = threading.Thread(target=app.make, args=(program, entry, "B:b", 1))
    thread.start()
    thread.join(0.05)
    assert entry not in program.journal.entries
    await settled(app)
    await asyncio.to_thread(thread.join, BOUND_S)
    await settled(app)
    assert app.tokens() == TOKENS + app.given


def test_a_call_that_is_made_while_all_load_is_made_once() -> None:
    played(App(4, recovers=True), called_while_all_load)


class Asked:
    """The watcher, as a program asks it what becomes of a death."""

    def __init__(self, app: App) -> None:
        self.rolling = app.watcher.processes.rolling
        self.count = 0
        self.is_coming_back = self

    def remote(self, key: str | None, generation: int) -> bool:
        self.count += 1
        return self.rolling.is_rolling or self.rolling.loaded > generation


async def waited_for_while_all_load(app: App, patch: pytest.MonkeyPatch) -> None:
    await app.begin()
    program = app.machines[DRIVER]
    journal = program.journal
    assert journal is not None
    app.give(program, "B:b")
    past, answer = (ray.ObjectRef(bytes([kind]) * 28, skip_adding_local_ref=True) for kind in (1, 2))

    def made_again(*call: Any) -> None:
        app.make_again(*call)
        journal.answers[past.binary()] = answer

    def attempt(refs: list[Any], _: float | None) -> str:
        if refs != [answer]:
            raise RolledBackError("the call was given up", snapshot_id=None)
        return "the answer"

    patch.setattr(shape, "call_again", made_again)
    patch.setattr(shape, "original", lambda _: lambda found, timeout: found)
    await app.join("A:a")
    app.machines["A:a"].body.tokens = TOKENS
    app.machines["A:a"].reloading.built()
    while program.reloading.host.phase is not Phase.LOADED:
        await app.carry_all(app.draw.choice(list(app.machines)))
        await asyncio.sleep(0)
    program.watcher = asked = Asked(app)
    got = asyncio.ensure_future(asyncio.to_thread(_outliving, program, [past], None, attempt))
    while not asked.count and not got.done():
        await asyncio.sleep(0)
    await settled(app)
    assert await got == "the answer"


def test_a_wait_that_ends_in_an_error_while_all_load_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is loaded then, and the refs are still those of the past."""
    played(App(4, recovers=True), waited_for_while_all_load, monkeypatch, patch=monkeypatch)


def test_that_a_call_was_given_up_is_no_news_where_nobody_reads_its_reply() -> None:
    given_up, news = RolledBackError("given up", snapshot_id=None), ValueError("news")
    told: list[Exception] = []
    for error in (given_up, RayTaskError("f", "traceback", given_up), news):
        unhandled(told.append, error)
    assert told == [news]


# ---- what is wrong is seen -----------------------------------------------------------------------------------------------


def _nothing(*_: object) -> None:
    """Leave it out."""


def _forget_all(journal: Journal, *_: object) -> None:
    journal.entries.clear()


async def _as_if_all_had(*_: object) -> bool:
    return True


def _as_if_nothing_had_died(recovering: Recovering, machine: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (Journal, "based", _nothing),
        (Journal, "based", _forget_all),
        (Recovering, "comes_back", _as_if_nothing_had_died),
        (Outboxes, "have_heard", _as_if_all_had),
    ],
    ids=[
        "the journal is never cut",
        "the journal is cut too far",
        "who comes back is taken as it is",
        "what others have heard of a death is gone back to",
    ],
)
def test_a_wrong_recovery_is_caught(owner: type, name: str, wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        play_all()
