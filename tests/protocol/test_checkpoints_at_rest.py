"""What checkpoints keep of machines at rest is the same as if each had been copied: whatever overlaps, is given up, or wakes.

The steps are those of `test_machines_at_rest`; what hosts show of machines at rest is the real one (`runtime.host.resting`).
"""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from test_machines_at_rest import (
    HOSTS,
    World,
    steps,
    who_is_woken_is_not_copied_next_time,
)

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.observer import Observer
from ray_snapshot.runtime.checkpointing import section_of
from ray_snapshot.runtime.host.resting import RestingRows
from ray_snapshot.runtime.planning import opened_section
from ray_snapshot.runtime.report import BodyCopy


class SavingWorld(World):
    """`saved` is what the section of each recording says of its machines."""

    def __init__(self, protocol: Callable[[], Any], *, rests: bool, together: bool) -> None:
        self.saved: dict[tuple[str, int], list[Any]] = {}
        self.rows = {host: RestingRows(host) for host in HOSTS}
        self.saved_at_rest = 0
        super().__init__(protocol, rests=rests, together=together, grouped=False)

    def body(self, machine: Machine) -> BodyCopy:
        state = self.states[machine.name]
        status = "stopped" if machine.is_stopped else "passive"
        return BodyCopy("Counting", status, to_json(state), kept=(f"class {state % 3}", pickle.dumps(state)))

    def look(self, host: str) -> None:
        core, rows = self.cores[host], self.rows[host]
        rows.take(core.copying.take_rested())
        for number, recording in core.open.items():
            if recording.is_copied and recording.has_resting and (host, number) not in self.saved:
                at_rest = rows.beside([copy.machine for copy in recording.copies]).saved
                self.saved_at_rest += 0 if at_rest is None else at_rest.count
                table = None if at_rest is None else at_rest.table()
                section = section_of(host, recording, 0.0, {}, (), (), table)
                self.saved[host, number] = sorted(opened_section(section.dumps())[1])
        rows.forget(core.copying.awake)

    def sections(self) -> dict[tuple[str, int], list[Any]]:
        """All recordings that have become whole."""
        for host in HOSTS:
            self.turn(host)
            while self.cores[host].copying.uncopied:
                self.copy(host)
        return self.saved


def _run(seed: int, protocol: Callable[[], Any], *, rests: bool) -> SavingWorld:
    world = SavingWorld(protocol, rests=rests, together=rests and seed % 2 == 0)
    for step, args in steps(seed):
        getattr(world, step)(*args)
    return world


def _differing(seed: int, protocol: Callable[[], Any]) -> tuple[dict[Any, Any], int, int]:
    """Which sections are other ones with machines at rest, how many were compared, and how many of them were at rest."""
    plain, resting = _run(seed, protocol, rests=False), _run(seed, protocol, rests=True)
    ours, theirs = resting.sections(), plain.sections()
    both = ours.keys() & theirs.keys()
    return {key: (ours[key], theirs[key]) for key in both if ours[key] != theirs[key]}, len(both), resting.saved_at_rest


@pytest.mark.parametrize("protocol", [ChandyLamport, Observer])
@pytest.mark.parametrize(
    "times", [pytest.param(20, id="few"), pytest.param(1_000, id="many", marks=pytest.mark.nightly)]
)
def test_sections_are_the_same_with_machines_at_rest(protocol: Callable[[], Any], times: int, seed: int) -> None:
    compared = rested = 0
    for number in range(seed, seed + times):
        differing, both, at_rest = _differing(number, protocol)
        assert differing == {}, f"pytest --seed {number}"
        compared, rested = compared + both, rested + at_rest
    assert compared > 2 * times, "hardly anything was recorded"
    assert rested > 2 * times, "hardly anything was at rest"


def who_wakes_stays_among_those_at_rest(patch: pytest.MonkeyPatch) -> None:
    """Its row is that of an earlier moment."""
    patch.setattr(RestingRows, "forget", lambda *_: None)


def who_is_copied_is_among_those_at_rest_too(patch: pytest.MonkeyPatch) -> None:
    """A section has it twice."""
    beside = RestingRows.beside
    patch.setattr(RestingRows, "beside", lambda self, names: beside(self, ()))


MUTANTS = [
    who_wakes_stays_among_those_at_rest,
    who_is_copied_is_among_those_at_rest_too,
    who_is_woken_is_not_copied_next_time,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_state_that_is_saved_for_too_long_is_seen(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(map(_is_seen, range(500)))


def _is_seen(number: int) -> bool:
    try:
        return _differing(number, ChandyLamport)[0] != {}
    except ProtocolError:
        return True
