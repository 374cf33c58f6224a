"""The driver and the service agree on what the system goes back to, and which verdicts stay; the real ones, without Ray."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest
from lone_service import Program, recovery_with
from played import Played, Remote
from ray.exceptions import ActorUnavailableError

import ray_snapshot as rs
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.commands import DriverCommand, Secure, Seek
from ray_snapshot.protocol.recovery_line import Base
from ray_snapshot.protocol.rollback import Acknowledged, HostFailed, HostJoined, Step
from ray_snapshot.runtime.collected import HostPayload, SnapshotHeader
from ray_snapshot.runtime.driver.attending import Attendant, Patience
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.planning import Plan, Share
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.recovery import Recovery, Target
from ray_snapshot.runtime.transport.post import Sent

BOUND_S = 10.0


class Line:
    """The service, or the analyst, as the driver calls it; what it has no method for is never answered."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self.heard: list[tuple[int, bool]] = []
        """(number, whether it was safe) of what the driver has secured."""
        self.restorable: list[tuple[str, bool]] = []
        """(snapshot, whether the driver has a copy) of what the program wants to have restored."""
        self.copies = 0
        self.dies: Callable[[], None] | None = None
        """What happens when the driver secures something next, or has a copy to restore, instead of an answer."""
        self.while_copying: Callable[[], None] = lambda: None
        """What happens while a copy is on its way to the driver."""

    def __getattr__(self, name: str) -> Any:
        return Remote(partial(self._answer, name))

    def _answer(self, name: str, *args: Any, **named: Any) -> asyncio.Future[Any]:
        answer = asyncio.get_running_loop().create_future()
        if name in ("secured", "sought") and self.dies is not None:
            self.dies()
            self.dies = None
            answer.set_exception(ActorUnavailableError("it has died", None))
        elif name == "secured":
            self.heard.append((args[1], named["is_safe"]))
            answer.set_result(self.recovery.secured(*args, **named))
        elif name == "sought":
            self.restorable.append(args)
            answer.set_result(None)
        elif name == "checkpoint":
            self.copies += 1
            self.while_copying()
            answer.set_result(f"copy {self.copies} of {args[0]}")
        return answer


class Pair:
    """A driver, and what the service knows of recoveries; both go back to snapshot 1."""

    def __init__(self) -> None:
        self.pinned: list[str] = []
        self.recovery = recovery_with(Played(pin=self.pinned.append))
        self.recovery.base = Target("s1")
        self.recovery.line.went_back("s1", 1)
        self.line = Line(self.recovery)
        attendant = Attendant("alone", self.line, self.line, lambda _: None, Patience(5, 60.0, 60.0))
        attendant.memory.base = Base("s1", 1)
        self.memory = attendant.memory
        self.post = DriverPost(
            "securing", self.line, protocol="observer", mailbox_bound=10, send_timeout=5.0, spawn_timeout=5.0,
            attendant=attendant,
        )  # fmt: skip

    def sends(self, *colours: int) -> None:
        self.post.journal = [(colour, Sent("a", "mail", "take", colour, None)) for colour in colours]

    @property
    def journal(self) -> list[int]:
        return [colour for colour, _ in self.post.journal or []]

    def kept(self, *numbers: int) -> None:
        """These snapshots are kept; answers when the driver has seen to it."""
        self.post.run(self._hear([Secure(number, f"s{number}") for number in numbers])).result(BOUND_S)

    async def _hear(self, commands: list[DriverCommand]) -> None:
        with self.post.member.lock:
            for command in commands:
                self.post._obey(command)
        while self.post.securing.is_busy:
            await asyncio.sleep(0)

    def seek(self, snapshot_id: str) -> None:
        """The program wants this one restored; answers when the driver has told the service that it may be."""

        async def sought() -> None:
            before = len(self.line.restorable)
            await self._hear([Seek(0, snapshot_id)])
            while len(self.line.restorable) == before:
                await asyncio.sleep(0)

        self.post.run(sought()).result(BOUND_S)

    def load(self, share: Share) -> None:
        """The system goes back: the driver loads its share, in the thread in which it does so."""

        async def loaded() -> None:
            with self.post.member.lock:
                self.post._leave_generation(self.post.member.generation + 1)
                self.post._load(share)
                self.post.member.is_rolling = False

        self.post.run(loaded()).result(BOUND_S)

    def host_fails(self) -> None:
        """The service hears that a host is gone; nobody else has heard of it."""
        coordinator = self.recovery.coordinator
        for event in (HostJoined("host-0", 0, 0), Acknowledged("host-0", Step.START, 0), HostFailed("host-0", 0, 0.0)):
            coordinator.step(event)
        assert self.recovery.is_rolling


@pytest.fixture
def pair() -> Iterator[Pair]:
    found = Pair()
    yield found
    found.post.close()


def test_a_snapshot_that_is_late_takes_nobody_back(pair: Pair) -> None:
    pair.sends(4, 5, 6)
    pair.kept(6)
    pair.kept(5)
    assert (pair.memory.base, pair.recovery.line.number) == (Base("s6", 6), 6)
    assert pair.journal == [6]


def test_of_snapshots_that_come_at_once_the_newest_counts(pair: Pair) -> None:
    pair.sends(4, 5, 6)
    pair.kept(6, 5)
    assert (pair.memory.base, pair.recovery.line.number) == (Base("s6", 6), 6)
    assert pair.journal == [6]
    assert pair.pinned == ["s6"]


def test_a_stop_is_not_undone_by_a_recovery_and_comes_behind_what_was_sent(pair: Pair) -> None:
    pair.sends(1, 1)
    assert pair.post.stopped("a", pair.post.member.generation)
    pair.load(Share(last=2, snapshot_id="s1", number=1, again_from=1))
    assert pair.post.stops == [("a", 2)]
    assert pair.post.core.addresses.stopped == {"a"}


def test_a_stop_may_be_in_no_snapshot_though_the_driver_had_stopped_the_machine_before(pair: Pair) -> None:
    """Its host may have recorded before it was told."""
    assert pair.post.stopped("a", pair.post.member.generation)
    pair.kept(2)
    pair.load(Share(last=2, snapshot_id="s2", number=2, again_from=2))
    assert pair.post.stops == [("a", 0)]
    pair.load(Share(last=2, snapshot_id="s2", number=2, again_from=2, stopped=["a"]))
    assert (pair.post.stops, pair.post.journal) == ([], [])


def test_a_machine_that_was_told_to_stop_in_a_generation_that_is_over_is_told_again(pair: Pair) -> None:
    pair.load(Share(last=1, snapshot_id="s1", number=1, again_from=1))
    assert not pair.post.stopped("a", pair.post.member.generation - 1)
    pair.post.holding.await_next(pair.post.member.generation - 1)


def test_a_copy_that_is_missing_is_fetched_once(pair: Pair) -> None:
    pair.memory.keeps_copy = True
    pair.kept(1)
    assert pair.memory.base == Base("s1", 1, "copy 1 of s1")  # type: ignore[arg-type]
    pair.kept(1)
    assert pair.line.copies == 1


def test_a_snapshot_that_was_overtaken_is_kept_and_nobody_is_asked(pair: Pair) -> None:
    header = SnapshotHeader(1, "alone", "s", "observer", [], 0.0)
    assert asyncio.run(pair.recovery.note(header, True))


def test_a_snapshot_that_comes_too_late_for_a_rollback_makes_the_driver_forget_nothing(pair: Pair) -> None:
    pair.sends(1, 2)
    pair.host_fails()
    pair.kept(2)
    assert (pair.recovery.line.number, pair.journal) == (1, [1, 2])
    pair.load(Share(last=2, snapshot_id="s1", number=1, again_from=1))
    assert pair.memory.base == Base("s1", 1)
    assert [sent.payload for _, sent in pair.post.journal or []] == [1, 2]


def test_the_copy_of_what_is_gone_back_to_is_kept_until_the_service_agrees_to_another(pair: Pair) -> None:
    pair.memory.keeps_copy = True
    pair.kept(1)
    pair.kept(2)
    assert pair.memory.copies() == ["copy 2 of s2"]
    pair.host_fails()
    pair.kept(3)
    assert pair.memory.copies() == ["copy 2 of s2", "copy 3 of s3"]
    pair.load(Share(last=3, snapshot_id="s2", number=2, again_from=2))
    assert pair.memory.copies() == ["copy 2 of s2"]


def test_a_copy_that_comes_when_another_analyst_has_begun_makes_nothing_safe(pair: Pair) -> None:
    """The next analyst was told of the copies that were there: the driver would go back to what that does not have."""

    def another_begins() -> None:
        pair.memory.analyst_life += 1

    pair.sends(1, 2)
    pair.memory.keeps_copy = True
    pair.line.while_copying = another_begins
    pair.kept(2)
    assert (pair.memory.base, pair.recovery.line.number, pair.journal) == (Base("s1", 1), 1, [1, 2])
    assert pair.line.heard == [(2, False)]


def test_what_the_program_restores_is_with_the_driver_before_anybody_stops(pair: Pair) -> None:
    """So it is there when the analyst dies meanwhile."""
    pair.memory.keeps_copy = True
    pair.seek("s0")
    assert pair.line.restorable == [("s0", True)]
    pair.kept(1)
    assert pair.memory.copies() == ["copy 1 of s0", "copy 2 of s1"]
    pair.load(Share(last=1, snapshot_id="s0"))
    assert (pair.memory.base, pair.memory.copies()) == (Base("s0", 0, "copy 1 of s0"), ["copy 1 of s0"])


def test_what_is_overtaken_while_the_program_wants_it_restored_is_kept(pair: Pair) -> None:
    pair.memory.keeps_copy = True
    pair.kept(1)
    pair.seek("s1")
    pair.kept(2)
    assert (pair.line.copies, pair.memory.copies()) == (2, ["copy 1 of s1", "copy 2 of s2"])


def test_the_service_hears_that_what_is_to_be_restored_was_lost_with_an_analyst(pair: Pair) -> None:
    def another_begins() -> None:
        pair.memory.analyst_life += 1

    pair.memory.keeps_copy = True
    pair.line.while_copying = another_begins
    pair.seek("s0")
    assert (pair.line.restorable, pair.memory.copies()) == ([("s0", False)], [])


def test_a_service_that_has_not_heard_of_the_copy_to_restore_is_told_again(pair: Pair) -> None:
    pair.memory.keeps_copy = True
    pair.line.dies = lambda: None
    pair.seek("s0")
    assert (pair.line.restorable, pair.line.copies) == ([("s0", True)], 1)


def test_two_who_want_the_same_snapshot_restored_both_hear_of_it() -> None:
    async def play() -> list[bool]:
        recovery = recovery_with(Played())

        async def driver() -> None:
            while len(recovery.orders.driver_log) < 2:  # it answers both, before either looks
                await asyncio.sleep(0)
            recovery.held["s3"] = True
            await recovery.course.notify()

        plan = Plan("s3", 3, True, {}, {})
        work = asyncio.gather(recovery._held(plan), recovery._held(plan), driver())
        return list(await asyncio.wait_for(work, BOUND_S))[:2]

    assert asyncio.run(play()) == [True, True]


def test_nobody_stops_for_a_restore_before_the_driver_has_its_copy() -> None:
    """If it was lost meanwhile it is planned once more, which raises."""

    async def play(is_held: bool) -> list[Any]:
        done: list[Any] = []

        async def planned(snapshot_id: str, _: Any) -> Any:
            done.append("planned")
            return Plan(snapshot_id, 3, True, {}, {})

        recovery = recovery_with(Played(plan=planned))
        recovery._carry_out = lambda _: recovery.done.set_result(done.append("stop"))  # type: ignore

        async def driver() -> None:
            done.extend(await recovery.orders.commands(0))
            recovery.held["s3"] = is_held
            await recovery.course.notify()

        await asyncio.wait_for(asyncio.gather(recovery.restore("s3", {}, {}), driver()), BOUND_S)
        return done

    assert asyncio.run(play(True)) == ["planned", Seek(3, "s3"), "stop"]
    assert asyncio.run(play(False)) == ["planned", Seek(3, "s3"), "planned", "stop"]


def test_a_service_that_dies_before_it_answers_makes_the_driver_forget_nothing(pair: Pair) -> None:
    """It may have told sinks that this snapshot is kept: so the next one goes back to it."""
    pair.sends(1, 2)
    pair.line.dies = pair.host_fails  # the next one begins with a rollback, too
    pair.kept(2)
    assert (pair.memory.base, pair.memory.former, pair.journal) == (Base("s2", 2), (Base("s1", 1),), [1, 2])


def test_every_copy_is_kept_that_the_service_may_have_agreed_to(pair: Pair) -> None:
    """It agrees and dies before it answers; the next one goes back to that, and the driver has not been told to yet."""
    pair.memory.keeps_copy = True
    pair.kept(1)
    pair.line.dies = pair.host_fails
    pair.kept(2)
    pair.kept(3)
    assert pair.memory.copies() == ["copy 1 of s1", "copy 2 of s2", "copy 3 of s3"]
    pair.load(Share(last=3, snapshot_id="s2", number=2, again_from=2))
    assert pair.memory.copies() == ["copy 2 of s2"]


def test_a_service_that_has_not_heard_the_driver_is_asked_again(pair: Pair) -> None:
    """Whoever waits to hear of this snapshot would have waited for the next one."""
    pair.sends(1, 2)
    pair.line.dies = lambda: None
    pair.kept(2)
    assert (pair.recovery.line.number, pair.journal) == (2, [2])


class Analyst:
    """Takes every snapshot, and says that it can be restored; does not answer anything else."""

    def __getattr__(self, name: str) -> Any:
        answer = type(self).__dict__.get(f"_{name}", Analyst._watched)
        return Remote(partial(answer, self))

    async def _begin_session(self) -> str:
        return "session"

    async def _add(self, *_: Any, again: bool) -> int:
        return 0

    async def _is_kept(self, *_: Any, **__: Any) -> bool:
        return True

    def _pin(self, snapshot_id: str) -> None:
        """There is nothing here to hold on to."""

    async def _watched(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def _plan(self, *_: Any) -> None:
        await asyncio.get_running_loop().create_future()


def with_snapshot(play: Callable[[Service, str], Coroutine[Any, Any, bool]]) -> bool:
    """What `play` says, once snapshot 1 has been handed over, and the driver has not made sure of it."""

    async def run() -> bool:
        service = Service(ServiceConfig("shop", "run", "chandy-lamport", 8, 30.0, True, True), None)
        service._open([Analyst()])
        number = service.collecting.start(30.0, 8)
        assert number == 1
        snapshot_id = service.collecting.begin(number, [], 30.0, is_driver_asked=True).header.snapshot_id
        await service.report(HostPayload(number, HostReport(DRIVER, {}, {}, {}), b"", checkpoint=b"x"))
        while Secure(number, snapshot_id) not in service.orders.driver_log:
            await asyncio.sleep(0)
        found = await play(service, snapshot_id)
        for task in [*service.course.tasks, *service.collecting.line.under_way]:
            task.cancel()
        return found

    return asyncio.run(asyncio.wait_for(run(), 10))


def test_a_snapshot_is_certain_when_the_driver_has_made_sure_of_it() -> None:
    async def play(service: Service, snapshot_id: str) -> bool:
        asked = asyncio.create_task(service.is_certain(snapshot_id, 60.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asked.done()
        await service.secured(snapshot_id, 1, 0, is_safe=True)
        return await asked

    assert with_snapshot(play)


def test_a_snapshot_is_not_certain_if_the_system_goes_back_or_if_it_is_not_known_in_time() -> None:
    async def goes_back(service: Service, snapshot_id: str) -> bool:
        asked = asyncio.create_task(service.is_certain(snapshot_id, 60.0))
        await asyncio.sleep(0)
        await service.secured(snapshot_id, 1, 0, is_safe=False)  # lost with an analyst
        return await asked

    assert not with_snapshot(goes_back)
    assert not with_snapshot(lambda service, snapshot_id: service.is_certain(snapshot_id, 0.0))


def verdict(number: int, *, alarm: bool = False) -> tuple[int, rs.Verdict]:
    about: dict[str, Any] = {"run_id": "run", "evidence": {}, "alarm": alarm}
    return number, rs.Verdict(detector="done", holds=True, sentence="Yes.", snapshot_id=f"s{number}", **about)


class Waiting(Program):
    """What a program waits for: the verdicts that come, and which snapshots are certain."""

    def __init__(self, verdicts: list[tuple[int, rs.Verdict]], certain: set[str], *, recovers: bool = True) -> None:
        super().__init__(object() if recovers else None)
        self._has_clock = True
        self.detectors = [Done()]
        self._service = Played(
            last_number=lambda: 0, completed_after=lambda _: 0, is_certain=lambda snapshot_id, _: snapshot_id in certain
        )
        coming = iter(verdicts)
        self._analyst = Played(
            count=lambda: 0,
            unjudged=lambda: 0,
            verdicts_after=lambda seen, _: (seen + 1, [found for found in [next(coming, None)] if found]),
        )


class Done:
    name = "done"

    def evaluate(self, snapshot: rs.Snapshot) -> rs.Verdict:
        raise NotImplementedError


def answer(verdicts: list[tuple[int, rs.Verdict]], certain: set[str], *, recovers: bool = True) -> str:
    program: Any = Waiting(verdicts, certain, recovers=recovers)
    found: rs.Verdict = program.wait_for("done", timeout=1.0)
    return found.snapshot_id


def test_a_verdict_on_a_snapshot_that_was_gone_back_behind_is_not_the_answer() -> None:
    assert answer([verdict(1), verdict(2), verdict(3)], {"s3"}) == "s3"


def test_an_alarm_is_the_answer_at_once_and_so_is_every_verdict_where_nobody_goes_back() -> None:
    assert answer([verdict(1, alarm=True)], set()) == "s1"
    assert answer([verdict(1)], set(), recovers=False) == "s1"


def test_who_waited_in_vain_is_told_of_the_snapshot_that_was_not_certain() -> None:
    with pytest.raises(rs.SnapshotTimeoutError, match="on s1 it held, but the system may go back behind that"):
        answer([verdict(1)], set())
