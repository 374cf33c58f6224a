"""Waits of one process: `ray.get`, `ray.wait` and `await` of refs, from their beginning to their end.

Each is a wait of a call, of the program itself, or of a thread that a call has handed its work to. It is a boundary, and what
its replies are red for is recorded while it still counts as one. Methods take the lock of the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.instrument import task_shape
from ray_snapshot.instrument.here import CURRENT, HOOK, is_own_thread, is_rays_thread, machine_of
from ray_snapshot.instrument.process.coroutines import note_reply, running_loop
from ray_snapshot.instrument.process.handed import ThreadWait
from ray_snapshot.instrument.process.reports import OF_A_GRAPH
from ray_snapshot.instrument.process.signals import is_timer_set
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.protocol.tasks import ANYBODY
from ray_snapshot.runtime.here import frames_of_threads, place, place_here
from ray_snapshot.runtime.refs import apart, call_of, graph_of, graph_timeout, is_ref, stages_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process


class Hearing(threading.local):
    """Per thread: whether it is inside a tracked wait, and the reddest colour that came with a reply in it."""

    is_waiting = False
    colour = 0

    def begin(self) -> None:
        """A wait begins; what is read in one around it may have brought a colour already."""
        if not self.is_waiting:
            self.is_waiting, self.colour = True, 0


class Noted(NamedTuple):
    """A wait that has just been noted in the ledger."""

    wait_id: int
    replies: list[str | None]
    """By ref that is waited for: the call whose reply it is."""
    refs: list[Any]
    may_act: bool
    """Whether it may end by itself, whatever threads and coroutines beside do."""


class PlainWait(NamedTuple):
    """A wait that blocks its thread, and of which nothing is noted in the ledger yet.

    Most are over within a millisecond, and no snapshot has seen them. So such a wait becomes one of the ledger only when
    something is recorded while it lasts, as with work that was handed to threads (`handed`) and generators (`streams`).
    """

    thread: int
    caller: str | None
    """The call that waits; None: the program itself."""
    refs: Sequence[Any]
    k: int
    timeout: float | None
    since: float
    raises: bool


class Waiting:
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.hearing = Hearing()
        self.plain: dict[int, PlainWait] = {}
        """By thread."""
        self.resting: int | None = None
        """The wait of a driver for a verdict, if it is in one."""

    # ---- plain ones -----------------------------------------------------------------------------------------------------

    def begin_plain(self, refs: Sequence[Any], k: int, timeout: float | None, raises: bool) -> PlainWait | None:
        """The current call (or the driver's program) begins to wait for `k` of `refs`; None if `begin` must note that."""
        process = self.process
        caller, thread = CURRENT.get(), threading.get_ident()
        if process.raising.is_on or process.reloading.may_go_back or is_timer_set(thread):
            return None
        is_plain = process.threads.get(caller) == thread if caller is not None else self._is_program(thread)
        with process.lock:
            is_noted = thread in self.plain or process.program_loop.waits
            may_turn = process.heard_of or process.ledger.turning.must_turn
            if not is_plain or is_noted or may_turn or process.actor_loop.is_async or process.mail is not None:
                return None
            found = self.plain[thread] = PlainWait(thread, caller, refs, k, timeout, time.time(), raises)
            self.hearing.begin()
        return found

    def _is_program(self, thread: int) -> bool:
        return (
            self.process.machine == DRIVER and thread == threading.main_thread().ident and not self.hearing.is_waiting
        )

    def end_plain(self, wait: PlainWait, is_answered: bool) -> None:
        """It is over; `is_answered`: with the replies of all."""
        process = self.process
        calls = [call_of(ref) for ref in wait.refs] if is_answered else []
        with process.lock:
            turning = process.ledger.turning
            if process.heard_of or turning.must_turn or self.hearing.colour > turning.colour:
                self.end(self.note_plain(wait)[0], calls)
                return
            self.plain.pop(wait.thread, None)
            self.hearing.is_waiting = False
            for call in calls:
                if (mine := self._sent_here(call)) is not None:
                    process.ledger.answered(*mine)

    def note_plain(self, wait: PlainWait) -> tuple[int, list[str | None]]:
        """It ends in another way: from now on it is one that `begin` has noted; returns what that returns."""
        with self.process.lock:
            self.plain.pop(wait.thread, None)
            return self._noted(wait, place_here())

    def forget_plain(self, thread: int) -> None:
        """This thread is in none of them any more."""
        with self.process.lock:
            self.plain.pop(thread, None)
        self.hearing.is_waiting = False

    def park(self) -> list[int]:
        """Note all of them as waits while something is recorded; returns what `unpark` takes. Under the lock."""
        frames = frames_of_threads() if self.plain else {}
        sites = {one: str(place(frames[one]) or "") if one in frames else place_here() for one in self.plain}
        return [self._noted(wait, sites[wait.thread])[0] for wait in self.plain.values()]

    def unpark(self, waits: Iterable[int]) -> None:
        """They are notes again. Under the lock."""
        for wait_id in waits:
            self.process.program_threads.end(wait_id)
            self.process.started_tasks.refs_of.pop(wait_id, None)
            self.process.ledger.wake(wait_id)

    def end_call(self, call_id: str) -> None:
        """A call is over, and with it a wait of its that an interruption has left behind. Under the lock."""
        for thread in [thread for thread, wait in self.plain.items() if wait.caller == call_id]:
            del self.plain[thread]

    def _noted(self, wait: PlainWait, site: str) -> tuple[int, list[str | None]]:
        found = self._note(
            wait.refs, wait.k, wait.timeout, wait.caller, wait.since, site, wait.thread, raises=wait.raises
        )
        if self.process.machine == DRIVER:
            self.process.program_threads.thread_of[found.wait_id] = wait.thread
        return found.wait_id, found.replies

    # ---- all others -----------------------------------------------------------------------------------------------------

    def begin(
        self,
        refs: Sequence[Any],
        k: int,
        timeout: float | None,
        call_site: str,
        *,
        is_blocking: bool,
        is_resting: bool = False,
        raises: bool = False,
    ) -> tuple[int, list[str | None]]:
        """The current call (or the driver) begins to wait for `k` of `refs`; returns what `end` takes.

        An item of a streaming generator, or its end, is no reply: it carries no colour.
        `raises`: the first error of any of them ends the wait. What `ray.put` has made is there, and not waited for.
        """
        process = self.process
        call_id, hearing = CURRENT.get(), self.hearing
        with process.lock:
            call_site = call_site or process.actor_loop.site_of(call_id)  # awaited by a task of its own, as in `gather`
            kind = {"is_blocking": is_blocking, "is_resting": is_resting, "raises": raises}
            now, thread = time.time(), threading.get_ident()
            wait_id, replies, refs, may_act = self._note(refs, k, timeout, call_id, now, call_site, thread, **kind)
            process.raising.begin(wait_id, refs)
            if is_resting:
                self.resting = wait_id
            elif not is_blocking:
                process.actor_loop.begin_wait(wait_id)
            if not (process.actor_loop.is_async or is_resting):
                if is_blocking:
                    process.program_loop.block(wait_id)
                else:
                    process.program_loop.begin_wait(wait_id, is_certain=not may_act)
            if is_blocking and process.machine == DRIVER:
                process.program_threads.begin(wait_id, is_certain=not may_act)
            if is_blocking:
                hearing.begin()
                process.actor_loop.block(call_id)
            if process.ledger.must_record:
                process.recording.record()
        return wait_id, replies

    def _note(
        self,
        refs: Sequence[Any],
        k: int,
        timeout: float | None,
        caller: str | None,
        since: float,
        call_site: str,
        thread: int,
        *,
        is_blocking: bool = True,
        is_resting: bool = False,
        raises: bool = False,
    ) -> Noted:
        """Note a wait of this thread in the ledger. Under the lock."""
        process = self.process
        if (graph := graph_of(refs)) is not None:
            timeout = graph_timeout(graph, timeout)
        refs, replies, there = apart(refs)
        needed, k = k, max(0, k - len(there))
        may_raise = raises and k > 0 and not all(map(task_shape.is_own, there))
        owed = [] if process.mail is None else process.mail.calls.find(refs)
        if owed:  # by machines of hosts, for which no ledger answers
            mine = [one for one in zip(refs, replies, strict=True) if one[1] is not None or not process.owes(one[0])]
            awaited_refs, replies = [ref for ref, _ in mine], [call for _, call in mine]
        else:
            awaited_refs = refs
        on = process.streams.awaited(awaited_refs, replies)
        known = sum(one.call_id is not None for one in on) + len(owed)
        is_bounded = timeout is not None or is_timer_set(thread)
        may_act = not is_resting and (is_bounded or known < k or not k)
        others_send = process.machine == DRIVER and thread != threading.main_thread().ident
        others_act = not (is_blocking or is_resting or process.actor_loop.is_async)  # another coroutine may
        wait_id = process.ledger.wait(
            caller if caller in process.ledger.running else None,
            on,
            k,
            since,
            call_site=call_site,
            may_act=may_act or others_send or others_act,
            timeout_at=None if timeout is None else since + timeout,
            raises=raises,
            may_raise=may_raise,
            owed=owed,
            keeps_cpu=not is_blocking,
            objects=_objects(needed - known, refs, there) if is_blocking and not is_bounded else 0,
            what="" if graph is None else f"{OF_A_GRAPH} {' '.join(map(machine_of, stages_of(graph)))}",
        )
        if raises and len(refs) > 1:
            process.started_tasks.refs_of[wait_id] = refs
        return Noted(wait_id, replies, refs, may_act)

    def end(
        self, wait_id: int, answered: Sequence[str | None], colour: int = 0, *, settled: Sequence[str | None] = ()
    ) -> None:
        """The wait is over: what the replies were red for is recorded before anything of them is used."""
        process = self.process
        hearing = self.hearing
        with process.lock:
            if process.heard_of:
                process.take_in()
            process.actor_loop.wait_tasks.pop(wait_id, None)
            process.program_loop.end_wait(wait_id)
            process.program_threads.end(wait_id)
            process.started_tasks.refs_of.pop(wait_id, None)
            process.raising.end(wait_id)
            if hearing.is_waiting:
                colour = max(colour, hearing.colour)
                process.actor_loop.unblock()
                hearing.is_waiting = False
            process.ledger.hear(colour)
            if process.ledger.must_record:
                process.recording.record(is_forced=colour > process.ledger.colour)
            process.ledger.wake(wait_id, colour)
            if wait_id == self.resting:
                self.resting = None
            self._settle(answered, settled)

    def _settle(self, answered: Iterable[str | None], settled: Iterable[str | None]) -> None:
        """These calls of this machine's are answered, and those will never be. Under the lock."""
        for call_id in answered:
            if (mine := self._sent_here(call_id)) is not None:
                self.process.ledger.answered(*mine)
        for call_id in settled:
            if (mine := self._sent_here(call_id)) is not None:
                self.process.ledger.settle(*mine)

    # ---- threads of the app's own -----------------------------------------------------------------------------------

    def begin_in_thread(
        self, refs: list[Any], k: int, timeout: float | None, call_site: str, *, raises: bool = False
    ) -> ThreadWait | None:
        """A thread of the app's own begins to wait, in no call; returns what `end_in_thread` takes."""
        refs, on, there = apart(refs)
        k -= len(there)
        may_raise = raises and not all(map(task_shape.is_own, there))
        is_known = timeout is None and 0 < k <= len(on) - on.count(None) and not may_raise
        wait = ThreadWait(refs, tuple(on), k, time.time(), call_site, raises) if is_known else None
        with self.process.lock:
            return self.process.handed.begin(wait)

    def begin_elsewhere(self, future: Any, ref: Any, call_site: str) -> list[str | None]:
        """A task on the loop of a thread of the app's own awaits a ref, by this future; returns what `end_elsewhere` takes."""
        refs, replies, _ = apart([ref])
        with self.process.lock:
            on = self.process.streams.awaited(refs, replies)
        if refs and all(one.call_id is not None for one in on):
            note_reply(future, ThreadWait(refs, tuple(on), 1, time.time(), call_site, raises=True))
        return replies

    def end_elsewhere(
        self, answered: Sequence[str | None], colour: int = 0, *, settled: Sequence[str | None] = ()
    ) -> None:
        """It has come: what it was red for is recorded before the task goes on."""
        with self.process.lock:
            self.process.heard_of.append(colour)
            self.process.take_in()
            self._settle(answered, settled)

    def end_in_thread(self, before: ThreadWait | None, colour: int = 0) -> None:
        """Its wait is over: what the replies were red for is recorded while it still counts as one."""
        process = self.process
        with process.lock:
            process.heard_of.append(colour)
            process.take_in()
            process.handed.end(before)

    # ---- who waits --------------------------------------------------------------------------------------------------

    @contextmanager
    def rest(self) -> Iterator[None]:
        """The driver's program waits for a verdict, and does nothing else."""
        wait_id, _ = self.begin([], 0, None, "", is_blocking=False, is_resting=True)
        try:
            yield
        finally:
            self.end(wait_id, [])

    def follows(self) -> bool:
        """Whether a wait of this thread is a wait of the machine."""
        if CURRENT.get() is not None:
            return True
        return self.process.machine == DRIVER and not (self.hearing.is_waiting or is_rays_thread())

    def is_elsewhere(self) -> bool:
        """Whether this is a thread of the app's own, which runs no call: an `await` there is of a loop that it runs."""
        return is_own_thread() and threading.get_ident() not in self.process.threads.values()

    def blocks(self) -> bool:
        """Whether a wait that blocks this thread is one of the machine: a thread may have inherited a call's context only."""
        call_id = CURRENT.get()
        if call_id is None or call_id == HOOK:
            return self.follows()
        thread = self.process.threads.get(call_id)
        if thread is None:  # the call is over: what it has left on the loop blocks that, another thread blocks nothing
            return running_loop() is not None
        return thread == threading.get_ident()

    def _sent_here(self, call_id: str | None) -> tuple[str, int] | None:
        """(target, number) of a call that this machine has made; None for a call of another machine."""
        if call_id is None:
            return None
        if call_id.startswith(ANYBODY):
            return parsed(call_id).target, 0  # if another has started the task, its name is not in the log here
        if not call_id.startswith(self.process.call_prefix):
            return None
        target, _, number = call_id[len(self.process.call_prefix) :].rpartition("/")
        return target, int(number)


def _objects(lacking: int, refs: Sequence[Any], there: Sequence[Any]) -> int:
    """How many of so many replies that a wait lacks are objects that no watched call gives, and this process does not have."""
    if lacking <= 0 or not all(is_ref(ref) or graph_of([ref]) is not None for ref in refs):
        return 0
    return max(0, lacking - sum(map(task_shape.is_own, there)))
