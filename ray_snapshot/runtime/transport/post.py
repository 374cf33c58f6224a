"""A process's part in a run, as its machines and its program meet it: they send, set timers and call through their post.

Hosts (`host.post.HostPost`) and the driver (`driver.DriverPost`) are posts.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ray_snapshot.errors import RaySnapshotError, SettingError
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import as_error
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.payload import ATOMS, isolate
from ray_snapshot.runtime.tracing import Tracer
from ray_snapshot.runtime.transport.carrier import WINDOW, Carrier
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.places import Places
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping

LONGEST_TIMER_S = 1e9

Timer = tuple[Any, int, float]
"""(channel, number, seconds left) of a timer that is restored, and set when its process starts."""


class Sent(NamedTuple):
    """A message of the driver, or a timer, as it is remembered."""

    target: str
    kind: str
    method: str
    payload: Any
    due: float | None


class Created(NamedTuple):
    """A creation by the driver, as it is remembered."""

    child: str
    host: str
    payload: Any
    class_name: str


class StopAsked(NamedTuple):
    """A machine that the driver has stopped, as it is remembered."""

    machine: str


class Post(ABC):
    """What hosts and the driver have in common."""

    def __init__(self, member: Membership, core: HostCore, *, spawn_timeout: float, tracer: Tracer | None) -> None:
        self.member = member
        self.carrier = Carrier(member, core)
        self.places = Places(member, self.carrier, spawn_timeout)
        self.trace = TraceShipping(member, tracer)
        self.calls = waits.CallBook()
        self.is_joined = False
        """Whether watched actors are part of the system."""
        self.call_count = 0
        self.journal: list[Any] | None = None
        """What the driver has sent since the last snapshot that is kept, where it must be sent again after a recovery."""

    @property
    def core(self) -> HostCore:
        """The core of the current generation."""
        return self.carrier.core

    # ---- the machine that acts ------------------------------------------------------------------------------------

    @abstractmethod
    def acting(self) -> Machine:
        """The machine on whose behalf this thread sends; raises `NotAMachineError`."""

    def hold_back(self, machine: Machine) -> None:  # noqa: B027 - not every post has something to do here
        """The machine has gone over a channel's bound: where it must wait at once, it waits here."""

    def check(self) -> None:
        """Raise what stopped the system, if anything did."""
        if self.member.failure is not None:
            self.raises(self.member.failure)
            raise self.member.failure.with_traceback(None)  # or each time it is raised makes it longer

    def raises(self, error: RaySnapshotError) -> None:  # noqa: B027 - not every post has something to do here
        """This error is about to be raised to the program."""

    # ---- sending --------------------------------------------------------------------------------------------------

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Send a message; `MethodSender.send` says what it promises."""
        machine, member, tracer = self.acting(), self.member, self.trace.tracer
        channel = machine.outputs.get(handle._name)  # `end_of` mail
        for item in args:
            if type(item) not in ATOMS:
                payload = isolate(machine.name, handle._name, method, args, kwargs)
                break
        else:
            payload = isolate(machine.name, handle._name, method, args, kwargs) if kwargs else args
        with member.lock:
            if member.failure is not None or member.is_closing or member.is_rolling:
                self.check()
            core = self.carrier.core
            if channel is None:
                self.places.learn(handle)
                channel = core.channel(machine, handle._name, MAIL)
            core.send_on(channel, method, payload, time.time())
            if tracer is not None:
                tracer.sent(channel, method, payload, core.colour_of(machine))
            if self.journal is not None:
                self.journal.append((core.colour_of(machine), Sent(channel.target, MAIL, method, payload, None)))
            way = channel.way
            if way is None:
                self.places.look_up()
            elif type(way) is OutLink and way.in_flight < WINDOW:
                self.carrier.flush()
        if machine.over:
            self.hold_back(machine)

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Set a timer that sends a message later; `MethodSender.send_after` says what it promises."""
        machine, member, tracer = self.acting(), self.member, self.trace.tracer
        if not (isinstance(seconds, (int, float)) and 0 <= seconds <= LONGEST_TIMER_S):
            raise SettingError(
                f"send_after({seconds!r}, ...): the first argument is how many seconds from now, 0 to {LONGEST_TIMER_S:g}"
            )
        payload = isolate(machine.name, handle._name, method, args, kwargs)
        now = time.time()
        with member.lock:
            self.check()
            machine, core = self.acting(), self.carrier.core
            self.places.learn(handle)
            channel = core.set_timer(machine, handle._name, method, (now + seconds, payload), now, now + seconds)
            number = channel.sent
            if self.journal is not None:
                sent = Sent(channel.target, TIMER, method, payload, now + seconds)
                self.journal.append((core.colour_of(machine), sent))
            if tracer is not None:
                tracer.sent(channel, method, (now + seconds, payload), core.colour_of(machine), seconds)
        member.later(seconds, self._fire, core, channel, number)

    def set_again(self, timers: list[Timer]) -> None:
        """Timers that were restored begin to run; on the event loop."""
        for channel, number, left in timers:
            self.member.loop.call_later(left, self._fire, self.core, channel, number)

    def _fire(self, core: HostCore, channel: Any, number: int) -> None:
        try:
            with self.member.lock:
                if core is not self.core:  # of an older generation
                    return
                core.fire(channel, number)
                self.places.look_up()
                self.carrier.flush()
                self.member.wake()
        except Exception as error:  # a fault of ours, on the event loop, where it would not be heard of
            self.member.fail(as_error(error))

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method (`MethodSender.remote`): the request travels like mail, the result is an ordinary ObjectRef."""
        machine, member, tracer = self.acting(), self.member, self.trace.tracer
        payload = isolate(machine.name, handle._name, method, args, kwargs)
        self.check()
        host = self.places.place_of(handle)
        with member.lock:
            self.check()
            machine, core = self.acting(), self.carrier.core
            self.call_count += 1
            call_id = f"{member.host}/{self.call_count}"
            if host != member.host:
                core.addresses.places.setdefault(handle._name, host)
            channel = core.send(machine, handle._name, CALL, method, (call_id, payload), time.time())
            logged = None
            if tracer is not None:
                logged = tracer.sent(channel, method, (call_id, payload), core.colour_of(machine))
            self.carrier.flush()
            member.wake()
            generation = member.generation
        ref = self.carrier.actor(host).reply.remote(call_id, handle._name, generation)
        if logged is not None:
            logged["ref"] = ref.hex()
        self.calls.add(ref, handle._name, call_id)
        if machine.over:
            self.hold_back(machine)
        return ref
