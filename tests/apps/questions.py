"""Methods and tasks of every kind that are asked about themselves, where they run: lines of JSON, by kind and question."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import re
import typing

import pydantic
import ray


class Order:
    """A class that only annotations name."""


def logged(function):
    @functools.wraps(function)
    def around(*args, **kwargs):
        return function(*args, **kwargs)

    return around


class Base:
    def inherited(self, order: Order, factor: float = 1.5) -> float:
        """Of the base."""
        return factor

    @staticmethod
    def inherited_static(order: Order = None) -> int:
        return 1

    async def overridden(self) -> None: ...


class Kinds(Base):
    """An actor's class."""

    def __init__(self, order: Order | None = None, *, rate: float = 2.0) -> None:
        """Makes it."""
        self.rate = rate

    def __call__(self, order: Order, *more: int) -> int:
        return len(more)

    def plain(self, order: Order, n: int = 3, *args: str, key: float = 0.5, **rest: bytes) -> dict[str, Order]:
        """Its text."""
        return {}

    def generator(self, order: Order, n: int = 2) -> typing.Iterator[Order]:
        """Items."""
        yield order

    async def coroutine(self, order: Order, n: int = 2) -> Order:
        return order

    async def stream(self, order: Order, *, n: int = 2) -> typing.AsyncIterator[Order]:
        yield order

    async def overridden(self) -> None:
        await super().overridden()

    @staticmethod
    def static(order: Order = None, n: int = 4) -> int:
        """Static."""
        return n

    @classmethod
    def of_class(cls, order: Order = None, *, n: int = 5) -> Order:
        return order

    @staticmethod
    def static_items(n: int = 1) -> typing.Iterator[int]:
        yield n

    @property
    def value(self) -> Order:
        """A property."""
        return self.rate

    @logged
    def decorated(self, order: Order, n: int = 6) -> Order:
        """Under a decorator."""
        return order

    @ray.method(num_returns=2)
    def two(self, n: int = 7) -> tuple[int, int]:
        return n, n

    partial = functools.partialmethod(plain, n=9)
    short = lambda self, n=1: n  # noqa: E731

    def ask(self):
        """What each kind answers, of the object, of its class and of the app's own class."""
        _ = Order  # so that it is among the globals that travel
        owners = {"self": self, "type(self)": type(self), "the class": type(self).__ray_actor_class__}
        return {f"{name} of {where}": asked(owner, name) for where, owner in owners.items() for name in KINDS}

    def own_calls(self, n: int):
        """What its methods give when the actor's own code calls them."""
        found = [self.plain(None), list(self.generator("order")), self.static(), self.of_class("order"), self(None, 1)]
        return [*found, self.value, self.decorated("order"), self.partial("order"), n]


KINDS = (
    *("__init__", "__call__", "plain", "generator", "coroutine", "stream", "static", "of_class", "static_items"),
    *("value", "decorated", "two", "partial", "short", "inherited", "inherited_static", "overridden"),
)


def numbers(order: Order, n: int = 3) -> list[int]:
    """A task that starts itself."""
    _ = Order
    return [n, *ray.get(started.remote(order, n - 1))] if n else [0]


def describes_itself(order: Order, n: int = 3, *, key: float = 1.0) -> dict[str, typing.Any]:
    """A task that is asked about itself."""
    _ = Order, describing
    return {
        f"the task, {name}": answered(question, vars(describing)["_function"]) for name, question in QUESTIONS.items()
    }


started, describing = ray.remote(num_cpus=0)(numbers), ray.remote(num_cpus=0)(describes_itself)


def first_line(function):
    lines, number = inspect.getsourcelines(function)
    return lines[0].strip(), number


def code_of(function):
    code = function.__code__
    return os.path.basename(code.co_filename), code.co_firstlineno, code.co_name, code.co_varnames, code.co_flags


def refuses_text(function):
    try:
        found = pydantic.validate_call(function)("an order", n="not a number")
        found.close() if inspect.iscoroutine(found) else None
    except pydantic.ValidationError as error:
        return [one["loc"] for one in error.errors()]
    return "nothing"


QUESTIONS = {
    "typing.get_type_hints": lambda one: {name: str(hint) for name, hint in typing.get_type_hints(one).items()},
    "inspect.signature": inspect.signature,
    "inspect.signature, not followed": lambda one: inspect.signature(one, follow_wrapped=False),
    "inspect.getfullargspec": inspect.getfullargspec,
    "inspect.getsource": inspect.getsource,
    "inspect.getsourcefile": lambda one: os.path.basename(inspect.getsourcefile(one)),
    "inspect.getsourcelines": first_line,
    "inspect.getmodule": lambda one: getattr(inspect.getmodule(one), "__name__", None),
    "inspect.getclosurevars": lambda one: sorted(inspect.getclosurevars(one).nonlocals),
    "inspect.unwrap": lambda one: (code_of(inspect.unwrap(one)), inspect.unwrap(one).__qualname__),
    "__wrapped__": lambda one: one.__wrapped__.__qualname__,
    "__dict__": lambda one: sorted(vars(one)),
    "__code__": code_of,
    "__defaults__": lambda one: one.__defaults__,
    "__kwdefaults__": lambda one: one.__kwdefaults__,
    "__globals__": lambda one: (one.__globals__["__name__"], "Order" in one.__globals__),
    "__annotations__": lambda one: one.__annotations__,
    "__qualname__": lambda one: (one.__name__, one.__qualname__, one.__module__, one.__doc__),
    "what it is": lambda one: [name for name in dir(inspect) if name.startswith("is") and getattr(inspect, name)(one)],
    "pydantic.validate_call": refuses_text,
    "functools.partial": lambda one: inspect.signature(functools.partial(one, n=1)),
    "functools.wraps": lambda one: inspect.signature(functools.wraps(one)(lambda *args: args)),
    "its type": type,
}


def answered(question, one):
    try:
        found = str(question(one))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub("0x[0-9a-f]+", "0x", found)  # where an object lies


def asked(owner, name):
    one = inspect.getattr_static(owner, name).fget if name == "value" else getattr(owner, name)
    return {about: answered(question, one) for about, question in QUESTIONS.items()}


class Looking:
    def method(self, x, y=2):
        return x + y

    def seen(self):
        kind = type(self)
        modules = [frame.frame.f_globals["__name__"].partition(".")[0] for frame in inspect.stack()]
        return {
            "the signature of a method, inside the actor": str(inspect.signature(kind.method)),
            "the signature of __ray_ready__": str(inspect.signature(kind.__ray_ready__)),
            "frames on the stack": "ray_snapshot" in modules,
            "the bases of the class": [one.__name__ for one in kind.__mro__],
            "the names in the object": sorted(dir(self)),
            "the attributes of the object": sorted(vars(self)),
        }


def seen():
    """What a program sees that looks for a watcher, by what it looked at."""
    actor = ray.remote(num_cpus=0)(Looking).remote()
    ref = actor.method.remote(1)

    async def awaited():
        return await ref

    found = ray.get(actor.seen.remote())
    found["the signature of the class's own function"] = str(inspect.signature(Looking.method))
    found["the type of a ref"] = [str(kind) for kind in type(ref).__mro__]
    found["what is awaited"] = asyncio.run(awaited())
    found["ref.call_site()"] = ref.call_site()
    found["asyncio.wrap_future"] = asyncio.wrap_future.__code__.co_filename.rpartition("/")[2]
    for name in ("get", "wait", "put", "init", "shutdown", "remote"):
        function = getattr(ray, name)
        found[f"ray.{name}"] = [function.__code__.co_filename, str(inspect.signature(function)), sorted(vars(function))]
    return found


def main():
    print(json.dumps(["seen", seen()]))
    actor = ray.remote(num_cpus=0)(Kinds).remote(rate=3.0)
    for kind, answers in ray.get(actor.ask.remote()).items():
        print(json.dumps([kind, answers]))
    for name in KINDS:
        print(json.dumps([f"{name} of the class, in the program", asked(Kinds, name)]))
    print(json.dumps(["its own calls", {"found": str(ray.get(actor.own_calls.remote(5)))}]))
    print(json.dumps(["task", ray.get(describing.remote(None))]))
    print(json.dumps(["tasks", {"numbers": ray.get(started.remote(None))}]))
    print(json.dumps(["called", {"found": str(ray.get([actor.__call__.remote(None, 1), actor.static.remote()]))}]))


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    main()
