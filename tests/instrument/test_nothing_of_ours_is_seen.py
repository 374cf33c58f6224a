"""What a program finds when it looks at Ray's functions, its classes and its tracebacks, watched: no cluster in here."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from lone_process import PLAINLY, Called, acting, lone_process, wire
from ray import cloudpickle

import ray_snapshot as rs
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.hooks import attaching, calls, hiding
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.names import NAMESPACE

PUBLIC = ("get", "wait", "put", "init", "shutdown")


def _look(name: str) -> tuple[Any, ...]:
    function, inner = getattr(ray, name), getattr(ray._private.worker, name)
    about = (
        function.__module__,
        function.__qualname__,
        function.__doc__,
        inspect.signature(function),
        sorted(vars(function)),
    )
    return function, inner, about, function.__defaults__, function.__kwdefaults__, pickle.dumps(inner)


@pytest.fixture
def replaced() -> Iterator[dict[str, Any]]:
    before = {name: _look(name) for name in PUBLIC}
    attaching.replace_ray()
    shape.replace(init=lambda own, *args, **kwargs: own(*args, **kwargs), shutdown=lambda own, **kwargs: own(**kwargs))
    yield before
    shape.restore()


@pytest.mark.parametrize("name", PUBLIC)
def test_rays_functions_stay_the_objects_that_a_program_may_have_imported_before(
    replaced: dict[str, Any], name: str
) -> None:
    assert name in shape._replaced, "or this shows nothing"
    assert _look(name) == replaced[name]


def test_what_is_replaced_besides_keeps_name_module_text_and_signature() -> None:
    owners: list[tuple[Any, str]] = [
        (ray.actor.ActorHandle, "_actor_method_call"),
        (ray.actor.ActorHandle, "__init__"),
        (ray.actor.ActorClass, "_remote"),
        (ray.remote_function.RemoteFunction, "_remote"),
        (ray.actor, "_modify_class"),
        (asyncio, "wrap_future"),
    ]

    def look() -> list[tuple[Any, ...]]:
        found = [getattr(owner, name) for owner, name in owners]
        return [(one.__module__, one.__qualname__, one.__name__, one.__doc__, inspect.signature(one)) for one in found]

    before, functions = look(), [getattr(owner, name) for owner, name in owners]
    attaching.replace_ray()
    try:
        assert look() == before
        assert [getattr(owner, name) for owner, name in owners] != functions
        assert pickle.loads(pickle.dumps(asyncio.wrap_future)) is asyncio.wrap_future is asyncio.futures.wrap_future
    finally:
        shape.restore()
    assert [getattr(owner, name) for owner, name in owners] == functions


MADE: list[str] = []


class Counting:
    def __init_subclass__(cls, **more: Any) -> None:
        MADE.append(cls.__name__)


class Meta(type):
    """Lets nothing be set on its classes but what Ray sets."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if name not in ("__module__", "__name__", "__init__"):
            raise AttributeError(name)
        super().__setattr__(name, value)


class Account(Counting, metaclass=Meta):
    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    async def later(self, amount: int) -> int:
        return self.deposit(amount)


class Items(dict):  # type: ignore[type-arg]
    def put(self, key: str) -> None:
        self[key] = 1


class Later:
    async def __init__(self, x: int) -> None:  # type: ignore[misc]
        await asyncio.sleep(0)
        self.x = x


@pytest.mark.parametrize("kind", [Account, Items, Later])
def test_the_class_of_an_actor_is_the_one_that_ray_makes(kind: type) -> None:
    def look(made: type) -> tuple[Any, ...]:
        return (
            made.__mro__[1:],
            made.__name__,
            made.__qualname__,
            made.__doc__,
            type(made),
            set(vars(made)) - set(vars(kind)),
        )

    own, before, hooks = shape.as_ray_makes_it, dict(vars(kind)), len(MADE)
    plain = own(kind)
    once = len(MADE) - hooks
    watched = calls.modify(own, kind)
    assert look(watched) == look(plain)
    assert len(MADE) - hooks == 2 * once
    assert vars(watched)["__ray_actor_class__"] is kind
    assert ray.actor.has_async_methods(watched) is ray.actor.has_async_methods(plain)
    assert dict(vars(kind)) == before, "nothing is set on the app's own class"
    assert [name for name in vars(kind) if name[:2] != "__" and getattr(watched, name) is not getattr(kind, name)] == []
    assert shape.unmark(watched) is watched
    assert b"ray_snapshot" not in cloudpickle.dumps(watched)


class Failing:
    def fail(self, *_: Any) -> None:
        raise KeyError("no")

    def chained(self) -> None:
        try:
            self.fail()
        except KeyError as error:
            raise RuntimeError("so") from error

    async def later(self) -> None:
        await asyncio.sleep(0)
        self.fail()

    def items(self) -> Iterator[int]:
        yield 1
        self.fail()

    async def async_items(self) -> Any:
        yield 1
        self.fail()


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        yield found


async def _all(items: Any) -> None:
    async for _ in items:
        pass


RUNS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "a method": lambda body, header: body.fail(**header),
    "one that calls another": lambda body, header: body.chained(**header),
    "a coroutine": lambda body, header: asyncio.run(body.later(**header)),
    "a generator": lambda body, header: list(body.items(**header)),
    "an asynchronous generator": lambda body, header: asyncio.run(_all(body.async_items(**header))),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_the_traceback_of_a_methods_error_has_no_frame_of_ours(
    process: Process, run: Callable[[Any, dict[str, Any]], Any]
) -> None:
    def told(body: Any, header: dict[str, Any]) -> str:
        with pytest.raises((KeyError, RuntimeError)) as raised:
            run(body, header)
        return "".join(traceback.format_exception(raised.value))

    body = acting(process, Failing())
    assert told(body, {calls.HEADER: wire(process, 1)}) == told(Called(Failing(), PLAINLY), {})


def test_the_traceback_of_what_ray_refuses_has_no_frame_of_ours() -> None:
    def told() -> str:
        with pytest.raises(TypeError) as raised:
            ray._private.worker.get()
        return "".join(traceback.format_exception(raised.value))

    before = told()
    attaching.replace_ray()
    try:
        assert "ray_snapshot/instrument" not in told()
        assert told().count("\n") <= before.count("\n") + 4, "Ray's own function is one frame further in"
    finally:
        shape.restore()


def test_what_wraps_a_class_or_extends_what_ray_has_made_of_one_has_no_class_more() -> None:
    class Own:
        pass

    class Extended(ray.actor._modify_class(Own)):  # type: ignore[misc]
        pass

    wrapped, extended = rs.wrap(Own), dict(vars(Extended))
    assert wrapped.__mro__[1:] == Own.__mro__
    assert ray.actor._modify_class(wrapped) is wrapped is rs.wrap(wrapped)
    assert calls.modify(shape.as_ray_makes_it, Extended) is Extended
    assert dict(vars(Extended)) == extended
    assert shape.constructor_takes(ray.remote(Extended), calls.HEADER)


def test_an_exception_that_is_raised_while_a_snapshot_spreads_has_one_attribute_more(process: Process) -> None:
    body, found = acting(process, Failing()), []
    for number, colour in ((1, 0), (2, 4)):  # what this process hears of meanwhile is redder than the call
        process.heard(colour)
        with pytest.raises(KeyError, match="no") as raised:
            body.fail(_ray_snapshot_header=wire(process, number))
        found.append(vars(raised.value))
    assert found == [{}, {"_ray_snapshot_colour": 4}]


def test_the_apps_error_is_raised_though_our_frames_cannot_be_taken_off(
    replaced: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "hide_ours", lambda _: 1 // 0)
    with pytest.raises(TypeError):
        ray._private.worker.get()


def test_a_list_of_all_named_actors_leaves_ours_out() -> None:
    ours, own = {"name": "system:app", "namespace": NAMESPACE}, {"name": "system:app", "namespace": "the program's"}
    assert hiding.named_actors(lambda all_namespaces: [ours, own], all_namespaces=True) == [own]
    assert hiding.named_actors(lambda: ["a"]) == ["a"]
