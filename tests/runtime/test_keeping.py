"""Which checkpoints stay in memory; the real keeper, without Ray."""

import pickle
from collections.abc import Iterable

import pytest
from limited import limit

from ray_snapshot import Snapshot
from ray_snapshot.errors import NotRestorableError
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.analyst.keeping import Keeper
from ray_snapshot.runtime.planning import Ground

GROUND = Ground("run", ["host-0"])


def checkpoint(number: int, size: int = 0) -> Checkpoint:
    about = {"snapshot_id": f"s{number}", "aliases": [], "run_id": "run", "number": number}
    machines = [("a", "kind", bytes(size), False)]
    return Checkpoint(about, (pickle.dumps(("host-0", machines, [], [], {})),))


def keep(keeper: Keeper, numbers: Iterable[int], size: int = 0) -> None:
    for number in numbers:
        keeper._stored(Snapshot.from_rows(snapshot_id=f"s{number}"), checkpoint(number, size))


def kept(keeper: Keeper) -> list[int]:
    return [int(snapshot_id[1:]) for snapshot_id in keeper.kept]


def test_what_is_gone_back_to_stays_however_many_come_after_it() -> None:
    keeper = Keeper("run", None, None)
    keep(keeper, range(1, 4))
    keeper.pin("s2")
    keep(keeper, range(4, 2 * LIMITS.memory_checkpoints))
    assert keeper.plan("s2", GROUND).number == 2
    assert kept(keeper) == [2, *range(LIMITS.memory_checkpoints + 1, 2 * LIMITS.memory_checkpoints)]


def test_what_is_gone_back_to_stays_however_large_those_are_that_come_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, memory_checkpoints_bytes=4_000)
    keeper = Keeper("run", None, None)
    keep(keeper, [1], size=1_000)
    keeper.pin("s1")
    keep(keeper, range(2, 9), size=1_000)
    assert kept(keeper) == [1, 7, 8]
    keeper.pin("s8")
    keep(keeper, [9], size=1_000)
    assert kept(keeper) == [7, 8, 9]


def test_what_the_driver_has_a_copy_of_and_what_is_being_gone_back_to_stay() -> None:
    """How long: `protocol.recovery_line`, in every order."""
    keeper = Keeper("run", None, None)
    keep(keeper, [1, 2, 3])
    assert keeper.lend("s2") is not None
    assert keeper.plan("s1", GROUND).number == 1
    keep(keeper, range(4, 2 * LIMITS.memory_checkpoints))
    assert kept(keeper)[:3] == [1, 2, LIMITS.memory_checkpoints + 2]


def test_an_analyst_that_is_started_anew_lets_go_of_nothing_that_may_be_gone_back_to() -> None:
    keeper = Keeper("run", None, None)
    for number in (1, 2):
        keeper.recall(checkpoint(number))
    again = pickle.loads(pickle.dumps(keeper))
    keep(again, range(3, LIMITS.memory_checkpoints + 3))
    assert kept(again)[:2] == [1, 2]


def test_the_error_says_how_many_are_kept_and_how_large_they_may_be() -> None:
    with pytest.raises(
        NotRestorableError, match=f"the last {LIMITS.memory_checkpoints}, or fewer if they are larger than 256 MB"
    ):
        Keeper("run", None, None).plan("s1", GROUND)
