"""Runs on Ray, traced and witnessed: every snapshot of them is a state that could have been."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from until import until
from witness_machines import Account, Moody, Office, Purse

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.cli import main
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.limits import LIMITS

pytestmark = pytest.mark.ray

ACCOUNTS, BALANCE, TRANSFERS = 4, 100, 150
QUICK = [detectors.Termination()]


@pytest.fixture(scope="module")
def bank(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The history of a traced bank on two hosts, with snapshots on the way and two at the end."""
    folder = tmp_path_factory.mktemp("bank")
    names = [f"account-{number}" for number in range(ACCOUNTS)]
    with rs.System("bank", history=folder, trace=True, detectors=QUICK) as system:
        people = [system.machine(name) for name in names]
        arguments = [(BALANCE, people[:n] + people[n + 1 :], TRANSFERS, n) for n in range(ACCOUNTS)]
        system.spawn_many(Account, args=arguments, names=names, per_host=2)
        system.start()
        for person in people:
            person.open.send()
        for _ in range(4):
            system.snapshot(timeout=30)
        system.wait_for("termination", timeout=60)
        for _ in range(2):
            system.snapshot(timeout=30)
    return History(folder)


@dataclass
class Answer:
    """What the command said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


RAYS_OWN = re.compile(r"(\x1b\[\d+m)*\((\w+ )*pid=|\(raylet|\d{4}-\d\d-\d\d [\d:,]+\t(INFO|WARNING|ERROR) ")


def without_ray(text: str) -> str:
    """What was printed but for Ray's own lines and those of its workers, which its threads print at any moment."""
    return "".join(line for line in text.splitlines(keepends=True) if not RAYS_OWN.match(line))


@pytest.fixture
def witness(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Answer]]:
    def ask(history: History | Path, *arguments: str) -> Answer:
        path = history.path if isinstance(history, History) else history
        capsys.readouterr()
        code = main(["witness", str(path), *arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, without_ray(said.err))

    return ask


@pytest.mark.contract
def test_every_snapshot_of_a_run_is_proven(bank: History, witness: Callable[..., Answer]) -> None:
    sizes = set()
    for row in bank.snapshots():
        answer = witness(bank, row.snapshot_id, "--json")
        assert answer.code == 0, answer.out[-1_000:] + answer.err
        *rows, last = answer.rows
        assert last["problem"] is None
        assert len(last["proven"]) == (3 if row.sequence == len(bank.snapshots()) else 4), (
            "S1 is a later snapshot's state"
        )
        white = [action for action in rows if action.get("colour") == "white"]
        red = [action for action in rows if action.get("colour") == "red"]
        (middle,) = (one for one in rows if "machines" in one)
        assert rows == [*white, middle, *red]
        sizes.add(len(white))
    assert len(sizes) > 2, "the snapshots were taken at several moments"
    assert not red, "behind the last snapshot nothing happened"


@pytest.mark.contract
def test_the_trace_has_every_action_of_every_machine_once(bank: History) -> None:
    rows = bank.actions(bank.snapshots()[0].run_id)
    last = bank.load(bank.resolve("latest"))
    assert all(row.is_over and row.raised is None and row.waited_at is None for row in rows)
    for name, machine in last.machines.items():
        own = [row for row in rows if row.machine == name]
        assert [row.number for row in own] == list(range(1, len(own) + 1))
        assert sum(message["number"] > 0 for row in own for message in row.accepted) == machine.accepted_count
        assert sum(message["number"] > 0 for row in own for message in row.sent) == machine.sent_count
    assert sum(len(row.sent) for row in rows) == sum(len(row.accepted) for row in rows)


@pytest.mark.contract
def test_what_is_printed_says_what_was_shown(bank: History, witness: Callable[..., Answer]) -> None:
    answer = witness(bank, bank.snapshots()[1].snapshot_id)
    assert answer.code == 0
    assert re.search(r"^white actions \(\d+\), in their order:$", answer.out, re.M)
    assert re.search(
        r"^shown: the state between white and red is the snapshot: 4 machines, \d+ messages in flight", answer.out, re.M
    )
    assert answer.out.rstrip().endswith("proven: the snapshot is a state that could have been.")


@pytest.mark.contract
def test_a_later_part_of_the_run_can_be_shown_alone(bank: History, witness: Callable[..., Answer]) -> None:
    first, second = bank.snapshots()[0], bank.snapshots()[2]
    whole = witness(bank, second.snapshot_id, "--json")
    part = witness(bank, second.snapshot_id, "--from", first.snapshot_id, "--json")
    assert (whole.code, part.code) == (0, 0)
    assert len(part.rows) <= len(whole.rows)
    assert part.rows[-1]["problem"] is None
    backwards = witness(bank, first.snapshot_id, "--from", second.snapshot_id)
    assert (backwards.code, backwards.err.count("\n")) == (2, 1)


@pytest.mark.contract
def test_the_run_is_drawn(bank: History, witness: Callable[..., Answer], tmp_path: Path) -> None:
    snapshot = bank.snapshots()[1].snapshot_id
    answer = witness(bank, snapshot, "--svg", str(tmp_path / "w.svg"))
    assert answer.code == 0
    panels = [one for one in ET.parse(tmp_path / "w.svg").getroot() if one.get("class") == "panel"]
    assert len(panels) == 2
    in_flight = len(bank.messages(snapshot))
    for one in panels:
        assert sum("in-flight" in (part.get("class") or "") for part in one.iter()) == in_flight


# ---- what was tampered with -----------------------------------------------------------------------------------------


def tampered(bank: History, folder: Path, change: Callable[[dict[str, Any]], None]) -> History:
    """The same history with a row changed: `change` gets {"actions": rows, "machines": rows} of its second snapshot."""
    import pyarrow as pa

    snapshot = bank.load(bank.snapshots()[1].snapshot_id)
    trace = bank.table("actions")
    rows = {"actions": trace.to_pylist(), "machines": snapshot.tables["machines"].to_pylist()}
    change(rows)
    tables = {
        **snapshot.tables,
        "machines": pa.Table.from_pylist(rows["machines"], schema=snapshot.tables["machines"].schema),
    }
    with HistoryWriter(folder) as writer:
        writer.add_actions(pa.Table.from_pylist(rows["actions"], schema=trace.schema), system="bank")
        writer.add(rs.Snapshot(tables))
    return History(folder)


def _change_a_state(rows: dict[str, Any]) -> None:
    row = next(row for row in rows["machines"] if row["machine"] == "account-2")
    row["state"] = json.dumps({**json.loads(row["state"]), "balance": 1_000_000})


def _drop_a_state(rows: dict[str, Any]) -> None:
    next(row for row in rows["machines"] if row["machine"] == "account-2")["state"] = None


def _swap_two_actions(rows: dict[str, Any]) -> None:
    one, other = (
        next(row for row in rows["actions"] if (row["machine"], row["number"]) == ("account-1", number))
        for number in (3, 4)
    )
    one["number"], other["number"] = 4, 3


def _drop_a_message(rows: dict[str, Any]) -> None:
    row = next(row for row in rows["actions"] if row["machine"] == "account-1" and row["number"] == 2)
    row["sent"] = json.dumps(json.loads(row["sent"])[:-1])


def _drop_an_action(rows: dict[str, Any]) -> None:
    rows["actions"] = [row for row in rows["actions"] if (row["machine"], row["number"]) != ("account-3", 3)]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_change_a_state, r"account-2 holds .* \(balance: \d+ against 1000000\)"),
        (_drop_a_state, r"account-2 holds .*, and held null then"),
        (_swap_two_actions, r"the trace has a hole: action 3 of account-1 .* sent "),
        (_drop_a_message, r"action 2 of account-1 \(open\)|the trace has a hole"),
        (_drop_an_action, r"the trace has a hole: action 4 of account-3"),
    ],
)
def test_a_history_that_was_tampered_with_is_caught(
    change: Callable[[dict[str, Any]], None], text: str, bank: History, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    assert witness(tampered(bank, tmp_path / "same", lambda rows: None), "latest").code == 0
    answer = witness(tampered(bank, tmp_path / "changed", change), "latest")
    assert answer.code == 1
    assert re.search(text, answer.out.splitlines()[-1])


# ---- other machines -------------------------------------------------------------------------------------------------


@pytest.mark.contract
@pytest.mark.nightly
def test_a_machine_that_is_not_deterministic_is_named_with_its_first_action_that_differed(
    ray_cluster: None, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    with rs.System("moody", history=tmp_path, trace=True, detectors=QUICK) as system:
        steady = system.spawn(Account, 1, [], 0, 0, name="steady")
        moody = system.spawn(Moody, name="moody")
        system.start()
        system.snapshot()
        moody.look.send()
        system.wait_for("termination")
        moody.tell.send(steady)
        system.wait_for("termination")
        system.snapshot()
    held = witness(tmp_path, "latest", "--json")
    assert held.code == 1
    assert (held.rows[-1]["machine"], held.rows[-1]["number"]) == ("moody", 2)
    assert "behind action 2 of moody (look), moody holds" in held.rows[-1]["problem"]
    assert "behind its action 1 both were equal" in held.rows[-1]["problem"]


@pytest.mark.contract
@pytest.mark.nightly
def test_a_send_that_differs_is_named_with_what_was_sent_then_and_now(
    ray_cluster: None, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    with rs.System("moody", history=tmp_path, trace=True, detectors=QUICK) as system:
        steady = system.spawn(Account, 1, [], 0, 0, name="steady")
        moody = system.spawn(Moody, name="moody")
        system.start()
        moody.tell.send(steady)
        system.wait_for("termination")
        system.snapshot()
    text = witness(tmp_path, "latest").out.splitlines()[-1]
    assert re.match(r"differs: action 2 of moody \(tell\) sends deposit\(\d+\) to steady here as its message 1, and sent"
                    r" deposit\(\d+\) to steady then: moody is not deterministic", text)  # fmt: skip


@pytest.mark.contract
@pytest.mark.nightly
def test_children_timers_calls_joins_and_errors_are_done_again(
    ray_cluster: None, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    with rs.System("office", history=tmp_path, trace=True, detectors=QUICK) as system:
        boss = system.spawn(Office, tags={1: (2, 3)}, name="boss")
        other = system.spawn(Office, tags={}, name="other")
        system.start()
        boss.hire.send("clerk")
        boss.hire.send(None)
        boss.note.send("hello", pair=(4, (5, 6)))
        boss.remind.send(0.01)
        boss.remind.send(3_600.0)
        boss.delegate.send(other)
        boss.left.send(5)
        boss.right.send(3)
        system.snapshot()
        other.right.send(1)
        with pytest.raises(ValueError, match="no"):
            ray.get(other.refuse.remote())
        assert ray.get(other.size.remote(), timeout=30) in (1, 2)
        for _ in range(100):  # the call that the boss delegates may still be on its way
            kinds = {message.kind for message in system.snapshot().messages}
            if kinds == {"mail", "timer"}:
                break
    assert kinds == {"mail", "timer"}
    for snapshot in History(tmp_path).snapshots():
        answer = witness(tmp_path, snapshot.snapshot_id)
        assert answer.code == 0, answer.out + answer.err


def lose_a_host(folder: Path) -> None:
    with rs.System("bank", history=folder, trace=True, detectors=QUICK) as system:
        people = [system.machine(name) for name in ("a", "b")]
        for n, name in enumerate(("a", "b")):
            system.spawn(Account, 1_000, [people[1 - n]], 100_000, n, name=name)
        system.start()
        for person in people:
            person.open.send()
        for _ in range(3):
            system.snapshot(timeout=30)
        ray.kill(system._spawner.hosts["host-0"])


@pytest.mark.nightly
def test_a_crash_loses_only_what_was_not_shipped(
    ray_cluster: None, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    """The other host goes on until it hears of it, and its rest accepts what nobody has logged sending."""
    with pytest.raises(rs.HostDiedError):
        lose_a_host(tmp_path)
    history = History(tmp_path)
    rows = history.actions(history.snapshots()[0].run_id)
    for row in history.snapshots():
        assert witness(tmp_path, row.snapshot_id).code == 0
    assert {row.machine for row in rows if row.colour >= 2} >= {"a", "b"}


@pytest.mark.contract
def test_without_a_trace_or_without_such_a_snapshot_it_says_so(
    ray_cluster: None, bank: History, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    with rs.System("untraced", history=tmp_path, detectors=QUICK) as system:
        system.spawn(Account, 1, [], 0, 0)
        system.start()
        system.snapshot()
    for answer, text in (
        (witness(tmp_path, "latest"), "holds no trace of run"),
        (witness(bank, "1999"), "no snapshot '1999'"),
        (witness(bank, "2"), "begins"),
        (witness(tmp_path / "none", "latest"), "no history"),
    ):
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1), answer.err
        assert text in answer.err


@pytest.mark.contract
def test_a_trace_needs_a_history() -> None:
    with pytest.raises(rs.SettingError, match="give history="):
        rs.System("nowhere", trace=True)


@pytest.mark.nightly
def test_a_long_run_without_snapshots_is_written_out_as_it_goes(
    ray_cluster: None, witness: Callable[..., Answer], tmp_path: Path
) -> None:
    """Neither the driver's sends nor a machine's actions stay in memory until the end."""
    with rs.System("long", history=tmp_path, trace=True, detectors=[]) as system:
        purse = system.spawn(Purse, 0, name="purse")
        system.start()
        for _ in range(LIMITS.trace_entries + 100):
            purse.take.send(1)
        until(
            lambda: {row.machine for row in History(tmp_path).actions(system.run_id)},
            good=lambda written: written == {"driver", "purse"},
        )
        assert History(tmp_path).snapshots() == []
        system.snapshot()
    answer = witness(tmp_path, "latest")
    assert answer.code == 0, answer.out[-1_000:] + answer.err
