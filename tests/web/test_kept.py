"""What is made once for all viewers."""

import threading

import pytest

from ray_snapshot.web.kept import Kept


def test_what_many_ask_for_at_once_is_made_once() -> None:
    kept, begun, may_end = Kept(), threading.Event(), threading.Event()
    made = []

    def make() -> str:
        made.append(1)
        begun.set()
        assert may_end.wait(30)
        return "made"

    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(kept.get("key", make))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    may_end.set()
    for thread in threads:
        thread.join(30)
    assert (found, made) == (["made"] * 5, [1])


def test_an_error_is_told_to_all_who_waited_and_kept_for_nobody() -> None:
    kept = Kept()
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: 1 // 0)
    assert kept.get("key", lambda: "well") == "well"


def test_the_last_ones_are_kept_up_to_a_size_and_one_that_is_larger_alone() -> None:
    kept = Kept(most=100)
    for name in "abc":
        kept.get(name, lambda name=name: name, lambda _: 40)
    assert kept.get("c", lambda: "made again") == "c"
    assert kept.get("b", lambda: "made again") == "b"
    assert kept.get("a", lambda: "made again") == "made again"
    assert kept.get("large", lambda: "large", lambda _: 1_000) == "large"
    assert (kept.get("large", lambda: "made again"), kept.size) == ("large", 1_000)
