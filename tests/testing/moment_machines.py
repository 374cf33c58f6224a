"""Machines that send, set timers, create, stop and join; for tests of moments."""

from typing import Any

import ray_snapshot as rs


class Till(rs.SnapshotMixin):
    """Holds coins, pays them and takes them."""

    def __init__(self, coins: int, peer: Any = None) -> None:
        self.coins = coins
        self.peer = peer
        self.paid_at: float | None = None

    def pay(self, to: Any, amount: int, hops: int = 0) -> None:
        self.coins -= amount
        to.take.send(amount, hops)

    def take(self, amount: int, hops: int = 0) -> None:
        self.coins += amount
        if hops and self.peer is not None:
            self.coins -= amount
            self.peer.take.send(amount, hops=hops - 1)

    def later(self, seconds: float, amount: int) -> None:
        self.coins -= amount
        self.handle.take.send_after(seconds, amount)

    def note_time(self) -> None:
        self.paid_at = self.now()

    def hire(self, name: str, amount: int) -> None:
        self.coins -= amount
        self.spawn(Till, amount, name=name).later.send(1.0, 1)

    def close(self) -> None:
        self.stop()


class Careful(rs.SnapshotMixin):
    """Its state is not its attributes."""

    def __init__(self, seen: tuple[Any, ...] = ()) -> None:
        self.seen = [*seen]

    def snapshot_state(self) -> Any:
        return tuple(self.seen)

    def restore_state(self, state: Any) -> None:
        self.seen = [*state]

    def note(self, item: Any) -> None:
        self.seen.append(item)


class Stubborn(Careful):
    """Does not take its state back."""

    def restore_state(self, state: Any) -> None:
        raise ValueError("not mine")


class Chatty(Careful):
    """Sends where it must not."""

    def restore_state(self, state: Any) -> None:
        self.machine("a").take.send(1)


class Fork(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.holder: str | None = None
        self.queue: list[str] = []

    def ask(self, who: str) -> None:
        if self.holder is not None:
            self.queue.append(who)
            return
        self.holder = who
        self.machine(who).got.send(self.machine_name)

    def put(self) -> None:
        self.holder = None
        if self.queue:
            self.ask(self.queue.pop(0))


class Eater(rs.SnapshotMixin):
    def __init__(self, forks: list[str]) -> None:
        self.forks = forks
        self.has: list[str] = []
        self.meals = 0

    def hungry(self) -> None:
        self.machine(self.forks[0]).ask.send(self.machine_name)

    def got(self, fork: str) -> None:
        self.has.append(fork)
        if len(self.has) < 2:
            self.machine(self.forks[1]).ask.send(self.machine_name)
            return
        self.meals += 1
        for name in self.has:
            self.machine(name).put.send()
        self.has = []

    def waiting_for(self) -> Any:
        return rs.all_of(self.forks[1]) if len(self.has) == 1 else None


class Orderly(Eater):
    """The mended one: takes the fork with the lower name first."""

    def hungry(self) -> None:
        self.machine(min(self.forks)).ask.send(self.machine_name)

    def got(self, fork: str) -> None:
        self.forks = [min(self.forks), max(self.forks)]
        super().got(fork)


class Gate(rs.SnapshotMixin):
    """Waits for one of each."""

    def __init__(self) -> None:
        self.pairs: list[Any] = []

    @rs.join("left", "right")
    def both(self, left: Any, right: Any) -> None:
        self.pairs.append((left, right))


def nobody_starves(states: Any) -> bool:
    return all(eater.meals for name, eater in states.items() if name.startswith("p"))


def one_more(system: Any) -> None:
    """What a program does behind a snapshot."""
    system.machine("b").take.send(100)


def is_rich(states: Any) -> bool:
    return bool(states["b"].coins >= 100)
