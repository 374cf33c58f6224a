"""What a program can find out about its own classes and its errors."""

import abc
import asyncio
import dataclasses
import functools
import inspect
import re
import traceback

import ray


class Meta(type):
    """Refuses what is set on its classes, and counts what is made."""

    def __new__(mcls, name, bases, space, **more):
        return super().__new__(mcls, name, bases, space, **more)

    def __setattr__(cls, name, value):
        if name == "frozen":
            raise AttributeError("frozen")
        super().__setattr__(name, value)


class WithMeta(metaclass=Meta):
    def kind(self):
        return type(type(self)).__name__


class Slots:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a

    def read(self):
        return self.a, Slots.__slots__


class Abstract(abc.ABC):
    @abc.abstractmethod
    def name(self): ...

    def hello(self):
        return f"hello {self.name()} {__class__.__name__}"


class Concrete(Abstract):
    def name(self):
        return super().__class__.__name__ and "concrete"


@dataclasses.dataclass
class Data:
    a: int
    b: list = dataclasses.field(default_factory=list)

    def fields(self):
        return [one.name for one in dataclasses.fields(self)], repr(self), self == Data(self.a, self.b)


class Items(dict):
    def put(self, key, value):
        self[key] = value
        return dict(self), isinstance(self, dict)


class Problem(ValueError):
    def text(self):
        return str(self), self.args


class Number(int):
    def value(self):
        return int(self)


class Made:
    """Its instances are made by a `__new__` with arguments."""

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.given = args, kwargs
        return made

    def __init__(self, *args, key=None):
        self.key = key

    def read(self):
        return self.given, self.key


class Later:
    """Its constructor is a coroutine."""

    async def __init__(self, x, *, fails=False):
        await asyncio.sleep(0)
        if fails:
            raise ValueError("no beginning")
        self.x = x

    async def read(self):
        return self.x, inspect.iscoroutinefunction(type(self).__init__)


class Errors:
    def deep(self, n):
        if n:
            self.deep(n - 1)
        raise KeyError("deep")

    def chained(self):
        try:
            self.deep(1)
        except KeyError as error:
            raise RuntimeError("chained") from error

    def local(self):
        try:
            self.deep(2)
        except KeyError as error:
            return [frame.name for frame in traceback.extract_tb(error.__traceback__)]

    def trace(self):
        try:
            self.chained()
        except RuntimeError:
            return numbers_out(traceback.format_exc())

    def nested(self, other):
        return ray.get(other.deep.remote(0))

    def numbers(self):
        yield 1
        raise KeyError("two")


class AsyncErrors:
    async def deep(self):
        await asyncio.sleep(0)
        raise KeyError("deep")

    async def nested(self, other):
        return await other.deep.remote(0)

    async def both(self, other):
        return await asyncio.gather(other.deep.remote(0), other.deep.remote(1), return_exceptions=True)


def numbers_out(text):
    """Addresses, process ids and ids of actors differ from run to run."""
    text = re.sub(r"_base.py\", line \d+", "_base.py", text)
    text = re.sub(r"0x[0-9a-f]+", "0x", re.sub(r"pid=\d+", "pid=", re.sub(r"actor_id=[0-9a-f]+", "actor_id=", text)))
    return re.sub(r"\x1b\[\d+m|\b[0-9a-f]{32,}\b", "", text)


def classes():
    get = ray.get
    for kind, args, method in (
        (WithMeta, (), "kind"),
        (Slots, (3,), "read"),
        (Concrete, (), "hello"),
        (Data, (1, [2]), "fields"),
        (Items, (), "put"),
        (Problem, (), "text"),
        (Number, (), "value"),
        (Made, (1, 2), "read"),
        (Later, (5,), "read"),
    ):
        actor = ray.remote(num_cpus=0)(kind).remote(*args)
        print(kind.__name__, get(getattr(actor, method).remote(*(("k", 1) if kind is Items else ()))))
    for kind, args in ((Items, ({"a": 1},)), (Problem, ("text",)), (Number, (3,)), (Data, ())):
        try:
            print(kind.__name__, ray.remote(num_cpus=0)(kind).remote(*args) is not None)
        except Exception as error:
            print(type(error).__name__, error)
    made = ray.remote(num_cpus=0)(Made).remote(1, key=2)
    print(get(made.read.remote()), get(made.__ray_call__.remote(lambda self, x: (type(self).__name__, x), 4)))
    try:
        get(ray.remote(num_cpus=0)(Later).remote(1, fails=True).read.remote())
    except ray.exceptions.RayActorError as error:
        print(type(error).__name__, "no beginning" in str(error), numbers_out(str(error)))


def errors():
    actor, other = (ray.remote(num_cpus=0)(kind).remote() for kind in (Errors, AsyncErrors))
    helper = ray.remote(num_cpus=0)(Errors).remote()
    print(ray.get(actor.local.remote()), ray.get(actor.trace.remote()))
    for make in (
        functools.partial(actor.deep.remote, 2),
        actor.chained.remote,
        functools.partial(actor.nested.remote, helper),
        other.deep.remote,
        functools.partial(other.nested.remote, helper),
    ):
        try:
            ray.get(make())
        except Exception as error:
            print(numbers_out("".join(traceback.format_exception(error))))
            print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
    print(numbers_out(str(ray.get(other.both.remote(helper)))))
    try:
        list(map(ray.get, actor.numbers.remote()))
    except KeyError as error:
        print(numbers_out("".join(traceback.format_exception(error))))
    for wrong in (lambda: ray.get(3), lambda: ray.wait([]), actor.deep.remote):
        try:
            wrong()
        except Exception:
            print(numbers_out(traceback.format_exc()))
    try:
        ray.get(actor.deep.remote(0))
    except KeyError:
        print(numbers_out(traceback.format_exc()))


def main():
    classes()
    errors()


if __name__ == "__main__":
    ray.init()
    main()
