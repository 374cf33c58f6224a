"""When a collective of torch.distributed can never complete, on snapshots written by hand."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors import Collective, Stall

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def call(rank: int) -> str:
    return f"driver/0/Rank-{rank}/1"


def stands(rank: int, operation: str = "all_reduce", number: int = 412, **more: Any) -> dict[str, Any]:
    """A rank that has stood in a collective for 37 s."""
    about = {"operation": operation, "call": call(rank), "call_site": "train.py:99", "among": [], "is_quiet": True}
    times = {name: (NOW + timedelta(seconds=s)).isoformat() for name, s in (("since", -37), ("until", 1_860))}
    return {**elsewhere(rank, number), **about, **times, **more}


def elsewhere(rank: int, number: int = 411, state: str = "") -> dict[str, Any]:
    return {"rank": rank, "machine": f"Rank-{rank}", "state": state, "number": number}


def snapshot(*members: dict[str, Any], size: int = 3, uncovered: tuple[str, ...] = (), **more: Any) -> rs.Snapshot:
    """Three ranks in `step`, of which rank 2 loads; the driver waits for all of them."""
    names = ("driver", *(f"Rank-{n}" for n in range(3)))
    status = {"driver": "blocked", **more.pop("status", {})}
    machines = [
        {"machine": name, "class_name": "Rank" if name != "driver" else "", "status": status.get(name, "active")}
        for name in names
        if status.get(name) != "gone"
    ]
    busy = [row["machine"] for row in machines if row["status"] != "passive" and row["machine"] != "driver"]
    calls = [
        {"machine": name, "method": "step", "call_id": f"driver/0/{name}/1", "call_site": "data.py:12"} for name in busy
    ]
    waits = [{"machine": "driver", "on_machine": name, "on_call_id": f"driver/0/{name}/1", "k": 1} for name in busy]
    told = {"group": "world", "size": size, "members": [*members]}
    sites = [{"machine": row["machine"], "call_site": row.get("call_site")} for row in members if "operation" in row]
    since = (NOW - timedelta(seconds=37)).isoformat()
    unexplained = [{**row, "since": since, "what": "in all_reduce"} for row in (*sites, *more.pop("unknown", ()))]
    coverage = {
        "uncovered": [*uncovered],
        "collectives": [told],
        "unexplained": unexplained,
        **more.pop("coverage", {}),
    }
    rows = {"machines": machines, "calls": [*calls, *more.pop("calls", ())], "waits": [*waits, *more.pop("waits", ())]}
    return rs.Snapshot.from_rows(started_at=NOW, coverage=coverage, **rows)


LOADS = "rank 2 (Rank-2) is in Rank.step (data.py:12)"
TWO = "group world: 2 of 3 are in all_reduce number 412 (train.py:99) for 37 s"
ENDS = "ends at the latest by its time-out, at 12:31"


def test_a_rank_that_computes_may_still_come() -> None:
    verdict = Collective().evaluate(snapshot(stands(0), stands(1), elsewhere(2)))
    assert (verdict.holds, verdict.evidence["groups"]) == (False, [f"{TWO}; {LOADS}; {ENDS}"])
    assert not verdict.alarm


def test_a_rank_in_a_wait_that_nothing_known_ends_may_come_or_not() -> None:
    unknown = [{"machine": "Rank-2", "call_site": "data.py:12"}]
    verdict = Collective().evaluate(snapshot(stands(0), stands(1), elsewhere(2), unknown=unknown))
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["what ends the wait of Rank-2 in all_reduce"]
    on_a_thread = snapshot(stands(0), stands(1), elsewhere(2), unknown=unknown, status={"Rank-2": "passive"})
    assert "; rank 2 (Rank-2) is in all_reduce (data.py:12); " in Collective().evaluate(on_a_thread).sentence
    threads = ("thread Monitoring(f) of Rank-2", "thread Training(f) (/app/train.py:13) of Rank-2")
    reports = snapshot(stands(0), stands(1), elsewhere(2), uncovered=threads, status={"Rank-2": "passive"})
    assert "; rank 2 (Rank-2) is in a thread (/app/train.py:13); " in Collective().evaluate(reports).sentence


def test_a_rank_that_waits_for_one_of_those_that_wait_for_it_never_comes() -> None:
    asks: list[dict[str, Any]] = [
        {"machine": "Rank-2", "call_id": call(2), "on_machine": "Rank-0", "on_call_id": call(0), "k": 1}
    ]
    status = {"Rank-2": "blocked"}
    stuck = Collective().evaluate(snapshot(stands(0), stands(1), elsewhere(2), waits=asks, status=status))
    assert (stuck.holds, stuck.alarm, stuck.evidence["stuck"]) == (True, True, ["Rank-0", "Rank-1"])
    beside = [{"machine": "Rank-0", "method": "stop", "call_id": "driver/0/Rank-0/2"}]
    asks[0]["on_call_id"] = None
    acting = snapshot(stands(0), stands(1), elsewhere(2), waits=asks, status=status, calls=beside)
    assert Collective().evaluate(acting).holds is False, "another call of rank 0 acts"
    computes = stands(0, is_quiet=False)
    assert Collective().evaluate(snapshot(computes, stands(1), elsewhere(2), waits=asks, status=status)).holds is False


def test_a_rank_that_nobody_is_left_to_call_never_comes() -> None:
    status = {"Rank-2": "passive"}
    verdict = Collective().evaluate(snapshot(stands(0), stands(1), elsewhere(2), status=status))
    assert (verdict.holds, verdict.evidence["stuck"]) == (True, ["Rank-0", "Rank-1"])
    error = {"kind": "raised", "machine": "Rank-2", "method": "step", "error": "ValueError", "at": NOW.isoformat()}
    raised = {"happened": [error]}
    verdict = Collective().evaluate(snapshot(stands(0), stands(1), elsewhere(2), status=status, coverage=raised))
    words = "Rank-2.step raised ValueError at 12:00:00; nobody has read it"
    assert f"; rank 2 (Rank-2) runs no call ({words}); " in verdict.sentence
    unseen = snapshot(stands(0), stands(1), elsewhere(2), status=status, uncovered=("plain tasks",))
    assert Collective().evaluate(unseen).holds is None


@pytest.mark.parametrize(("state", "words"), [("died", "died"), ("left", "left the group")])
def test_a_rank_that_is_gone_never_comes_whatever_its_process_does(state: str, words: str) -> None:
    status = {"Rank-2": "gone"} if state == "died" else {}
    of_a_thread = [stands(rank, call=None) for rank in range(2)]
    for those in ([stands(0), stands(1)], of_a_thread):
        verdict = Collective().evaluate(snapshot(*those, elsewhere(2, state=state), status=status))
        assert (verdict.holds, verdict.sentence) == (
            True,
            f"A collective cannot complete: {TWO}; rank 2 (Rank-2) {words}; {ENDS}.",
        )


def test_what_the_others_need_of_a_rank_that_is_gone_may_be_done() -> None:
    computing = [stands(rank, is_quiet=False) for rank in range(2)]
    gone = elsewhere(2, state="left")
    assert Collective().evaluate(snapshot(*computing, gone)).holds is None, "they may receive what it has sent"
    one = [stands(0), stands(1, is_quiet=False), gone]
    assert Collective().evaluate(snapshot(*one)).holds is None, "and hand it on"
    done = elsewhere(2, number=412, state="died")
    assert Collective().evaluate(snapshot(stands(0), stands(1), done, status={"Rank-2": "gone"})).holds is None


def test_ranks_that_are_not_observed_leave_it_open() -> None:
    for members in ([stands(0), stands(1)], [stands(0), stands(1), elsewhere(2, state="unseen")]):
        verdict = Collective().evaluate(snapshot(*members))
        assert verdict.holds is None
        assert "not observed" in verdict.sentence
    twice = [stands(0), stands(1), {**elsewhere(1, state=""), "machine": "Rank-2"}]
    assert Collective().evaluate(snapshot(*twice)).holds is None, "of two generations"


def test_different_collectives_never_complete_and_a_rank_that_is_ahead_waits_for_the_one_behind() -> None:
    verdict = Collective().evaluate(snapshot(stands(0), stands(1), stands(2, "broadcast", call_site="train.py:44")))
    assert verdict.holds is True
    assert "; rank 2 (Rank-2) is in broadcast number 412 (train.py:44) for 37 s" in verdict.sentence
    ahead = [stands(0), stands(1), stands(2, "broadcast", number=411)]
    assert Collective().evaluate(snapshot(*ahead)).holds is None, "what rank 2 needs may be on its way"
    behind = [stands(0), stands(1), stands(2, "broadcast", number=411, is_quiet=False)]
    assert Collective().evaluate(snapshot(*behind)).holds is False


def test_where_all_are_in_one_collective_it_is_not_known_what_keeps_it() -> None:
    assert Collective().evaluate(snapshot(*map(stands, range(3)))).holds is None
    assert Collective().evaluate(snapshot(*(stands(n, is_quiet=False) for n in range(3)))).holds is False


def test_send_and_recv_need_each_other_alone() -> None:
    waits = stands(0, "recv", number=3, among=[1])
    both = [waits, stands(1, "recv", number=3, among=[0]), elsewhere(2)]
    assert Collective().evaluate(snapshot(*both)).evidence["stuck"] == ["Rank-0", "Rank-1"]
    paired = [waits, stands(1, "send", number=3, among=[0]), elsewhere(2)]
    assert Collective().evaluate(snapshot(*paired)).holds is None
    asleep = snapshot(waits, elsewhere(1, number=9), elsewhere(2))
    assert Collective().evaluate(asleep).holds is False, "rank 1 computes"
    assert Collective().evaluate(snapshot({**waits, "among": []}, elsewhere(1), elsewhere(2))).holds is False
    gone = snapshot(waits, elsewhere(1, number=9, state="died"), elsewhere(2), status={"Rank-1": "gone"})
    assert Collective().evaluate(gone).holds is True


def test_short_waits_are_not_told_and_what_has_another_form_is_left_out() -> None:
    short = {**stands(0), "since": (NOW - timedelta(seconds=3)).isoformat()}
    assert Collective().evaluate(snapshot(short, elsewhere(1), elsewhere(2))).evidence == {}
    for told in (None, 3, [3], [{"group": 1}], [{"group": "world", "size": 3, "members": [3, {"rank": 1}]}]):
        assert Collective().evaluate(snapshot(coverage={"collectives": told})).holds is False
    soon = Collective().evaluate(snapshot(stands(0, until="soon"), stands(1, until=None), elsewhere(2)))
    assert soon.evidence["groups"] == [f"{TWO}; {LOADS}"]
    assert Collective().evaluate(rs.Snapshot.from_rows(machines=[{"machine": "a"}])).holds is None, "it does not say"


def test_a_stall_says_where_ranks_stand_unless_their_collective_cannot_complete() -> None:
    still = {"still_since": (NOW - timedelta(seconds=130)).isoformat()}
    unknown = [{"machine": "Rank-2", "call_site": "data.py:12"}]
    rows = {"unknown": unknown, "coverage": still}
    open_ = snapshot(*({**stands(n), "call_site": "data.py:12"} for n in range(2)), elsewhere(2), **rows)
    verdict = Stall().evaluate(open_)
    assert verdict.holds, verdict.sentence
    assert verdict.evidence["places"][0].startswith("group world: 2 of 3 are in all_reduce number 412")
    lost = snapshot(*({**stands(n), "call_site": "data.py:12"} for n in range(2)), elsewhere(2, state="left"), **rows)
    assert "a collective cannot complete" in Stall().evaluate(lost).sentence


ASKS = {"machine": "Rank-2", "call_id": call(2), "on_machine": "Rank-0", "on_call_id": call(0), "k": 1}
WAITS = {"status": {"Rank-2": "blocked"}, "waits": [ASKS]}
"""Rank 2 is in `ray.get(rank0.step)`."""


def test_a_number_is_no_proof_that_a_rank_that_goes_on_has_done_its_part() -> None:
    gathers = [stands(0, "gather", number=0), stands(1, number=0), elsewhere(2, number=0)]
    assert Collective().evaluate(snapshot(*gathers)).holds is False, "rank 0 may wait for rank 2"
    sends = [stands(0, "broadcast", number=20), elsewhere(1, number=500)]
    assert Collective().evaluate(snapshot(*sends, elsewhere(2, number=3), **WAITS)).holds is False, "rank 1 computes"
    assert Collective().evaluate(snapshot(*sends, elsewhere(2, number=3, state="left"))).holds is False
    idle = {"Rank-1": "passive", "Rank-2": "passive"}
    lost = Collective().evaluate(snapshot(*sends, elsewhere(2, number=3, state="left"), status=idle))
    assert (lost.holds, lost.evidence["stuck"]) == (True, ["Rank-0"])


def test_groups_of_one_name_are_two() -> None:
    lost = {"group": "world", "size": 2, "members": [stands(1), elsewhere(0, state="left")]}
    slow = {"group": "world", "size": 2, "members": [stands(0), elsewhere(2)]}
    for groups in ([lost, slow], [slow, lost]):
        assert Collective().evaluate(snapshot(coverage={"collectives": groups})).evidence["stuck"] == ["Rank-1"]


def test_another_thread_of_a_rank_that_waits_may_enter_the_collective() -> None:
    acts = snapshot(stands(0), stands(1), elsewhere(2), uncovered=("thread trainer of Rank-2",), **WAITS)
    assert Collective().evaluate(acts).holds is None
    beside = snapshot(stands(0), stands(1), elsewhere(2), uncovered=("thread pump of Rank-0",), **WAITS)
    assert Collective().evaluate(beside).holds is True


def test_where_torch_counts_nothing_it_may_be_one_after_the_other() -> None:
    members = [stands(0, number=-1), stands(1, number=-1), elsewhere(2, number=-1)]
    assert Collective().evaluate(snapshot(*members, **WAITS)).holds is None
    gone = elsewhere(2, number=-1, state="died")
    assert Collective().evaluate(snapshot(*members[:2], gone, status={"Rank-2": "gone"})).holds is None


def test_another_call_that_is_stuck_says_nothing_of_the_collective_nor_hides_what_is_not_known() -> None:
    beside = {"machine": "Rank-0", "method": "stop", "call_id": "driver/0/Rank-0/2"}
    itself = {"machine": "Rank-0", "call_id": beside["call_id"], "on_machine": "Rank-0", "k": 1}
    itself["on_call_id"] = beside["call_id"]
    rows: dict[str, Any] = {"calls": [beside], "waits": [itself]}
    slow = snapshot(stands(0), stands(1), elsewhere(2), **rows)
    assert Collective().evaluate(slow).holds is None, "rank 2 computes"
    whole = Collective().evaluate(snapshot(*map(stands, range(3)), **rows))
    assert whole.evidence["depends_on"][0] == "what keeps all_reduce of group world from completing"


def test_a_thousand_ranks_in_two_collectives_are_told_soon() -> None:
    members = [stands(n, "all_reduce" if n % 2 else "broadcast") for n in range(1_000)]
    rows = [{"machine": f"Rank-{n}", "status": "active"} for n in range(1_000)]
    calls = [{"machine": f"Rank-{n}", "method": "step", "call_id": call(n)} for n in range(1_000)]
    told = {"uncovered": [], "collectives": [{"group": "world", "size": 1_000, "members": members}]}
    many = rs.Snapshot.from_rows(started_at=NOW, machines=rows, calls=calls, coverage=told)
    began = time.process_time()
    assert Collective().evaluate(many).evidence["stuck"] == sorted(f"Rank-{n}" for n in range(1_000))
    assert time.process_time() - began < 2.5, "no row for each two of them"


def test_a_rank_behind_an_earlier_collective_has_begun_the_later_ones_too() -> None:
    behind = [stands(rank, begun=414) for rank in range(2)]
    assert Collective().evaluate(snapshot(*behind, elsewhere(2), status={"Rank-2": "passive"})).holds is True
    other_name = snapshot(stands(0, begun=412), stands(1, "sparse_all_reduce"), size=2)
    assert Collective().evaluate(other_name).holds is None, "of one collective torch has two names"
