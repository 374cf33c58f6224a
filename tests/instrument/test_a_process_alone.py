"""One process's machine, without Ray: what its own threads, and Ray's, may do at the same time."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from typing import Any

import pytest
from lone_process import BOUND_S, acting, lone_process, wire
from ray.dag import compiled_dag_node

from ray_snapshot.instrument import capacity, shape
from ray_snapshot.instrument.here import CURRENT, asking
from ray_snapshot.instrument.hooks import calls, envelopes
from ray_snapshot.instrument.process import actor_loop
from ray_snapshot.instrument.process.actor_loop import ActorLoop
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.watcher.watcher import WatcherActor
from ray_snapshot.protocol.calls import CallLedger, Header
from ray_snapshot.protocol.commands import Close, Overdue, Request


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        yield found


def test_replies_are_read_while_an_actor_is_being_made(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's thread reads a reply, and making a named actor waits for that thread: neither may wait for our lock."""
    about = {"max_concurrency": 1, "is_retried": False}
    monkeypatch.setattr(shape, "connect", lambda: None)
    monkeypatch.setattr(shape, "constructor_takes", lambda kind, keyword: True)
    monkeypatch.setattr(shape, "options_of", lambda kind, options: about)
    monkeypatch.setattr(calls, "machine_of", lambda handle: handle)
    monkeypatch.setattr(shape, "actor_key", lambda handle: handle)
    read: list[Any] = []

    def make(actor_class: Any, args: Any, kwargs: Any, **options: Any) -> str:
        thread = threading.Thread(target=lambda: read.append(envelopes.opened("a reply", 3)), daemon=True)
        thread.start()
        thread.join(BOUND_S)
        return "Leaf:1"

    assert calls.create(make, object, (), {}, name="leaf") == "Leaf:1"
    assert read == ["a reply"]
    process.submit("B:1", "f", (), False, ())
    assert process.ledger.colour == 3, "what was read is recorded for before the next step"


def test_a_thread_that_has_only_a_calls_context_does_not_block_the_call(process: Process) -> None:
    found: dict[str, bool] = {}

    def note(name: str) -> None:
        found[name] = process.waiting.blocks()

    def in_a_thread(name: str, work: Callable[..., Any] = note) -> threading.Thread:
        thread = threading.Thread(target=copy_context().run, args=(work, name))
        thread.start()
        return thread

    class Handing:
        def work(self) -> None:
            note("the call")
            in_a_thread("a thread").join(BOUND_S)
            self.ended = threading.Event()
            self.later = in_a_thread("behind the end", lambda name: (self.ended.wait(BOUND_S), note(name)))

        async def left_behind(self) -> None:
            note("the loop behind the end")

    body = acting(process, Handing())
    body.work(_ray_snapshot_header=wire(process, 1))
    body.ended.set()
    body.later.join(BOUND_S)
    with asking():
        note("a hook")
    token = CURRENT.set("a call that is over")
    asyncio.run(process.body.left_behind())
    CURRENT.reset(token)
    assert found == {
        "the call": True,
        "a thread": False,
        "behind the end": False,
        "a hook": True,
        "the loop behind the end": True,
    }


@pytest.mark.parametrize(("machine", "reds"), [("*worker:0123.1", 1), ("A", 0)])
def test_a_snapshot_waits_for_no_task_that_computes_but_for_an_actor_whose_state_it_copies(
    machine: str, reds: int
) -> None:
    with lone_process(CallLedger(machine)) as process:
        if process.is_worker:
            process.worker_tasks.enter("f:task-01", "f", 0)
        else:
            process.enter(Header("driver", 0, 1, 0, 1), "f")
        process.obey(Request(1))
        assert process.ledger.colour == reds
        process.obey(Overdue(1))
        assert process.ledger.colour == 1


class Running:
    def listening(self, first: str) -> Generator[str, str, str]:
        """Gives back what it is sent, or what is thrown into it."""
        heard = yield first
        try:
            heard = yield f"sent {heard}"
        except ValueError as error:
            heard = yield f"thrown {error}"
        return f"ended with {heard}"


def test_what_is_sent_or_thrown_into_a_generator_reaches_it_and_its_end_comes_back(process: Process) -> None:
    body = acting(process, Running())
    generator = body.listening("first", _ray_snapshot_header=wire(process, 1))
    assert next(generator) == "first"
    assert len(process.ledger.running) == 1, "it is followed as a call"
    assert generator.send("statistics") == "sent statistics"
    assert generator.throw(ValueError("no more")) == "thrown no more"
    with pytest.raises(StopIteration) as end:
        generator.send("the last")
    assert end.value.value == "ended with the last"
    assert not process.ledger.running


def test_a_generator_that_is_closed_early_is_closed_inside_and_its_call_has_ended(process: Process) -> None:
    closed: list[bool] = []

    class Closing:
        def items(self) -> Generator[int, None, None]:
            try:
                yield 1
            finally:
                closed.append(True)

    body = acting(process, Closing())
    generator = body.items(_ray_snapshot_header=wire(process, 1))
    assert next(generator) == 1
    generator.close()
    assert closed == [True]
    assert not process.ledger.running


def test_an_async_actor_with_a_loop_for_each_group_is_never_taken_for_one_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A blocked loop is no boundary, and blocks nobody else, where another group's loop may run."""
    first, second, loop = object(), object(), ActorLoop()
    for here in (first, second):
        monkeypatch.setattr(actor_loop, "running_loop", lambda here=here: here)
        loop.meet()
    monkeypatch.setattr(actor_loop, "running_loop", lambda: first)
    loop.block("A/0/B:1/1")
    monkeypatch.setattr(actor_loop, "running_loop", lambda: None)
    assert (loop.is_between_steps(), loop.blocking_call) == (False, None)
    loop.has_many_loops = False
    assert (loop.is_between_steps(), loop.blocking_call) == (True, "A/0/B:1/1"), "with one loop it is"


def test_a_method_that_is_not_async_and_runs_long_on_the_loop_occupies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, here = ActorLoop(), threading.get_ident()
    monkeypatch.setattr(actor_loop, "running_loop", lambda: here)
    loop.meet()
    ledger = CallLedger("B:1")
    plain, awaits = (ledger.accept_unknown(name, began) for name, began in (("run", 5.0), ("stop", 4.0)))
    monkeypatch.setattr(actor_loop, "current_task", lambda: None)
    loop.follow(awaits, None)
    threads = dict.fromkeys((plain, awaits), here)
    assert loop.occupied_by(ledger, threads, 6.0) == plain
    assert loop.occupied_by(ledger, threads, 4.5) is None, "it has not run for long"
    assert loop.occupied_by(ledger, {plain: here + 1}, 6.0) is None, "it runs in another thread"
    loop.has_many_loops = True
    assert loop.occupied_by(ledger, threads, 6.0) is None


def test_a_call_without_a_header_is_followed_as_that_of_a_stranger(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = acting(process, Running())
    generator = body.listening("first")
    assert next(generator) == "first"
    ((call_id, running),) = process.ledger.running.items()
    told = running.call(call_id)
    assert (told.method, told.caller) == ("listening", None)


def test_what_ray_call_runs_is_followed_if_it_is_the_apps_or_a_stage_of_a_compiled_graph(process: Process) -> None:
    class Stage:
        def step(self, x: int) -> tuple[int, list[str]]:
            return x, [running.method for running in process.ledger.running.values()]

        def other(self) -> list[str]:
            return self.step(0)[1]

    def loop(stage: Any, *args: int) -> Any:
        return stage.step(*args)

    body = acting(process, shape.as_ray_makes_it(Stage)())
    assert body.__ray_call__(loop, 1) == (1, ["__ray_call__"])
    assert body.__ray_call__(lambda stage: stage.other()) == ["__ray_call__"], "its own calls are no others"
    loop.__module__ = compiled_dag_node.do_exec_tasks.__module__
    assert body.__ray_call__(loop, 2) == (2, ["step"])
    loop.__module__ = "ray.experimental.collective.util"
    assert body.__ray_call__(loop, 3) == (3, [])
    loop.__module__ = calls.__name__
    assert body.__ray_call__(loop, 4) == (4, [])


def test_a_call_of_an_actor_of_ours_is_not_followed(process: Process) -> None:
    class OfOurs:
        def work(self) -> list[str]:
            return [*process.ledger.running]

    body = acting(process, OfOurs())
    assert len(body.work(_ray_snapshot_header=wire(process, 1))) == 1
    OfOurs.work.__module__ = WatcherActor.__ray_actor_class__.__module__
    assert body.work(_ray_snapshot_header=wire(process, 2)) == []


def test_a_process_looks_at_object_stores_when_it_is_asked_to_record_and_hears_whether_one_is_short(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    class Stores(capacity._Stores):
        def look(self) -> None:
            looks.append((self.is_wanted, process.lock._is_owned()))  # type: ignore[attr-defined]

    monkeypatch.setattr(capacity, "STORES", Stores())
    for command in (Request(1), Close(1, is_store_short=True), Request(2), Close(2)):
        process.obey(command)
    assert looks == [(False, False), (True, False)], "beside the lock, and only where it is asked"
    assert not capacity.STORES.is_wanted
