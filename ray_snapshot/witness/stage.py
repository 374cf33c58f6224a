"""The stage: fresh machines of the user's own classes, and strings of messages; no hosts, links, markers or colours.

What stands in for a host is a post (see `runtime.handles`) that gathers what an action sends, and a context (see
`runtime.context`) that answers what a machine may ask of its host. Messages keep the objects that were sent, copied at
the moment of sending, as on Ray; what comes from outside (the driver's sends, recorded states) is built from JSON.
Nothing is unpickled. The driver's program is not run again: it sends what the log says that it sent.
"""

from __future__ import annotations

import copy
import inspect
import json
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn

from ray_snapshot.decoding import NotDecodableError, decoded
from ray_snapshot.encoding import to_json
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.handles import POSTS, MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.staged import StagedContext
from ray_snapshot.witness.log import (
    Action,
    ChannelId,
    DiffersError,
    Message,
    NotReplayableError,
    listed,
    same,
    told_channel,
)
from ray_snapshot.witness.modules import Modules

_PLACE = ": run this where the program's modules can be imported, and define machine classes at the top of a module"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Held:
    """A message in a channel of the stage."""

    number: int
    method: str
    args: list[Any]
    """The arguments, as they would be recorded."""
    objects: Callable[[], Arguments]
    """Gives what the method is called with; may raise `NotDecodableError`."""
    class_name: str | None = None


@dataclass(slots=True)
class _Sent:
    """What the current action has sent."""

    target: str
    kind: str
    number: int
    method: str
    args: list[Any]
    objects: Arguments
    class_name: str | None = None
    seconds: float | None = None

    @property
    def told(self) -> tuple[Any, ...]:
        return self.target, self.kind, self.number, self.method, self.args, self.class_name, self.seconds

    def __str__(self) -> str:
        return _told_message(self.target, self.kind, self.number, self.method, self.args)


@dataclass(slots=True)
class Stage:
    """Where machines of one run act again; in a `with` block. Handles of the run send to the stage that was entered last."""

    run_id: str
    modules: Modules = field(default_factory=Modules)
    """Whose code may be run."""
    stopped: set[str] = field(default_factory=set)
    """Machines that have stopped themselves."""
    bodies: dict[str, Any] = field(default_factory=dict)
    channels: dict[ChannelId, list[Held]] = field(default_factory=lambda: defaultdict(list))
    sent: Counter[ChannelId] = field(default_factory=Counter)
    accepted: Counter[ChannelId] = field(default_factory=Counter)
    action: Action | None = None
    outputs: list[_Sent] = field(default_factory=list)
    pending: Counter[ChannelId] = field(default_factory=Counter)
    """How many messages the current action has sent on each channel."""
    host: str = "stage"

    def __enter__(self) -> Stage:
        POSTS[self.run_id] = self  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        POSTS.pop(self.run_id, None)
        forget_handles(self.run_id)

    # ---- one action -----------------------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Do one more action; raises `DiffersError` where it is impossible or does something else than was logged."""
        _check_replayable(action)
        inputs = [self._accept(action, message) for message in action.accepted]
        self.action, self.outputs = action, []
        self.pending.clear()
        try:
            if action.machine == DRIVER:
                self._send_as_logged(action)
                return
            raised = self._act(action, inputs)
            self._compare(action, raised)
            for one in self.outputs:
                self._put((action.machine, one.target, one.kind), _held(one))
        finally:
            self.action = None

    def _accept(self, action: Action, message: Message) -> Held:
        waiting = self.channels[message.channel]
        place = _place(waiting, message)
        if place is None:
            raise _impossible(action, message, waiting)
        found = waiting.pop(place)
        self.accepted[message.channel] += not message.is_creation
        sent = Message(message.key, found.method, found.args, class_name=found.class_name)
        is_same = sent.method == message.method and sent.class_name == message.class_name
        if not (is_same and same(sent.args, message.args)):
            raise DiffersError(
                f"{action} accepted {_with_class(message)} from {message.key[0]}, but what was sent is {_with_class(sent)}",
                machine=action.machine,
                number=action.number,
            )
        return found

    def _send_as_logged(self, action: Action) -> None:
        for message in action.sent:
            self._put(message.channel, self.recorded(message))

    def _put(self, channel: ChannelId, held: Held) -> None:
        self.channels[channel].append(held)
        self.sent[channel] += held.number > 0

    def recorded(self, message: Message) -> Held:
        """A message built from what is recorded of it."""

        def objects() -> Arguments:
            recorded = message.args if message.exact is None else message.exact
            args = [decoded(item, self.handle, self.modules.find) for item in recorded if not _is_keywords(item)]
            kwargs = {key: item for keywords in recorded if _is_keywords(keywords)
                      for key, item in decoded(keywords["$kwargs"], self.handle, self.modules.find).items()}  # fmt: skip
            if message.exact is not None and not same(_recorded(args, kwargs), message.args):
                raise DiffersError(
                    f"message {message} has a second form of its arguments that says something else: the trace was changed",
                    machine=message.key[0],
                    number=None,
                )
            return tuple(args), kwargs

        return Held(message.key[3], message.method, message.args, objects, message.class_name)

    def handle(self, name: str) -> MachineHandle:
        """The handle of a machine of this run."""
        return handle_of(self.run_id, name)

    def _act(self, action: Action, inputs: list[Held]) -> str | None:
        """Run the action; returns the name of the error that it raised."""
        if not inputs:
            raise _differs(action, "accepts nothing, which only the driver's do: the log was changed")
        try:
            given = [one.objects() for one in inputs]
            if inputs[0].class_name is not None:
                self.bodies[action.machine] = body = self.empty(action.machine, inputs[0].class_name)
                method = body.__init__
            else:
                body = self.bodies.get(action.machine)
                if body is None:
                    raise _differs(action, "is impossible here: the machine has not been born")
                self._check_method(action, body, inputs)
                method = self._method(action, body)
        except NotDecodableError as error:
            raise _not_replayable(
                action, f"cannot be done again: {error}: send what JSON can hold, or a dataclass"
            ) from None
        if method is None:
            if action.raised != "UnknownMethodError":
                raise _differs(action, f"is impossible here: {action.machine} has no method {action.method}")
            return action.raised
        args, kwargs = given[0] if len(given) == 1 else (tuple(map(_joined, given)), {})
        try:
            method(*args, **kwargs)
        except (DiffersError, NotReplayableError):
            raise
        except BaseException as error:  # the user's own, then as now; sys.exit() too
            if isinstance(error, KeyboardInterrupt):
                raise
            if action.raised != type(error).__name__:
                where = f"raised {action.raised} then" if action.raised else "raised nothing then"
                raise _differs(
                    action, f"raises {type(error).__name__}: {error} here, and {where}{_not_deterministic(action)}"
                ) from None
            return type(error).__name__
        return None

    def _method(self, action: Action, body: Any) -> Any:
        """The method of the machine's class; its fields come from the history, and a function in one is none of its methods."""
        is_field = isinstance(inspect.getattr_static(type(body), action.method, None), types.MemberDescriptorType)
        if is_field or action.method in getattr(body, "__dict__", ()):
            raise _not_replayable(
                action,
                f"would run what {action.machine} has in its field {action.method}, which is no method of its class",
            )
        return getattr(body, action.method, None)

    def _check_method(self, action: Action, body: Any, inputs: list[Held]) -> None:
        """An action runs the method that its message names, or the join of its ports."""
        accepted = tuple(one.method for one in inputs)
        if any(method.startswith("__") for method in accepted):
            raise _differs(action, f"accepted {' and '.join(accepted)}, which no handle sends: the log was changed")
        ports = getattr(getattr(type(body), action.method, None), "__join_ports__", None)
        if accepted not in ((action.method,), ports):
            raise _differs(
                action, f"accepted {' and '.join(accepted)}, of which {action.method} is not made: the log was changed"
            )

    def empty(self, machine: str, class_name: str) -> Any:
        """A machine of a class, its constructor not run; raises `NotReplayableError` if there is no such class here."""
        try:
            kind = self.modules.machine_class(class_name)
        except NotDecodableError as error:
            raise NotReplayableError(
                f"the class of {machine} is not to be had: {error}{_PLACE if 'cannot be imported' in str(error) else ''}",
                machine=machine,
                number=1,
            ) from None
        body = kind.__new__(kind)
        attach(body, StagedContext(self, machine))
        return body

    def _compare(self, action: Action, raised: str | None) -> None:
        """Did it do what was logged?"""
        if action.raised is not None and raised is None:
            raise _differs(action, f"raises nothing here, and raised {action.raised} then{_not_deterministic(action)}")
        then = [(*m.key[1:], m.method, m.args, m.class_name, m.seconds) for m in action.sent]
        now = [one.told for one in self.outputs]
        for place in range(max(len(then), len(now))):
            was = then[place] if place < len(then) else None
            found = now[place] if place < len(now) else None
            if was is None or found is None or not same(was, found):
                raise _differs(
                    action,
                    f"sends {_told_sent(found)} here as its message {place + 1}, and sent {_told_sent(was)} then"
                    f"{_not_deterministic(action)}",
                )

    # ---- what machines ask of their post --------------------------------------------------------------------------

    def stop(self, name: str) -> None:
        """What a machine has not accepted before it stopped, it accepts in no logged action."""
        self.stopped.add(name)

    def request_snapshot(self) -> None:
        """Nothing to do: snapshots change no machine."""

    def now(self) -> float:
        """The time that the machine was told is in no trace."""
        raise self._not_in_the_trace("the time, by self.now()")

    @property
    def chance(self) -> NoReturn:
        """How chance came out is in no trace."""
        raise self._not_in_the_trace("chance, by self.random")

    def _not_in_the_trace(self, what: str) -> NotReplayableError:
        assert self.action is not None
        return _not_replayable(
            self.action, f"asks for {what}, and what it was told is not in the trace: let a message bring it"
        )

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Gather a message that the action sends; on Ray, `runtime.transport.post.Post.send`."""
        self._gather(handle._name, "mail", method, args, kwargs)

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Gather a timer that the action sets; the log says when it was accepted. On Ray, `Post.send_after`."""
        self._gather(handle._name, "timer", method, args, kwargs, seconds=seconds)

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Gather a call that the action makes; an action that waits for the result is not done again. On Ray,
        `Post.call`."""
        self._gather(handle._name, "call", method, args, kwargs)
        return object()

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """Gather the creation of a machine; a name that the system chose is in the log. On Ray,
        `HostPost.spawn_here`."""
        kind = getattr(kind, "machine_class", kind)
        assert self.action is not None
        logged = [message for message in self.action.sent if message.is_creation]
        place = sum(one.number == 0 for one in self.outputs)
        then = logged[place] if place < len(logged) else None
        child = name or (then.key[1] if then is not None else f"{kind.__name__}-?")
        class_name = f"{kind.__module__}:{kind.__qualname__}"
        self._gather(child, "mail", "__init__", args, kwargs, number=0, class_name=class_name)
        return self.handle(child)

    def _gather(
        self, target: str, kind: str, method: str, args: Any, kwargs: Any, number: int | None = None, **more: Any
    ) -> None:
        assert self.action is not None
        if number is None:
            channel = self.action.machine, target, kind
            self.pending[channel] += 1
            number = self.sent[channel] + self.pending[channel]
        recorded = _recorded(args, kwargs)
        try:
            objects = copy.deepcopy((args, kwargs))
        except Exception as error:
            raise _not_replayable(
                self.action, f"sends {method} to {target} with an argument that cannot be copied ({error})"
            ) from None
        self.outputs.append(_Sent(target, kind, number, method, recorded, objects, **more))

    # ---- what is there --------------------------------------------------------------------------------------------

    def state_of(self, machine: str) -> Any:
        """What a snapshot would record of a machine's state."""
        try:
            state = self.bodies[machine].snapshot_state()
        except Exception as error:  # recorded like that on Ray, too
            state = {"$error": f"snapshot_state raised {type(error).__name__}: {error}"}
        return json.loads(to_json(state).text)

    def states(self) -> dict[str, Any]:
        """What a snapshot would record of every machine."""
        return {machine: self.state_of(machine) for machine in sorted(self.bodies)}

    def strings(self) -> dict[ChannelId, list[tuple[int, str, list[Any]]]]:
        """The channels that have messages in them: (number, method, args), by number."""
        return {
            channel: sorted(((one.number, one.method, one.args) for one in held), key=lambda one: one[0])
            for channel, held in sorted(self.channels.items())
            if held
        }


def _recorded(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments as a snapshot or a trace holds them."""
    return listed(json.loads(to_json([*args, {"$kwargs": kwargs}] if kwargs else list(args)).text))


def _held(one: _Sent) -> Held:
    return Held(one.number, one.method, one.args, lambda: one.objects, one.class_name)


def _with_class(message: Message) -> str:
    return str(message) if message.class_name is None else f"{message} of {message.class_name}"


def _joined(given: Arguments) -> Any:
    """What one port of a join gets."""
    args, kwargs = given
    return args[0] if len(args) == 1 and not kwargs else args


def _is_keywords(item: Any) -> bool:
    return isinstance(item, dict) and "$kwargs" in item


def _check_replayable(action: Action) -> None:
    if action.waited_at is not None:
        raise _not_replayable(
            action,
            f"waited inside for a reply, at {action.waited_at}: what it heard is not in the trace; send the answer as a"
            " message of its own instead of waiting for it",
        )


def _place(waiting: list[Held], message: Message) -> int | None:
    """Where the message stands in its channel; None if it cannot be accepted now.

    Mail and calls come first in, first out; timers by time, and a creation before or behind mail to the same name.
    """
    number = message.key[3]
    for place, held in enumerate(waiting):
        if held.number == number:
            return place
        if held.number and number and message.channel[2] != "timer":
            return None
    return None


def _impossible(action: Action, message: Message, waiting: list[Held]) -> DiffersError:
    first = next((held.number for held in waiting if held.number), None)
    there = "is empty" if first is None else f"begins with number {first}"
    what = "its creation" if message.is_creation else f"number {message.key[3]} ({message})"
    return _differs(
        action, f"is impossible here: it accepts {what}, and the channel {told_channel(message.channel)} {there}"
    )


def _differs(action: Action, text: str) -> DiffersError:
    return DiffersError(f"{action} {text}", machine=action.machine, number=action.number)


def _not_replayable(action: Action, text: str) -> NotReplayableError:
    return NotReplayableError(f"{action} {text}", machine=action.machine, number=action.number)


def _not_deterministic(action: Action) -> str:
    return (
        f": {action.machine} is not deterministic (chance, clocks, files, threads: keep what decides in the state or in"
        " messages), or the log was changed"
    )


def _told_sent(told: tuple[Any, ...] | None) -> str:
    return "nothing" if told is None else _told_message(*told[:5])


def _told_message(target: str, kind: str, number: int, method: str, args: list[Any]) -> str:
    what = "the creation" if number == 0 else "" if kind == "mail" else f"the {kind}"
    return f"{what} {Message((' ', target, kind, number), method, args)} to {target}".strip()
