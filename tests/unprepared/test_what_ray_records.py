"""Records as Ray writes them, made by hand: which tasks are unfinished, and where they stand. No cluster."""

from typing import Any

import pytest
from looks import JOB, driver_of
from ray.core.generated import gcs_pb2

from ray_snapshot.unprepared.records import actor_in, actors, groups, unfinished, without_group

ACTOR = "00" * 11 + "07" + JOB
CALL = "00" * 7 + "01" + ACTOR


def event(*states: int, attempt: int = 0, at_ns: int = 10**9, **info: Any) -> bytes:
    found = gcs_pb2.TaskEvents(task_id=bytes.fromhex(CALL), attempt_number=attempt, job_id=bytes.fromhex(JOB))
    given = {"parent_task_id": bytes.fromhex(driver_of(JOB)), "actor_id": bytes.fromhex(ACTOR), "type": 2}
    for name, value in (given | info).items():
        setattr(found.task_info, name, value)
    for place, state in enumerate(states):
        found.state_updates.state_ts_ns[state] = at_ns + place
    data: bytes = found.SerializeToString()
    return data


def test_the_state_is_the_latest_and_the_actor_is_in_the_key() -> None:
    tasks, recorded, count = unfinished([event(1, 2, 5, 7, 8, name="A.go")])
    (task,) = tasks.values()
    assert (task.kind, task.name, task.state, task.actor, task.parent) == ("call", "A.go", 8, ACTOR, driver_of(JOB))
    assert (recorded, count) == ({ACTOR, JOB}, 1)
    assert (actor_in(task.key), actor_in(driver_of(JOB)), task.made_in) == (ACTOR, "", "")


@pytest.mark.parametrize("end", [11, 12])
def test_what_has_ended_is_no_task_but_its_actor_has_a_record(end: int) -> None:
    tasks, recorded, count = unfinished([event(1, 2, 5, 8, end)])
    assert (tasks, count) == ({}, 1)
    assert ACTOR in recorded


def test_of_several_attempts_the_latest_counts_in_any_order() -> None:
    for events in ([event(1, 8, 12), event(1, 2, attempt=1)], [event(1, 2, attempt=1), event(1, 8, 12)]):
        (task,) = unfinished(events)[0].values()
        assert (task.attempt, task.state) == (1, 2)
    assert unfinished([event(1, 8), event(1, 11, attempt=1)])[0] == {}


def test_a_record_that_is_the_same_again_is_not_parsed_again_and_counts_as_before() -> None:
    events, known = [event(1, 2, 5)], {}
    first = unfinished(events, known)
    assert unfinished(events, known) == first
    assert next(iter(unfinished(events, known)[0].values())) is next(iter(first[0].values()))
    assert unfinished([event(1, 2, 5, 8)], known)[0] != first[0]


def test_amounts_inside_a_group_have_their_plain_names() -> None:
    inside = {f"CPU_group_{'ab' * 18}": 1.0, f"CPU_group_0_{'ab' * 18}": 1.0, f"bundle_group_{'ab' * 18}": 0.001}
    assert without_group(inside) == {"CPU": 1.0}
    assert without_group({"my_group_of": 2.0}) == {"my_group_of": 2.0}


def test_dead_actors_and_removed_groups_are_left_out() -> None:
    rows = [gcs_pb2.ActorTableData(actor_id=bytes([number]), state=number) for number in range(5)]
    assert len(actors(rows)) == 4
    removed = gcs_pb2.PlacementGroupTableData(placement_group_id=b"x", state=3)
    assert groups([removed.SerializeToString()]) == {}
