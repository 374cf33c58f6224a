"""Machines that the tests explore; each `build` function is a small system."""

import random
import threading
import time
from typing import Any

import ray

import ray_snapshot as rs


class Account(rs.SnapshotMixin):
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> None:
        self.balance += amount

    def transfer(self, to: rs.MachineHandle, amount: int) -> None:
        self.balance -= amount
        to.deposit.send(amount)

    def read(self) -> int:
        return self.balance

    def move_all(self, to: rs.MachineHandle) -> int:
        """Ask the other, then send what it lacks."""
        theirs = ray.get(to.read.remote())
        self.balance -= theirs
        to.deposit.send(theirs)
        return theirs

    def greet(self, to: rs.MachineHandle) -> None:
        ray.get(to.greeted.remote(self.handle))

    def greeted(self, by: rs.MachineHandle) -> None:
        ray.get(by.read.remote())


def bank(system: Any) -> None:
    a = system.spawn(Account, 100, name="a")
    b = system.spawn(Account, 50, name="b")
    a.transfer.send(b, 10)
    b.transfer.send(a, 5)


def embrace(system: Any) -> None:
    """Each asks the other, and neither answers."""
    a = system.spawn(Account, 100, name="a")
    b = system.spawn(Account, 50, name="b")
    a.greet.send(b)
    b.greet.send(a)


def asking(system: Any) -> None:
    a = system.spawn(Account, 100, name="a")
    b = system.spawn(Account, 30, name="b")
    a.move_all.send(b)
    b.deposit.send(5)


class Ring(rs.SnapshotMixin):
    """Passes a token on for ever; `stop_at` machines keep it."""

    def __init__(self, keeps: bool = False) -> None:
        self.keeps = keeps
        self.has = False

    def token(self, onward: list[rs.MachineHandle]) -> None:
        if self.keeps:
            self.has = True
            return
        onward[0].token.send([*onward[1:], onward[0]])


def ring(system: Any) -> None:
    a, b, c = (system.spawn(Ring, name=name) for name in "abc")
    a.token.send([b, c, a])


def ring_that_ends(system: Any) -> None:
    a, b, c = (system.spawn(Ring, name == "c", name=name) for name in "abc")
    a.token.send([b, c, a])


class Waiter(rs.SnapshotMixin):
    """A timeout races with the answer."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def begin(self, to: rs.MachineHandle) -> None:
        to.echo.send(self.handle)
        self.handle.late.send_after(5)
        self.handle.later.send_after(9)

    def echo(self, back: rs.MachineHandle) -> None:
        back.answer.send()

    def answer(self) -> None:
        self.came.append("answer")

    def late(self) -> None:
        self.came.append("late")

    def later(self) -> None:
        self.came.append("later")


def racing(system: Any) -> None:
    a = system.spawn(Waiter, name="a")
    b = system.spawn(Waiter, name="b")
    a.begin.send(b)


class Pair(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.pairs: list[Any] = []

    @rs.join("left", "right")
    def both(self, left: str, right: str) -> None:
        self.pairs.append((left, right))


class Sender(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.sent = 0

    def go(self, to: rs.MachineHandle, port: str, words: list[str]) -> None:
        for word in words:
            getattr(to, port).send(word)
            self.sent += 1


def joining(system: Any) -> None:
    pair = system.spawn(Pair, name="pair")
    one, two = (system.spawn(Sender, name=name) for name in ("one", "two"))
    one.go.send(pair, "left", ["x", "z"])
    two.go.send(pair, "left", ["y"])
    two.go.send(pair, "right", ["r"])


def half_a_join(system: Any) -> None:
    pair = system.spawn(Pair, name="pair")
    one = system.spawn(Sender, name="one")
    system.connect(one, pair, "left")
    system.connect(one, pair, "right")
    one.go.send(pair, "left", ["x"])


class Parent(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.children: list[Any] = []

    def have(self) -> None:
        child = self.spawn(Child, self.handle)
        self.children.append(child)
        child.leave.send()


class Child(rs.SnapshotMixin):
    def __init__(self, parent: rs.MachineHandle) -> None:
        self.parent = parent

    def leave(self) -> None:
        self.stop()


def family(system: Any) -> None:
    parent = system.spawn(Parent, name="parent")
    parent.have.send()
    parent.have.send()


class Clock(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.at: float | None = None

    def set(self) -> None:
        self.handle.note.send_after(2.5)

    def note(self) -> None:
        self.at = self.now()


def clocked(system: Any) -> None:
    system.spawn(Clock, name="clock").set.send()


class Die(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.eyes = 0

    def throw(self) -> None:
        self.eyes = self.random.randint(1, 6)

    def measure(self) -> None:
        self.eyes = int(self.random.random() * 4)


def throwing(system: Any) -> None:
    system.spawn(Die, name="die").throw.send()


def measuring(system: Any) -> None:
    system.spawn(Die, name="die").measure.send()


SEEN = {"count": 0}


class Bad(rs.SnapshotMixin):
    """All that a machine must not do."""

    made = 0

    def __init__(self) -> None:
        self.value: Any = None

    def ask_time(self) -> None:
        self.value = time.time()

    def ask_chance(self) -> None:
        self.value = random.random()

    def ask_identity(self) -> None:
        self.value = id(object())
        self.value = threading.get_native_id() + COUNTER.next()

    def keep_lock(self) -> None:
        self.value = threading.Lock()

    def change_global(self) -> None:
        SEEN["count"] += 1

    def change_class(self) -> None:
        type(self).made = 1

    def swallow(self, to: rs.MachineHandle) -> None:
        try:
            ray.get(to.nothing.remote())
        except BaseException:
            self.value = "caught"

    def tidy(self, to: rs.MachineHandle) -> None:
        self.value = "asking"
        try:
            ray.get(to.nothing.remote())
        finally:
            self.value = "asked"
            self.handle.nothing.send()

    def nothing(self) -> None:
        pass

    def fail(self) -> None:
        raise ValueError("as meant")

    def tell(self, to: rs.MachineHandle) -> None:
        to.nothing.send(threading.Lock())


class _Counter:
    """Something that no pickle and no comparison sees."""

    def __init__(self) -> None:
        self.count = 0

    def __reduce__(self) -> Any:
        return _Counter, ()

    def next(self) -> int:
        self.count += 1
        return self.count


COUNTER = _Counter()


def bad(method: str) -> Any:
    """A system in which one machine does it."""

    def build(system: Any) -> None:
        other = system.spawn(Bad, name="other")
        bad = system.spawn(Bad, name="bad")
        args = (other,) if method in ("swallow", "tell", "tidy") else ()
        getattr(bad, method).send(*args)

    return build


def no_overdraft(states: Any) -> bool:
    return all(machine.balance >= 0 for machine in states.values())


def a_is_rich(states: Any) -> bool:
    return states["a"].balance != 95


class Asker(rs.SnapshotMixin):
    """Asks for ever; its calls have numbers that come again."""

    def __init__(self) -> None:
        self.last: Any = None

    def ask(self, one: rs.MachineHandle, other: rs.MachineHandle) -> None:
        refs = [one.read.remote(), other.read.remote()]
        self.last = ray.get(refs)
        self.handle.ask.send(one, other)


def asking_for_ever(system: Any) -> None:
    one, other = system.spawn(Account, 1, name="one"), system.spawn(Account, 2, name="other")
    system.spawn(Asker, name="asker").ask.send(one, other)


class Chooser(rs.SnapshotMixin):
    """Takes the first answer, or none in time."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def choose(self, one: rs.MachineHandle, other: rs.MachineHandle) -> None:
        refs = [one.read.remote(), other.read.remote()]
        ready, _ = ray.wait(refs, num_returns=1)
        self.got.append(ray.get(ready[0]))

    def hurry(self, one: rs.MachineHandle) -> None:
        try:
            self.got.append(ray.get(one.read.remote(), timeout=1.5))
        except ray.exceptions.GetTimeoutError:
            self.got.append("late")


def choosing(system: Any) -> None:
    one, other = system.spawn(Account, 1, name="one"), system.spawn(Account, 2, name="other")
    system.spawn(Chooser, name="chooser").choose.send(one, other)


def hurrying(system: Any) -> None:
    one = system.spawn(Account, 1, name="one")
    system.spawn(Chooser, name="chooser").hurry.send(one)


class Leaver(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.count = 0

    def leave(self) -> None:
        self.count += 1
        self.stop()


def leaving(system: Any) -> None:
    leaver = system.spawn(Leaver, name="leaver")
    leaver.leave.send()
    leaver.leave.send()


class Keeper(rs.SnapshotMixin):
    """Keeps a reference, and waits for it in a later action."""

    def __init__(self) -> None:
        self.ref: Any = None
        self.value: Any = None

    def start(self, to: rs.MachineHandle) -> None:
        self.ref = to.read.remote()
        self.handle.finish.send()

    def finish(self) -> None:
        self.value = ray.get(self.ref)
        self.ref = None


def keeping(system: Any) -> None:
    one = system.spawn(Account, 11, name="one")
    system.spawn(Keeper, name="keeper").start.send(one)


class Timekeeper(rs.SnapshotMixin):
    def tell(self, throws: int) -> tuple[float, list[int]]:
        return self.now(), [self.random.randint(1, 6) for _ in range(throws)]
