"""What each party decides about the recovery line, by hand; what comes of it in every order: `test_recovering.py`."""

from __future__ import annotations

import pytest

from ray_snapshot.protocol.recovery_line import (
    Agreement,
    Allowance,
    Base,
    DriverLine,
    KeptSnapshot,
    Retention,
    ServiceLine,
    newest,
    outside,
    sent_again,
)

GENERATION = 4


def service_at(number: int) -> ServiceLine:
    line = ServiceLine()
    line.went_back(f"s{number}", number)
    return line


def kept(number: int, generation: int = GENERATION) -> KeptSnapshot:
    return KeptSnapshot(number, f"s{number}", generation)


@pytest.mark.parametrize(
    ("number", "generation", "is_rolling", "is_safe", "agreement", "line"),
    [
        (6, GENERATION, False, True, Agreement.MOVED, 6),
        (5, GENERATION, False, True, Agreement.ALREADY, 5),
        (4, GENERATION, False, True, Agreement.ALREADY, 5),
        (6, GENERATION, True, True, Agreement.NO, 5),
        (6, GENERATION - 1, False, True, Agreement.NO, 5),
        (6, GENERATION, False, False, Agreement.NO, 5),
    ],
)
def test_the_service_agrees_to_what_is_safe_in_its_generation_and_moves_forward_only(
    number: int, generation: int, is_rolling: bool, is_safe: bool, agreement: Agreement, line: int
) -> None:
    service = service_at(5)
    assert service.secured(kept(number, generation), GENERATION, is_rolling=is_rolling, is_safe=is_safe) is agreement
    assert (service.snapshot_id, service.number) == (f"s{line}", line)


def test_whether_a_snapshot_is_kept_is_known_once_it_is_overtaken_or_lost_or_its_generation_is_left() -> None:
    service = service_at(5)
    service.secured(kept(7), GENERATION, is_rolling=False, is_safe=False)
    now = [service.outcome(number, GENERATION, GENERATION, is_rolling=False) for number in (4, 5, 6, 7)]
    assert now == [True, True, None, False]
    assert service.outcome(5, GENERATION, GENERATION, is_rolling=True) is False
    assert service.outcome(5, GENERATION, GENERATION + 1, is_rolling=False) is False


def test_a_program_may_go_back_behind_the_line_and_no_one_else() -> None:
    service = service_at(5)
    service.went_back("s2", 2)
    assert service.secured(kept(3), GENERATION, is_rolling=False, is_safe=True) is Agreement.MOVED


def test_the_driver_has_every_base_until_the_service_agrees_to_the_last() -> None:
    driver = DriverLine(keeps_copy=True, base=Base("s1", 1, "copy 1"))
    for number in (2, 3):
        assert driver.secure(kept(number), f"copy {number}", 0, GENERATION, is_rolling=False)
    assert driver.copies() == ["copy 1", "copy 2", "copy 3"]
    driver.agreed()
    assert driver.copies() == ["copy 3"]


def test_going_back_finds_the_copy_that_is_there_and_fetches_the_one_that_is_not() -> None:
    driver = DriverLine(keeps_copy=True, base=Base("s1", 1, "copy 1"))
    assert driver.secure(kept(2), "copy 2", 0, GENERATION, is_rolling=False)
    driver.went_back("s1", 1)
    assert (driver.base, driver.uncopied()) == (Base("s1", 1, "copy 1"), None)
    driver.went_back("elsewhere", 0)
    assert driver.uncopied() == Base("elsewhere", 0)
    assert driver.must_fetch(kept(0))


def test_of_what_is_kept_the_last_of_the_last_generation_counts() -> None:
    assert newest([kept(9, GENERATION - 1), kept(3), kept(5), kept(4)]) == kept(5)


def test_what_was_sent_since_the_recording_is_outside_and_what_is_no_message_stays() -> None:
    journal = [(1, "a"), (2, "b"), (1, "stop"), (3, "c")]
    assert outside(journal, 2, lambda item: item == "stop") == journal[1:]
    assert sent_again(journal, 3) == [(3, "c")]
    assert sent_again(journal, None) == []


def test_a_new_life_gives_out_no_number_that_the_one_before_may_have_given_out() -> None:
    driver, before, after = DriverLine(), Allowance(is_bounded=True), Allowance(is_bounded=True)
    assert before.wanted(int(before.most)) == driver.numbers + driver.block
    _, numbers = driver.next_life()
    assert after.take_over(numbers) >= before.most
    assert after.most == driver.numbers


def test_the_analyst_lets_go_of_the_oldest_that_nobody_needs() -> None:
    held = Retention()
    held.pin("a")
    held.plan("c")
    held.lend("d")
    assert held.loose("abcdefg", 2) == ["b", "e"]
    held.pin("d")
    assert held.loose("abcdefg", 2) == ["a", "b", "e"]
    held.pin("c")
    assert held.loose("abcdefg", 2) == ["a", "b", "d", "e"]
