"""The theorem on traces that are written by hand: what is proven, and what is found to differ."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment
from witness_machines import Trace, handle, message

import ray_snapshot.witness.stage
from ray_snapshot.commands.witness import _print
from ray_snapshot.witness.log import DiffersError, NotReplayableError, log_of
from ray_snapshot.witness.proof import Witness, WitnessedSnapshot, prove
from ray_snapshot.witness.steps import actions_of


def two_purses() -> tuple[Trace, WitnessedSnapshot]:
    """a gives b 4 coins and then 2; the snapshot records a behind both and b in front of both; then b accepts them."""
    trace = Trace()
    trace.create("a", 10)
    trace.create("b", 10)
    b = handle("b")
    for number, coins in enumerate((4, 2), 1):
        trace.act("driver", "send", [], [message({"target": "a"}, number, "give", b, coins)])
        given = [message({"source": "driver"}, number, "give", b, coins)]
        trace.act("a", "give", given, [message({"target": "b"}, number, "take", coins)])
    for number, coins in enumerate((4, 2), 1):
        trace.act("b", "take", [message({"source": "a"}, number, "take", coins)], [], colour=1)
    recorded = WitnessedSnapshot("s", 1, {"a": {"coins": 4}, "b": {"coins": 10}})
    recorded.strings = {("a", "b", "mail"): [(1, "take", [4]), (2, "take", [2])]}
    recorded.counts = {("a", "b", "mail"): (2, 0), ("driver", "a", "mail"): (2, 2)}
    return trace, recorded


def proof_of(trace: Trace, recorded: WitnessedSnapshot, **more: Any) -> Witness:
    return prove("run", log_of(actions_of(trace.rows)), recorded, **more)


def problem_of(trace: Trace, recorded: WitnessedSnapshot, **more: Any) -> str:
    found = proof_of(trace, recorded, **more).problem
    assert found is not None
    return str(found)


def test_a_true_snapshot_is_proven_and_so_is_its_end() -> None:
    trace, recorded = two_purses()
    end = WitnessedSnapshot(
        "end",
        2,
        {"a": {"coins": 4}, "b": {"coins": 16}},
        counts={("a", "b", "mail"): (2, 2), ("driver", "a", "mail"): (2, 2)},
    )
    proof = proof_of(trace, recorded, others=[end])
    assert proof.problem is None
    assert [len(proof.white), len(proof.red)] == [8, 2]
    assert len(proof.proven) == 4
    assert proof.cut == {"driver": 4, "a": 3, "b": 1}
    assert proof.trivial is None


def test_a_proof_of_the_end_of_a_run_says_that_its_cut_is_trivial(capsys: pytest.CaptureFixture[str]) -> None:
    trace, _ = two_purses()
    end = WitnessedSnapshot("end", 2, {"a": {"coins": 4}, "b": {"coins": 16}})
    end.counts = {("a", "b", "mail"): (2, 2), ("driver", "a", "mail"): (2, 2)}
    proof = proof_of(trace, end)
    assert (proof.problem, len(proof.red)) == (None, 0)
    assert proof.trivial is not None
    _print(proof)
    *_, trivial, proven = capsys.readouterr().out.splitlines()
    assert trivial.startswith("a trivial cut: every action of the trace is before it")
    assert proven == "proven: the snapshot is a state that could have been."


def test_white_actions_come_first_though_red_ones_happened_before_them() -> None:
    """c turns red and accepts a white message long before a and b have done their white actions."""
    early = Trace()
    early.create("c", 1)
    early.act("driver", "send", [], [message({"target": "c"}, 1, "take", 3)])
    early.act("c", "take", [message({"source": "driver"}, 1, "take", 3)], [], colour=1)
    trace, recorded = two_purses()
    for row in trace.rows:
        row["acted_at"] += timedelta(hours=1)
        row["number"] += 2 * (row["machine"] == "driver")
    trace.rows = early.rows + trace.rows
    recorded.states["c"] = {"coins": 1}
    recorded.strings["driver", "c", "mail"] = [(1, "take", [3])]
    recorded.counts["driver", "c", "mail"] = (1, 0)
    proof = proof_of(trace, recorded)
    assert proof.problem is None
    assert [action.colour for action in proof.log.actions[:5]] == [0, 0, 0, 1, 0]
    assert [action.key for action in proof.red] == [("c", 2), ("b", 2), ("b", 3)]


def _two_messages_change_places(trace: Trace, _: WitnessedSnapshot) -> None:
    trace.rows[8]["accepted"], trace.rows[9]["accepted"] = trace.rows[9]["accepted"], trace.rows[8]["accepted"]


def _red_is_accepted_in_white(trace: Trace, recorded: WitnessedSnapshot) -> None:
    """EWD864a, additional remark: the condition is sharp."""
    trace.rows[7]["colour"] = 1  # a was red when it sent its second message,
    trace.rows[8]["colour"] = trace.rows[9]["colour"] = 0  # and b accepted it when it was white
    recorded.states.update(a={"coins": 6}, b={"coins": 16})


def _a_white_action_is_left_out(trace: Trace, _: WitnessedSnapshot) -> None:
    trace.act("a", "take", [message({"source": "c"}, 1, "take", 1)], [], colour=0)


CHANGED: dict[str, tuple[Callable[[Trace, WitnessedSnapshot], object], str]] = {
    "a state that was not held": (
        lambda _, recorded: recorded.states.update(b={"coins": 11}),
        r"behind action 1 of b \(__init__\), b holds .*coins: 10 against 11",
    ),
    "a machine that is not in the snapshot": (
        lambda _, recorded: recorded.states.pop("b"), "the state of b: it is there, but not in the snapshot"
    ),
    "a machine too many": (
        lambda _, recorded: recorded.states.update(c={"coins": 0}), "the state of c: it is not there"
    ),
    "two messages change places": (
        _two_messages_change_places,
        r"action 2 of b \(take\) is impossible here: it accepts number 2 \(take\(2\)\), and the channel a -> b begins with",
    ),
    "a message that the snapshot lacks": (
        lambda _, recorded: recorded.strings["a", "b", "mail"].pop(0),
        r"a -> b holds take\(4\) \(number 1\) as message 1 of 2",
    ),
    "counts": (
        lambda _, recorded: recorded.counts.update({("driver", "a", "mail"): (3, 3)}),
        "sent 2 and accepted 2 messages on driver -> a; the snapshot counts 3 and 3",
    ),
    "red is accepted in white": (
        _red_is_accepted_in_white,
        r"action 3 of b \(take\) is white and accepts take\(2\) from a.*action 3 of a \(give\) sent when it was red",
    ),
    "the last message of a channel was not sent": (
        lambda trace, _: trace.rows[7]["sent"].clear(),
        r"action 3 of a \(give\) sends take\(2\) to b here as its message 1, and sent nothing then",
    ),
    "a white action is left out": (
        _a_white_action_is_left_out,
        r"action 4 of a \(take\) is white, and accepts take\(1\), which no logged action sent",
    ),
    "an argument": (
        lambda trace, _: trace.rows[8]["accepted"][0].update(args=[5]),
        r"accepted take\(5\) from a, but what was sent is take\(4\)",
    ),
    "a class": (
        lambda trace, _: trace.rows[3]["accepted"][0].update({"class": "witness_machines:Moody"}),
        r"action 1 of b \(__init__\) accepted __init__\(10\) of witness_machines:Moody",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), CHANGED.values(), ids=CHANGED)
def test_what_was_changed_is_named(change: Callable[[Trace, WitnessedSnapshot], object], words: str) -> None:
    trace, recorded = two_purses()
    change(trace, recorded)
    assert re.search(words, problem_of(trace, recorded), re.DOTALL)


@pytest.mark.parametrize("end", ["sent", "accepted"])
def test_a_message_dropped_at_one_end_of_the_trace_is_found(end: str) -> None:
    trace, recorded = two_purses()
    row = next(row for row in trace.rows if row["machine"] == ("a" if end == "sent" else "b") and row["number"] == 2)
    row[end].clear()
    try:
        text = problem_of(trace, recorded)
    except DiffersError as error:
        text = str(error)
    assert ("nobody sent number 1" in text) if end == "sent" else ("action 2 of b (take) accepts nothing" in text)


def test_a_row_that_is_missing_is_a_hole() -> None:
    trace, _ = two_purses()
    del trace.rows[5]
    with pytest.raises(DiffersError, match=r"action 3 of a \(give\) comes behind action 1"):
        log_of(actions_of(trace.rows))


def test_what_follows_from_messages_that_nobody_logged_is_left_out_at_the_end() -> None:
    trace, recorded = two_purses()
    trace.act("b", "take", [message({"source": "a"}, 3, "take", 1)], [], colour=1)  # a's host shipped its rest before
    proof = proof_of(trace, recorded)
    assert proof.problem is None
    assert [str(action) for action in proof.log.left_out] == ["action 4 of b (take)"]


def test_an_action_that_lies_across_the_cut_is_named() -> None:
    trace, recorded = two_purses()
    trace.rows[7]["sent"][0]["colour"] = 1
    with pytest.raises(NotReplayableError, match=r"action 3 of a \(give\) was still under way when the snapshot"):
        proof_of(trace, recorded)


def _it_waited(rows: list[Any]) -> None:
    rows[7]["waited_at"] = "bank.py:7"


def _its_class_is_gone(rows: list[Any]) -> None:
    for creation in (rows[2]["sent"][0], rows[3]["accepted"][0]):
        creation["class"] = "no_such_module:Purse"


def _its_argument_is_a_reference(rows: list[Any]) -> None:
    for creation in (rows[2]["sent"][0], rows[3]["accepted"][0]):
        creation["args"] = [{"$objectref": "ab"}]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_it_waited, r"action 3 of a \(give\) waited inside for a reply, at bank.py:7"),
        (_its_class_is_gone, r"the class of b is not to be had: no_such_module:Purse cannot be imported"),
        (_its_argument_is_a_reference, r"action 1 of b \(__init__\) cannot be done again: \$objectref"),
    ],
)
def test_what_cannot_be_done_again_is_named_with_its_action(change: Any, text: str) -> None:
    trace, recorded = two_purses()
    change(trace.rows)
    with pytest.raises(NotReplayableError, match=text):
        proof_of(trace, recorded, modules=["no_such_module"])


def test_the_computation_can_begin_with_an_earlier_snapshot() -> None:
    trace, recorded = two_purses()
    for row in trace.rows[6:8]:
        row["colour"] = 1
    for row in trace.rows[8:]:
        row["colour"] = 2
    start = WitnessedSnapshot(
        "first", 1, {"a": {"coins": 6}, "b": {"coins": 10}}, strings={("a", "b", "mail"): [(1, "take", [4])]}
    )
    start.counts = {("a", "b", "mail"): (1, 0), ("driver", "a", "mail"): (1, 1)}
    recorded.number = 2
    proof = proof_of(trace, recorded, start=start)
    assert proof.problem is None
    assert [len(proof.before), len(proof.white), len(proof.red)] == [6, 2, 2]
    start.states["a"] = {"coins": 7}
    assert "a holds" in problem_of(trace, recorded, start=start)


def test_it_shares_no_code_with_the_protocols() -> None:
    for path in Path(ray_snapshot.witness.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text())
        found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [
            name for name in found if name and name.startswith(("ray_snapshot.protocol", "ray_snapshot.simulation"))
        ]


def test_replaying_loads_neither_ray_nor_a_protocol() -> None:
    code = (
        "import sys, ray_snapshot.witness.proof, ray_snapshot.runtime.mixin\n"
        "print([name for name in sys.modules if name == 'ray' or name.startswith('ray_snapshot.protocol')])"
    )
    done = subprocess.check_output([sys.executable, "-c", code], text=True, env=clean_environment())
    assert done.strip() == "[]"


def test_a_function_in_a_field_is_no_method_though_its_module_was_named() -> None:
    """A stranger's state may hold any function of a module that the user has named; a message may name that field."""
    trace, recorded = two_purses()
    for row in trace.rows[6:]:
        row["colour"] = 1 if row in trace.rows[6:8] else 2
    held = {"coins": 6, "give": {"$name": "witness_machines.handle"}}
    start = WitnessedSnapshot(
        "first", 1, {"a": held, "b": {"coins": 10}}, strings={("a", "b", "mail"): [(1, "take", [4])]}
    )
    start.counts = {("a", "b", "mail"): (1, 0), ("driver", "a", "mail"): (1, 1)}
    recorded.number = 2
    with pytest.raises(NotReplayableError, match="has in its field give, which is no method of its class"):
        proof_of(trace, recorded, start=start, modules=["witness_machines"])


def test_a_machine_may_answer_by_getattr() -> None:
    stage_class = ray_snapshot.witness.stage.Stage

    class Open:
        __slots__ = ("field",)

        def __getattr__(self, name: str) -> Any:
            return name

    body, action = Open(), actions_of(two_purses()[0].rows)[1]
    body.field = print
    assert stage_class("run")._method(replace(action, method="other"), body) == "other"
    with pytest.raises(NotReplayableError, match="field"):
        stage_class("run")._method(replace(action, method="field"), body)


@pytest.mark.parametrize(("method", "what"), [("age", "the time, by self.now()"), ("draw", "chance, by self.random")])
def test_what_a_machine_was_told_of_time_and_chance_is_not_in_the_trace(method: str, what: str) -> None:
    trace, recorded = two_purses()
    trace.act("driver", "send", [], [message({"target": "a"}, 3, method)], colour=1)
    trace.act("a", method, [message({"source": "driver"}, 3, method)], [], colour=1)
    with pytest.raises(NotReplayableError, match="asks for") as caught:
        proof_of(trace, recorded)
    assert f"asks for {what}, and what it was told is not in the trace" in str(caught.value)
