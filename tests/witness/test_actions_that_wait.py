"""Actions that wait inside, on traces that are written by hand: done again step by step, each with a colour of its own."""

import re
from pathlib import Path
from typing import Any

import pytest
import waiting_machines
from test_blame import history_of
from witness_machines import NOON, Trace, handle, message

import ray_snapshot as rs
from ray_snapshot import Snapshot, detectors, testing
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.witness import asking
from ray_snapshot.witness.blame import blame
from ray_snapshot.witness.log import DiffersError, NotReplayableError, log_of
from ray_snapshot.witness.proof import Witness, WitnessedSnapshot, prove
from ray_snapshot.witness.steps import actions_of

MODULES = ["waiting_machines"]
CLASSES = "waiting_machines:"
SITE = "app.py:7"


def call(target: str, number: int, method: str, *args: Any, name: str) -> Any:
    return message({"target": target}, number, method, *args, kind="call", call_id=name, ref="ab" * 28)


def taken(source: str, number: int, method: str, *args: Any, name: str) -> Any:
    return message({"source": source}, number, method, *args, kind="call", call_id=name)


def wait(place: int, *calls: str, at: int, colour: int = 0, k: int | None = None, **more: Any) -> dict[str, Any]:
    """A wait behind `place` messages; `at`: milliseconds of the trace at which it is over; `came=None`: it is not."""
    found = {"place": place, "function": "get", "k": k or len(calls), "calls": [*calls], "site": SITE, **more}
    if found.get("came") is None:
        return {name: value for name, value in found.items() if name != "came"}
    return {**found, "colour": colour, "at": int(NOON.timestamp() * 1e6) + at * 1_000}


class Order:
    """A runner `r` of class `Runner` draws twice from the vault `v`, and tells `p`; all in one action."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.trace.create("v", 60, class_name=f"{CLASSES}Vault")
        self.trace.create("p", class_name=f"{CLASSES}Porter")
        self.trace.create("r", handle("v"), handle("p"), class_name=f"{CLASSES}Runner")

    def run(self, colours: tuple[int, int, int] = (0, 0, 0)) -> Trace:
        """The row of the waiting action is the last one, though the vault answers in the middle of it."""
        trace = self.trace
        trace.act("driver", "send", [], [message({"target": "r"}, 1, "both", 5, 3)])
        at = len(trace.rows)
        trace.act("v", "draw", [taken("r", 1, "draw", 5, name="h/1")], [])
        trace.act("v", "draw", [taken("r", 2, "draw", 3, name="h/2")], [])
        trace.act(
            "r", "both", [message({"source": "driver"}, 1, "both", 5, 3)],
            [call("v", 1, "draw", 5, name="h/1"), message({"target": "p"}, 1, "hear", 5),
             call("v", 2, "draw", 3, name="h/2"), message({"target": "p"}, 2, "hear", 8)],
            colour=colours[0],
            waits=[wait(1, "h/1", at=at, colour=colours[1], came={"values": [5]}),
                   wait(3, "h/2", at=at + 1, colour=colours[2], came={"values": [3]})],
        )  # fmt: skip
        row = trace.rows[-1]
        row["acted_at"], row["waited_at"] = NOON, SITE
        return trace


def recorded_inside() -> WitnessedSnapshot:
    """The snapshot that has the runner behind its first draw, at its second wait."""
    recorded = WitnessedSnapshot("s", 1)
    recorded.states = {
        "v": {"coins": 55, "is_hasty": False, "asked": 1},
        "p": {"fetched": [], "heard": 0},
        "r": {"vault": handle("v"), "porter": handle("p"), "coins": 5, "is_busy": True},
    }
    recorded.strings = {("r", "v", "call"): [(2, "draw", [3])], ("r", "p", "mail"): [(1, "hear", [5])]}
    recorded.counts = {
        ("driver", "r", "mail"): (1, 1), ("r", "v", "call"): (2, 1), ("r", "p", "mail"): (1, 0)
    }  # fmt: skip
    recorded.waiting = {"r": {"h/2"}}
    return recorded


def inside() -> Trace:
    trace = Order().run((0, 0, 1))
    next(row for row in trace.rows if row["machine"] == "v" and row["number"] == 3)["colour"] = 1
    return trace


def proof_of(trace: Trace, recorded: WitnessedSnapshot) -> Witness:
    return prove("run", log_of(actions_of(trace.rows)), recorded, modules=MODULES)


def problem_of(trace: Trace, recorded: WitnessedSnapshot) -> str:
    try:
        found = proof_of(trace, recorded).problem
    except (DiffersError, NotReplayableError) as error:
        return str(error)
    assert found is not None
    return str(found)


def test_a_machine_may_be_white_in_one_step_of_an_action_and_red_in_the_next() -> None:
    proof = proof_of(inside(), recorded_inside())
    assert proof.problem is None
    assert [str(action) for action in proof.red] == ["action 3 of v (draw)", "action 2 of r (both), step 3"]
    assert proof.cut == {"driver": 4, "v": 2, "p": 1, "r": 3}


def test_what_is_shown_of_a_wait_is_what_the_machine_was_in_it_and_not_behind_its_finally() -> None:
    recorded = recorded_inside()
    recorded.states["r"]["is_busy"] = False
    assert "is_busy: true against false" in problem_of(inside(), recorded)


def _row(trace: Trace) -> dict[str, Any]:
    return trace.rows[-1]


def _swap_replies(trace: Trace) -> None:
    first, second = _row(trace)["waits"]
    first["came"], second["came"] = second["came"], first["came"]


def _swap_calls(trace: Trace) -> None:
    first, second = _row(trace)["waits"]
    first["calls"], second["calls"] = second["calls"], first["calls"]


def _split_early(trace: Trace) -> None:
    _row(trace)["waits"][1]["place"] = 2


def _split_late(trace: Trace) -> None:
    _row(trace)["waits"][0]["place"] = 2


def _lose_a_wait(trace: Trace) -> None:
    del _row(trace)["waits"][0]


def _lose_all_waits(trace: Trace) -> None:
    _row(trace).update(waits=None, waited_at=None)


def _one_wait_too_many(trace: Trace) -> None:
    waits = _row(trace)["waits"]
    waits.append({**waits[1], "place": 4, "at": waits[1]["at"] + 1})


def _other_value(trace: Trace) -> None:
    _row(trace)["waits"][0]["came"] = {"values": [6]}


def _error_for_a_value(trace: Trace) -> None:
    _row(trace)["waits"][1]["came"] = {"error": {"type": "Refused", "own": False, "text": "3 of 2", "told": "..."}}


def _two_for_one(trace: Trace) -> None:
    _row(trace)["waits"][1].update(calls=["h/1", "h/2"], k=2, came={"values": [5, 3]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_swap_replies, "behind its wait at app.py:7 it got 3 in the reply of v to call 1 of r, which is 5 here"),
        (_swap_calls, "step 2 is white, and lies behind one that is not there, or behind itself"),
        (_split_early, "step 3 is white, and lies behind one that is not there, or behind itself"),
        (_split_late, "step 1 sends nothing here as its message 2, and sent hear(5) to p then"),
        (_lose_a_wait, "step 1 waits at"),
        (_lose_all_waits, "action 2 of r (both) waits at"),
        (_one_wait_too_many, "is over here, and waited at app.py:7 then"),
        (_other_value, "got 6 in the reply of v to call 1 of r, which is 5 here"),
        (_error_for_a_value, "got Refused: 3 of 2, but the reply of v to call 2 of r is 3 here"),
        (_two_for_one, "step 2 waits at"),
    ],
)
def test_a_trace_whose_waits_were_changed_is_found(change: Any, words: str) -> None:
    trace = Order().run()
    change(trace)
    assert words in problem_of(trace, WitnessedSnapshot("s", 1))


def test_a_red_reply_behind_which_a_white_step_goes_on_is_named_with_who_gave_it() -> None:
    trace = Order().run((0, 0, 1))
    next(row for row in trace.rows if row["machine"] == "v" and row["number"] == 2)["colour"] = 1
    next(row for row in trace.rows if row["machine"] == "v" and row["number"] == 3)["colour"] = 1
    recorded = recorded_inside()
    del recorded.states["v"]
    text = problem_of(trace, recorded)
    assert (
        "step 2 is white and accepts the reply of v to call 1 of r, which action 2 of v (draw) sent when it was" in text
    )


def test_who_waits_in_the_snapshot_and_who_does_not_is_compared() -> None:
    recorded = recorded_inside()
    recorded.waiting = {}
    assert "waits at app.py:7; in the snapshot it waits for nothing" in problem_of(inside(), recorded)
    recorded.waiting = {"r": {"h/1"}}
    assert "r waits in the snapshot for the calls h/1, and its last white action is" in problem_of(inside(), recorded)
    recorded.waiting = {"r": {"h/2"}, "v": {"h/9"}}
    assert "v waits in the snapshot for the calls h/9" in problem_of(inside(), recorded)


def test_an_action_that_the_trace_has_not_yet_is_named() -> None:
    trace = Order().trace
    recorded = WitnessedSnapshot("s", 1, waiting={"r": {"h/1"}})
    with pytest.raises(NotReplayableError, match="r waits in the snapshot inside an action that the trace has not yet"):
        proof_of(trace, recorded)


def test_an_action_that_waits_for_ever_is_done_as_far_as_it_came() -> None:
    trace = Order().run()
    row = _row(trace)
    row["waits"][1] = {name: item for name, item in row["waits"][1].items() if name not in ("came", "colour", "at")}
    row["is_over"] = False
    del row["sent"][3:]
    trace.rows = [one for one in trace.rows if (one["machine"], one["number"]) != ("v", 3)]
    recorded = recorded_inside()
    assert proof_of(trace, recorded).problem is None


def one_action(method: str, *args: Any, sent: list[Any], waits: list[dict[str, Any]], **more: Any) -> Trace:
    """An asker `k` is sent one message."""
    trace = Trace()
    trace.create("v", 9, class_name=f"{CLASSES}Vault")
    trace.create("k", class_name=f"{CLASSES}Asker")
    trace.act("driver", "send", [], [message({"target": "k"}, 1, method, *args)])
    trace.act("k", method, [message({"source": "driver"}, 1, method, *args)], sent, waits=waits, waited_at=SITE, **more)
    return trace


def performed(trace: Trace) -> testing.__class__ | Any:
    """What a machine holds at the end, by name."""
    from ray_snapshot.witness.modules import Modules
    from ray_snapshot.witness.stage import Stage

    with Stage("run", Modules(frozenset(MODULES))) as stage:
        log = log_of(actions_of(trace.rows))
        for action in log.actions:
            stage.perform(action)
        assert not log.left_out
        return stage.states()


def test_what_cannot_be_pickled_is_an_error_for_who_asks() -> None:
    said = {"type": "UnpicklableMessageError", "own": True, "text": "v.odd returned what cannot be pickled"}
    trace = one_action("odd", handle("v"), sent=[call("v", 1, "odd", name="h/1")],
                       waits=[wait(1, "h/1", at=9, came={"error": said})])  # fmt: skip
    trace.act("v", "odd", [taken("k", 1, "odd", name="h/1")], [])
    assert performed(trace)["k"] == {"found": ["UnpicklableMessageError"]}


def test_a_wait_that_ran_out_of_time_does_so_again_whatever_has_come() -> None:
    late = {"type": "GetTimeoutError", "own": True, "text": "Get timed out"}
    trace = one_action(
        "late", handle("v"), sent=[call("v", 1, "back", handle("k"), name="h/1")],
        waits=[wait(1, "h/1", at=8, timeout=0.05, came={"error": late}),
               wait(1, "h/1", at=9, k=1, function="wait", timeout=0.05, came={"places": []})],
    )  # fmt: skip
    assert performed(trace)["k"] == {"found": ["late", 0]}


def test_a_call_to_a_machine_that_has_stopped_is_refused_again() -> None:
    said = {"type": "MachineStoppedError", "own": True, "text": "v has stopped; it did not accept the call"}
    trace = one_action("odd", handle("v"), sent=[call("v", 1, "odd", name="h/1")],
                       waits=[wait(1, "h/1", at=9, came={"error": said})])  # fmt: skip
    assert performed(trace)["k"] == {"found": ["MachineStoppedError"]}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"foreign": True, "came": {"values": [3]}}, "waits at app.py:7 for more than calls of machines"),
        ({"came": {"unknown": True}}, "goes on behind a wait at app.py:7 that ended in an error that is not Ray's"),
        (
            {"came": {"error": {"type": "HostDiedError", "own": True, "text": "gone"}}},
            "a wait at app.py:7 that ended in HostDiedError: gone: what ends a process is in no trace",
        ),
    ],
)
def test_what_cannot_be_done_again_is_told_with_machine_method_and_line(more: Any, words: str) -> None:
    trace = one_action("odd", handle("v"), sent=[call("v", 1, "odd", name="h/1")], waits=[wait(1, "h/1", at=9, **more)])
    with pytest.raises(NotReplayableError) as found:
        performed(trace)
    assert "action 2 of k (odd), step" in str(found.value)
    assert words in str(found.value)


def test_what_is_put_into_rays_store_is_told() -> None:
    with pytest.raises(
        NotReplayableError, match=r"action 2 of k \(foreign\).*ray.put: where a run is done again there is no"
    ):
        performed(one_action("foreign", sent=[], waits=[wait(0, at=9, came={"unknown": True})]))


def test_a_trace_of_an_older_version_says_so() -> None:
    trace = one_action("foreign", sent=[], waits=[])
    with pytest.raises(NotReplayableError, match=r"waited inside for a reply, at app\.py:7: .* an older version"):
        performed(trace)


@pytest.mark.parametrize("method", ["swallow", "moody"])
def test_code_that_cannot_be_unwound_or_is_not_deterministic_is_named(method: str) -> None:
    waiting_machines.MOODS[:] = []
    trace = one_action(
        method, handle("v"), sent=[message({"target": "v"}, 1, "add", 1), call("v", 1, "look", name="h/1")],
        waits=[wait(2, "h/1", at=9, came={"values": [{"coins": 9, "asked": 0}]})],
    )  # fmt: skip
    trace.act("v", "look", [taken("k", 1, "look", name="h/1")], [])
    with pytest.raises((NotReplayableError, DiffersError)) as found:
        performed(trace)
    lines = Path(waiting_machines.__file__).read_text().splitlines()
    if method == "swallow":
        line = next(at for at, text in enumerate(lines, 1) if "except BaseException" in text)
        assert f"the handler at {waiting_machines.__file__}:{line} catches BaseException" in str(found.value)
    else:
        assert "sends add(2) to v as message 1 of its action, and add(1) to v when that was done before" in str(
            found.value
        )


@pytest.mark.parametrize(
    "waits",
    [
        3, [3], [{}], [{"place": "x"}], [{"place": 0, "function": "get", "k": 1, "calls": 3, "site": None}],
        [{"place": 9, "function": "get", "k": 1, "calls": [], "site": None}],
        [{"place": 0, "function": "get", "k": 1, "calls": [], "site": None, "came": {"values": 3}, "colour": 0, "at": 0}],
        [{"place": 0, "function": "get", "k": 1, "calls": [], "site": None, "came": {}, "colour": 0, "at": 10**40}],
        [{"place": 0, "function": "wait", "k": 1, "calls": [], "site": None, "came": {"places": [7]}, "colour": 0, "at": 0}],
    ],
)  # fmt: skip
def test_waits_that_are_none_are_one_line(waits: Any, tmp_path: Path) -> None:
    trace = one_action("foreign", sent=[], waits=waits)
    with pytest.raises((HistoryFormatError, DiffersError, NotReplayableError)) as found:
        testing.possibly(history_of(tmp_path / "h", trace), "latest", lambda _: False, modules=MODULES)
    assert "\n" not in str(found.value)


# ---- what uses the witness -------------------------------------------------------------------------------------------


def test_a_cut_inside_an_action_is_a_cut_and_replies_order_it(tmp_path: Path) -> None:
    history = history_of(tmp_path / "h", Order().run())

    def half(states: Any) -> bool:
        return "r" in states and states["r"].coins == 5

    found = testing.possibly(history, "latest", half, modules=MODULES)
    assert (found.holds, found.cut["r"] if found.cut else None) == (True, 3)
    assert testing.definitely(history, "latest", half, modules=MODULES).holds is True

    def too_early(states: Any) -> bool:
        """The runner has what the vault has not given: only without the edge from the reply."""
        return {"r", "v"} <= {*states} and states["r"].coins + states["v"].coins > 60

    assert testing.possibly(history, "latest", too_early, modules=MODULES).holds is False
    found.diagram(tmp_path / "cut.svg")


def test_who_waits_for_whom_is_known_on_every_cut(tmp_path: Path) -> None:
    """Two that wait for each other: a deadlock that no snapshot has seen; and one that waits for who will answer."""
    trace = Trace()
    for name in "ab":
        trace.create(name, class_name=f"{CLASSES}Asker")
    for name, other in ("ab", "ba"):
        trace.act("driver", "send", [], [message({"target": name}, 1, "lock", handle(other))])
        trace.act(
            name, "lock", [message({"source": "driver"}, 1, "lock", handle(other))],
            [call(other, 1, "size", name=f"{name}/1")], waits=[wait(1, f"{name}/1", at=0)], waited_at=SITE, is_over=False,
        )  # fmt: skip
    locked = history_of(tmp_path / "locked", trace)
    assert testing.possibly(locked, "latest", detectors.Deadlock(), modules=MODULES).holds is True
    free = history_of(tmp_path / "free", Order().run())
    found = testing.possibly(free, "latest", detectors.Deadlock(), modules=MODULES)
    assert (found.holds, found.reason) == (False, None), "nor where a machine that is waited for is not made yet"


def test_why_it_is_not_known_is_told(tmp_path: Path) -> None:
    history = history_of(tmp_path / "free", Order().run())

    @rs.detector
    def perhaps(snapshot: rs.Snapshot) -> bool | None:
        return None if snapshot.machine_count else False

    found = testing.possibly(history, "latest", perhaps, modules=MODULES)
    assert found.holds is None
    assert re.match(r"behind (\d of \w+(, )?)+ it cannot be told: \S", str(found.reason)), found.reason
    found = testing.possibly(history, "latest", lambda _: False, modules=MODULES, most_cuts=2)
    assert (found.holds, found.reason) == (None, "not within 2 cuts")


def test_what_the_driver_has_heard_is_behind_what_it_then_sends(tmp_path: Path) -> None:
    trace = Trace()
    trace.create("v", 60, class_name=f"{CLASSES}Vault")
    trace.create("p", class_name=f"{CLASSES}Porter")
    trace.act("driver", "send", [], [call("v", 1, "draw", 5, name="d/1")])
    trace.act("v", "draw", [taken("driver", 1, "draw", 5, name="d/1")], [])
    trace.act("driver", "get", [], [], waits=[wait(0, "d/1", at=5, came={"values": [5]})], waited_at=SITE)
    trace.act("driver", "send", [], [message({"target": "p"}, 1, "hear", 5)])
    trace.act("p", "hear", [message({"source": "driver"}, 1, "hear", 5)], [])

    def heard_of_nothing(states: Any) -> bool:
        return len(states) == 2 and states["p"].heard == 5 and states["v"].coins == 60

    history = history_of(tmp_path / "h", trace)
    assert testing.possibly(history, "latest", heard_of_nothing, modules=MODULES).holds is False
    trace.rows[6]["waits"][0]["came"] = {"values": [4]}
    with pytest.raises(
        DiffersError, match=r"action 4 of driver \(get\) .* got 4 in the reply of v to call 1 of driver"
    ):
        testing.possibly(history_of(tmp_path / "x", trace), "latest", heard_of_nothing, modules=MODULES)


def test_the_step_that_breaks_a_law_is_blamed_with_its_line() -> None:
    @rs.detector(stable=False, alarm_when=True)
    def rich(snapshot: Snapshot) -> Any:
        return any(one.state.get("coins") == 8 for one in snapshot.machines.values())

    found = blame("run", log_of(actions_of(Order().run().rows)), rich, MODULES)
    assert found.action is not None
    assert str(found.action) == "action 2 of r (both), step 3"
    assert found.source == SITE
    assert found.before is not None
    assert (found.before["coins"], found.after["coins"]) == (5, 8)


def test_what_the_program_hears_beside_its_calls_is_no_matter() -> None:
    trace = Trace()
    trace.create("v", 60, class_name=f"{CLASSES}Vault")
    trace.act("driver", "send", [], [call("v", 1, "draw", 5, name="d/1")])
    trace.act("v", "draw", [taken("driver", 1, "draw", 5, name="d/1")], [])
    gone = {"error": {"type": "HostDiedError", "own": True, "text": "gone"}}
    for more in ({"foreign": True, "came": {"values": [5, "of a task"]}}, {"came": gone}):
        trace.act("driver", "get", [], [], waits=[wait(0, "d/1", at=9, **more)], waited_at=SITE)
    assert performed(trace)["v"]["coins"] == 55


def test_from_a_snapshot_that_has_a_machine_inside_an_action_its_end_cannot_be_done_again() -> None:
    end = WitnessedSnapshot("end", 2)
    with pytest.raises(
        NotReplayableError, match=r"step 3 lies inside an action whose beginning is not done again here"
    ):
        prove("run", log_of(actions_of(inside().rows)), end, start=recorded_inside(), modules=MODULES)


def test_what_machines_say_between_their_actions_is_asked_on_every_cut(tmp_path: Path) -> None:
    trace = Trace()
    for name, other in ("ab", "ba"):
        trace.create(name, class_name=f"{CLASSES}Shop")
        trace.act("driver", "send", [], [message({"target": name}, 1, "want", handle(other))])
        trace.act(name, "want", [message({"source": "driver"}, 1, "want", handle(other))], [])
    history = history_of(tmp_path / "h", trace)
    assert testing.definitely(history, "latest", detectors.Deadlock(), modules=MODULES).holds is True


def test_who_was_refused_by_a_machine_that_has_stopped_is_behind_its_stop(tmp_path: Path) -> None:
    said = {"type": "MachineStoppedError", "own": True, "text": "v has stopped; it did not accept the call"}
    trace = Trace()
    trace.create("v", class_name=f"{CLASSES}Shop")
    trace.create("k", class_name=f"{CLASSES}Asker")
    trace.act("driver", "send", [], [message({"target": "v"}, 1, "close")])
    trace.act("v", "close", [message({"source": "driver"}, 1, "close")], [])
    trace.act("driver", "send", [], [message({"target": "k"}, 1, "odd", handle("v"))])
    trace.act(
        "k", "odd", [message({"source": "driver"}, 1, "odd", handle("v"))], [call("v", 1, "odd", name="h/1")],
        waits=[wait(1, "h/1", at=9, came={"error": said})], waited_at=SITE,
    )  # fmt: skip
    run = asking._Run("run", log_of(actions_of(trace.rows)), MODULES)
    place = {name: at for at, name in enumerate(run.causes.machines)}
    assert run.causes.known[place["k"]][3][place["v"]] == 2, "the stop is behind what it is told of"
    assert run.causes.known[place["k"]][2][place["v"]] == 0


def test_who_was_refused_by_one_of_two_is_behind_the_one_whose_error_it_got() -> None:
    """The other had refused before: what is there when a list is asked for comes in the order of the list."""
    trace = Trace()
    for name in ("v", "w"):
        trace.create(name, 9, class_name=f"{CLASSES}Vault")
    trace.create("k", class_name=f"{CLASSES}Asker")
    trace.act("driver", "send", [], [message({"target": "k"}, 1, "two", handle("w"), handle("v"))])
    trace.act("v", "draw", [taken("k", 1, "draw", 99, name="h/2")], [], raised="Refused")
    trace.act("w", "draw", [taken("k", 1, "draw", 98, name="h/1")], [], raised="Refused")
    said = {"type": "Refused", "own": False, "text": "98 of 9", "told": "98 of 9"}
    trace.act(
        "k", "two", [message({"source": "driver"}, 1, "two", handle("w"), handle("v"))],
        [call("w", 1, "draw", 98, name="h/1"), call("v", 1, "draw", 99, name="h/2")],
        waits=[wait(2, "h/1", "h/2", at=19, came={"error": said})], waited_at=SITE,
    )  # fmt: skip
    trace.rows[-1]["acted_at"] = NOON
    run = asking._Run("run", log_of(actions_of(trace.rows)), MODULES)
    place = {name: at for at, name in enumerate(run.causes.machines)}
    known = run.causes.known[place["k"]][3]
    assert (known[place["w"]], known[place["v"]]) == (2, 0)


def test_who_was_refused_is_not_behind_the_stop_of_another_that_it_brings_about() -> None:
    said = {"type": "MachineStoppedError", "own": True, "text": "v has stopped; it did not accept the call"}
    trace = Trace()
    for name in ("v", "w"):
        trace.create(name, class_name=f"{CLASSES}Shop")
    trace.create("k", class_name=f"{CLASSES}Asker")
    trace.act("driver", "send", [], [message({"target": "v"}, 1, "close")])
    trace.act("v", "close", [message({"source": "driver"}, 1, "close")], [])
    trace.act("driver", "send", [], [message({"target": "k"}, 1, "shut", handle("v"), handle("w"))])
    trace.act(
        "k", "shut", [message({"source": "driver"}, 1, "shut", handle("v"), handle("w"))],
        [call("w", 1, "look", name="h/1"), call("v", 1, "look", name="h/2"), message({"target": "w"}, 1, "close")],
        waits=[wait(2, "h/1", "h/2", at=len(trace.rows), came={"error": said})], waited_at=SITE,
    )  # fmt: skip
    trace.act("w", "close", [message({"source": "k"}, 1, "close")], [])
    run = asking._Run("run", log_of(actions_of(trace.rows)), MODULES)
    assert run.bodies["k"][-1].found == ["v"], "the error is of the machine that has stopped"
    place = {name: at for at, name in enumerate(run.causes.machines)}
    known = run.causes.known[place["k"]][3]
    assert (known[place["v"]], known[place["w"]]) == (2, 0)


@pytest.mark.parametrize(
    "more",
    [
        {"function": "wait", "k": 1, "came": {"places": [5]}},
        {"function": "wait", "k": 1, "came": {"places": [-1]}},
        {"function": "wait", "k": 1, "came": {"places": ["one"]}},
        {"function": "wait", "k": 1, "came": {"places": [0, 0]}},
        {"came": {"error": {"type": ["x"], "text": "no"}}},
        {"came": {"error": {"type": "MachineStoppedError", "own": True, "text": 3}}},
        {"came": {"error": {"type": "Refused", "text": "no", "told": 3}}},
    ],
)
def test_what_no_wait_can_have_got_is_no_row_of_a_trace(tmp_path: Path, more: Any) -> None:
    trace = one_action("odd", handle("v"), sent=[call("v", 1, "odd", name="h/1")], waits=[wait(1, "h/1", at=9, **more)])
    with pytest.raises(HistoryFormatError, match="table actions has a row that is none"):
        testing.possibly(history_of(tmp_path / "h", trace), "latest", {"k": bool}, modules=MODULES)
