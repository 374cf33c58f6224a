"""Histories forged so that everything recorded fits together: what is still impossible is found, and named.

In each, an action is done for which no run of these machines could be: the states and counts of the snapshot have been
changed along with it, so that only the rule which the test is named after can tell.
"""

from typing import Any

import pytest
from test_witness_by_hand import proof_of, two_purses
from witness_machines import Trace, message

from ray_snapshot.witness.log import DiffersError
from ray_snapshot.witness.proof import WitnessedSnapshot


def one_purse(*coins: int) -> tuple[Trace, WitnessedSnapshot]:
    """The driver gives p so many coins, a message each; p accepts them, and then the snapshot is taken."""
    trace = Trace()
    trace.create("p", 10)
    for number, amount in enumerate(coins, 1):
        trace.act("driver", "send", [], [message({"target": "p"}, number, "take", amount)])
    for number, amount in enumerate(coins, 1):
        trace.act("p", "take", [message({"source": "driver"}, number, "take", amount)], [])
    recorded = WitnessedSnapshot("s", 1, {"p": {"coins": 10 + sum(coins)}})
    recorded.counts = {("driver", "p", "mail"): (len(coins), len(coins))}
    return trace, recorded


def driver_s(trace: Trace, place: int) -> dict[str, Any]:
    """What the driver sent in its action behind the creation, by place."""
    found: dict[str, Any] = [row for row in trace.rows if row["machine"] == "driver"][1 + place]["sent"][0]
    return found


def accepted(trace: Trace, place: int) -> dict[str, Any]:
    found: dict[str, Any] = [row for row in trace.rows if row["machine"] == "p"][1 + place]["accepted"][0]
    return found


def verdict_on(trace: Trace, recorded: WitnessedSnapshot, **more: Any) -> str:
    """What the witness says of it; empty if it takes it for proven."""
    try:
        proof = proof_of(trace, recorded, **more)
    except DiffersError as error:
        return str(error)
    return "" if proof.problem is None else str(proof.problem)


def test_what_was_not_forged_is_proven() -> None:
    assert verdict_on(*one_purse(4, 2)) == ""


def test_a_message_that_is_sent_and_accepted_twice() -> None:
    trace, recorded = one_purse(4, 4)
    driver_s(trace, 1)["number"] = accepted(trace, 1)["number"] = 1
    assert "action 3 of driver (send) sent mail 1 from driver to p, and it was sent before" in verdict_on(
        trace, recorded
    )


def test_two_messages_of_the_driver_that_changed_places() -> None:
    trace, recorded = one_purse(4, 2)
    for end in (driver_s, accepted):
        end(trace, 0)["number"], end(trace, 1)["number"] = 2, 1
    assert "sent mail 2 from driver to p, and nobody sent number 1" in verdict_on(trace, recorded)


def test_a_machine_that_is_created_twice() -> None:
    trace, recorded = one_purse(4)
    trace.create("p", 14)
    recorded.states["p"] = {"coins": 14}
    assert "sent the creation of p, and it was sent before" in verdict_on(trace, recorded)


def test_a_cut_that_is_no_beginning_of_a_machine_s_actions() -> None:
    """The driver is red and then white again, which no state shows: it has none."""
    trace = Trace()
    for name in ("p", "q"):
        trace.create(name, 10)
    trace.act("driver", "send", [], [message({"target": "p"}, 1, "take", 1)], colour=1)
    trace.act("driver", "send", [], [message({"target": "q"}, 1, "take", 1)], colour=0)
    recorded = WitnessedSnapshot("s", 1, {"p": {"coins": 10}, "q": {"coins": 10}})
    recorded.strings = {("driver", "q", "mail"): [(1, "take", [1])]}
    recorded.counts = {("driver", "q", "mail"): (1, 0)}
    assert "action 4 of driver (send) has colour 0 behind action 3 of driver (send), which had colour 1" in verdict_on(
        trace, recorded
    )


def test_an_action_that_runs_another_method_than_its_message_names() -> None:
    trace, recorded = one_purse(4)
    trace.rows[-1]["method"] = "__init__"
    recorded.states["p"] = {"coins": 4}
    assert "action 2 of p (__init__) accepted take, of which __init__ is not made" in verdict_on(trace, recorded)


def test_arguments_that_say_one_thing_and_do_another() -> None:
    trace, recorded = one_purse(4)
    driver_s(trace, 0)["exact"] = [5]
    recorded.states["p"] = {"coins": 15}
    assert "take(4) has a second form of its arguments that says something else" in verdict_on(trace, recorded)


@pytest.mark.parametrize("forged", [14.0, True])
def test_a_state_that_is_only_nearly_the_same(forged: Any) -> None:
    trace, recorded = one_purse(4) if forged is not True else one_purse(-9)
    recorded.states["p"] = {"coins": forged}
    assert "p holds" in verdict_on(trace, recorded)


def test_a_beginning_whose_channel_holds_another_message_than_was_sent() -> None:
    trace, recorded = two_purses()
    for row in trace.rows[6:8]:
        row["colour"] = 1
    for row in trace.rows[8:]:
        row["colour"] = 2
    recorded.number = 2
    start = WitnessedSnapshot("first", 1, {"a": {"coins": 6}, "b": {"coins": 10}})
    start.counts = {("a", "b", "mail"): (1, 0), ("driver", "a", "mail"): (1, 1)}
    start.strings = {("a", "b", "mail"): [(1, "take", [4])]}
    assert verdict_on(trace, recorded, start=start) == ""
    start.strings = {("a", "b", "mail"): [(1, "take", [400])]}
    assert "mail 1 from a to b is take(400) in S0, and take(4) in the trace" in verdict_on(trace, recorded, start=start)


@pytest.mark.parametrize("raised", [None, "KeyError", "UnknownMethodError"])
def test_a_message_for_a_method_that_there_is_not_is_an_answer_and_no_fault(raised: str | None) -> None:
    trace, recorded = one_purse(4)
    trace.act("driver", "send", [], [message({"target": "p"}, 2, "juggle")], colour=1)
    trace.act("p", "juggle", [message({"source": "driver"}, 2, "juggle")], [], colour=1, raised=raised)
    text = verdict_on(trace, recorded)
    assert (text == "") is (raised == "UnknownMethodError"), text


def test_arguments_that_were_too_large_to_be_logged_are_named_with_their_action() -> None:
    trace, recorded = one_purse(4)
    cut = {"$truncated": {"bytes": 9_000_000, "sha256": "ab", "head": [4]}}
    driver_s(trace, 0)["args"] = accepted(trace, 0)["args"] = cut
    with pytest.raises(Exception, match=r"action 2 of p \(take\) cannot be done again: .*truncated"):
        proof_of(trace, recorded)
