"""Callers that ask again and again and get equal answers: in words, and what they make of a verdict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.detectors.happened import happened
from ray_snapshot.instrument.diagnosis import diagnosis
from ray_snapshot.verdicts import evaluate

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SAMPLE = {
    "machine": "Buffer-0",
    "class": "Buffer",
    "method": "sample",
    "call_site": "polling.py:17",
    "times": 150,
    "answer": "None",
}
WAIT = SAMPLE | {"machine": "", "class": "", "method": "ray.wait", "answer": "nothing ready"}
NAME = WAIT | {"method": "ray.get_actor('x')", "answer": "ValueError"}
POLL = {
    "kind": "poll",
    "machine": "driver",
    "call_id": None,
    "thread": "",
    "at": (NOW - timedelta(seconds=30)).isoformat(),
    "class": "",
    "asked": [SAMPLE],
    "is_bounded": False,
    "is_moving": False,
}
RUN = "driver/0/Trainer-0/1"
OF_TRAINER = POLL | {"machine": "Trainer-0", "call_id": RUN}
DRIVER = {"machine": "driver", "status": "active"}
BUFFER = {"machine": "Buffer-0", "status": "passive"}
TEXT = "driver asks Buffer.sample (polling.py:17) 150 times in 30 s, always None"


def snapshot(*told: Any, machines: Any = (DRIVER, BUFFER), uncovered: Any = (), **rows: Any) -> rs.Snapshot:
    coverage = {"uncovered": list(uncovered), "happened": list(told)}
    return rs.Snapshot.from_rows(machines=machines, coverage=coverage, started_at=NOW, **rows)


def verdict(*told: Any, **rows: Any) -> rs.Verdict:
    return evaluate(detectors.Deadlock(), snapshot(*told, **rows))


def test_a_poll_is_a_sentence() -> None:
    several = [SAMPLE | {"machine": f"Buffer-{at}", "answer": ""} for at in range(3)]
    assert happened(snapshot(POLL, POLL | {"asked": several, "thread": "feed"})) == [
        TEXT,
        "thread feed of driver asks Buffer.sample of 3 actors (polling.py:17) 450 times in 30 s, always the same",
    ]


def test_a_young_one_is_told_only_where_it_makes_a_verdict() -> None:
    young = POLL | {"at": (NOW - timedelta(seconds=12)).isoformat(), "is_young": True}
    found = verdict(young)
    assert (found.holds, found.grade) == (None, "cannot be told")
    assert found.sentence.startswith(
        "Deadlock cannot be told: driver asks Buffer.sample (polling.py:17) 150 times in 12 s"
    )
    works = verdict(young, machines=(DRIVER, BUFFER, {"machine": "Worker-0", "status": "active"}))
    assert (works.holds, works.evidence.get("happened")) == (False, None)


def test_a_loop_that_asks_for_replies_ends_by_one_that_can_come() -> None:
    work = {"call_id": "driver/0/Worker-0/1", "caller": "driver", "machine": "Worker-0", "method": "work"}
    waits = [{"machine": "Worker-0", "call_id": work["call_id"], "on_machine": "Buffer-0"}]
    stuck = {"machine": "Worker-0", "status": "blocked"}
    replies = WAIT | {"calls": [{"machine": "Worker-0", "call_id": work["call_id"]}]}
    late = {"machine": "driver", "on_machine": "Worker-0", "on_call_id": work["call_id"], "timeout_at": NOW}
    for told in (POLL | {"asked": [replies]}, POLL | {"asked": [SAMPLE, replies]}):
        works = verdict(told, machines=(DRIVER, BUFFER, stuck | {"status": "active"}), calls=[work], waits=[late])
        assert works.holds is False
        hangs = verdict(told, machines=(DRIVER, BUFFER, stuck), calls=[work], waits=[*waits, late])
        assert hangs.holds is None
        assert "ray.wait (polling.py:17) 150 times in 30 s, always nothing ready" in hangs.sentence
        assert verdict(told).holds is False, "the reply has come"


@pytest.mark.parametrize(
    ("asked", "change"), [(NAME, "which names are taken"), (NAME | {"method": "to call Sink.write"}, "what Ray takes")]
)
def test_a_loop_that_asks_for_a_name_or_for_room_ends_by_anything_that_acts(asked: dict[str, Any], change: str) -> None:
    named = POLL | {"asked": [asked]}
    found = verdict(named)
    assert found.holds is None
    text = f"driver asks {asked['method']} (polling.py:17) 150 times in 30 s, always ValueError"
    assert text in found.sentence
    assert found.sentence.endswith(f"Nothing else that runs can change {change}.")
    assert verdict(named, machines=[DRIVER, {"machine": "Feeder-0", "status": "active"}]).holds is False


def test_a_reply_that_has_come_to_who_asks_is_a_step() -> None:
    """Its actor records later than who asks, so it has ended by then."""
    worker = {"machine": "Worker-0", "status": "passive"}
    has_come = {"machine": "driver", "on_machine": "Worker-0", "on_call_id": "driver/0/Worker-0/1", "satisfied": True}
    assert verdict(POLL, machines=(DRIVER, BUFFER, worker), waits=[has_come]).holds is False


def test_where_nothing_goes_on_but_asking_it_cannot_be_told() -> None:
    found = verdict(POLL)
    assert found.holds is None
    assert TEXT in found.sentence
    assert "Buffer-0" in found.sentence
    assert found.evidence["depends_on"] == ["what sample of Buffer-0 depends on beside calls"]


CALL = {"machine": "Buffer-0", "call_id": "driver/0/Buffer-0/9", "caller": "driver", "method": "sample"}
ON_CALL = {"machine": "driver", "on_machine": "Buffer-0", "on_call_id": CALL["call_id"]}


@pytest.mark.parametrize("status", ["active", "passive"])
def test_in_the_middle_of_such_a_call_the_answer_is_the_same(status: str) -> None:
    """Also while the one that is asked asks another one."""
    shard = CALL | {"machine": "Shard-0", "call_id": "Buffer-0/0/Shard-0/9", "caller": "Buffer-0", "method": "get"}
    on_shard = {
        "machine": "Buffer-0",
        "call_id": CALL["call_id"],
        "on_machine": "Shard-0",
        "on_call_id": shard["call_id"],
    }
    driver = DRIVER | {"status": "blocked"}
    machines = [driver, BUFFER | {"status": "blocked"}, {"machine": "Shard-0", "status": status}]
    calls = [CALL, shard] if status == "active" else [CALL]
    waits = [ON_CALL, on_shard] if status == "active" else [ON_CALL]
    assert verdict(POLL, machines=machines, calls=calls, waits=waits).holds is None
    replied = ON_CALL | {"satisfied": True}
    assert verdict(POLL, machines=[driver, BUFFER], waits=[replied]).holds is None, "it is an answer like those before"
    flying = {"source": "driver", "target": "Buffer-0", "kind": "call", "method": "sample", "call_id": CALL["call_id"]}
    assert verdict(POLL, machines=[driver, BUFFER], messages=[flying], waits=[ON_CALL]).holds is None


TRAINER = {"machine": "Trainer-0", "status": "active"}


def of_trainer(**more: Any) -> dict[str, Any]:
    machines = [DRIVER | {"status": "blocked"}, BUFFER, TRAINER]
    calls = [{"machine": "Trainer-0", "call_id": RUN, "caller": "driver", "method": "train"}]
    waits = [{"machine": "driver", "on_machine": "Trainer-0", "on_call_id": RUN}]
    return {"machines": machines, "calls": calls, "waits": waits, **more}


def test_so_it_is_of_a_call_that_asks_while_the_program_waits_for_it() -> None:
    found = verdict(OF_TRAINER, **of_trainer())
    assert found.holds is None
    assert found.sentence.startswith("Deadlock cannot be told: Trainer-0 asks Buffer.sample")


@pytest.mark.parametrize(
    "more",
    [
        {"told": [POLL | {"is_bounded": True}]},
        {"told": [POLL | {"is_moving": True}]},
        {"machines": [DRIVER, BUFFER, {"machine": "Feeder-0", "status": "active"}]},
        {"messages": [{"source": "driver", "target": "Buffer-0", "kind": "call", "method": "add"}]},
        {"messages": [{"source": "Feeder-0", "target": "Buffer-0", "kind": "call", "method": "sample"}]},
    ],
    ids=["it is bounded", "others change it", "an actor works", "another call", "the call of another one"],
)
def test_where_something_else_goes_on_there_is_no_deadlock(more: dict[str, Any]) -> None:
    assert verdict(*more.pop("told", [POLL]), **more).holds is False


def test_a_callback_on_an_answer_to_come_ends_with_it() -> None:
    """Where an `await` is recorded that has just begun."""
    asked = {
        "source": "Trainer-0",
        "target": "Buffer-0",
        "kind": "call",
        "method": "sample",
        "call_id": "Trainer-0/0/B/1",
    }
    callback = {"machine": "Trainer-0", "call_id": None, "on_machine": "Buffer-0", "on_call_id": asked["call_id"]}
    about = of_trainer()
    about["machines"].append({"machine": "Feeder-0", "status": "active"})
    assert verdict(OF_TRAINER, messages=[asked], **about | {"waits": [*about["waits"], callback]}).holds is False


def test_a_deadlock_stays_one_beside_a_poll() -> None:
    machines = [DRIVER, BUFFER, *({"machine": a, "status": "blocked", "waits_for": [b]} for a, b in ("xy", "yx"))]
    machines = [row | ({"wait_mode": "all"} if row["status"] == "blocked" else {}) for row in machines]
    found = verdict(POLL, machines=machines)
    assert found.holds is True
    assert found.evidence["happened"] == [TEXT]


PLAIN = POLL | {"counters": []}


def test_it_is_suspected_where_all_that_is_asked_is_known() -> None:
    found = verdict(PLAIN)
    assert (found.holds, found.grade, found.alarm) == (None, "suspected", False)
    assert found.unless == "Buffer.sample depends on something outside"
    other = f"Nothing else that runs can change Buffer-0, unless {found.unless}."
    assert found.sentence == f"Deadlock suspected: {TEXT}. {other}"
    callers = {"driver": 150, "Filler-0": 12, "Filler-1": 12, "Maker-0": 1}
    channels = [{"source": one, "target": "Buffer-0", "sent_count": count} for one, count in callers.items()]
    found = verdict(PLAIN, channels=[*channels, {"source": "Tester-0", "target": "Filler-0", "sent_count": 5}])
    assert "can change Buffer-0 (called before by Filler-[0-1]), unless " in found.sentence
    counted = verdict(POLL | {"counters": ["asked"]})
    assert counted.unless == "Buffer.sample depends on something outside, or on how often it is asked (asked)"
    of_trainer_ = verdict(OF_TRAINER | {"counters": []}, **of_trainer())
    assert of_trainer_.grade == "suspected", "the program waits for it"


UNSURE: dict[str, dict[str, Any]] = {
    "not known": {"told": [POLL]},
    "of one of two": {"told": [PLAIN, OF_TRAINER], **of_trainer(machines=[DRIVER, BUFFER, TRAINER], waits=[])},
    "a thread": {"uncovered": ["thread feed of Collector-0"]},
    "nobody waits for it": {
        "told": [OF_TRAINER | {"counters": []}],
        **of_trainer(machines=[DRIVER | {"status": "passive"}, BUFFER, TRAINER], waits=[]),
    },
}


@pytest.mark.parametrize("why", UNSURE)
def test_else_it_is_not_suspected(why: str) -> None:
    found = verdict(
        *UNSURE[why].get("told", [PLAIN]), **{key: one for key, one in UNSURE[why].items() if key != "told"}
    )
    assert (found.holds, found.grade, found.unless) == (None, "cannot be told", "")


def test_a_suspicion_is_an_alarm_of_diagnose_alone() -> None:
    assert [diagnosis(snapshot(one)).exit_code for one in (PLAIN, POLL, POLL | {"is_bounded": True})] == [3, 4, 0]


@pytest.mark.parametrize("told", [POLL | {"asked": 7}, POLL | {"asked": [7]}, POLL | {"asked": [{}]}, POLL | {"at": 7}])
def test_what_is_of_another_form_is_left_out(told: Any) -> None:
    assert happened(snapshot(told)) == []
    assert verdict(told).holds is False
