"""What `ray.put` has made is there: nothing waits for it, in any process. No Ray in here."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from lone_process import lone_process

from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.hooks import calls, tracking
from ray_snapshot.instrument.process import unfollowed
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.unfollowed import Unfollowed
from ray_snapshot.protocol.calls import CallWait
from ray_snapshot.runtime.refs import call_of, is_put, put_ref, tracked

CALL = "A/0/B:1/1"
STUCK = tracked(ray.ObjectRef(b"1" * 28), CALL)
UNKNOWN = ray.ObjectRef(b"2" * 28)
"""Such as `ready()` of a placement group."""


def _put(number: int = 0) -> Any:
    """What the app gets of `ray.put`."""
    return unfollowed.put(lambda *_: ray.ObjectRef(str(number).encode() * 28), "value")


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        CURRENT.set(found.enter(None, "m"))
        yield found


@pytest.fixture(autouse=True)
def is_own(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    found = {"answer": True}  # Ray would be asked, and none runs here
    monkeypatch.setattr(task_shape, "is_own", lambda ref: found["answer"])
    return found


def _wait(process: Process, refs: list[Any], k: int, *, timeout: float | None = None, raises: bool = False) -> CallWait:
    wait_id, _ = process.waiting.begin(refs, k, timeout, "app.py:1", is_blocking=True, raises=raises)
    return process.ledger.waits[wait_id]


# ---- refs ------------------------------------------------------------------------------------------------------------


def test_a_ref_of_put_is_marked_stays_rays_own_and_keeps_what_was_written_on_it() -> None:
    ref = put_ref(ray.ObjectRef(b"1" * 28, "", "here.py:3"))
    assert type(ref) is ray.ObjectRef
    assert (is_put(ref), call_of(ref), ref.call_site()[:9], ref) == (True, None, "here.py:3", ray.ObjectRef(b"1" * 28))


def test_other_refs_and_other_things_are_none_of_put() -> None:
    assert not any(map(is_put, (STUCK, UNKNOWN, "no ref", None)))
    assert put_ref("no ref") == "no ref"


def test_what_its_owner_must_send_itself_is_not_there() -> None:
    apart = ray.ObjectRef(b"1" * 28, "", "", False, "nccl")
    assert not is_put(put_ref(apart))


def test_put_gives_its_ref_though_marking_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfollowed, "put_ref", lambda ref: 1 / 0)
    assert _put() == ray.ObjectRef(b"0" * 28)


def test_a_ref_of_put_that_is_pickled_or_given_to_a_task_counts_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in its object was counted when that was put."""
    counts = Unfollowed()
    monkeypatch.setattr(unfollowed, "UNFOLLOWED", counts)
    monkeypatch.setattr(shape, "is_pickling_a_message", lambda: False)
    monkeypatch.setattr(shape, "is_worker", lambda: False)
    monkeypatch.setattr(task_shape, "current_task", lambda: "the program")
    monkeypatch.setattr(task_shape, "is_reply", lambda item: True)
    for ref in (_put(), STUCK):
        unfollowed.pickled_ref(lambda *_: None, None, ref)
        unfollowed.task(lambda *_: None, "f", (ref,))
    assert (counts.scattered, counts.given) == (1, 1)


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_a_call_needs_the_replies_among_its_arguments_and_none_of_what_was_put() -> None:
    assert calls.needs((_put(), STUCK, 1), {"more": _put(1), "other": UNKNOWN}) == (CALL, None)
    assert calls.needs((_put(),), None) == ()


# ---- waits -----------------------------------------------------------------------------------------------------------


def test_who_gets_what_was_put_may_go_on(process: Process) -> None:
    wait = _wait(process, [_put(), _put(1)], 2, raises=True)
    assert (wait.calls, wait.k, wait.may_act) == ((), 0, True)
    assert process.ledger._status() == "active"


def test_of_a_list_only_the_replies_are_waited_for(process: Process) -> None:
    wait = _wait(process, [_put(), STUCK, _put(1)], 3, raises=True)
    assert (wait.calls, wait.k, wait.may_act, wait.may_raise) == ((CALL,), 1, False, False)


def test_what_another_process_has_put_may_be_an_error_and_end_the_wait_for_the_others(
    process: Process, is_own: dict[str, bool]
) -> None:
    is_own["answer"] = False
    assert _wait(process, [_put(), STUCK], 2, raises=True).may_raise
    assert not _wait(process, [_put(), STUCK], 2).may_raise, "ray.wait does not end at an error"


@pytest.mark.parametrize(("k", "left", "goes_on"), [(1, 0, True), (2, 1, False), (3, 2, False)])
def test_ray_wait_has_what_was_put_at_once(process: Process, k: int, left: int, goes_on: bool) -> None:
    wait = _wait(process, [STUCK, _put(), tracked(UNKNOWN, "A/0/C:1/1")], k)
    assert (len(wait.calls), wait.k, wait.may_act) == (2, left, goes_on)


def test_a_ref_that_nothing_is_known_of_is_waited_for_as_before(process: Process) -> None:
    wait = _wait(process, [_put(), UNKNOWN], 2)
    assert (wait.calls, wait.k, wait.may_act) == ((None,), 1, True)


def test_an_await_of_what_was_put_is_a_wait_that_ends(process: Process) -> None:
    assert tracking._is_known(_put())
    assert not tracking._is_known(UNKNOWN)


def test_what_is_marked_is_pickled_with_its_mark() -> None:
    """As Ray sends it: the id, and the text beside."""
    ref = _put()
    binary, site = pickle.loads(pickle.dumps((ref.binary(), ref.call_site())))
    assert is_put(ray.ObjectRef(binary, "", site, True))
