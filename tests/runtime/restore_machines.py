"""Machines that conserve tokens, count what they do, and can be asked how they fare; for tests of restores."""

import time
from collections.abc import Callable
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot import detectors

BOUND_S = 60.0


class Vault(rs.SnapshotMixin):
    def __init__(self, tokens: int, peers: tuple[str, ...] = ()) -> None:
        self.tokens = tokens
        self.peers = list(peers)
        self.turn = 0

    def take(self, amount: int, hops: int) -> None:
        self.tokens += amount
        if hops:
            self.pass_on(amount, hops - 1)

    def pass_on(self, amount: int, hops: int) -> None:
        self.turn += 1
        self.tokens -= amount
        self.machine(self.peers[self.turn % len(self.peers)]).take.send(amount, hops)

    def later(self, seconds: float, amount: int) -> None:
        self.tokens -= amount
        self.handle.take.send_after(seconds, amount, 0)

    def hire(self, name: str, amount: int) -> None:
        self.tokens -= amount
        self.spawn(Vault, amount, tuple(self.peers), name=name)

    def total(self) -> int:
        return self.tokens


class Keeper(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.lock_like = object()

    def snapshot_state(self) -> Any:
        return list(self.seen)

    def restore_state(self, state: Any) -> None:
        self.seen = [*state, "restored"]

    def note(self, item: Any) -> None:
        self.seen.append(item)

    def keep(self, item: Any) -> None:
        self.lock_like = item

    def read(self) -> list[Any]:
        return self.seen


class Asker(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ref: Any = None

    def ask(self, whom: Any, method: str, *args: Any) -> None:
        self.heard.append(ray.get(getattr(whom, method).remote(*args)))

    def hold(self, wrapped: Any) -> None:
        self.ref = wrapped

    def hear(self) -> list[Any]:
        return self.heard


def conservation(total: int) -> Any:
    return detectors.TokenConservation(
        total=total, state="$.tokens", messages={"take": "$[0]", "__init__": "$[0]"}, name="tokens"
    )


def total_of(snapshot: rs.Snapshot) -> int:
    held = sum(machine.state["tokens"] for machine in snapshot.machines.values() if "tokens" in (machine.state or ()))
    moving = sum(message.args[0] for message in snapshot.messages if message.method in ("take", "__init__"))
    return int(held + moving)


def settled(system: rs.System) -> rs.Snapshot:
    system.wait_for(detectors.Termination(), timeout=BOUND_S)
    return system.snapshot()


def patiently(ask: Callable[[], Any]) -> Any:
    """What the driver asks of a system that may be rolled back meanwhile: it asks again."""
    deadline = time.monotonic() + 2 * BOUND_S
    while True:
        try:
            return ask()
        except (rs.RolledBackError, rs.HostDiedError, rs.SnapshotAbortedError):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def vaults(system: rs.System, count: int, tokens: int, per_host: int, prefix: str = "v") -> list[Any]:
    names = tuple(f"{prefix}{number}" for number in range(count))
    args = [(tokens, names) for _ in names]
    return system.spawn_many(Vault, args=args, names=list(names), per_host=per_host)
