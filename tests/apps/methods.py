"""Every shape of a method, and every way to call one; how long actors live: the last handle, handles that others have."""

import os
import threading
import time

import ray
from ray import get
from ray.exceptions import RayActorError


class Base:
    """A plain class below an actor class."""

    kind = "base"

    def __init__(self, *parts, scale=1):
        self.parts = parts
        self.scale = scale

    def total(self):
        return sum(self.parts) * self.scale

    def name(self):
        return "base"

    @property
    def size(self):
        return len(self.parts)


@ray.remote
class Methods(Base):
    def __init__(self, *parts, label="none", **more):
        super().__init__(*parts, **more)
        self.label = label
        self.log = []

    def name(self):
        return "over " + super().name()

    def total(self):
        return super().total() + 1

    def indirect(self):
        return self.total() + self.own_helper(1, by=2) + self.size

    def own_helper(self, x, *, by):
        return x * by

    def everything(self, a, b=2, /, c=3, *args, d, e=5, **more):
        return a, b, c, args, d, e, sorted(more.items())

    def only_more(self, **more):
        return sorted(more)

    def log_it(self, text):
        self.log.append(text)
        return list(self.log)

    def what(self):
        return type(self).__name__, type(self).__qualname__, self.__class__.__doc__, Methods is not None

    def __len__(self):
        return 42

    def call_len(self):
        return len(self)


@ray.remote
class Clash:
    """A method and an attribute of one name."""

    def __init__(self):
        self.status = "an attribute"

    def read(self):
        return self.status

    def status(self):
        return "a method"


@ray.remote
class Bare:
    def hello(self):
        return "no constructor"


class Plain:
    def hello(self):
        return "made an actor class later"


def methods():
    actor = Methods.options(name="methods", max_concurrency=1).remote(1, 2, 3, label="x", scale=10)
    print(get(actor.name.remote()), get(actor.total.remote()), get(actor.indirect.remote()))
    print(get(actor.everything.remote(1, d=4)), get(actor.everything.remote(1, 9, 8, 7, 6, d=4, e=0, z=1, y=2)))
    print(get(actor.only_more.remote(a=1, header=2, self_=3)))
    print(get(actor.call_len.remote()), get(actor.log_it.options(name="logging").remote("text")))
    for wrong in (actor.everything.remote, lambda: actor.name.remote(1), lambda: actor.nowhere):
        try:
            wrong()
        except (TypeError, AttributeError) as error:
            print(type(error).__name__, error)
    try:
        Methods.remote(1, 2, wrong=3)
        Bare.remote(1)
    except TypeError as error:
        print(type(error).__name__, error)

    print(get(Clash.remote().read.remote()))
    print(
        get(Bare.remote().hello.remote()),
        get(ray.remote(num_cpus=0)(Bare.__ray_metadata__.modified_class).remote().hello.remote()),
    )


def alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid, seconds=30):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@ray.remote
class Actor:
    def __init__(self, child=None):
        self.child = child

    def pid(self):
        return os.getpid()

    def make(self):
        self.child = Actor.remote()
        return get(self.child.pid.remote())

    def make_and_forget(self):
        return get(Actor.remote().pid.remote())

    def child_pid(self):
        return get(self.child.pid.remote())

    def slow(self, seconds):
        time.sleep(seconds)
        return "done"

    def me(self):
        return ray.get_runtime_context().current_actor

    def drop(self):
        self.child = None

    def block(self, n):
        return bytes(n)


def lifetimes():
    actor = Actor.remote()
    pid = get(actor.pid.remote())
    print("alive while it has a handle", alive(pid))
    del actor
    print("gone after the last handle", ends(pid))

    print("gone at once", ends(get(Actor.remote().pid.remote())))
    last = Actor.remote().slow.remote(0.3)
    print("a call that outlives the handle", get(last))

    inner = Actor.remote()
    outer = Actor.remote(inner)
    pid = get(inner.pid.remote())
    del inner
    print("kept by another actor", get(outer.child_pid.remote()) == pid)
    get(outer.drop.remote())
    print("gone when that has dropped it", ends(pid))
    made = get(outer.make.remote())
    print("made by an actor", alive(made), get(outer.child_pid.remote()) == made)
    print("made and forgotten by an actor", ends(get(outer.make_and_forget.remote())))
    own = get(outer.pid.remote())
    del outer
    print("gone with its maker", ends(own), ends(made))

    selfish = Actor.remote()
    pid = get(selfish.pid.remote())
    again = get(selfish.me.remote())
    del selfish
    print("a handle that it gave out itself does not keep it", ends(pid), refused(lambda: get(again.pid.remote())))

    worker = Actor.remote()
    blocks = [worker.block.remote(1_000_000) for _ in range(5)]
    ray.wait(blocks, num_returns=5)
    print("in the store", [len(block) for block in get(blocks)])
    threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith("ray")]
    print("threads", threads)


def refused(work):
    try:
        work()
    except RayActorError as error:
        return isinstance(error, RayActorError)
    return False


if __name__ == "__main__":
    ray.init()
    methods()
    lifetimes()
