"""Does it hold in any order? Hundreds of seeds of each kind of world, each run checked by the oracle, which is tested, too.

A run is chance with faults first (batches overtake each other and come twice, control messages too, snapshots are given
up), then quiet: then every open snapshot must complete. A failure names its seed and the command that replays it.
"""

import ast
import inspect
from collections import Counter
from typing import Any

import pytest
from replaying import check_replay
from worlds.mail import machines, schedules, theorem
from worlds.mail.behaviours import Script
from worlds.mail.machines import Send
from worlds.mail.schedules import PROFILES, run_seeded
from worlds.mail.theorem import WorldLog, check, check_run
from worlds.mail.world import World

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.barriers import Alignment, Forced
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.simulation.mail import oracle
from ray_snapshot.simulation.mail.oracle import Log, OracleError, RecordedSnapshot

SEEDS = 40


def _seen(world: World) -> Counter[str]:
    """What a run met, so that a test can tell that its seeds meet it at all."""
    seen: Counter[str] = Counter(completed=len(world.central.completed), aborted=len(world.central.aborted))
    seen["in flight"] = sum(len(messages) for one in world.central.completed for messages in one.channels.values())
    seen["creations in flight"] = sum(len(one.creations) for one in world.central.completed)
    seen["timers in flight"] = sum(key[2] == "timer" for one in world.central.completed for key in one.channels)
    seen["calls in flight"] = sum(key[2] == "call" for one in world.central.completed for key in one.channels)
    seen["waiting callers"] = sum(
        state.waits_for is not None for one in world.central.completed for state in one.states.values()
    )
    seen["hosts born"] = sum(name.startswith("host-of") for name in world.hosts)
    seen["doubles answered"] = world.central.answers[Answer.DUPLICATE] + world.central.answers[Answer.DISCARDED]
    seen["messages told to come twice"] = sum(sum(one.duplicates.values()) for one in world.central.completed)
    cuts = [set(cut.values()) for cut in world.log.cuts.values()]
    seen["cuts that are no instant"] = sum(len(cut) > 1 for cut in cuts)
    return seen


@pytest.mark.by_day(6)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_snapshot_is_a_state_that_could_have_been(profile: str) -> None:
    seen = sum((_seen(run_seeded(profile, seed)) for seed in range(SEEDS)), Counter())
    expected = ["completed", "in flight", "doubles answered", "cuts that are no instant"]
    expected += ["aborted"] * PROFILES[profile].aborts
    expected += ["creations in flight", "hosts born"] * bool(PROFILES[profile].birthplaces)
    expected += ["timers in flight"] * ("timer" in PROFILES[profile].habits)
    expected += ["calls in flight", "waiting callers"] * ("call" in PROFILES[profile].habits)
    expected += ["messages told to come twice"] * (PROFILES[profile].protocol == AT_LEAST_ONCE)
    assert {what: seen[what] for what in expected if seen[what] < SEEDS // 20} == {}
    assert seen["completed"] > 2 * SEEDS


def _met(profile: str, patch: pytest.MonkeyPatch) -> Counter[str]:
    """What the machines and hosts of twenty seeds went through."""
    met: Counter[str] = Counter()
    step, record, late = Alignment.step, BarrierCore._record, HostCore._report_if_late

    def counted_step(self: Alignment, event: Any) -> Any:
        effects = step(self, event)
        met["forced"] += isinstance(event, Forced) and bool(effects)
        return effects

    def counted_record(self: BarrierCore, machine: Any, numbers: Any, colour: Any, blocked: int) -> None:
        met["blocked messages"] += blocked
        met["alignments"] += any((machine.name, number) in self.aligning_since for number in numbers)
        met["several at once"] += len(numbers) > 1
        record(self, machine, numbers, colour, blocked)

    def counted_late(self: HostCore, *rest: Any) -> None:
        before = sum(len(one.late) for one in self.open.values())
        late(self, *rest)
        met["late messages"] += sum(len(one.late) for one in self.open.values()) - before

    patch.setattr(Alignment, "step", counted_step)
    patch.setattr(BarrierCore, "_record", counted_record)
    patch.setattr(HostCore, "_report_if_late", counted_late)
    for seed in range(20):
        run_seeded(profile, seed)
    return met


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("profile", "what"),
    [
        ("observer", ("late messages",)),
        ("observer-everything", ("late messages",)),
        ("aligned", ("alignments", "blocked messages", "forced", "late messages", "several at once")),
        ("impatient", ("alignments", "blocked messages", "forced", "late messages")),
        ("aligned-bounded", ("alignments", "blocked messages", "forced")),
        ("aligned-births", ("forced", "late messages")),
        ("at-least-once", ("alignments", "late messages")),
        ("at-least-once-everything", ("alignments", "forced")),
        ("unaligned", ("forced", "late messages")),
        ("unaligned-everything", ("forced", "late messages")),
    ],
)
def test_each_profile_meets_what_it_is_there_for(
    profile: str, what: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    met = _met(profile, monkeypatch)
    assert {one: met[one] for one in what if met[one] < 10} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES)
def test_every_snapshot_is_right_over_twenty_thousand_seeds_of_all_profiles(profile: str) -> None:
    for seed in range(SEEDS, SEEDS + 20_000 // len(PROFILES)):
        run_seeded(profile, seed)


def test_a_failure_names_the_seed_and_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(schedules, "check_run", fails)
    trace: list[str] = []
    with pytest.raises(OracleError, match="seed 5 of profile births") as caught:
        run_seeded("births", 5, trace)
    check_replay(caught.value, trace)


def test_a_snapshot_whose_parts_do_not_come_is_given_up_at_its_deadline() -> None:
    world = schedules.build(PROFILES["pairs"])
    schedules.run_script(world, ["snapshot h0"])  # nobody asks h1, and there is no link to it
    schedules.calm(world)
    world.perform(("tick", 9_999))
    assert world.central.aborted == []
    world.perform(("tick", 1))
    schedules.calm(world)
    assert [one.reason for one in world.central.aborted] == ["timed out waiting for the report of h1"]
    schedules.check_quiet(world)


def a_run() -> tuple[Log, RecordedSnapshot]:
    """p sends two messages to q; q accepts one; p recorded behind its sends, q before it accepted."""
    sender = Script((("go", (Send("q", "one", 1), Send("q", "two", 2))),), ("go",))
    log = WorldLog({"p": (sender, ()), "q": (Script(), ())}, lengths={"p": 0, "q": 0})
    log.record(1, ["q"])
    sends = log.begin("p", [], 1)
    sends.after, sends.sent = ("go",), [("p", "q", "mail", 1), ("p", "q", "mail", 2)]
    log.record(1, ["p"])
    log.begin("q", [("p", "q", "mail", 1)], 0).after = ("one",)
    recorded = RecordedSnapshot(
        1, {"p": ("go",), "q": ()}, {("p", "q", "mail"): [(1, "one", 1), (2, "two", 2)]}, sent={("p", "q", "mail"): 2}
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
    for module in (oracle, theorem, machines):
        tree = ast.parse(inspect.getsource(module))
        found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not [name for name in found if name and name.startswith("ray_snapshot.protocol")]
