"""Where machines live that this process has sent to by name: what the directory is asked, and what waits for what."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from lone_service import fail
from ray.exceptions import RayActorError

from ray_snapshot.errors import DuplicateMachineError, UnknownMachineError
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory as TheDirectory
from ray_snapshot.runtime.transport.places import Places


class Directory:
    """The service's, as a process asks it; it answers when it is let go."""

    def __init__(self, *names: str) -> None:
        self.names = {*names}
        self.questions: list[list[str]] = []
        self.is_let_go = asyncio.Event()
        self.has_more = asyncio.Event()
        self.locate = self
        self.error: Exception | None = None
        """What becomes of the next question."""
        self.is_closing = False

    async def remote(self, names: list[str], timeout: float) -> dict[str, str]:
        self.questions.append(names)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        await self.is_let_go.wait()
        while timeout and not self.is_closing and not {*names} & self.names:
            self.has_more.clear()
            try:
                await asyncio.wait_for(self.has_more.wait(), timeout)
            except TimeoutError:
                break
        return {name: "B" for name in names if name in self.names}


class Sender:
    """A process with one machine that sends; and what its links, and the system, come to hear."""

    def __init__(self, directory: Directory, spawn_timeout: float = 30.0) -> None:
        self.service, self.host, self.is_closing = directory, "A", False
        self.lock = threading.RLock()
        self.core = HostCore("A")
        self.machine = self.core.born("a", object())
        self.places = Places(self, self, spawn_timeout)  # type: ignore[arg-type]
        self.tasks: list[asyncio.Task[None]] = []
        self.failures: list[Exception] = []
        self.told: list[str] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    start_soon = start

    def flush(self) -> None:
        self.told.append("flush")

    def wake(self) -> None:
        self.told.append("wake")

    def fail(self, error: Exception) -> None:
        self.failures.append(error)

    def send(self, *targets: str) -> None:
        for target in targets:
            with self.lock:
                self.core.send(self.machine, target, MAIL, "go", (), 0.0)
                self.places.look_up()

    @property
    def known(self) -> set[str]:
        return {*self.core.addresses.places}


async def settled() -> None:
    """All that can go on without being let go has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


class NotGoneThrough(dict[str, Any]):
    """Names that wait: a send that goes through all of them takes the longer the more there are."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("gone through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_names_that_come_up_while_the_directory_is_asked_are_one_question() -> None:
    async def run() -> None:
        names = [f"m{number}" for number in range(300)]
        sender = Sender(Directory(*names))
        sender.core.addresses.unresolved = NotGoneThrough()
        sender.send(*names[:1])
        await settled()
        sender.send(*names[1:], *names)
        sender.service.is_let_go.set()
        await settled()
        assert sender.service.questions == [names[:1], names[1:]]
        assert sender.known == {*names}
        sender.send(*names)
        await settled()
        assert len(sender.service.questions) == 2, "what is known is not asked for"
        assert len(sender.tasks) == 1

    asyncio.run(run())


def test_a_machine_that_is_not_spawned_yet_keeps_no_mail_to_others_waiting() -> None:
    async def run() -> None:
        sender = Sender(Directory("there"))
        sender.service.is_let_go.set()
        sender.send("late", "there", "later")
        await settled()
        assert sender.known == {"there"}
        assert sender.told == ["flush", "wake"]
        sender.service.names |= {"late", "another"}
        sender.send("another")
        await settled()
        assert sender.known == {"there", "another"}
        sender.service.has_more.set()
        await settled()
        assert sender.known == {"there", "another", "late"}
        sender.service.names.add("later")
        sender.service.has_more.set()
        await settled()
        assert sender.known == {"there", "another", "late", "later"}
        assert not sender.core.addresses.unresolved
        assert not sender.failures

    asyncio.run(run())


def test_what_is_sent_before_a_rollback_asks_no_more_and_what_is_sent_behind_it_does() -> None:
    async def run() -> None:
        sender = Sender(Directory("there", "behind"), spawn_timeout=0.01)
        sender.send("there", "nobody")
        await settled()
        sender.core = HostCore("A")
        sender.machine = sender.core.born("a", object())
        sender.send("behind")
        sender.service.is_let_go.set()
        await settled()
        await asyncio.wait_for(asyncio.gather(*sender.tasks), 30)
        assert sender.known == {"behind"}
        assert sender.service.questions == [["there", "nobody"], ["behind"]]
        assert not sender.failures, "who sent to it has not"

    asyncio.run(run())


def test_behind_a_rollback_for_a_service_that_has_died_names_are_asked_for_again() -> None:
    async def run() -> None:
        sender = Sender(Directory("there"))
        sender.service.is_let_go.set()
        sender.service.error = RayActorError()
        sender.send("there")
        await settled()
        assert isinstance(sender.tasks[0].exception(), RayActorError)
        assert sender.known == set()
        sender.core = HostCore("A")
        sender.machine = sender.core.born("a", object())
        sender.send("there")
        await settled()
        assert sender.known == {"there"}

    asyncio.run(run())


def test_a_directory_that_waits_no_more_is_not_asked_again_and_again() -> None:
    async def run() -> None:
        sender = Sender(Directory())
        sender.service.is_let_go.set()
        sender.service.is_closing = True
        sender.send("nobody")
        await settled()
        assert sender.service.questions == [["nobody"], ["nobody"]]
        assert len(sender.failures) == 1

    asyncio.run(run())


def test_a_name_that_nobody_comes_to_bear_stops_the_system_and_says_who_sent_to_it() -> None:
    async def run() -> None:
        sender = Sender(Directory("there"), spawn_timeout=0.01)
        sender.service.is_let_go.set()
        sender.send("there", "nobody")
        await settled()
        await asyncio.wait_for(asyncio.gather(*sender.tasks), 30)
        (error,) = sender.failures
        assert isinstance(error, UnknownMachineError)
        assert "no machine 'nobody' was spawned within 0.01 s, but a sent to it" in str(error)

    asyncio.run(run())


def test_a_name_that_is_taken_is_passed_over_or_refused() -> None:
    directory = TheDirectory("bank", "chandy-lamport")

    def claim(count: int, names: list[str] | None) -> list[str]:
        return directory.claim("Account", count, names, ["host-0"] * count, None, is_driver=True)

    claim(2, ["Account-1", "Account-2"])
    assert claim(3, None) == ["Account-0", "Account-3", "Account-4"]
    assert claim(2, None) == ["Account-5", "Account-6"]
    for names in (["x", "Account-2"], ["x", "x"], ["Account-6", "Account-7"]):
        with pytest.raises(DuplicateMachineError):
            claim(2, names)
    assert "x" not in directory.places


def test_the_directory_answers_when_one_of_the_names_is_there() -> None:
    async def run() -> None:
        course, directory = Course("shop", fail), TheDirectory("shop", "observer")
        directory.places["there"] = "A"
        assert await directory.located(["late", "there"], 30.0, course) == {"there": "A"}
        asked = asyncio.ensure_future(directory.located(["late", "later"], 30.0, course))
        await settled()
        assert not asked.done()
        directory.places["later"] = "B"
        await course.notify()
        assert await asyncio.wait_for(asked, 30) == {"later": "B"}
        assert await directory.located(["late"], 0.0, course) == {}

    asyncio.run(run())
