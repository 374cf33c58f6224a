"""The oracle itself: it accepts what is right, and says what is wrong with everything else."""

from __future__ import annotations

import ast
import inspect

import pytest
from worlds.mail.behaviours import Script

from ray_snapshot.simulation.mail import machines, oracle
from ray_snapshot.simulation.mail.machines import Send
from ray_snapshot.simulation.mail.oracle import Log, OracleError, RecordedSnapshot, check, check_run


def a_run() -> tuple[Log, RecordedSnapshot]:
    """p sends two messages to q; q accepts one; p recorded behind its sends, q before it accepted."""
    sender = Script((("go", (Send("q", "one", 1), Send("q", "two", 2))),), ("go",))
    log = Log({"p": (sender, ()), "q": (Script(), ())}, lengths={"p": 0, "q": 0})
    log.record(1, ["q"])
    sends = log.begin("p", [], 1)
    sends.after, sends.sent = ("go",), [("p", "q", "mail", 1), ("p", "q", "mail", 2)]
    log.record(1, ["p"])
    log.begin("q", [("p", "q", "mail", 1)], 0).after = ("one",)
    recorded = RecordedSnapshot(
        1,
        {"p": ("go",), "q": ()},
        {("p", "q", "mail"): [(1, "one", 1), (2, "two", 2)]},
        sent={("p", "q", "mail"): 2},
    )
    return log, recorded


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one.states.update(q=("one",)), "the states are"),
        (lambda one: one.states.pop("q"), "the states are"),
        (lambda one: one.channels.clear(), "the channels hold"),
        (lambda one: one.channels["p", "q", "mail"].reverse(), "the channels hold"),
        (lambda one: one.channels["p", "q", "mail"].pop(), "the channels hold"),
        (lambda one: one.channels["p", "q", "mail"].append((3, "three", 3)), "the channels hold"),
        (lambda one: one.channels.update({("q", "p", "mail"): [(1, "m", 0)]}), "the channels hold"),
        (lambda one: one.creations.add(("p", "child")), "creations in flight are"),
        (lambda one: one.sent.update({("p", "q", "mail"): 3}), "the white actions sent"),
        (lambda one: one.accepted.update({("p", "q", "mail"): 1}), "the white actions accepted"),
    ],
)
def test_a_snapshot_that_is_changed_at_one_place_does_not(change: object, told: str) -> None:
    log, recorded = a_run()
    change(recorded)  # type: ignore[operator]

    with pytest.raises(OracleError, match=f"snapshot 1: .*{told}"):
        check(log, recorded)


def test_a_run_that_ends_elsewhere_than_its_actions_lead_does_not() -> None:
    log, recorded = a_run()

    with pytest.raises(OracleError, match="ends with the states"):
        check_run(log, [recorded], {"p": ("go",), "q": ()})


def test_it_shares_no_code_with_the_protocols() -> None:
    for module in (oracle, machines):
        tree = ast.parse(inspect.getsource(module))
        found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

        assert not [name for name in found if name and name.startswith("ray_snapshot.protocol")]
