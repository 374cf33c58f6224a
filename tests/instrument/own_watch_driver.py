"""A program that watches itself with `rs.watch`; what it saw, as JSON.

`HISTORY HISTORY SECRET SECRET SECRET`: money moves in the first history, secrets are kept out of the second. Without arguments
it has a deadlock of its own broken, in a call and in the program itself.
"""

import json
import sys
from typing import Any, Literal

import ray
from pydantic import BaseModel, SecretStr

import ray_snapshot as rs
from ray_snapshot import detectors


@rs.wrap
class Account:
    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def transfer(self, to: Any, amount: int) -> int:
        self.balance -= amount
        return int(ray.get(to.deposit.remote(amount)))

    def pay(self, through: list[Any]) -> int:
        return 1 + int(ray.get(through[0].pay.remote(through[1:])))


class Watcher:
    """An actor of a name that one of ours has, too; nobody wrapped it."""

    def ready(self) -> bool:
        return True


def bank(history: str) -> dict[str, Any]:
    kind, stranger = ray.remote(Account), ray.remote(Watcher)
    with rs.watch("bank", history=history, detectors=[detectors.Termination(), detectors.Deadlock()]) as system:
        a, b = kind.remote(100), kind.remote(0)
        moved = ray.get(a.transfer.remote(b, 30))
        snapshot = system.snapshot(timeout=30)
        snapshot.verify()
        verdict = system.wait_for("termination", timeout=30)
        namesake = stranger.remote()
        ray.get(namesake.ready.remote())
        only_of_machines = ("spawn", "spawn_many", "machine", "connect", "stop", "commit")
        return {
            "uncovered": system.wait_for(unwatched, timeout=30).evidence["actors"],
            "moved": moved,
            "states": {name: machine.state for name, machine in snapshot.machines.items() if name != "driver"},
            "in_flight": snapshot.in_flight_count,
            "terminated": verdict.holds,
            "late": refusal(rs.install),
            "twice": refusal(lambda: rs.watch("again")),
            "can": [name for name in only_of_machines if hasattr(system, name)],
        }


@rs.detector
def unwatched(snapshot: rs.Snapshot) -> Any:
    found = [line for line in snapshot.coverage["uncovered"] if line.startswith("actor ")]
    return bool(found), {"actors": found}


def refusal(work: Any) -> str:
    try:
        work()
    except rs.RaySnapshotError as error:
        return str(error)
    return "nothing was refused"


class Vault(BaseModel):
    name: str = "vault"
    key: SecretStr


@rs.wrap
class Door:
    def __init__(self, password: str, key: SecretStr) -> None:
        self.password, self.vault = password, Vault(key=key)
        self.seen: list[Any] = []

    def login(self, user: str, password: str) -> None:
        self.seen.append({"user": user, "password": password})

    def ask(self, other: Any, password: str) -> None:
        ray.get(other.login.remote("bob", password=password))


def doors(history: str, first: str, second: str, third: str) -> None:
    """Snapshots while the machines are being made and one waits for the other, and behind that."""
    rs.redact("password")
    kind = ray.remote(Door)
    with rs.watch("doors", history=history) as system:
        one, other = (kind.remote(first, SecretStr(third)) for _ in range(2))
        asked = one.ask.remote(other, second)
        system.snapshot(timeout=30)
        ray.get(asked)
        system.snapshot(timeout=30)


def came_of(victim: Literal["youngest"] | None) -> dict[str, Any]:
    """The error of a call on a ring of two, and who stands in it."""
    with rs.watch("ring", on_deadlock="raise", deadlock_grace=0.5, detectors=[], victim=victim):
        kind = ray.remote(num_cpus=0)(Account)
        a, b = kind.remote(), kind.remote()
        try:
            ray.get(a.pay.remote([b, a]))
        except rs.DeadlockError as error:
            how = "of a call" if isinstance(error, ray.exceptions.RayTaskError) else "of the program"
            return {"how": how, "members": sorted({member["machine"] for member in error.evidence["members"]})}
        finally:
            ray.kill(a)
            ray.kill(b)
        return {"how": "nothing came"}


if __name__ == "__main__":
    ray.init()
    if len(sys.argv) > 1:
        print(json.dumps(bank(sys.argv[1])))
        doors(*sys.argv[2:])
    else:
        print(json.dumps([came_of("youngest"), came_of(None)]))
