"""How full a node's object store is, and who owns what is in it: measured, and said of apps that hang or crawl for room."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from app_runner import Runner
from limited import limit
from until import until

from ray_snapshot.instrument import capacity
from ray_snapshot.instrument.capacity import store_of
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.demands import Owned, Store
from ray_snapshot.tested import minor

MIB = 2**20
NODE = "c61934"
TELLS_OF_ARGUMENTS = (2, 60)
"""Ray 2.50 does not; which of those between does is not known."""

TOLD = """NodeManager:
Node ID: c61934
Node name: 192.0.2.2
InitialConfigResources: {node:__internal_head__: 1, CPU: 2, object_store_memory: 8.38861e+07, memory: 2.46915e+10}
ClusterLeaseManager:
num_waiting_for_resource: 0
num_waiting_for_plasma_memory: 2
Local id: 8 Local resources: {"total":{CPU: [40000], object_store_memory: [838860800000]}, "available": {CPU: [40000]}}
Total size of pinned lease arguments: 41943548
LocalObjectManager:
- num bytes pending spill: 0
- num bytes currently spilled: 52429308
PullManager:
- num bytes available for pulled objects: 15727878
- num bytes being pulled (all): 26214654
"""
"""Of Ray 2.60, less what is not read; 2.50 does not tell of arguments."""

SHORT = Store(capacity=83886100, in_use=68158222, spilled=52429308, arguments=41943548, waiting=2, told_at=5.0)


def test_what_a_raylet_writes_of_its_store_is_read() -> None:
    assert store_of(TOLD, NODE, 5.0) == SHORT
    without = TOLD.replace("Total size of pinned lease arguments: 41943548\n", "")
    assert store_of(without, NODE, 5.0) == Store(83886100, 68158222, 52429308, 0, 2, 5.0)


@pytest.mark.parametrize(
    "text", ["", TOLD[:300], TOLD.replace("Node ID: c61934", "Node ID: c61935"), TOLD.replace("available", "free")]
)
def test_a_file_of_another_node_or_form_or_one_that_is_being_written_tells_nothing(text: str) -> None:
    assert store_of(text, NODE, 5.0) is None


@pytest.mark.parametrize(
    ("in_use", "waiting", "is_short"), [(80, 0, False), (81, 0, True), (10, 1, True), (0, 0, False)]
)
def test_a_store_is_short_of_room_when_ray_must_spill_or_tasks_wait_for_it(
    in_use: int, waiting: int, is_short: bool
) -> None:
    assert Store(100, in_use, 0, 0, waiting, 5.0).is_short is is_short


# ---- when a process looks ----------------------------------------------------------------------------------------------


class Looking:
    """A `capacity.STORES` of its own, in a process that Ray's raylet has told `text`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.stores, self.counted, self.file = capacity._Stores(lambda: self.now), 0, folder / "debug_state.txt"
        self.seconds = 0

        class Known:
            get_logs_dir_path = staticmethod(lambda: str(folder))
            core_worker = property(lambda known: known)
            get_current_node_id = property(lambda known: lambda: known)
            hex = staticmethod(lambda: NODE)

        patch.setattr(capacity.ray_worker, "_global_node", Known())
        patch.setattr(capacity.ray_worker, "global_worker", Known())
        patch.setattr(capacity, "owned", self.owned)

    def owned(self, core: object) -> tuple[dict[str, Owned], int]:
        self.counted += 1
        self.now += 0.1
        return {NODE: Owned(self.counted, MIB)}, 0

    def tells(self, text: str) -> None:
        self.file.write_text(text)
        self.seconds += 1
        os.utime(self.file, (self.seconds, self.seconds))

    def look(self) -> capacity.Stored:
        self.stores.look()
        return self.stores.stored


@pytest.fixture
def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looking:
    return Looking(tmp_path, monkeypatch)


ROOMY = TOLD.replace("plasma_memory: 2", "plasma_memory: 0").replace("objects: 15727878", "objects: 50000000")


def test_nothing_is_counted_while_no_store_is_short_of_room(looking: Looking) -> None:
    assert looking.look() == capacity.Stored()
    looking.tells(ROOMY)
    assert looking.look().store == store_of(ROOMY, NODE, 1.0)
    assert (looking.counted, looking.stores.stored.owned) == (0, {})


def test_what_a_process_owns_is_counted_where_a_store_is_short_but_not_all_the_time(looking: Looking) -> None:
    looking.tells(TOLD)
    assert [looking.look().owned, looking.look().owned] == [{NODE: Owned(1, MIB)}] * 2
    looking.now += 0.09 / LIMITS.owned_refs_share
    looking.tells(TOLD.replace("plasma_memory: 2", "plasma_memory: 3"))
    found = looking.look()
    assert (found.owned, found.store and found.store.waiting) == ({NODE: Owned(1, MIB)}, 3)
    looking.now += 0.02 / LIMITS.owned_refs_share
    assert looking.look().owned == {NODE: Owned(2, MIB)}
    looking.tells(ROOMY)
    assert looking.look().owned == {}


def test_it_is_counted_too_where_only_the_store_of_another_node_is_short(looking: Looking) -> None:
    looking.tells(ROOMY)
    looking.stores.is_wanted = True
    assert looking.look().owned == {NODE: Owned(1, MIB)}
    looking.file.unlink()
    assert looking.look().owned == {NODE: Owned(1, MIB)}


def test_what_was_told_of_this_node_stays_when_another_one_writes_to_the_same_file(looking: Looking) -> None:
    looking.tells(ROOMY)
    looking.look()
    looking.tells(TOLD.replace(NODE, "ffffff"))
    assert looking.look().store == store_of(ROOMY, NODE, 1.0)


def test_a_ray_that_lacks_a_name_gives_no_hint_and_no_fault(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    looking.tells(TOLD)
    monkeypatch.setattr(capacity.ray_worker, "_global_node", None)
    assert looking.look() == capacity.Stored()


def test_a_ray_that_does_not_tell_of_refs_gives_a_hint_that_names_no_owners(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def owned(core: Any) -> Any:
        return core.get_all_reference_counts()

    monkeypatch.setattr(capacity, "owned", owned)
    looking.tells(TOLD)
    assert looking.look() == capacity.Stored(store_of(TOLD, NODE, 1.0))


# ---- what a process owns, on Ray ---------------------------------------------------------------------------------------


def _counted() -> Any:
    return capacity.owned(ray._private.worker.global_worker.core_worker)


@pytest.fixture
def own(ray_cluster: None) -> Iterator[list[Any]]:
    """Two objects of this process in the store, one of a mebibyte that it has put, one of two that a task has returned."""

    def make() -> Any:
        return np.zeros(2 * MIB, np.uint8)

    refs = [ray.put(np.zeros(MIB, np.uint8)), ray.remote(make).remote()]
    ray.wait(refs, num_returns=2, fetch_local=False)
    yield refs
    refs.clear()


@pytest.mark.ray
def test_a_process_knows_what_it_owns_and_counts_nothing_of_others(own: list[Any]) -> None:
    node = ray.get_runtime_context().get_node_id()

    def borrows(refs: list[Any]) -> Any:
        ray.get(refs)
        mine = ray.put(np.zeros(4 * MIB, np.uint8))
        found = capacity.owned(ray._private.worker.global_worker.core_worker)
        del mine
        return found

    def sizes(found: Any) -> int:
        return sum(one.size // MIB for key, one in found[0].items() if key == node)

    others, (before, _) = ray.get(ray.remote(borrows).remote(own)), _counted()
    kept = ray.put(np.zeros(8 * MIB, np.uint8))
    after, not_looked_at = _counted()
    assert (sizes(others), not_looked_at) == (4, 0)
    assert (after[node].objects - before[node].objects, (after[node].size - before[node].size) // MIB) == (1, 8)
    assert before[node].size >= 3 * MIB
    del kept


@pytest.mark.ray
def test_counting_keeps_no_object_and_frees_none(own: list[Any]) -> None:
    core = ray._private.worker.global_worker.core_worker
    before = {one.binary().hex(): core.get_all_reference_counts()[one.hex().encode()] for one in own}
    for _ in range(3):
        _counted()
    assert before == {one.binary().hex(): core.get_all_reference_counts()[one.hex().encode()] for one in own}
    assert [len(one) // MIB for one in ray.get(own)] == [1, 2]


@pytest.mark.ray
def test_an_object_that_ends_while_it_is_counted_is_left_out(own: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    core, look = ray._private.worker.global_worker.core_worker, capacity.get_local_object_locations

    class Late:
        """The process, which lists as well what is gone already."""

        def __getattr__(self, name: str) -> Any:
            return getattr(core, name)

        def get_all_reference_counts(self) -> list[bytes]:
            return [b"01" * 28, own[0].hex().encode()]

    def and_the_other(refs: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = look(refs)
        assert len(found) == 1
        return found | {refs[0]: found[refs[1]]}

    monkeypatch.setattr(capacity, "get_local_object_locations", and_the_other)
    found, _ = capacity.owned(Late())
    assert [(one.objects, one.size // MIB) for one in found.values()] == [(1, 1)]


@pytest.mark.ray
@pytest.mark.usefixtures("own")
def test_of_many_refs_a_part_is_looked_at_and_it_is_said_of_how_many_not(monkeypatch: pytest.MonkeyPatch) -> None:
    refs = len(ray._private.worker.global_worker.core_worker.get_all_reference_counts())
    limit(monkeypatch, looked_at_refs=1)
    found, not_looked_at = _counted()
    assert not_looked_at == refs - 1
    assert sum(one.objects for one in found.values()) <= 1


# ---- apps --------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.ray
def test_an_app_that_hangs_for_room_in_the_store_gets_a_hint_and_no_other_verdict(runner: Runner) -> None:
    """The file of the raylet, and what owners know, may be some snapshots behind."""
    arguments = "; tasks that run keep 40.0 MiB of arguments there until they end"
    texts = (
        ", and a node has room: Ray has not begun it all the same, or it is held back until an object store has room\n",
        " is short of room: 60.0 MiB of 80.0 MiB in use, as Ray told ",
        "; 1 task cannot begin, for there is no room for its arguments",
        *([arguments] if minor(ray.__version__) >= TELLS_OF_ARGUMENTS else []),
        "; the largest owners: driver 40.0 MiB in 1 object; add-0 20.0 MiB in 1 object\n",
    )
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        app = runner.start_watched("hang", "stores.py", folder)
        assert app.stdout is not None
        assert app.stdin is not None
        asked = "diagnose", "hang", "--address", app.stdout.readline().strip()
        before = runner.command(*asked)
        app.stdin.write("go on\n")
        app.stdin.flush()
        found = until(lambda: runner.command(*asked), good=lambda done: all(text in done.output for text in texts))
        app.send_signal(signal.SIGINT)
        done = runner.finish(app)
    assert ("No deadlock" in before.output, "hint" in before.output) == (True, False)
    assert [text for text in texts if text not in done.errors] == []
    assert "No deadlock" in found.output
    assert (found.exit_code, done.exit_code) == (0, 130)
