"""The pure parts of the examples: their references, and how they read a snapshot.

Where they run on Ray: `test_examples_on_ray.py`.
"""

from pathlib import Path
from types import ModuleType

import pytest

import ray_snapshot as rs
from ray_snapshot.examples import (
    bank,
    dining_philosophers,
    exactly_once_wordcount,
    example_run,
    work_pool,
)


@pytest.mark.contract
def test_the_books_hold_what_accounts_have_and_what_is_on_its_way() -> None:
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": "driver", "state": {}}]
        + [{"machine": n, "class_name": "Account", "state": {"balance": b}} for n, b in (("a", 60), ("b", 30))],
        messages=[
            {"source": "a", "target": "b", "method": "deposit", "args": [7]},
            {"source": "b", "target": "a", "method": "deposit", "args": [3]},
            {"source": "driver", "target": "a", "method": "open", "args": [99]},
        ],
    )
    assert bank.books(snapshot) == {"balances": 90, "in_flight": 10, "payments": 2}


@pytest.mark.contract
@pytest.mark.parametrize("believes", [True, False])
def test_the_naive_check_says_what_the_desk_believes_whatever_is_in_flight(believes: bool) -> None:
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": "desk", "class_name": "Desk", "state": {"thinks_it_is_done": believes}}],
        messages=[{"source": "worker-0", "target": "latecomer", "method": "task", "args": [5, 10]}],
    )
    verdict = work_pool.everyone_said_idle.evaluate(snapshot)
    assert verdict.holds is believes
    assert verdict.evidence == {"tasks_in_flight": 1}


@pytest.mark.contract
def test_primes_are_those_of_a_sieve() -> None:
    sieve = [False, False] + [True] * 998
    for number in range(2, 32):
        sieve[number * number :: number] = [False] * len(sieve[number * number :: number])
    assert [work_pool.is_prime(number) for number in range(1_000)] == sieve


@pytest.mark.contract
def test_the_cut_of_the_example_run_is_recognised_and_its_channels_are_named_as_in_the_text() -> None:
    recorded = {"P1": ["A", "B"], "P2": ["F", "G", "H"], "P3": ["I"]}
    snapshot = rs.Snapshot.from_rows(
        machines=[{"machine": name, "state": {"events": events}} for name, events in recorded.items()],
        messages=[{"source": "P2", "target": "P1", "method": "from_h", "args": ["sent at H"]}],
    )
    assert example_run.up_to_the_cut.evaluate(snapshot).holds is True
    channels = example_run.channels(snapshot)
    assert channels.pop("C21") == [["sent at H"]]
    assert channels == {"C12": [], "C13": [], "C23": [], "C31": [], "C32": []}
    too_early = rs.Snapshot.from_rows(machines=[{"machine": "P1", "state": {"events": ["A"]}}])
    assert example_run.up_to_the_cut.evaluate(too_early).holds is False


@pytest.mark.contract
@pytest.mark.nightly
def test_the_text_that_is_counted_is_that_of_the_library_and_the_same_each_time(tmp_path: Path) -> None:
    parts = exactly_once_wordcount.make_text(tmp_path / "a")
    again = exactly_once_wordcount.make_text(tmp_path / "b")
    assert [part.read_bytes() for part in parts] == [part.read_bytes() for part in again]
    assert sum(part.stat().st_size for part in parts) > 5_000_000
    counts = exactly_once_wordcount.counted_at_once(parts)
    assert counts["self"] > counts["snapshot"] > 0


@pytest.mark.parametrize("example", [bank, example_run, exactly_once_wordcount, work_pool, dining_philosophers])
def test_a_history_that_cannot_be_kept_is_told_before_ray_starts(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> None:
        raise AssertionError("Ray was started")

    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setattr("ray_snapshot.runtime.system.connect", refuse)
    monkeypatch.setattr("ray_snapshot.runtime.system._starts_ray", lambda: True)
    with pytest.raises(SystemExit) as left:
        example.main(["--history", str(tmp_path / "file" / "history")])
    assert left.value.code == 2
    assert "a history cannot be kept in" in capsys.readouterr().err.splitlines()[-1]
