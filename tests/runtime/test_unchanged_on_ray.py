"""The same program with what hosts keep of machines that have not acted, and without it: what is asked of both is the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import ray
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors, questions
from ray_snapshot.history import History

pytestmark = pytest.mark.ray

MACHINES, MONEY = 20, 10


class Account(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.balance = MONEY
        self.paid: list[int] = []

    def pay(self, to: Any, amount: int) -> None:
        self.balance -= amount
        self.paid.append(amount)
        to.take.send(amount)

    def take(self, amount: int) -> None:
        self.balance += amount

    def own(self) -> int:
        return self.balance


class AlwaysRead(Account):
    volatile = True


class Counted(rs.SnapshotMixin):
    """Counts how often it is read, where no snapshot sees it."""

    volatile = False
    count = 0

    def snapshot_state(self) -> Any:
        Counted.count += 1
        return {}

    def reads(self) -> int:
        return Counted.count


COLUMNS = ["machine", "status", "state", "state_truncated", "state_bytes"]
WATCH = detectors.TokenConservation(total=MACHINES * MONEY, state="$.balance", messages={"take": "$[0]"}, name="money")


def _run(kind: type[Account], name: str, history: Path) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    with rs.System(name, history=str(history), detectors=[WATCH], checkpoint=True) as system:
        machines = system.spawn_many(kind, count=MACHINES, per_host=10, names=[f"a{n}" for n in range(MACHINES)])
        system.start()
        balances = [MONEY] * MACHINES

        def pay(payer: int, payee: int, amount: int) -> None:
            balances[payer] -= amount
            balances[payee] += amount
            ray.get(machines[payer].pay.remote(machines[payee], amount))
            until(lambda: ray.get(machines[payee].own.remote()) == balances[payee])

        def snapshot() -> str:
            taken = system.snapshot()
            found.append(taken.tables["machines"].select(COLUMNS).to_pylist())
            return str(taken.snapshot_id)

        for turn in range(6):
            if turn % 3 == 0:
                pay(turn, turn + 10, 3)  # on another host
                pay(turn, turn + 1, 1)
            middle = snapshot()
        past = list(balances)
        pay(0, 19, 5)
        snapshot()
        snapshot()
        system.restore(middle)
        balances[:] = past
        snapshot()
        pay(2, 3, 4)
        snapshot()
        snapshot()
    return found


def test_what_is_asked_of_both_is_the_same(ray_cluster: None, tmp_path: Path) -> None:
    runs, changes = [], []
    for kind, name in ((Account, "kept"), (AlwaysRead, "read")):
        runs.append(_run(kind, name, tmp_path / name))
        history = History(tmp_path / name)
        assert [problems for _, problems in history.verify() if problems] == []
        answers = questions.conservation(history)
        held = {name: answers["breaks"][name].to_pylist() for name in ("held", "broken", "unknown")}
        assert held == {"held": [11], "broken": [0], "unknown": [0]}
        assert set(answers["ledger"]["total"].to_pylist()) == {MACHINES * MONEY}
        ids = history.table("snapshots").sort_by("sequence")["snapshot_id"].to_pylist()
        told = [questions.diff(history, *pair)["changes"] for pair in pairwise(ids)]
        changes.append([table.select(["machine", "field", "before", "after"]).to_pylist() for table in told])
    assert runs[0] == runs[1]
    assert changes[0] == changes[1]
    assert any(changes[0])


def test_a_machine_that_has_never_acted_is_read_once_and_one_that_rests_again_twice(ray_cluster: None) -> None:
    with rs.System("rests") as system:
        machine = system.spawn(Counted)
        system.start()
        for _ in range(5):
            system.snapshot()
        assert ray.get(machine.reads.remote()) == 1
        for _ in range(5):
            system.snapshot()
        assert ray.get(machine.reads.remote()) == 3
