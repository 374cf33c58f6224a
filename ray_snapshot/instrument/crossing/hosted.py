"""Machines of a host that call watched actors: each has a ledger in the host's core, and turns red with the host.

In a host's process this takes the place that `process.Process` has in an actor's: Ray's functions, replaced, meet it. What it
does for the host's own parts, `runtime.host.abroad` says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError

from ray_snapshot import redaction
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.here import NotActingError, call_for, machine_of, own_threads
from ray_snapshot.instrument.hooks import attaching
from ray_snapshot.instrument.hooks.envelopes import colour_of_error
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads, Threads
from ray_snapshot.instrument.process.making import Making
from ray_snapshot.instrument.process.reloading import stamp_of, system_of
from ray_snapshot.instrument.process.states import kept as kept_value
from ray_snapshot.instrument.process.states import opened
from ray_snapshot.instrument.process.unfollowed import UNFOLLOWED, Loose
from ray_snapshot.protocol.calls import CONSTRUCTOR, CallLedger, Header, parsed
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.collected import MachineCalls
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.post import HostPost
from ray_snapshot.runtime.planning import Again
from ray_snapshot.runtime.waits import TrackedWait

_T = TypeVar("_T")


class Hosted:
    """The machines of one host, as callers of watched actors; `stamp`: what their calls say of the watch."""

    is_closed = False

    def __init__(self, post: HostPost, stamp: str, watcher: Any) -> None:
        self.post = post
        self.stamp = stamp
        self.watcher = watcher
        self.lock = post.member.lock
        self.runs: dict[str, str] = {}
        """By machine: its action, as its ledger knows it."""
        self.handles: set[str] = set()
        self.making = Making()
        self.parts: dict[int, MachineCalls] = {}
        """What was recorded, until it is reported."""
        self.threads = BlockedThreads()
        self.strays = 0
        """Calls that threads have made which are in no machine's action: nothing of these is known."""
        self.kept: dict[str, tuple[str, ...]] = {}
        """By machine: the actors of the handles in its state, as it was kept last."""
        self.again = Again()

    # ---- as Ray's functions meet it ----------------------------------------------------------------------------------

    def check_sending(self, args: Any = None, kwargs: Any = None) -> None:  # noqa: ARG002
        """Raise `RolledBackError` in an action of the past."""
        if HERE.post is not None and HERE.post.member.is_retired:
            HERE.post.check()

    def submit(
        self,
        target: str,
        method: str,
        args: Any,
        is_retried: bool,
        needs: tuple[str | None, ...],
        group: str | None = None,
        kwargs: Any = None,
        entry: Any = None,  # noqa: ARG002 - machines go back themselves, so nothing is made again for them
    ) -> tuple[Header, str]:
        """As `Process.submit`, of the machine that acts here; raises `NotActingError` if none does."""
        machine = self._acting()
        about, now = tuple(redaction.arguments(method, args)), time.time()
        whole = (tuple(args or ()), kwargs or {})
        kept = kept_value(whole, "its arguments", machine_of)[0] if self.post.config.checkpoint else None
        with self.lock:
            ledger = self._running(machine)[0]
            return ledger.submit(
                target, method, about, now, is_retried=is_retried, needs=needs, group=group, kept=kept
            ), self.stamp

    journal = None
    """Machines go back with their hosts."""

    def made(self, entry: Any, refs: Any) -> Any:  # noqa: ARG002
        """The refs, as they are."""
        return refs

    def retract(self, header: Header, target: str, entry: Any = None) -> None:  # noqa: ARG002
        """Take a call back: making it raised."""
        with self.lock:
            self.post.core.ledgers.of(header.source).retract(target, header.number)

    def ordinal(self, class_name: str) -> None:
        """None: an actor that a machine makes is named by its class and a number."""

    def begin_creation(self) -> tuple[str, int, int] | None:
        """An actor is about to be made: (machine, incarnation, colour) for its header; None if no machine acts here."""
        if HERE.post is not self.post or HERE.machine is None:
            self.strays += 1
            return None
        with self.lock:
            ledger = self._running(HERE.machine)[0]
            self.making.begin()
            return ledger.machine, ledger.incarnation, ledger.colour

    def end_creation(self, target: str | None, args: Any, birth: Mapping[str, Any]) -> None:
        """An actor has been made (`target` None: that raised); from now on its constructor is in the ledger."""
        about, is_retried = tuple(redaction.arguments("__init__", args)), bool(birth["is_retried"])
        with self.lock:
            self.making.end()
            if target is not None:
                ledger = self._running(self._acting())[0]
                ledger.create(target, "__init__", about, time.time(), is_retried=is_retried, demand=birth.get("demand"))
                self.making.made(target, birth)

    def hold(self, machine: str) -> None:
        """A handle of an actor has come to this host."""
        self.handles.add(machine)

    def may_read(self, call_id: str) -> None:
        """A ref to the reply of this call has come to this host."""
        self.handles.add(parsed(call_id).target)

    def heard(self, colour: int) -> None:
        """Something of this colour is being read here."""
        self.post.heard(colour)

    def guarded(self, step: Callable[[], _T]) -> _T | None:
        """Take one step; a fault of ours stops the system, for it must not go on half."""
        try:
            return step()
        except Exception as error:
            self.give_up(error)
            return None

    def give_up(self, error: BaseException) -> None:
        """A fault of ours."""
        text = f"a call of an actor could not be followed in {self.post.member.host}: {named(error)}"
        self.post.member.fail(RaySnapshotError(text))

    def _acting(self) -> Machine:
        if HERE.post is not self.post or HERE.machine is None:
            self.strays += 1
            raise NotActingError
        return HERE.machine

    def _running(self, machine: Machine) -> tuple[CallLedger, str]:
        """The ledger of a machine, and its action."""
        ledger = self.post.core.ledgers.of(machine.name)
        run = self.runs.get(machine.name)
        if run is None:
            run = self.runs[machine.name] = ledger.accept_unknown("action", time.time())
        return ledger, run

    # ---- as the host's parts meet it -----------------------------------------------------------------------------------

    @property
    def is_making(self) -> bool:
        """Whether a machine is making an actor."""
        return bool(self.making.under_way)

    def begin_wait(self, machine: Machine, wait: TrackedWait) -> int | None:
        """A machine begins to wait inside its action, for actors too."""
        ledger, run = self._running(machine)
        return ledger.wait(
            run,
            wait.calls,
            wait.k,
            wait.since,
            call_site=wait.call_site or "",
            may_act=wait.may_act,
            timeout_at=None if wait.timeout is None else wait.since + wait.timeout,
            raises=wait.raises,
            owed=wait.on,
        )

    def colour_of(self, wait: TrackedWait) -> int:
        """The colour that came with the error in which a wait has ended."""
        return 0 if wait.error is None else colour_of_error(wait.error)

    def end_wait(self, machine: Machine, wait_id: int, wait: TrackedWait) -> None:
        """The wait is over."""
        ledger = self.post.core.ledgers.of(machine.name)
        ledger.wake(wait_id, ledger.colour)
        is_one = len(wait.calls) == 1 and not wait.on and not wait.has_foreign
        for call in wait.calls:
            source, incarnation, target, number = parsed(call)
            if (source, incarnation) != (ledger.machine, ledger.incarnation):
                continue
            if wait.is_over or (is_one and isinstance(wait.error, RayTaskError)):
                ledger.answered(target, number)
            elif is_one and isinstance(wait.error, (RayActorError, TaskCancelledError)):
                ledger.settle(target, number)

    def ended(self, machine: Machine) -> None:
        """An action of a machine is over."""
        run = self.runs.pop(machine.name, None)
        if run is not None:
            self.post.core.ledgers.of(machine.name).finish(run)

    def recorded(self, numbers: Iterable[int]) -> None:
        """The host has just turned red for these: what it knows beside its ledgers is of that instant, too."""
        logged = [ledger.outputs for ledger in self.post.core.ledgers.known.values()]
        unborn = {name for outputs in logged for name, output in outputs.items() if CONSTRUCTOR in output.log}
        self.making.births = {name: birth for name, birth in self.making.births.items() if name in unborn}
        found = MachineCalls(
            host=self.post.member.host,
            threads=self.threads.report(own_threads(), time.time()),
            loose=UNFOLLOWED.loose(),
            handles=frozenset(self.handles),
            births=dict(self.making.births),
            has_strays=self.strays > 0,
        )
        for number in numbers:
            self.parts[number] = replace(found, reports=self.post.core.ledgers.reports(number))

    def part(self, number: int) -> MachineCalls:
        """What was recorded for a number; once. A host that was born behind it has recorded nothing."""
        nothing = MachineCalls(host=self.post.member.host, threads=Threads(), loose=Loose())
        kept = frozenset(name for names in self.kept.values() for name in names)
        return replace(self.parts.pop(number, nothing), kept=kept)

    def forget(self, number: int) -> None:
        """Nothing is wanted of a number."""
        self.parts.pop(number, None)

    # ---- going back ----------------------------------------------------------------------------------------------------

    def keep(self, machine: Machine, state: Any) -> tuple[bytes | None, str | None]:
        """A machine's state, with names in place of handles."""
        found, _ = kept_value(state, "its state", machine_of)
        self.kept[machine.name] = found.names
        return found.blob, found.obstacle

    def is_named(self, machine: Machine) -> bool:
        """Whether there were names in place of handles when a machine's state was last kept."""
        return bool(self.kept.get(machine.name))

    def load(self, again: Again | None) -> None:
        """What a host that goes back has to know of actors; None: it has nothing to load."""
        self.again = again or Again()
        self.post.core.ledgers.begin_with(self.again.incarnations)
        self.handles.update(machine for machine, _ in self.again.actors.values())

    def opened(self, blob: bytes) -> Any:
        """A state, with handles in place of names."""
        return opened(blob, self._actor)

    def _actor(self, name: str) -> Any:
        return self.again.actors[name][1][0]

    def call_again(self) -> None:
        """Make the calls that were in flight, each on behalf of its machine."""
        again, self.again = self.again, Again()
        for caller, target, method, group, blob in again.calls:
            args, kwargs = opened(blob, lambda name: again.actors[name][1][0])
            called = getattr(again.actors[target][1][0], method)
            HERE.post, HERE.machine = self.post, self.post.core.machines[caller]
            try:
                (called if group is None else called.options(concurrency_group=group)).remote(*args, **kwargs)
            finally:
                with self.lock:
                    self.ended(HERE.machine)
                HERE.post = HERE.machine = None


def join(post: HostPost, stamp: str, watcher: Any) -> None:
    """The machines of this host call watched actors of its system from now on; before the host starts."""
    shape.check()
    attaching.replace_ray()
    found = Hosted(post, stamp_of(system_of(stamp), post.member.generation), watcher)
    call_for(found)
    post.join(found)
