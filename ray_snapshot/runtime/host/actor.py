"""The Ray actor that carries a host: what others may call, and what the coordinator's commands mean.

Asynchronous, so that any number of replies and controls can be awaited at once; user methods never run on its event loop.
Read `post` for what it does.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never, cast

import ray

from ray_snapshot import redaction
from ray_snapshot.errors import RolledBackError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import (
    Abort,
    Acknowledged,
    AwaitInput,
    Close,
    DeclarePort,
    Died,
    Fail,
    HostCommand,
    OpenChannel,
    Overdue,
    Request,
    Restarted,
    Stop,
    Stopped,
    Welcome,
)
from ray_snapshot.protocol.rollback import (
    NO_GENERATION,
    Acknowledge,
    Asked,
    Judgement,
    LoadFinished,
    LoadStates,
    Phase,
    RollbackHost,
    StartAccepting,
    Step,
    StopAccepting,
)
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.classes import ClassStore, extend_import_path
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.here import call_site_of
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.post import HostPost
from ray_snapshot.runtime.leaving import EXIT_CODE, before_worker_exit
from ray_snapshot.runtime.planning import opened_share
from ray_snapshot.runtime.restoring import load

if TYPE_CHECKING:
    from ray_snapshot.protocol.barrier_host import BarrierCore


class Host:
    """The Ray actor; asynchronous, so that any number of replies and controls can be awaited at once."""

    def __init__(self, config: HostConfig, service: Any) -> None:
        waits.install()
        waits.in_threads()
        extend_import_path(config.import_path)
        redaction.redact(*config.redacted)
        self.config = config
        self.service = service
        self.loop = asyncio.get_event_loop()
        self.rollback = RollbackHost(*_beginning(config), config.incarnation)
        self.post = self._new_post(config)
        self.stopping: int | None = None
        """The generation for which it stops, until no machine acts any more."""
        self.leaving: list[HostPost] = []
        """Posts of older generations in which an action was still under way when they were left."""
        if config.grace:
            before_worker_exit(self._leave_soon)

    def _new_post(self, config: HostConfig, classes: ClassStore | None = None) -> HostPost:
        post = HostPost(config, self.service, self.loop, classes)
        if config.stamp is not None:
            from ray_snapshot.instrument.crossing.hosted import join

            join(post, config.stamp, self.service)
        return post

    def _leave_soon(self) -> None:
        """Begin to leave, on SIGTERM; called in Ray's main thread."""
        self.leave = asyncio.run_coroutine_threadsafe(self._leave(), self.loop)

    async def _leave(self) -> None:
        """SIGTERM: the system takes a last snapshot, to which it goes back when this process is gone."""
        with suppress(Exception):  # it ends in any case
            async with asyncio.timeout(self.config.grace):
                await self.service.last_snapshot.remote(self.config.grace)
        os._exit(EXIT_CODE)

    # ---- generations ----------------------------------------------------------------------------------------------

    async def roll(self, step: int, generation: int, incarnation: int, share: bytes | None) -> list[int]:
        """A step of a rollback (or of the host's birth); answers with the steps that it has done."""
        done: list[int] = []
        effects = self.rollback.step(Asked(Step(step), generation, incarnation))
        while step == Step.STOP and self.stopping == generation:  # asked again: it has not stopped yet
            await asyncio.sleep(LIMITS.early_look_s)
        for effect in effects:
            match effect:
                case StopAccepting():
                    await self._stop(generation)
                case LoadStates():
                    done += await self._load(generation, share)
                case StartAccepting():
                    self.post.start()
                    self.post.arm()
                case Acknowledge(acknowledged, _):
                    done.append(acknowledged)
        return done

    async def _stop(self, generation: int) -> None:
        """Nothing is accepted from now on; answers when no machine acts any more, or has had `last_action_s` to end."""
        self.stopping = generation
        self.post.retire(RolledBackError("the system was rolled back while this machine was acting", snapshot_id=None))
        self.leaving = [post for post in (*self.leaving, self.post) if post.runner.is_acting]
        deadline = time.monotonic() + LIMITS.last_action_s
        while self.leaving and time.monotonic() < deadline and self.rollback.generation == generation:
            await asyncio.sleep(LIMITS.early_look_s)
            self.leaving = [post for post in self.leaving if post.runner.is_acting]
        if self.stopping == generation:
            self.stopping = None

    async def is_cut_short(self) -> bool:
        """Whether an action has ended in the middle, for others go back already."""
        return self.post.stage.is_broken

    async def _load(self, generation: int, blob: bytes | None) -> list[int]:
        share = opened_share(blob)
        config = replace(self.config, generation=generation, colour=share.last, open_at_birth=())
        post = self._new_post(config, self.post.classes)
        with ThreadPoolExecutor(1, thread_name_prefix="ray-snapshot-load") as pool:  # Python's own pool would stay
            await self.loop.run_in_executor(pool, load, post, share)
        if self.rollback.generation == generation:
            self.post = post
        effects = self.rollback.step(LoadFinished(generation))
        return [int(effect.step) for effect in effects if isinstance(effect, Acknowledge)]

    async def _admitted(self, generation: int) -> HostPost | None:
        """The post of this generation, as soon as it starts; None if the generation is past."""
        while (verdict := self.rollback.judge(generation)) is Judgement.HOLD:
            await asyncio.sleep(LIMITS.early_look_s)
        return self.post if verdict is Judgement.ACCEPT else None

    # ---- what others ask ------------------------------------------------------------------------------------------

    async def ready(self, machines: int) -> None:
        """Answers once so many machines have been constructed here (or wait in their constructor)."""
        while self.post.constructed() < machines:
            self.post.check()
            await asyncio.sleep(LIMITS.ready_look_s)
        self.post.check()

    async def deliver(self, generation: int, is_deaf: bool, *pieces: bytes) -> list[tuple[int, int]]:
        """A batch of a link; answers with acknowledgements for a source that cannot be called (`is_deaf`, or the driver)."""
        post = await self._admitted(generation)
        if post is None:
            return []
        batch = pickle.loads(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        with post.member.lock:
            core = post.core
            if is_deaf:
                core.polled_acknowledgements.setdefault(batch[0], {})
            core.arrive(batch)
            if core.open:
                post.reporter.arrived()
            if core.must_record or core.copying.uncopied:
                post.recorder.guard_soon()
            post.floor.wake()
            polled = core.polled_acknowledgements.get(batch[0])
            if not polled:
                return []
            acknowledgements = list(polled.items())
            polled.clear()
            return acknowledgements

    async def credit(self, source: str, generation: int) -> list[tuple[int, int]]:
        """Acknowledgements for a source that cannot be called, as soon as there are any; empty after a second."""
        for _ in range(200):
            post = await self._admitted(generation)
            if post is None:
                return []
            with post.member.lock:
                polled = post.core.polled_acknowledgements.get(source)
                if polled:
                    found = list(polled.items())
                    polled.clear()
                    return found
            await asyncio.sleep(0.005)
        return []

    @ray.method(concurrency_group="replies")  # type: ignore[untyped-decorator]  # ray is skipped
    async def reply(self, call_id: str, machine: str, generation: int) -> Any:
        """The result of a call that came over a link.

        In a group of its own: thousands that wait here must not take the places of those that bring their messages.
        """
        post = await self._admitted(generation)
        if post is None:
            raise RolledBackError(
                f"the call to {machine} was made before the system was rolled back, and will not be answered: call again",
                snapshot_id=None,
            )
        outcome = await asyncio.wrap_future(post.reply_to(call_id, machine))
        with post.member.lock:
            post.replies.fetched(call_id)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def watched(self) -> None:
        """Never answers: a process that waits for it hears at once that this one is gone."""
        await asyncio.get_running_loop().create_future()

    async def control(self, commands: list[HostCommand], generation: int) -> bool:
        """What the coordinator says, in order; False if it was of the past, and nothing was done."""
        for command in commands:
            if isinstance(command, Fail):  # whatever is being rolled back
                self.post.member.stop_with(command.error)
                return True
        post = await self._admitted(generation)
        if post is None:
            return False
        with post.member.lock:
            obey(post, commands)
        return True

    async def ask(self, commands: list[HostCommand], generation: int) -> HostPayload | None:
        """`control`, with a request for a snapshot among it; answers with the report, so that it needs no call of its own.

        None if it goes by one all the same (it is large, or traced), or will never be. Of two requests the first is answered.
        """
        number = next(one.number for one in commands if isinstance(one, Request))
        return await self.post.reporter.answer(number) if await self.control(commands, generation) else None

    async def kept(self, number: int, snapshot_id: str | None, generation: int) -> None:
        """A snapshot can be restored (None: it never will be); answers when machines that want to know it have been told."""
        post = await self._admitted(generation)
        if post is not None:
            await post.notify(number, snapshot_id)

    async def channels(self) -> list[tuple[str, str]]:
        """Every channel that leaves a machine of this host: (source, target)."""
        with self.post.member.lock:
            machines = list(self.post.core.machines.values())
            return [(machine.name, channel.target) for machine in machines for channel in machine.outputs.values()]

    async def doing(self) -> tuple[str, str, str | None, float] | None:
        """The action that is under way: (machine, method, call site, seconds); None between actions."""
        with self.post.member.lock:
            found = self.post.stage.performing
            if found is None:
                return None
            return (
                found.machine.name,
                found.method,
                call_site_of(self.post.floor.holder or 0),
                time.time() - found.began,
            )

    async def rest_of_trace(self) -> bytes | None:
        """Every action that was not shipped, behind those that are on their way."""
        while self.post.trace.under_way:
            await asyncio.sleep(LIMITS.ready_look_s)
        return self.post.trace.rest()

    async def close(self) -> None:
        """Stop acting; the process stays until it is killed."""
        self.post.close()


def _beginning(config: HostConfig) -> tuple[int, Phase]:
    """(generation, phase) of a new host. One that replaces a dead host must load what that carried; others load
    nothing."""
    if config.incarnation:
        return NO_GENERATION, Phase.STOPPED
    return config.generation, Phase.LOADED


def obey(post: HostPost, commands: Sequence[HostCommand]) -> None:
    """Do what the coordinator says, in order; on the event loop, under the lock."""
    for command in commands:
        _obey(post, command)
    post.carrier.flush()
    if not post.recorder.record_if_idle() or not all(isinstance(one, Request | Close) for one in commands):
        post.floor.wake()


def _obey(post: HostPost, command: HostCommand) -> None:  # noqa: PLR0912 - one branch for each command
    match command:
        case Request(number):
            post.core.request(number)
            post.recorder.guard_soon()
            post.reporter.born_red(number)
        case Welcome(pending, last):
            post.core.welcome(pending, last)
            post.recorder.guard_soon()
            for number in pending:
                post.reporter.born_red(number)
        case Overdue(number):
            if number not in post.core.closed:
                post.core.request(number)
                post.recorder.hurry(number)
        case Close(number):
            post.core.close(number)
            post.recorder.forget(number)
        case Abort(number):
            post.notices.forget(number)
            post.core.abort(number)
            post.recorder.forget(number)
        case Stopped(names, colour):
            post.core.note(colour)
            post.core.learn_stopped(names)
        case Stop(name, colour, count):
            post.core.note(colour)
            post.runner.stops.ask(name, count)
        case AwaitInput(target, source):
            cast("BarrierCore", post.core).await_input(target, source)
        case OpenChannel(source, target):
            post.core.channel(post.core.machine(source), target, "mail")
            post.places.look_up()
        case DeclarePort(target, port, source, site):
            post.declare(target, port, source, site)
        case Fail(error):
            post.member.stop_with(error)
        case Acknowledged(acks):
            if (ledger := post.core.ledgers.known.get(acks.source)) is not None:
                ledger.acknowledge(acks)
                post.recorder.guard_soon()
        case Died(actor):
            post.core.ledgers.target_died(actor)
        case Restarted(actor, incarnation):
            post.core.ledgers.target_restarted(actor, incarnation)
        case _:
            assert_never(command)


HostActor = ray.remote(concurrency_groups={"replies": LIMITS.awaited_replies})(Host)
