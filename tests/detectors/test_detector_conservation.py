"""The bank: money in accounts and money on its way."""

import json
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors import TokenConservation, from_spec

pytestmark = pytest.mark.contract

BANK: dict[str, Any] = {"state": "$.balance", "messages": {"deposit": "$[0]"}}


def accounts(*balances: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"machine": f"a{number}", "state": {"balance": balance}, **more} for number, balance in enumerate(balances)]


def deposit(*args: Any, source: str = "a0", target: str = "a1", **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, "method": "deposit", "args": args, **more}


def judge(total: float | None, machines: Any, messages: Any = (), **snapshot: Any) -> rs.Verdict:
    found = rs.Snapshot.from_rows(machines=machines, messages=messages, **snapshot)
    return TokenConservation(total, **BANK).evaluate(found)


def test_money_in_flight_counts() -> None:
    verdict = judge(100, accounts(60, 30), [deposit(10)])
    assert verdict.holds is True
    assert verdict.evidence["in_flight"] == 10
    assert verdict.evidence["in_machines"] == 90
    assert verdict.sentence == "Conserved: 100 in all, 10 of it in flight."


@pytest.mark.parametrize(("total", "word", "difference"), [(101, "1 missing", -1), (98, "2 too many", 2)])
def test_a_difference_is_said_with_its_direction(total: int, word: str, difference: int) -> None:
    verdict = judge(total, accounts(60, 30), [deposit(10)])
    assert verdict.holds is False
    assert verdict.alarm
    assert verdict.evidence["difference"] == difference
    assert verdict.sentence.startswith(f"Not conserved: {word} (90 in machines, 10 in flight, {total} expected).")


def test_messages_of_other_methods_carry_nothing_and_machines_without_the_field_hold_nothing() -> None:
    machines = [
        *accounts(90),
        {"machine": "clerk", "state": {"name": "x"}},
        {"machine": "n", "state": {"balance": None}},
    ]
    assert judge(100, machines, [deposit(10), deposit(5) | {"method": "note"}]).holds is True


def test_a_timer_and_a_call_carry_money_too_and_so_does_a_message_to_a_stopped_machine() -> None:
    machines = [*accounts(70), {"machine": "gone", "status": "stopped", "state": {"balance": 0}}]
    messages = [deposit(10, kind="timer"), deposit(10, kind="call"), deposit(10, target="gone")]
    assert judge(100, machines, messages).holds is True


def test_paths_by_class_leave_other_classes_out_even_if_their_state_is_missing() -> None:
    machines = [
        {"machine": "a", "class_name": "Account", "state": {"balance": 7}},
        {"machine": "v", "class_name": "Vault", "state": {"gold": {"bars": [1, 2]}}},
        {"machine": "l", "class_name": "Log", "state": None, "status": "active"},
    ]
    detector = TokenConservation(9, state={"Account": "$.balance", "Vault": "$['gold'].bars[1]"})
    assert detector.evaluate(rs.Snapshot.from_rows(machines=machines)).holds is True
    assert TokenConservation(9, state="$.balance").evaluate(rs.Snapshot.from_rows(machines=machines)).holds is None


def without_state(snapshot: rs.Snapshot, name: str) -> rs.Snapshot:
    """As if the machine had turned red without a copy of its state."""
    table = snapshot.tables["machines"]
    states = [None if row["machine"] == name else row["state"] for row in table.to_pylist()]
    column = table.schema.get_field_index("state")
    return rs.Snapshot({**snapshot.tables, "machines": table.set_column(column, table.schema.field("state"), [states])})


def test_a_driver_without_a_state_holds_nothing_by_nature_any_other_machine_leaves_the_sum_unknown() -> None:
    detector = TokenConservation(100, **BANK)
    snapshot = rs.Snapshot.from_rows(machines=[*accounts(100), {"machine": "driver"}])
    assert detector.evaluate(without_state(snapshot, "driver")).holds is True
    verdict = detector.evaluate(without_state(snapshot, "a0"))
    assert verdict.holds is None
    assert verdict.evidence["unknown"] == ["machine a0: its state was not recorded"]


def test_a_truncated_state_or_message_leaves_the_sum_unknown_if_it_is_needed() -> None:
    snapshot = rs.Snapshot.from_rows(machines=accounts(90), messages=[deposit(10), deposit(1) | {"method": "note"}])
    for table, column, row in (("machines", "state_truncated", 0), ("messages", "args_truncated", 0)):
        old = snapshot.tables[table]
        flags = [number == row for number in range(old.num_rows)]
        new = old.set_column(old.schema.get_field_index(column), column, [flags])
        verdict = TokenConservation(100, **BANK).evaluate(rs.Snapshot({**snapshot.tables, table: new}))
        assert verdict.holds is None
        assert "was cut off when it was recorded" in verdict.sentence
        assert verdict.evidence["found"] == {"machines": 10, "messages": 90}[table]
    old = snapshot.tables["messages"]
    note = old.set_column(old.schema.get_field_index("args_truncated"), "args_truncated", [[False, True]])
    assert TokenConservation(100, **BANK).evaluate(rs.Snapshot({**snapshot.tables, "messages": note})).holds is True


@pytest.mark.parametrize("state", ["not json", '{"balance":1e999', '{"balance":1', '{"balance":1},{"balance":2}', ""])
def test_a_damaged_state_is_named_and_the_others_are_still_read(state: str) -> None:
    snapshot = rs.Snapshot.from_rows(machines=accounts(1, 2, 3))
    table = snapshot.tables["machines"]
    states = ['{"balance":1}', state, '{"balance":3}']
    table = table.set_column(table.schema.get_field_index("state"), "state", [states])
    verdict = TokenConservation(6, **BANK).evaluate(rs.Snapshot({**snapshot.tables, "machines": table}))
    assert verdict.holds is None
    assert verdict.evidence["unknown"] == ["machine a1: its state is not JSON"]
    assert verdict.evidence["in_machines"] == 4


@pytest.mark.parametrize("args", [[], ["ten"], [{"$kwargs": {"amount": 10}}], [[10]]])
def test_a_deposit_without_a_number_where_it_should_be_leaves_the_sum_unknown(args: list[Any]) -> None:
    verdict = judge(100, accounts(90), [deposit(*args)])
    assert verdict.holds is None
    assert "message deposit from a0 to a1: there is" in verdict.sentence


@pytest.mark.parametrize("value", ["90", [90], {"x": 1}, float("nan"), {"$decimal": "1E+999999999"}, {"$int": "x"}])
def test_a_state_that_has_something_else_than_a_number_there_leaves_the_sum_unknown(value: Any) -> None:
    assert judge(90, accounts(value)).holds is None


def test_large_integers_are_counted_exactly() -> None:
    large = 10**40
    verdict = judge(2 * large + 1, accounts(large, large), [deposit(1)])
    assert verdict.holds is True
    assert judge(2 * large, accounts(large, large), [deposit(1)]).evidence["difference"] == 1


def test_decimals_and_fractions_are_counted_exactly() -> None:
    cents = accounts(*[Decimal("0.10")] * 10, Fraction(1, 3), Fraction(2, 3))
    assert judge(2, cents).holds is True
    off = judge(2, [*cents, {"machine": "x", "state": {"balance": Decimal("0.000000000001")}}])
    assert off.holds is False


def test_floats_may_be_off_by_their_rounding_and_not_by_more() -> None:
    balances = accounts(*[0.1] * 10)
    assert judge(1, balances).holds is True
    assert judge(1.0001, balances).holds is False
    snapshot = rs.Snapshot.from_rows(machines=balances)
    assert TokenConservation(1.0001, tolerance=0.001, **BANK).evaluate(snapshot).holds is True
    assert TokenConservation(1, tolerance=0, **BANK).evaluate(snapshot).holds is False


def test_true_and_false_count_one_and_nothing() -> None:
    assert judge(2, accounts(True, False, 1)).holds is True


def test_without_a_total_the_earlier_snapshot_tells_it() -> None:
    detector = TokenConservation(None, **BANK)
    first = rs.Snapshot.from_rows(machines=accounts(60, 40))
    second = rs.Snapshot.from_rows(machines=accounts(50, 40), messages=[deposit(10)])
    third = rs.Snapshot.from_rows(machines=accounts(50, 40))
    assert detector.evaluate(first).holds is None
    assert detector.evaluate(first).evidence["found"] == 100
    assert detector.evaluate(second, earlier=first).holds is True
    assert detector.evaluate(third, earlier=second).holds is False
    blind = rs.Snapshot.from_rows(machines=accounts(60, 40), coverage={"uncovered": ["plain tasks"]})
    assert detector.evaluate(third, earlier=blind).holds is None


def test_paths_that_lead_nowhere_do_not_prove_anything() -> None:
    snapshot = rs.Snapshot.from_rows(machines=accounts(60, 40))
    wrong = TokenConservation(None, state="$.blance")
    assert wrong.evaluate(snapshot, earlier=snapshot).holds is None
    verdict = TokenConservation(100, state="$.blance").evaluate(snapshot)
    assert verdict.holds is False
    assert "are they right?" in verdict.sentence


def birth(name: str, *args: Any) -> dict[str, Any]:
    return {"source": "driver", "target": name, "method": "__init__", "args": args}


def test_what_is_missing_is_no_alarm_while_machines_are_still_to_be_made() -> None:
    verdict = judge(100, accounts(60), [birth("a1", 30), deposit(5)])
    assert verdict.holds is None
    assert not verdict.alarm
    assert verdict.evidence["unmade"] == 1
    assert verdict.sentence == (
        "Conservation cannot be told: what 1 machine (a1) will hold is not known until its __init__ has run, and so far 65 of"
        " 100 are there."
    )
    assert "5 machines (a0, a1, a2 and 2 more)" in judge(1, [], [birth(f"a{n}", 1) for n in range(5)]).sentence


def test_a_machine_waits_inside_its_constructor_and_is_not_made_yet() -> None:
    machines = [*accounts(60), {"machine": "a1", "state": {}, "status": "blocked"}]
    inside = {"calls": [{"machine": "a1", "call_id": "driver/0/a1/0", "method": "__init__"}]}
    for paths in ({}, {"__init__": "$[0]"}):
        detector = TokenConservation(100, state="$.balance", messages=paths)
        assert detector.evaluate(rs.Snapshot.from_rows(machines=machines, **inside)).holds is None
    assert judge(60, machines, **inside).holds is True
    assert judge(100, machines).holds is False


def test_more_than_the_total_is_an_alarm_whatever_is_still_to_be_made() -> None:
    verdict = judge(100, accounts(160), [birth("a1", 30)])
    assert verdict.alarm
    assert verdict.sentence.startswith("Not conserved: 60 too many")


def test_machines_that_bring_nothing_may_be_made_at_any_time() -> None:
    assert judge(60, accounts(60), [birth("clerk")]).holds is True


def test_what_a_machine_is_made_with_counts_where_a_path_says_what_that_is() -> None:
    paths = {"deposit": "$[0]", "__init__": "$[0]"}
    found = rs.Snapshot.from_rows(machines=accounts(60), messages=[birth("a1", 30), deposit(10)])
    assert TokenConservation(100, state="$.balance", messages=paths).evaluate(found).holds is True
    assert TokenConservation(101, state="$.balance", messages=paths).evaluate(found).holds is False


def test_a_snapshot_with_machines_to_be_made_is_nothing_to_compare_with() -> None:
    first, second = (
        rs.Snapshot.from_rows(machines=accounts(60), messages=[birth("a1", 30)]),
        rs.Snapshot.from_rows(machines=accounts(60), messages=[deposit(10)]),
    )
    detector = TokenConservation(**BANK)
    assert detector.evaluate(first, earlier=first).holds is None
    assert detector.evaluate(first, earlier=second).holds is None


def test_before_anything_is_made_nothing_is_missing() -> None:
    assert judge(100, []).holds is None
    assert judge(100, [], channels=[{"source": "driver", "target": "a0", "sent_count": 1, "accepted_count": 1}]).alarm
    assert judge(100, [{"machine": "driver", "state": None}]).holds is None
    assert judge(100, accounts(0)).holds is False
    empty = rs.Snapshot.from_rows(machines=[])
    assert TokenConservation(**BANK).evaluate(empty, earlier=empty).holds is None


def test_on_a_mismatch_the_machines_and_channels_that_changed_are_named_largest_first() -> None:
    channel = {"source": "a0", "target": "a1"}
    right = rs.Snapshot.from_rows(
        machines=accounts(50, 30, 10), messages=[deposit(10)], channels=[{**channel, "sent_count": 1}], snapshot_id="s1"
    )
    wrong = rs.Snapshot.from_rows(
        machines=accounts(45, 37, 10), messages=[], channels=[{**channel, "sent_count": 2}], snapshot_id="s2"
    )
    verdict = TokenConservation(100, **BANK).evaluate(wrong, earlier=right)
    assert verdict.evidence["since"] == "s1"
    assert verdict.evidence["changed"] == {
        "machine_count": 2,
        "channel_count": 1,
        "machines": [{"machine": "a1", "before": 30, "after": 37}, {"machine": "a0", "before": 50, "after": 45}],
        "channels": [
            {"source": "a0", "target": "a1", "kind": "mail", "before": 10, "after": 0, "sent": 1, "accepted": 2}
        ],
    }
    assert "Since s1: 2 machines and 1 channels changed, first a1 (30 -> 37)" in verdict.sentence


def test_a_number_that_is_too_large_for_any_reader_is_no_number() -> None:
    snapshot = rs.Snapshot.from_rows(machines=accounts(1))
    table = snapshot.tables["machines"]
    table = table.set_column(table.schema.get_field_index("state"), "state", [['{"balance":1e999}']])
    verdict = TokenConservation(1, **BANK).evaluate(rs.Snapshot({**snapshot.tables, "machines": table}))
    assert verdict.evidence["unknown"] == ["machine a0: there is inf where a number should be"]


def test_a_channel_that_only_carried_something_meanwhile_is_a_change_too() -> None:
    channel = {"source": "a0", "target": "a1"}
    right = rs.Snapshot.from_rows(machines=accounts(50, 50), channels=[{**channel, "sent_count": 4}])
    wrong = rs.Snapshot.from_rows(machines=accounts(40, 50), channels=[{**channel, "sent_count": 5}])
    changed = TokenConservation(100, **BANK).evaluate(wrong, earlier=right).evidence["changed"]
    assert changed["channels"] == [{**channel, "kind": "mail", "before": 0, "after": 0, "sent": 1, "accepted": 1}]


def test_born_and_gone_machines_are_changes_and_the_list_is_bounded() -> None:
    right = rs.Snapshot.from_rows(machines=[{"machine": "old", "state": {"balance": 500}}])
    wrong = rs.Snapshot.from_rows(machines=accounts(*[1] * 400))
    changed = TokenConservation(500, **BANK).evaluate(wrong, earlier=right).evidence["changed"]
    assert changed["machine_count"] == 401
    assert changed["machines"][0] == {"machine": "old", "before": 500, "after": None}
    assert len(changed["machines"]) == 100


@pytest.mark.parametrize("column", [{"consistent": False}, {"status": "aborted"}, {"coverage": {"uncovered": ["x"]}}])
def test_a_snapshot_that_proves_nothing_gives_no_answer_either_way(column: dict[str, Any]) -> None:
    assert judge(90, accounts(90), **column).holds is None
    assert judge(91, accounts(90), **column).holds is None


class Bank:
    """Accounts and FIFO channels; everything happens at one place, so that any moment is a consistent cut."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.balances = {f"a{number}": self.chance.randint(0, 100) for number in range(5)}
        self.channels: dict[tuple[str, str], list[int]] = {}
        self.accepted: dict[tuple[str, str], int] = {}

    def step(self) -> None:
        busy = [key for key, waiting in self.channels.items() if waiting]
        if busy and self.chance.random() < 0.5:
            key = self.chance.choice(busy)
            self.balances[key[1]] += self.channels[key].pop(0)
            self.accepted[key] = self.accepted.get(key, 0) + 1
            return
        source, target = self.chance.sample(sorted(self.balances), 2)
        amount = self.chance.randint(0, self.balances[source])
        self.balances[source] -= amount
        self.channels.setdefault((source, target), []).append(amount)

    def snapshot(self) -> rs.Snapshot:
        return rs.Snapshot.from_rows(
            machines=[{"machine": name, "state": {"balance": balance}} for name, balance in self.balances.items()],
            messages=[
                deposit(amount, source=source, target=target)
                for (source, target), waiting in self.channels.items()
                for amount in waiting
            ],
            channels=[
                {"source": source, "target": target, "accepted_count": self.accepted.get((source, target), 0)}
                for source, target in self.channels
            ],
        )


def test_a_bank_is_conserved_at_every_moment_and_a_thief_is_caught_with_the_account_named() -> None:
    for seed in range(30):
        bank = Bank(seed)
        detector = TokenConservation(sum(bank.balances.values()), **BANK)
        moving = 0
        for _ in range(20):
            bank.step()
            before = bank.snapshot()
            verdict = detector.evaluate(before)
            assert verdict.holds is True, f"seed {seed}: {verdict.sentence}"
            moving += verdict.evidence["in_flight"] > 0
        assert moving, f"seed {seed}"
        victim = bank.chance.choice(sorted(bank.balances))
        bank.balances[victim] -= 1
        verdict = detector.evaluate(bank.snapshot(), earlier=before)
        assert verdict.holds is False, f"seed {seed}"
        assert verdict.evidence["difference"] == -1
        assert [item["machine"] for item in verdict.evidence["changed"]["machines"]] == [victim], f"seed {seed}"


def test_the_detector_stored_as_data_answers_the_same() -> None:
    detector = TokenConservation(100, **BANK, name="money", tolerance=0.5)
    again = from_spec(json.loads(json.dumps(detector.spec)))
    snapshot = rs.Snapshot.from_rows(machines=accounts(60, 30.4), messages=[deposit(10)])
    one, other = detector.evaluate(snapshot), again.evaluate(snapshot)
    assert (one.detector, one.holds, one.evidence) == (other.detector, other.holds, other.evidence)
    assert again.name == "money"


@pytest.mark.parametrize(
    "settings",
    [
        {"total": "100"}, {"total": True}, {"total": float("inf")}, {"state": "balance"},
        {"state": {"Account": "$..balance"}}, {"state": {1: "$.balance"}}, {"messages": ["deposit"]},
        {"messages": {"deposit": None}}, {"messages": {"deposit": "[0]"}}, {"tolerance": None}, {"name": ""},
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused_where_it_enters(settings: dict[str, Any]) -> None:
    with pytest.raises(rs.SettingError):
        TokenConservation(**settings)
