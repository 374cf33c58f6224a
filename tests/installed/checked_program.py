"""A user's program that is checked by `mypy --strict`."""

from __future__ import annotations

from collections.abc import Sequence

import ray_snapshot as rs
from ray_snapshot import detectors


class Account(rs.SnapshotMixin):
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> None:
        self.balance += amount

    def transfer(self, to: rs.MachineHandle[Account], amount: int) -> None:
        self.balance -= amount
        to.deposit.send(amount)

    def open_another(self) -> rs.MachineHandle[Account]:
        return self.spawn(Account, 0)

    def waiting_for(self) -> rs.Wait | None:
        return rs.all_of("b", self.handle)


@rs.remote
class Till(rs.SnapshotMixin):
    @rs.join("left", "right")
    def close(self, left: int, right: int) -> None:
        pass


@rs.detector(stable=True, alarm_when=False)
def rich(snapshot: rs.Snapshot) -> bool:
    return snapshot.machine_count > 0


def hear(verdict: rs.Verdict) -> None:
    print(verdict.sentence, verdict.holds)


money = detectors.TokenConservation(total=150, state="$.balance", messages={"deposit": "$[0]"})

if __name__ == "__main__":
    with rs.System(
        "bank", history="history/", every=0.5, trace=True, detectors=[money, detectors.Termination(), rich]
    ) as system:
        a = system.spawn(Account, 100, name="a")
        many: Sequence[rs.MachineHandle[Account]] = system.spawn_many(Account, args=[(1,)] * 3)
        till: rs.MachineHandle[Till] = Till.remote()
        system.connect(a, till, port="left")
        system.subscribe(hear, repeat=True)
        system.start()
        a.transfer.send(many[0], 10)
        a.transfer.send_after(0.1, many[0], 10)
        machine: rs.MachineHandle[rs.SnapshotMixin] = a
        try:
            snap: rs.Snapshot = system.snapshot(timeout=30)
        except rs.SnapshotTimeoutError as error:
            print(error)
        print(snap.machines["a"].state, snap.channels["a", "Account-0", "mail"].messages)
        verdict: rs.Verdict = system.wait_for("termination", timeout=60)
    for listed in rs.History("history/").snapshots():
        print(listed.snapshot_id)
    watched = rs.watch("app", every=1.0, history="history/", detectors=[])
    watched.restore(snap)
    rs.install("app", every=1.0)
