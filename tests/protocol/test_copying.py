"""What copies machines for recordings, without the core that has it: which are in a recording, and which are at rest."""

from __future__ import annotations

import pickle
from typing import Any

from ray_snapshot.protocol.copying import Copying
from ray_snapshot.protocol.parts import RESTING, Machine, Recording
from ray_snapshot.protocol.turning import Turning


def _body(machine: Machine) -> Any:
    return machine.body


def _rests(machine: Machine, _extra: Any) -> bool:
    return machine.name != "busy"


def _new(*names: str, **bodies: Any) -> Copying:
    copying = Copying({}, Turning(), {}, copy_body=_body, **bodies)
    for name in names:
        machine = copying.machines[name] = copying.awake[name] = Machine(name, copying.turning.colour)
        machine.body = f"{name} as it was"
    return copying


def _turn(copying: Copying, number: int) -> Recording:
    copying.turning.request(number)
    copying.turning.turn()
    recording = copying.recordings[number] = Recording(number)  # type: ignore[index]
    copying.begin()
    return recording


def _copy_all(copying: Copying) -> None:
    while copying.copy_next(2):
        pass


def test_who_is_about_to_act_is_copied_before_the_others_and_once() -> None:
    copying = _new("a", "b", "c")
    recording = _turn(copying, 1)
    copying.copy_now(copying.machines["c"])
    copying.machines["c"].body = "c as it is"
    assert (recording.names, recording.is_copied) == (["c"], False)
    _copy_all(copying)
    assert {copy.machine: copy.extra for copy in recording.copies} == {name: f"{name} as it was" for name in "abc"}
    assert (len(recording.copies), recording.is_copied) == (3, True)


def test_who_rests_is_copied_for_no_recording_until_it_is_woken() -> None:
    copying = _new("idle", "busy", is_lasting=_rests)
    first = _turn(copying, 1)
    _copy_all(copying)
    assert ([copy.machine for copy in copying.take_rested()], first.names) == (["idle"], ["busy"])
    assert (copying.machines["idle"].copied, [*copying.awake], copying.rested_count) == (RESTING, ["busy"], 0)
    copying.copy_now(copying.machines["idle"])  # it wakes, and what it was is known
    assert (first.names, copying.machines["idle"].copied) == (["busy"], copying.turning.colour)
    second = _turn(copying, 2)
    copying.copy_now(copying.machines["idle"])
    _copy_all(copying)
    assert sorted(second.names) == ["busy", "idle"]


def test_a_recording_of_a_host_whose_machines_all_rest_is_whole_at_once() -> None:
    copying = _new("idle", is_lasting=_rests)
    _turn(copying, 1)
    _copy_all(copying)
    assert _turn(copying, 2).is_copied


def test_a_copy_of_it_goes_its_own_way() -> None:
    """As a search of every order takes one of a whole core: what it shares with the core, the copy shares with the copy."""
    for bodies in ({}, {"is_lasting": _rests}):
        copying = _new("idle", "busy", **bodies)
        _turn(copying, 1)
        other: Copying = pickle.loads(pickle.dumps(copying))
        _copy_all(other)
        assert other.recordings[1].is_copied
        assert (other.awake is other.machines) == (copying.awake is copying.machines)
        assert all(other.machines[name] is machine for name, machine in other.awake.items())
        assert (len(copying.uncopied), copying.recordings[1].names) == (2, [])
