"""One process that goes back, without Ray: its actor's own hooks, its threads, and what it is told meanwhile."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from lone_process import BOUND_S, acting, lone_process
from ray.exceptions import GetTimeoutError

from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.here import asking
from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import Share, Terms
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Release, Request, Roll, Welcome
from ray_snapshot.protocol.rollback import Asked, Step
from ray_snapshot.runtime.refs import tracked


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process(terms=Terms(keeps=True)) as found:
        yield found


class Counting:
    def __init__(self) -> None:
        self.count = 5

    def add(self) -> None:
        self.count += 1

    def read(self) -> int:
        return self.count


class Hooked(Counting):
    def snapshot_state(self) -> int:
        return self.read()

    def restore_state(self, state: int) -> None:
        self.count = state


class Asking(Counting):
    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.read()}


@pytest.mark.parametrize("kind", [Hooked, Asking])
def test_an_actors_own_hooks_are_no_calls_that_begin(process: Process, kind: Any) -> None:
    """They run where calls do, between two of them; one that began there would record again, and again."""
    body = acting(process, kind())
    process.ledger.request(1)
    body.add(_ray_snapshot_header=b"app:1 1 driver 0 0 1 0 1")
    recorded = process.recording.reports[1]
    assert recorded.kept is not None
    assert (recorded.kept.obstacle, recorded.report.calls) == (None, ())
    assert (body.count, process.is_closed) == (6, False)


def roll(process: Process, generation: int) -> None:
    """Take a process with nothing to load through all steps."""
    share = Share(generation, 0, {process.machine: generation})
    for step in Step:
        process.obey(Roll(Asked(step, generation), share if step is Step.LOAD else None))


@pytest.fixture
def driver() -> Iterator[Process]:
    with lone_process(CallLedger(DRIVER, acts_unasked=True), Terms(keeps=True)) as found:
        yield found


def test_a_program_that_waits_for_a_verdict_still_waits_when_another_thread_has_restored(driver: Process) -> None:
    """Or it would count as active for good, and termination could not be told any more."""
    wait_id, _ = driver.waiting.begin([], 0, None, "", is_blocking=False, is_resting=True)
    roll(driver, 1)
    driver.obey(Request(1))
    assert driver.recording.reports[1].report.status == "passive"
    driver.waiting.end(wait_id, [])
    driver.obey(Request(2))
    assert 2 not in driver.recording.reports or driver.recording.reports[2].report.status == "active"
    assert not driver.ledger.waits


def test_a_call_of_before_that_could_not_be_made_is_not_taken_for_one_of_after(driver: Process) -> None:
    before, _ = driver.submit("B:1", "f", (), False, ())
    roll(driver, 1)
    after, _ = driver.submit("B:1", "f", (), False, ())
    driver.retract(before, "B:1")
    assert list(driver.ledger.outputs["B:1"].log) == [after.number]
    driver.retract(after, "B:1")
    assert not driver.ledger.outputs["B:1"].log


TRANSFER_S = 3.0


@pytest.mark.parametrize("timeout", [None, BOUND_S])
def test_a_large_object_on_another_node_is_fetched_in_one_piece(
    process: Process, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    """Ray gives up half a transfer when a `ray.get` ends; waits inside actors are cut into slices, to look up."""
    tried: list[float | None] = []

    def get(refs: Any, *, timeout: float | None) -> str:
        tried.append(timeout)
        assert len(tried) < 10
        if timeout is not None and timeout < TRANSFER_S:
            raise GetTimeoutError("not there")
        return "large"

    def wait(refs: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        assert (options["timeout"], options["fetch_local"]) == (0, False)
        return (refs, []) if len(tried) > 2 else ([], refs)  # it is made only now

    monkeypatch.setattr(shape, "original", lambda name: wait)
    monkeypatch.setattr(process.reloading, "check_waiting", lambda refs: None)
    process.body = object()
    with asking():
        monkeypatch.setattr(process.waiting, "begin", lambda *_, **__: (1, []))
        ref = ray.ObjectRef.from_random()
        assert tracking.get(get, [ref, ref], timeout=timeout) == "large"
    assert tried[:3] == [LIMITS.wait_look_s] * 3
    assert len(tried) == 4


@pytest.mark.parametrize("colour", [0, 3])
def test_a_call_that_was_refused_is_in_flight_no_more_when_all_go_on_as_they_were(
    process: Process, colour: int
) -> None:
    """Also one that is redder than its receiver: else it would be made again by a later restore, and has failed."""
    body = acting(process, Hooked())
    process.obey(Roll(Asked(Step.STOP, 1)))
    with pytest.raises(RolledBackError):
        body.add(_ray_snapshot_header=f"app:1 1 driver 0 0 7 {colour} 1".encode())
    process.obey(Release(1))
    assert [(one.source, one.numbers) for one in process.take_acks()] == [("driver", ((7, 7),))]
    assert (body.count, process.is_closed) == (5, False)


def _ref(call_id: str) -> Any:
    return tracked(ray.ObjectRef(b"1" * 28), call_id)


def test_a_ref_of_the_past_is_neither_waited_for_nor_passed_on(driver: Process) -> None:
    before = _ref(f"{DRIVER}/0/B:1/1")
    driver.reloading.check_sending((before,), {})
    roll(driver, 1)
    driver.reloading.check_sending((_ref(f"{DRIVER}/1/B:1/1"), "anything"), {"else": 1})
    for what in (
        lambda: driver.reloading.check_waiting([before]),
        lambda: driver.reloading.check_sending((before,), {}),
    ):
        with pytest.raises(RolledBackError):
            what()
    with pytest.raises(RolledBackError):
        driver.reloading.check_sending((), {"amount": before})


def test_a_command_that_a_process_does_not_know_is_an_error_with_its_name(driver: Process) -> None:
    with pytest.raises(AssertionError, match="Welcome"):
        driver.obey(Welcome((), 0))  # type: ignore[arg-type]  # a host's


def test_a_process_has_not_stopped_while_its_tasks_cannot_be_listed(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(_: Any) -> set[Any]:
        raise RuntimeError("Set changed size during iteration")

    told: list[int] = []
    process.body = Hooked()
    monkeypatch.setattr(process.reloading, "_tell", lambda step, *_: told.append(step))
    monkeypatch.setattr(asyncio, "all_tasks", listed)
    process.actor_loop.loop = asyncio.new_event_loop()
    process.obey(Roll(Asked(Step.STOP, 1)))
    assert told == []
    monkeypatch.setattr(asyncio, "all_tasks", lambda _: set())
    with process.lock:
        process.reloading.ended()
    assert told == [Step.STOP]
    process.actor_loop.loop.close()
