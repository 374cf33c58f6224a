"""The stage: fresh machines of the user's own classes, and strings of messages; no hosts, links, markers or colours.

What stands in for a host is a post (see `runtime.handles`) that gathers what an action sends, and a context (see
`runtime.context`) that answers what a machine may ask of its host. Messages keep the objects that were sent, copied at
the moment of sending, as on Ray; what comes from outside (the driver's sends, recorded states) is built from JSON.
Nothing of a history is unpickled. The driver's program is not run again: it sends what the log says that it sent.

An action that waits inside is done step by step. For each it is done again from its beginning, on a copy of what its machine
was before it, with the replies that have come so far, and is unwound at its next wait (`runtime.unwinding`, as in
`ray_snapshot.testing`). What it sent in earlier steps it must send again.
"""

from __future__ import annotations

import copy
import inspect
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ray_snapshot.decoding import NotDecodableError, decoded
from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.handles import POSTS, MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.staged import MEMBER, StagedContext, recorded_arguments, recorded_state
from ray_snapshot.runtime.staged_calls import LoggedRef, Tracked
from ray_snapshot.runtime.unwinding import Unwound
from ray_snapshot.witness.answers import Answer, Came, came_of
from ray_snapshot.witness.channels import Arguments, Channels, Held
from ray_snapshot.witness.inside import (
    UnderWay,
    check_done,
    check_end,
    check_method,
    check_replayable,
    halted,
    told_calls,
)
from ray_snapshot.witness.log import (
    Action,
    ActionId,
    DiffersError,
    Message,
    MessageId,
    NotReplayableError,
    differs,
    not_replayable,
    reply_to,
    same,
    unlike,
)
from ray_snapshot.witness.modules import Modules

E = TypeVar("E", bound=Exception)

WHERE = "where a run is done again"

_PLACE = ": run this where the program's modules can be imported, and define machine classes at the top of a module"


@dataclass(slots=True)
class Stage:
    """Where machines of one run act again; in a `with` block. Handles of the run send to the stage that was entered last."""

    run_id: str
    modules: Modules = field(default_factory=Modules)
    """Whose code may be run."""
    bodies: dict[str, Any] = field(default_factory=dict)
    channels: Channels = field(default_factory=Channels)
    answers: dict[MessageId, Answer] = field(default_factory=dict)
    """By reply: what was given."""
    under_way: dict[str, UnderWay] = field(default_factory=dict)
    """By machine: the action that waits inside."""
    stopped_by: dict[str, ActionId] = field(default_factory=dict)
    """By machine that has stopped itself: the step in which it did."""
    raised_by: dict[ActionId, tuple[MessageId, ...]] = field(default_factory=dict)
    """By step that goes on with an error: the replies that can have been it. The log alone tells its class from others only."""
    refused_by: dict[ActionId, ActionId] = field(default_factory=dict)
    """By step that goes on with the error that a machine has stopped: the step in which that did."""
    asked_outside: list[str] = field(default_factory=list)
    """What hooks have asked for, between actions, that is not in the trace."""
    member: Any = field(default_factory=lambda: MEMBER)
    _way: UnderWay | None = None
    """The action that is being done."""
    _tracked: Tracked | None = None
    _thread: int = 0

    def __enter__(self) -> Stage:
        POSTS[self.run_id] = self  # type: ignore[assignment]
        self._tracked = Tracked(self, WHERE, self._not_asked_of_ray)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        POSTS.pop(self.run_id, None)
        forget_handles(self.run_id)
        if self._tracked is not None:
            self._tracked.uninstall()

    # ---- one action -----------------------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Do one more action; raises `DiffersError` where it is impossible or does something else than was logged."""
        check_replayable(action)
        if action.machine == DRIVER:
            self._hear_as_logged(action)
            self._send_as_logged(action)
            return
        way = self._begun(action) if action.step == 0 else self._gone_on(action)
        self._way, self._thread = way, threading.get_ident()
        if self._tracked is not None:
            self._tracked.look()
        try:
            raised = self._act(way)
            if way.trouble is not None:
                raise way.trouble.with_traceback(None)
            check_end(way)
            check_done(way, raised)
        finally:
            self._way = None
        for one in way.outputs[len(way.sent) :]:
            self.channels.put(one)
        if action.ends_in is not None:
            self.under_way[action.machine] = way
        else:
            self._answer(way)

    def _begun(self, action: Action) -> UnderWay:
        """An action begins: it accepts its messages."""
        inputs = [self.channels.accept(action, message) for message in action.accepted]
        before = None
        if action.ends_in is not None and action.machine in self.bodies:
            before = self._copied(action, self.bodies[action.machine], "before it")
        return UnderWay(action, inputs, before, logged=[*action.sent])

    def _gone_on(self, action: Action) -> UnderWay:
        """An action goes on behind a wait: it sends once more what it has sent."""
        way = self.under_way.pop(action.machine, None)
        if way is None:
            raise not_replayable(
                action,
                "lies inside an action whose beginning is not done again here: begin with the system's start (no --from)",
            )
        way.came.append(self._came(action))
        way.begin(action)
        self.channels.sent.subtract(one.message.channel for one in way.sent if not one.message.is_creation)
        return way

    def _came(self, action: Action) -> Came:
        found = came_of(action, self.answers)
        if found.raised:
            self.raised_by[action.key] = found.raised
        elif isinstance(found.error, MachineStoppedError) and found.error.machine in self.stopped_by:
            self.refused_by[action.key] = self.stopped_by[found.error.machine]
        return found

    def _answer(self, way: UnderWay) -> None:
        """The action is over: who has called it gets what it came to."""
        if way.calls and (way.error is None or isinstance(way.error, Exception)):
            answer = Answer.of(way.action.machine, way.action.method, way.result, way.error)
            self.answers.update(dict.fromkeys(map(reply_to, way.calls), answer))

    def _hear_as_logged(self, action: Action) -> None:
        """What the driver has heard was given; errors that are no machine's change nothing for it here."""
        wait = action.behind
        if wait is None or wait.is_foreign:
            return
        with suppress(NotReplayableError):
            self._came(action)

    def _send_as_logged(self, action: Action) -> None:
        for message in action.sent:
            self.channels.put(self.recorded(message))
            self.channels.sent[message.channel] += not message.is_creation

    def recorded(self, message: Message) -> Held:
        """A message built from what is recorded of it."""

        def objects() -> Arguments:
            recorded = message.args if message.exact is None else message.exact
            args = [decoded(item, self.handle, self.modules.find) for item in recorded if not _is_keywords(item)]
            kwargs = {key: item for keywords in recorded if _is_keywords(keywords)
                      for key, item in decoded(keywords["$kwargs"], self.handle, self.modules.find).items()}  # fmt: skip
            if message.exact is not None and not same(recorded_arguments(args, kwargs), message.args):
                raise DiffersError(
                    f"message {message} has a second form of its arguments that says something else: the trace was changed",
                    machine=message.key[0],
                )
            return tuple(args), kwargs

        return Held(message, objects)

    def handle(self, name: str) -> MachineHandle:
        """The handle of a machine of this run."""
        return handle_of(self.run_id, name)

    def _act(self, way: UnderWay) -> str | None:
        """Run the action, from its beginning; returns the name of the error that it raised."""
        action = way.action
        if not way.inputs:
            raise differs(action, "accepts nothing, which only the driver's do: the log was changed")
        try:
            given = [one.objects() for one in way.inputs]
            if action.ends_in is not None:  # it will be done again
                given = copy.deepcopy(given)
            class_name = way.inputs[0].message.class_name
            if class_name is not None:
                self.bodies[action.machine] = body = self.empty(action.machine, class_name)
                method = body.__init__
            else:
                method = self._method(action, self._body(way))
        except NotDecodableError as error:
            raise not_replayable(
                action, f"cannot be done again: {error}: send what JSON can hold, or a dataclass"
            ) from None
        if method is None:
            if action.raised != "UnknownMethodError":
                raise differs(action, f"is impossible here: {action.machine} has no method {action.method}")
            return action.raised
        args, kwargs = given[0] if len(given) == 1 else (tuple(map(_joined, given)), {})
        return self._run(way, method, args, kwargs)

    def _body(self, way: UnderWay) -> Any:
        """The machine that acts, as it was before the action."""
        action, found = way.action, self.bodies.get(way.action.machine)
        if found is None:
            raise differs(action, "is impossible here: the machine has not been born")
        if way.came:
            is_last = action.ends_in is None
            found = way.before if is_last else self._copied(action, way.before, "before it")
            self.bodies[action.machine] = found
        check_method(way, found)
        return found

    def _run(self, way: UnderWay, method: Any, args: Any, kwargs: Any) -> str | None:
        action = way.action
        try:
            way.result = method(*args, **kwargs)
        except (DiffersError, NotReplayableError):
            raise
        except BaseException as error:  # the user's own, then as now; sys.exit() too
            way.error = error
            if isinstance(error, KeyboardInterrupt):
                raise
            if way.halt is not None or way.trouble is not None:
                return None
            if action.raised != type(error).__name__:
                where = f"raised {action.raised} then" if action.raised else "raised nothing then"
                raise unlike(action, f"raises {type(error).__name__}: {error} here, and {where}") from None
            return type(error).__name__
        return None

    def _method(self, action: Action, body: Any) -> Any:
        """The method of the machine's class; its fields come from the history, and a function in one is none of its methods."""
        is_field = isinstance(inspect.getattr_static(type(body), action.method, None), types.MemberDescriptorType)
        if is_field or action.method in getattr(body, "__dict__", ()):
            raise not_replayable(
                action,
                f"would run what {action.machine} has in its field {action.method}, which is no method of its class",
            )
        return getattr(body, action.method, None)

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
        if self._tracked is not None:
            self._tracked.watch(kind)
        body = kind.__new__(kind)
        attach(body, StagedContext(self, machine))
        return body

    def _copied(self, action: Action, body: Any, when: str) -> Any:
        """A copy of a machine that is as well the machine."""
        try:
            found = copy.deepcopy(body)
        except Exception as error:
            raise not_replayable(
                action,
                f"waits inside, and what {action.machine} is {when} cannot be copied, to be done again:"
                f" {type(error).__name__}: {error}",
            ) from None
        attach(found, StagedContext(self, action.machine))
        return found

    # ---- what machines ask of their post --------------------------------------------------------------------------

    def _acting(self) -> UnderWay:
        """The action that is being done."""
        assert self._way is not None
        if self._way.halt is not None:  # in a `finally` behind a wait that is not over
            raise Unwound
        return self._way

    @property
    def is_acting(self) -> bool:
        """Whether a machine acts, in this thread."""
        return self._way is not None and self._thread == threading.get_ident()

    def stop(self, name: str) -> None:
        """What a machine has not accepted before it stopped, it accepts in no logged action."""
        if self._way is not None:
            self.stopped_by.setdefault(name, self._way.action.key)

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
        if self._way is None:
            self.asked_outside.append(what)
            return NotReplayableError(f"a hook asks for {what}", machine="", number=0)
        text = f"asks for {what}, and what it was told is not in the trace: let a message bring it"
        return self._refused(not_replayable(self._acting().action, text))

    def _not_asked_of_ray(self, text: str) -> Exception:
        return self._refused(not_replayable(self._acting().action, f"cannot be done again: {text}"))

    def _refused(self, error: E) -> E:
        """An error that ends the action, though the user's code should catch it."""
        self._acting().trouble = error
        return error

    def wait(self, refs: Sequence[Any], k: int, timeout: float | None, *, is_get: bool) -> Any:  # noqa: ARG002 - logged
        """`ray.get` and `ray.wait` inside an action: what the log says that came, or the end of the step."""
        way = self._acting()
        calls, function = tuple(ref.key for ref in refs), "get" if is_get else "wait"
        if way.place == len(way.came):
            self._stop_here(way, calls, k, function)
        came = way.came[way.place]
        then = came.wait
        if (calls, k, function) != (then.calls, then.k, then.function):
            raise self._refused(
                unlike(
                    way.action,
                    f"waits for {told_calls(calls, k)} here, where it waited for {told_calls(then.calls, then.k)}"
                    " when it was done before",
                )
            )
        way.place += 1
        return came.give()

    def _locate(self) -> None:
        """A call that had to look for its machine's host then: a step was over there."""
        way = self._acting()
        is_over = way.place < len(way.came)
        wait = way.came[way.place].wait if is_over else way.action.ends_in
        if wait is None or wait.function != "locate" or wait.place != len(way.outputs):
            return
        if not is_over:
            self._stop_here(way, (), 1, "locate")
        way.place += 1

    def _stop_here(self, way: UnderWay, calls: tuple[MessageId, ...], k: int, function: str) -> NoReturn:
        """The step is over: the action waits here for what has not come yet."""
        action = way.action
        if action.ends_in is not None:  # what it is now, and not behind the `finally` of what is unwound
            body = self.bodies[action.machine]
            try:
                self.bodies[action.machine] = self._copied(action, body, "where it waits")
            except NotReplayableError as error:
                raise self._refused(error) from None
        way.halt = halted(calls, k, function)
        raise Unwound

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Gather a message that the action sends; on Ray, `runtime.transport.post.Post.send`."""
        self._gather(handle._name, "mail", method, args, kwargs)

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Gather a timer that the action sets; the log says when it was accepted. On Ray, `Post.send_after`."""
        self._gather(handle._name, "timer", method, args, kwargs, seconds=seconds)

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoggedRef:
        """Gather a call that the action makes. On Ray, `Post.call`."""
        self._locate()
        key = self._gather(handle._name, "call", method, args, kwargs)
        ref = next((message.ref for message in self._acting().logged if message.key == key), None)
        return LoggedRef(key[0], key[1], key[3], ref or "")

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """Gather the creation of a machine; a name that the system chose is in the log. On Ray,
        `HostPost.spawn_here`."""
        kind, way = getattr(kind, "machine_class", kind), self._acting()
        logged = [message.key[1] for message in way.logged if message.is_creation]
        place = sum(one.message.is_creation for one in way.outputs)
        child = name or (logged[place] if place < len(logged) else f"{kind.__name__}-?")
        self._gather(child, "mail", "__init__", args, kwargs, class_name=f"{kind.__module__}:{kind.__qualname__}")
        return self.handle(child)

    def _gather(
        self,
        target: str,
        kind: str,
        method: str,
        args: Any,
        kwargs: Any,
        *,
        class_name: str | None = None,
        seconds: float | None = None,
    ) -> MessageId:
        way = self._acting()
        action, channel = way.action, (way.action.machine, target, kind)
        try:
            objects = copy.deepcopy((args, kwargs))
        except Exception as error:
            what = f"sends {method} to {target} with an argument that cannot be copied ({error})"
            raise self._refused(not_replayable(action, what)) from None
        self.channels.sent[channel] += class_name is None
        number = 0 if class_name is not None else self.channels.sent[channel]
        message = Message(
            (*channel, number), method, recorded_arguments(args, kwargs), class_name=class_name, seconds=seconds
        )
        way.outputs.append(Held(message, lambda: objects))
        return message.key

    # ---- what is there --------------------------------------------------------------------------------------------

    def state_of(self, machine: str) -> Any:
        """What a snapshot would record of a machine's state."""
        return recorded_state(self.bodies[machine])

    def states(self) -> dict[str, Any]:
        """What a snapshot would record of every machine."""
        return {machine: self.state_of(machine) for machine in sorted(self.bodies)}


def _joined(given: Arguments) -> Any:
    """What one port of a join gets."""
    args, kwargs = given
    return args[0] if len(args) == 1 and not kwargs else args


def _is_keywords(item: Any) -> bool:
    return isinstance(item, dict) and "$kwargs" in item
