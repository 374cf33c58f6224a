"""A watched process's part in going back: what is refused, what is held, and how its actor takes its state back.

What is decided, `protocol.rollback` decides: every process leaves a generation before any enters the next. In an app
that we did not write there is more to stopping than no longer accepting: an action that is under way must come to its
end. So whatever such an action waits for or asks for ends with `RolledBackError`; when nothing runs any more, the
process has stopped.

Where the app goes back by itself (`Terms.recovers`), one process comes up again in place of one that has died: its constructor
runs, and then it stands still until all go back. What others hear of the death they hear too early: an action that waits
for the dead one is held until it is ended for the rollback, and the program until its calls have been made again (`journal`).

A call that bears an older generation than the one that was loaded is refused. A call that bears a newer one comes from
a process that has been told to go on already; it is held until this process is told too. Everything here happens under
the process's lock.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from ray_snapshot.errors import MachineFailedError, ProtocolError, RolledBackError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import asking, machine_of, own_threads, process_here
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.protocol.commands import Based, Release, Roll
from ray_snapshot.protocol.rollback import (
    Acknowledge,
    HostEffect,
    LoadFinished,
    LoadStates,
    Phase,
    RollbackHost,
    StartAccepting,
    Step,
    StopAccepting,
)
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.runtime.handles import forget_places
from ray_snapshot.runtime.refs import call_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.journal import Journal
    from ray_snapshot.instrument.process.process import Process
    from ray_snapshot.instrument.process.states import SavedValue
    from ray_snapshot.runtime.checkpointing import SavedMessage
    from ray_snapshot.runtime.collected import JoinedSystem


RELEASED = 0
"""Acknowledged in place of a step: the restore was given up, and the process has gone on as it was."""


CONSTRUCTOR = "__init__"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms under which a process takes part."""

    keeps: bool = False
    """Whether it keeps what a restore needs."""
    generation: int = 0
    """The generation that it is in; if it comes up while the app is rolled back, the one before."""
    life: int = 0
    """Which process of its machine it is, counted over its restarts."""
    is_rolling: bool = False
    incarnations: Mapping[str, int] = field(default_factory=dict)
    """The incarnation of each machine that is not in its first."""
    library_states: bool = False
    """Whether the states of actors of Ray's own libraries are recorded."""
    recovers: bool = False
    """Whether the app goes back by itself when a process dies."""
    raises: bool = False
    """Whether its waits may be ended, for they can never end by themselves."""
    is_returning: bool = False
    """Whether it comes up in place of one that has died, and everything is about to go back for that."""


class Welcome(NamedTuple):
    """What a process that registers is told."""

    incarnation: int
    colour: int
    """The colour that its machine is born with."""
    pending: list[int]
    last: int
    """The highest number of a snapshot so far."""
    terms: Terms
    settled: int = 0
    """The highest number that every machine has recorded."""


@dataclass(slots=True)
class Share:
    """What one process loads."""

    incarnation: int
    colour: int
    """The colour of its machine afterwards: red for every number given out so far."""
    incarnations: dict[str, int]
    """The new incarnations of all machines; refs to calls of earlier incarnations are of the past."""
    state: bytes | None = None
    """The state to load; None: it keeps the one it has (the driver; an actor that the snapshot has not)."""
    is_born_anew: bool = False
    """Whether it takes the state that its constructor left: the program made it behind the snapshot."""
    is_recovery: bool = False
    """Whether a death is the reason: then the program's calls since are made again, and what it waits for comes."""
    calls: list[tuple[str, str, str | None, bytes]] = field(default_factory=list)
    """(target, method, concurrency group, arguments) of its calls that were in flight, in the order of their numbers."""
    actors: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    """By the name that stands for a handle in what is loaded: (machine, its handle, in a list)."""
    joined: JoinedSystem | None = None
    """The system of machines that goes back with it."""
    aliases: tuple[str, ...] = ()
    """Runs whose machines are now that system's."""
    mail: list[SavedMessage] = field(default_factory=list)
    """Messages to machines that it has sent, and that were in flight, in the order of their numbers."""
    post: bytes | None = None
    """For the program: what its part in that system loads (`runtime.planning.Share`)."""


def stamp_of(system: str, generation: int) -> str:
    """What a header says: the system, and the generation once there is more than one."""
    return f"{system}:{generation}" if generation else system


def system_of(stamp: str) -> str:
    """The system (`name:run_id`) of a stamp."""
    return ":".join(stamp.split(":")[:2])


def generation_of(stamp: str, system: str) -> int | None:
    """The generation that a header bears; None if it is another system's."""
    if stamp == system:
        return 0
    base, _, generation = stamp.rpartition(":")
    return int(generation) if base == system and generation.isdecimal() else None


def _states() -> Any:
    """The module `states`, imported only where something is kept: it needs libraries that a node may not have."""
    return importlib.import_module("ray_snapshot.instrument.process.states")


def _sending() -> Any:
    """The module `sending`, imported only where an actor sends to machines."""
    return importlib.import_module("ray_snapshot.instrument.crossing.sending")


def _journal() -> Any:
    """A journal, imported only where there is one: it needs what `states` needs."""
    return importlib.import_module("ray_snapshot.instrument.process.journal").Journal()


@dataclass(slots=True)
class Returning:
    """What an actor knows of its own beginning, where the app goes back by itself."""

    is_under_way: bool
    """Whether its constructor runs in place of one that has died: it may call others, and nothing else runs yet."""
    birth: SavedValue | None = None
    """The state that the constructor left; None once the app does not go back behind it any more."""
    handles: dict[str, Any] = field(default_factory=dict)
    """Those in that state."""


class Reloading:
    """What a watched process goes through when the app goes back."""

    def __init__(self, process: Process, terms: Terms) -> None:
        self.process = process
        self.keeps = terms.keeps
        self.loaded = terms.generation
        """The generation that the process's state is of."""
        self.entered = terms.generation
        """The generation in which it goes on: all that is to be made again has been."""
        phase = Phase.STOPPED if terms.is_rolling or terms.is_returning else Phase.RUNNING
        self.host = RollbackHost(terms.generation, phase, terms.life)
        self.started = threading.Condition(process.lock)
        self.is_stopping = False
        """Whether the process is to stop, and waits for the end of what runs."""
        self.share: Share | None = None
        self.handles: dict[str, Any] = {}
        """Handles of the actors in the last recorded state, kept so that these actors do not end when a state is
        loaded."""
        self.first: dict[str, int] = {}
        """The first incarnation of each machine in this generation."""
        self.returning = Returning(is_under_way=terms.is_returning)
        is_program = process.machine == DRIVER
        self.journal: Journal | None = _journal() if terms.recovers and is_program else None
        """The program's calls, where the app goes back by itself."""
        self.recovers = terms.recovers

    @property
    def is_held(self) -> bool:
        """Whether nothing may be accepted or sent now."""
        return self.host.phase is not Phase.RUNNING

    @property
    def may_go_back(self) -> bool:
        """Whether the app may go back, or has."""
        return self.keeps or self.recovers or self.loaded > 0

    # ---- what arrives, and what is sent ---------------------------------------------------------------------------

    def admit(self, generation: int, method: str) -> None:
        """Something of this generation is about to be accepted; raises `RolledBackError`, now or when it was held too long."""
        deadline = time.monotonic() + LIMITS.held_call_s
        while method != CONSTRUCTOR and (self.is_held or generation < self.loaded):
            if generation < max(self.loaded, self.host.generation):
                raise self.refusal()
            if not self.started.wait(deadline - time.monotonic()):
                raise self.refusal()

    def refusal(self) -> RolledBackError:
        """What is raised where something of the past is asked for."""
        who = self.process.machine.partition(":")[0]
        text = f"the app was rolled back: what {who} was asked for, or asked for itself, is of a past that was given up"
        return RolledBackError(text, snapshot_id=None)

    def check_sending(self, args: Any = None, kwargs: Any = None) -> None:
        """Raise `RolledBackError` if nothing may be sent now, or these arguments are refs of the past."""
        if self.is_held and not self.returning.is_under_way:
            self._check_held()
        if self.first:
            self._check_refs((*(args or ()), *(kwargs or {}).values()))

    def _check_held(self) -> None:
        """Where the app goes back by itself, the program is held until all go on."""
        if threading.current_thread() is self.process.control.thread:
            return
        deadline = time.monotonic() + LIMITS.held_program_s
        with self.process.lock:
            while self.journal is not None and self.is_held:
                if not self.started.wait(deadline - time.monotonic()):
                    break
            if self.is_held:
                raise self.refusal()

    def check_waiting(self, refs: Iterable[Any]) -> None:
        """Raise `RolledBackError` if these refs are of the past, or the action that waits for them is to end."""
        if self.is_held and self.process.machine != DRIVER and not self.returning.is_under_way:
            raise self.refusal()
        if self.first:
            self._check_refs(refs)

    def _check_refs(self, refs: Iterable[Any]) -> None:
        for call_id in map(call_of, refs):
            if call_id is not None and parsed(call_id).incarnation < self.first.get(parsed(call_id).source, 0):
                raise self.refusal()

    def keep_call(self, args: Any, kwargs: Any) -> SavedValue:
        """What a restore needs of a call that is about to be made."""
        found: SavedValue = _states().kept((tuple(args or ()), kwargs or {}), "its arguments", machine_of)[0]
        return found

    def keep_state(self, body: Any) -> SavedValue:
        """What a restore needs of the actor's state, as it is now."""
        states = _states()
        try:
            with asking():
                state = states.state_of(body)
        except Exception as error:  # whatever the app's own methods raise
            found: SavedValue = states.SavedValue(
                None, (), f"its state cannot be told: {type(error).__name__}: {text_of(error)}"
            )
            return found
        found, self.handles = states.kept(state, "its state", machine_of)
        return found

    # ---- where the app goes back by itself -------------------------------------------------------------------------

    def built(self, obstacle: str | None = None) -> None:
        """The constructor has ended: from this state the actor begins anew if the app goes back behind its making."""
        kept = None if obstacle is not None else self.keep_state(self.process.body)
        if self.process.ledger.outputs or self.process.making.births:
            obstacle = "its constructor calls other actors, or makes some"
        self.returning.birth, self.returning.handles = kept, self.handles
        self.returning.is_under_way = False
        if kept is not None and kept.obstacle is not None:
            obstacle = kept.obstacle
        self._tell_watcher("built", obstacle)

    def outlive(self, error: BaseException, generation: int, deadline: float) -> bool:
        """Something of this generation has ended in an error; answers when that is undone, or with False if it is not.

        In an actor it raises `RolledBackError` when the action is to end. `deadline` (monotonic) bounds the wait.
        """
        key = getattr(error, "actor_id", None)
        is_program = self.process.machine == DRIVER
        while (self.entered == generation or self.is_held) and time.monotonic() < deadline:
            if self.is_held and not is_program:
                raise self.refusal()
            key = key if isinstance(key, str) else None
            reply = CONNECTION.use(self.process.watcher.is_coming_back.remote, key, generation)
            if reply is None or not shape.original("get")(reply, timeout=LIMITS.fate_answer_s):
                break
            with self.process.lock:
                if is_program or not self.is_held:
                    self.started.wait(max(0.0, min(LIMITS.wait_look_s, deadline - time.monotonic())))
        return self.entered != generation and not self.is_held

    def based(self, command: Based) -> None:
        """The app goes back to a snapshot that has this process in it; under the lock."""
        if self.journal is not None:
            self.journal.based(command, self.process.ledger.incarnation)
        self.returning.birth, self.returning.handles = None, {}

    # ---- steps ----------------------------------------------------------------------------------------------------

    def obey(self, command: Roll | Release) -> None:
        """A command of the watcher's, on the control thread."""
        with self.process.lock:
            match command:
                case Roll(asked, share):
                    self.share = share if share is not None else self.share
                    try:
                        self._carry_out(self.host.step(asked))
                    except ProtocolError as error:
                        self._tell_failure(asked.generation, error)
                case Release(generation):
                    if generation == self.host.generation and self.is_held:
                        self.host.phase = Phase.RUNNING
                        self.is_stopping = False
                        if self.process.mail is not None:
                            self.process.mail.resume()
                        self.started.notify_all()
                        self._tell(RELEASED, generation)
                case _:
                    assert_never(command)

    def _carry_out(self, effects: Sequence[HostEffect]) -> None:
        for effect in effects:
            match effect:
                case StopAccepting():
                    if self.process.mail is not None:
                        self.process.mail.pause()
                    self._interrupt()
                    self.started.notify_all()
                case LoadStates(generation):
                    self._begin_load(generation)
                case StartAccepting():
                    self._start()
                case Acknowledge(Step.STOP, _):
                    self.is_stopping = True
                    self.ended()
                    self._tell_busy()
                case Acknowledge(step, generation):
                    self._tell(int(step), generation)

    def ended(self) -> None:
        """Something has ended: if it was the last that stopping waits for, tell the watcher that this process has
        stopped."""
        if (
            self.is_stopping
            and not self.process.ledger.running
            and not self.process.making.under_way
            and not self._others()
        ):
            self.is_stopping = False
            self._tell(int(Step.STOP), self.host.generation)

    def _others(self) -> list[str]:
        """What may act beside the calls: threads and tasks of the app's own; the driver's program is not stopped."""
        if self.process.machine == DRIVER:
            return []
        threads, tasks = [f"thread {thread.name}" for thread in own_threads()], self._tasks()
        return threads + (["tasks that come and go"] if tasks is None else [f"task {one.get_name()}" for one in tasks])

    def _tasks(self) -> list[Any] | None:
        """The tasks that have not ended; None if they come and go too quickly to be listed."""
        loop = self.process.actor_loop.loop
        with suppress(RuntimeError):
            return [] if loop is None else [task for task in asyncio.all_tasks(loop) if not task.done()]
        return None

    def _interrupt(self) -> None:
        """Coroutines are cancelled wherever they are; threads look by themselves, as far as they wait (`tracking`)."""
        own = [task for task, _ in self.process.actor_loop.coroutines.values()]
        for task in {*own, *(self._tasks() or ())}:
            with suppress(RuntimeError):  # its loop has ended, and so has it
                task.get_loop().call_soon_threadsafe(task.cancel)
        threading.Thread(
            target=ours, args=(self._look, self.host.generation), name="ray-snapshot-stop", daemon=True
        ).start()

    def _look(self, generation: int) -> None:
        """Look again and again whether all has ended: threads and tasks of the app's own do not say when they end."""
        while not self.process.is_closed:
            with self.process.lock:
                self.ended()
                if not self.is_stopping or self.host.generation != generation:
                    return
            time.sleep(LIMITS.stop_look_s)

    def _begin_load(self, generation: int) -> None:
        """A state is taken back where the calls run: what an actor makes anew may belong to its thread (as in sqlite3)."""
        assert self.share is not None
        if self.share.state is None and not self.share.is_born_anew:
            self.load(generation)
            return
        try:
            shape.run_as_call(_load_here, generation)
        except Exception as error:  # too many of its own calls are pending
            self._tell_failure(generation, self._failure("cannot be given its state", "", error))

    def load(self, generation: int) -> None:
        """Load the share that the watcher has sent; do nothing if that rollback is over by now."""
        with self.process.lock:
            if self.share is None or self.host.phase is not Phase.LOADING or generation != self.host.generation:
                return
            if self.share.joined is not None:
                forget_places(self.share.joined.run_id, self.share.aliases)
            try:
                self._set_state(self.share)
            except Exception as error:
                self._tell_failure(generation, self._failure("does not take its state back", "__setstate__", error))
                return
            self.process.begin_anew(generation, self.share)
            self.loaded, self.first = generation, self._first(self.share)
            self.returning.is_under_way = False
            self.process.stamp = stamp_of(self.process.system, generation)
            self._carry_out(self.host.step(LoadFinished(generation)))

    def _first(self, share: Share) -> dict[str, int]:
        """What refs are of the past: of the program's own none, where it goes on with the answers of its journal."""
        if not share.is_recovery:
            return dict(share.incarnations)
        if self.process.machine == DRIVER:
            return self.first
        before = {DRIVER: self.first[DRIVER]} if DRIVER in self.first else {}
        return {**{name: number for name, number in share.incarnations.items() if name != DRIVER}, **before}

    def _set_state(self, share: Share) -> None:
        state = share.state
        actor: Callable[[str], Any] = self._actor
        if share.is_born_anew:
            assert self.returning.birth is not None, "the watcher has heard that it cannot"
            state, actor = self.returning.birth.blob, self.returning.handles.__getitem__
        if state is None:
            return
        body, recorded = self.process.body, self.handles
        self.keep_state(body)  # a program that was just started has recorded nothing, and its actors have made others
        self.handles = {**recorded, **self.handles}
        with asking():
            _states().set_state(body, _states().opened(state, actor))

    def _failure(self, what: str, method: str, error: Exception) -> MachineFailedError:
        text = f"{self.process.machine.partition(':')[0]} {what}: {type(error).__name__}: {text_of(error)}"
        return MachineFailedError(
            text, machine=self.process.machine, method=method, message=None, source=None, traceback=""
        )

    def _actor(self, name: str) -> Any:
        """The handle for a name: this process's own, which keeps the actor alive, or else the watcher's."""
        assert self.share is not None
        machine, (handle,) = self.share.actors[name]
        return self.handles.get(machine, handle)

    def _start(self) -> None:
        """What was in flight is sent again before anything else; then all go on."""
        failures: list[Exception] = []
        if self.journal is not None and self.share is not None and self.share.is_recovery:
            failures += self.journal.again()
        elif self.journal is not None:
            self.journal.forget()
        try:
            for call in self.share.calls if self.share is not None else ():
                self._send_again(*call)
            if self.share is not None and self.share.mail and self.share.joined is not None:
                _sending().send_again(self.process, self.share.joined, self.share.mail)
        except Exception as error:
            failures.append(error)
        if self.process.mail is not None:
            self.process.mail.resume()
        for failure in failures:
            failed = self._failure("cannot make the calls again that were in flight", "", failure)
            self._tell_failure(self.host.generation, failed)
        self.share, self.entered = None, self.loaded
        self.started.notify_all()

    def _send_again(self, target: str, method: str, group: str | None, blob: bytes) -> None:
        args, kwargs = _states().opened(blob, self._actor)
        called = getattr(self._actor(target), method)
        (called if group is None else called.options(concurrency_group=group)).remote(*args, **kwargs)

    # ---- what the watcher is told ---------------------------------------------------------------------------------

    def _tell(self, step: int, generation: int) -> None:
        self.process.control.tell("stepped", self.process.machine, step, generation)

    def _tell_watcher(self, what: str, *about: Any) -> None:
        self.process.control.tell(what, self.process.machine, *about)

    def _tell_busy(self) -> None:
        if self.is_stopping:
            found = [f"at {site}" for site in self.process.recording.call_sites().values()] or self._others()
            self.process.control.tell("busy", self.process.machine, found[0] if found else "in an action")

    def _tell_failure(self, generation: int, error: Exception) -> None:
        self.process.control.tell("not_rolled", self.process.machine, generation, error)


def _load_here(body: Any, generation: int) -> None:  # noqa: ARG001 - Ray gives it the actor's object
    process = process_here()
    if process is not None:
        ours(process.reloading.load, generation)
