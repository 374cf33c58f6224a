"""What leaves a process by ways that are not followed is counted by where it goes: no Ray in here."""

from typing import Any

import pytest

from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.process import unfollowed
from ray_snapshot.instrument.process.unfollowed import Loose, Unfollowed


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Unfollowed:
    """A driver's; its tasks are pending until it is told that they have ended."""
    found = Unfollowed()
    monkeypatch.setattr(unfollowed, "UNFOLLOWED", found)
    monkeypatch.setattr(shape, "is_worker", lambda: False)
    monkeypatch.setattr(task_shape, "current_task", lambda: "the program")
    monkeypatch.setattr(task_shape, "pending_tasks", lambda parent: found.started)
    monkeypatch.setattr(task_shape, "is_reply", lambda item: item == "a ref")
    monkeypatch.setattr(shape, "is_pickling_a_message", lambda: False)
    return found


def _pickling(*_: Any, **__: Any) -> None:
    unfollowed.pickled_ref(lambda *_: None, None, object())


def test_a_task_counts_as_pending_until_it_has_ended_also_when_its_call_has(
    counts: Unfollowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfollowed.task(lambda *_: None, "f", (1,), {})
    assert counts.loose() == Loose(started=1, pending=1)
    monkeypatch.setattr(task_shape, "current_task", lambda: "another call")
    assert counts.loose().pending == 1
    monkeypatch.setattr(task_shape, "pending_tasks", lambda parent: 0)
    assert counts.loose() == Loose(started=1)
    assert counts.parents == set()


def test_a_ref_among_the_arguments_of_a_task_is_given_away_and_plain_data_is_not(counts: Unfollowed) -> None:
    unfollowed.put(lambda value: None, {"plain": 1})
    assert counts.loose() == Loose()
    unfollowed.task(lambda *_: None, "f", (1, "a ref"), {"more": "a ref"})
    assert counts.loose().given == 2


def test_what_is_pickled_for_a_task_is_given_and_what_is_for_the_store_or_outside_is_scattered(
    counts: Unfollowed,
) -> None:
    unfollowed.task(_pickling, "f")
    assert (counts.given, counts.scattered) == (1, 0)
    unfollowed.put(_pickling, "value")
    assert (counts.given, counts.scattered) == (1, 1)
    _pickling()
    assert (counts.given, counts.scattered) == (1, 2)


def test_what_is_pickled_for_a_followed_call_is_neither(counts: Unfollowed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "is_pickling_a_message", lambda: True)
    unfollowed.task(lambda *_: None, "f")
    unfollowed.put(lambda value: None, 1)
    _pickling()
    assert (counts.given, counts.scattered) == (0, 0)
    unfollowed.put(_pickling, "value")
    assert (counts.given, counts.scattered) == (0, 1), "what is in the store may be read by any process"
