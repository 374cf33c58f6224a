"""Systems and watched programs whose histories are in a store; and a folder on a cluster of several computers."""

import sys
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from stored import Store, environment

from ray_snapshot.errors import SettingError
from ray_snapshot.history import History
from ray_snapshot.runtime import cluster

PROGRAM = str(Path(sys.executable).with_name("ray-snapshot"))

APP = """
import ray

@ray.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, other):
        self.count += 1
        return self.count

ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
counters = [Counter.remote() for _ in range(2)]
for _ in range(200):
    ray.get([one.add.remote(1) for one in counters])
print("done")
"""

BANK = """
import sys
import ray_snapshot as rs

class Account(rs.SnapshotMixin):
    def __init__(self, balance):
        self.balance = balance

    def give(self, to, amount):
        self.balance -= amount
        to.take.send(amount)

    def take(self, amount):
        self.balance += amount

if __name__ == "__main__":
    with rs.System("bank", history=sys.argv[1], checkpoint=True) as system:
        a = system.spawn(Account, 100, name="a")
        b = system.spawn(Account, 50, name="b")
        system.start()
        if not system.restored:
            a.give.send(b, 10)
        system.wait_for("termination", timeout=60)
        snap = system.snapshot()
        print(sorted(item.state["balance"] for item in snap.machines.values() if item.state and "balance" in item.state))
"""


KEY = "k" * 32
"""Of the checkpoints: who checks them must have the one that they were written with."""


def run(store: Store, folder: Path, *command: str) -> str:
    done = ran(
        *command, env=clean_environment(**environment(store.address), RAY_SNAPSHOT_KEY=KEY), cwd=folder, seconds=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.contract
@pytest.mark.nightly
def test_a_watched_program_keeps_its_history_in_a_store(store: Store, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = f"{bucket}/app"
    arguments = ("--every", "0.2", "--history", address, "--report", "reports")
    assert run(store, tmp_path, PROGRAM, "run", *arguments, "app.py").splitlines()[-1] == "done"
    found = History(address)
    assert len(found.snapshots()) > 1
    assert not any(problems for _, problems in found.verify())
    assert list((tmp_path / "reports").glob("app-*.html"))


@pytest.mark.contract
@pytest.mark.nightly
def test_a_system_goes_on_from_a_checkpoint_in_a_store(
    store: Store, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", KEY)
    (tmp_path / "bank.py").write_text(BANK)
    address = f"{bucket}/bank"
    assert run(store, tmp_path, sys.executable, "bank.py", address).splitlines()[-1] == "[60, 90]"
    first = len(History(address).snapshots())
    again = run(store, tmp_path, PROGRAM, "restore", address, "latest", "bank.py", address)
    assert again.splitlines()[-1] == "[60, 90]"
    found = History(address)
    assert len(found.snapshots()) > first
    assert [problems for _, problems in found.verify() if problems] == []


@pytest.mark.parametrize(
    ("history", "computers", "is_shared", "is_refused"),
    [
        ("/shared/history", ["one", "two"], False, True),
        ("/shared/history", ["one", "two"], True, False),
        ("/shared/history", ["one", "one"], False, False),
        ("s3://bucket/history", ["one", "two"], False, False),
        (None, ["one", "two"], False, False),
    ],
)
def test_a_folder_is_refused_on_several_computers_unless_it_is_shared(
    monkeypatch: pytest.MonkeyPatch, history: str | None, computers: list[str], is_shared: bool, is_refused: bool
) -> None:
    rows: list[dict[str, Any]] = [{"NodeManagerHostname": name, "Alive": True} for name in computers]
    rows.append({"NodeManagerHostname": "gone", "Alive": False})
    monkeypatch.setattr(cluster.ray, "nodes", lambda: rows)
    if not is_refused:
        cluster.check_shared(history, is_shared=is_shared)
        return
    with pytest.raises(
        SettingError, match=r"is a folder, and this cluster has 2 computers, .*: give an address of an object"
    ):
        cluster.check_shared(history, is_shared=is_shared)


@pytest.mark.ray
@pytest.mark.parametrize("begin", ["System", "watch"])
def test_a_system_and_a_watch_refuse_it_and_leave_nothing_behind(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin: str
) -> None:
    import ray_snapshot as rs

    rows = [{"NodeManagerHostname": name, "Alive": True} for name in ("one", "two")]
    monkeypatch.setattr(cluster.ray, "nodes", lambda: rows)
    with pytest.raises(SettingError, match="history_is_shared=True"):
        getattr(rs, begin)("bank", history=tmp_path / "h")
    monkeypatch.undo()
    assert cluster.running_systems() == []
    assert not (tmp_path / "h").exists()
