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
import json
import threading
import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ray_snapshot.decoding import NotDecodableError, decoded
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import MachineStoppedError
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.handles import POSTS, MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.staged import StagedContext
from ray_snapshot.runtime.staged_calls import LoggedRef, Tracked
from ray_snapshot.runtime.unwinding import Unwound
from ray_snapshot.witness.answers import Answer, Came
from ray_snapshot.witness.inside import (
    Arguments,
    Halt,
    Held,
    Sent,
    UnderWay,
    came_behind,
    check_end,
    check_replayable,
    halted,
    told_calls,
    told_message,
)
from ray_snapshot.witness.log import (
    Action,
    ActionId,
    ChannelId,
    DiffersError,
    Message,
    MessageId,
    NotReplayableError,
    differs,
    listed,
    not_deterministic,
    not_replayable,
    reply_to,
    same,
    told_channel,
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
    stopped: set[str] = field(default_factory=set)
    """Machines that have stopped themselves."""
    bodies: dict[str, Any] = field(default_factory=dict)
    channels: dict[ChannelId, list[Held]] = field(default_factory=lambda: defaultdict(list))
    sent: Counter[ChannelId] = field(default_factory=Counter)
    accepted: Counter[ChannelId] = field(default_factory=Counter)
    action: Action | None = None
    outputs: list[Sent] = field(default_factory=list)
    pending: Counter[ChannelId] = field(default_factory=Counter)
    """How many messages the current action has sent on each channel."""
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
    hooks_ask: list[str] | None = None
    """While hooks are asked: what they ask for that is not in the trace."""
    host: str = "stage"
    _way: UnderWay | None = None
    _place: int = 0
    """How many waits the current action has left."""
    _halt: Halt | None = None
    _trouble: Exception | None = None
    """What ends the current action, if the user's code should catch it."""
    _result: Any = None
    _error: BaseException | None = None
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
        way.logged += action.sent
        self.action, self.outputs, self._way = action, [], way
        self._place, self._halt, self._trouble, self._result, self._error = 0, None, None, None, None
        self._thread = threading.get_ident()
        self.pending.clear()
        if self._tracked is not None:
            self._tracked.look()
        try:
            raised = self._act(action, way)
            if self._trouble is not None:
                raise self._trouble.with_traceback(None)
            check_end(action, way, self._place, self._halt, self._error)
            self._compare(action, way, raised)
        finally:
            self.action = self._way = None
        for one in self.outputs[len(way.sent) :]:
            self._put((action.machine, one.target, one.kind), _held(one))
        if action.ends_in is not None:
            way.sent = self.outputs
            self.under_way[action.machine] = way
        else:
            self._answer(action, way)

    def _begun(self, action: Action) -> UnderWay:
        """An action begins: it accepts its messages."""
        inputs = [self._accept(action, message) for message in action.accepted]
        before = None
        if action.ends_in is not None and action.machine in self.bodies:
            before = self._copied(action, self.bodies[action.machine], "before it")
        return UnderWay(inputs, tuple(m.key for m in action.accepted if m.key[2] == "call"), before)

    def _gone_on(self, action: Action) -> UnderWay:
        """An action goes on behind a wait."""
        way = self.under_way.pop(action.machine, None)
        if way is None:
            raise not_replayable(
                action,
                "lies inside an action whose beginning is not done again here: begin with the system's start (no --from)",
            )
        way.came.append(self._came(action))
        return way

    def _came(self, action: Action) -> Came:
        found = came_behind(action, self.answers)
        if found.raised:
            self.raised_by[action.key] = found.raised
        elif isinstance(found.error, MachineStoppedError) and found.error.machine in self.stopped_by:
            self.refused_by[action.key] = self.stopped_by[found.error.machine]
        return found

    def _answer(self, action: Action, way: UnderWay) -> None:
        """The action is over: who has called it gets what it came to."""
        if way.calls and not (self._error is not None and not isinstance(self._error, Exception)):
            answer = Answer.of(action.machine, action.method, self._result, self._error)
            self.answers.update(dict.fromkeys(map(reply_to, way.calls), answer))
        self._result = self._error = None

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

    def _hear_as_logged(self, action: Action) -> None:
        """What the driver has heard was given; errors that are no machine's change nothing for it here."""
        wait = action.behind
        if wait is None or wait.is_foreign:
            return
        with suppress(NotReplayableError):
            self._came(action)

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

    def _act(self, action: Action, way: UnderWay) -> str | None:
        """Run the action, from its beginning; returns the name of the error that it raised."""
        inputs = way.inputs
        if not inputs:
            raise differs(action, "accepts nothing, which only the driver's do: the log was changed")
        try:
            given = [one.objects() for one in inputs]
            if action.ends_in is not None:  # it will be done again
                given = copy.deepcopy(given)
            if inputs[0].class_name is not None:
                self.bodies[action.machine] = body = self.empty(action.machine, inputs[0].class_name)
                method = body.__init__
            else:
                body = self.bodies.get(action.machine)
                if body is None:
                    raise differs(action, "is impossible here: the machine has not been born")
                if way.is_again:
                    is_last = action.ends_in is None
                    body = way.before if is_last else self._copied(action, way.before, "before it")
                    self.bodies[action.machine] = body
                self._check_method(action, body, inputs)
                method = self._method(action, body)
        except NotDecodableError as error:
            raise not_replayable(
                action, f"cannot be done again: {error}: send what JSON can hold, or a dataclass"
            ) from None
        if method is None:
            if action.raised != "UnknownMethodError":
                raise differs(action, f"is impossible here: {action.machine} has no method {action.method}")
            return action.raised
        args, kwargs = given[0] if len(given) == 1 else (tuple(map(_joined, given)), {})
        return self._run(action, method, args, kwargs)

    def _run(self, action: Action, method: Any, args: Any, kwargs: Any) -> str | None:
        try:
            self._result = method(*args, **kwargs)
        except (DiffersError, NotReplayableError):
            raise
        except BaseException as error:  # the user's own, then as now; sys.exit() too
            self._error = error
            if isinstance(error, KeyboardInterrupt):
                raise
            if self._halt is not None or self._trouble is not None:
                return None
            if action.raised != type(error).__name__:
                where = f"raised {action.raised} then" if action.raised else "raised nothing then"
                raise differs(
                    action, f"raises {type(error).__name__}: {error} here, and {where}{not_deterministic(action)}"
                ) from None
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

    def _check_method(self, action: Action, body: Any, inputs: list[Held]) -> None:
        """An action runs the method that its message names, or the join of its ports."""
        accepted = tuple(one.method for one in inputs)
        if any(method.startswith("__") for method in accepted):
            raise differs(action, f"accepted {' and '.join(accepted)}, which no handle sends: the log was changed")
        ports = getattr(getattr(type(body), action.method, None), "__join_ports__", None)
        if accepted not in ((action.method,), ports):
            raise differs(
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

    def _compare(self, action: Action, way: UnderWay, raised: str | None) -> None:
        """Did it do what was logged?"""
        if action.raised is not None and raised is None:
            raise differs(action, f"raises nothing here, and raised {action.raised} then{not_deterministic(action)}")
        for place, (first, again) in enumerate(zip(way.sent, self.outputs, strict=False)):
            if not same(first.told, again.told):
                raise differs(
                    action,
                    f"sends {again} as message {place + 1} of its action, and {first} when that was done"
                    f" before{not_deterministic(action)}",
                )
        if len(self.outputs) < len(way.sent):
            raise differs(action, f"does not send {way.sent[-1]}, as it did before{not_deterministic(action)}")
        then = [(*m.key[1:], m.method, m.args, m.class_name, m.seconds) for m in action.sent]
        now = [one.told for one in self.outputs[len(way.sent) :]]
        for place in range(max(len(then), len(now))):
            was = then[place] if place < len(then) else None
            found = now[place] if place < len(now) else None
            if was is None or found is None or not same(was, found):
                raise differs(
                    action,
                    f"sends {_told_sent(found)} here as its message {place + 1}, and sent {_told_sent(was)} then"
                    f"{not_deterministic(action)}",
                )

    # ---- what machines ask of their post --------------------------------------------------------------------------

    def stop(self, name: str) -> None:
        """What a machine has not accepted before it stopped, it accepts in no logged action."""
        self.stopped.add(name)
        if self.action is not None:
            self.stopped_by.setdefault(name, self.action.key)

    def request_snapshot(self) -> None:
        """Nothing to do: snapshots change no machine."""

    def now(self) -> float:
        """The time that the machine was told is in no trace."""
        raise self._not_in_the_trace("the time, by self.now()")

    @property
    def chance(self) -> NoReturn:
        """How chance came out is in no trace."""
        raise self._not_in_the_trace("chance, by self.random")

    @contextmanager
    def asking_hooks(self) -> Iterator[list[str]]:
        """Hooks are asked between actions; yields a list that gets what they ask for that is not in the trace."""
        before, self.hooks_ask = self.hooks_ask, []
        try:
            yield self.hooks_ask
        finally:
            self.hooks_ask = before

    def _not_in_the_trace(self, what: str) -> NotReplayableError:
        if self.hooks_ask is not None:
            self.hooks_ask.append(what)
            return NotReplayableError(f"a hook asks for {what}", machine="", number=0)
        assert self.action is not None
        return self._refused(
            not_replayable(
                self.action, f"asks for {what}, and what it was told is not in the trace: let a message bring it"
            )
        )

    def _not_asked_of_ray(self, text: str) -> Exception:
        assert self.action is not None
        return self._refused(not_replayable(self.action, f"cannot be done again: {text}"))

    def _refused(self, error: E) -> E:
        """An error that ends the action, though the user's code should catch it."""
        self._trouble = error
        return error

    @property
    def is_acting(self) -> bool:
        """Whether a machine acts, in this thread."""
        return self.action is not None and self._thread == threading.get_ident()

    def wait(self, refs: Sequence[Any], k: int, timeout: float | None, *, is_get: bool) -> Any:  # noqa: ARG002 - logged
        """`ray.get` and `ray.wait` inside an action: what the log says that came, or the end of the step."""
        action, way = self.action, self._way
        assert action is not None
        assert way is not None
        if self._halt is not None:
            raise Unwound
        calls, function = tuple(ref.call for ref in refs), "get" if is_get else "wait"
        if self._place == len(way.came):
            self._stop_here(action, calls, k, function)
        came = way.came[self._place]
        then = came.wait
        if (calls, k, function) != (then.calls, then.k, then.function):
            raise self._refused(
                differs(
                    action,
                    f"waits for {told_calls(calls, k)} here, where it waited for {told_calls(then.calls, then.k)}"
                    f" when it was done before{not_deterministic(action)}",
                )
            )
        self._place += 1
        return came.give()

    def _locate(self) -> None:
        """A call that had to look for its machine's host then: a step was over there."""
        action, way = self.action, self._way
        if action is None or way is None or self._halt is not None:
            return
        is_over = self._place < len(way.came)
        wait = way.came[self._place].wait if is_over else action.ends_in
        if wait is None or wait.function != "locate" or wait.place != len(self.outputs):
            return
        if not is_over:
            self._stop_here(action, (), 1, "locate")
        self._place += 1

    def _stop_here(self, action: Action, calls: tuple[MessageId, ...], k: int, function: str) -> NoReturn:
        """The step is over: the action waits here for what has not come yet."""
        if action.ends_in is not None:  # what it is now, and not behind the `finally` of what is unwound
            body = self.bodies[action.machine]
            try:
                self.bodies[action.machine] = self._copied(action, body, "where it waits")
            except NotReplayableError as error:
                raise self._refused(error) from None
        self._halt = halted(calls, k, function)
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
        assert self.action is not None
        self._locate()
        self._gather(handle._name, "call", method, args, kwargs)
        key = self.action.machine, handle._name, "call", self.outputs[-1].number
        logged = self._way.logged if self._way is not None else ()
        ref = next((message.ref for message in logged if message.key == key), None)
        return LoggedRef(self.action.machine, handle._name, key[3], ref or "")

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """Gather the creation of a machine; a name that the system chose is in the log. On Ray,
        `HostPost.spawn_here`."""
        kind = getattr(kind, "machine_class", kind)
        assert self.action is not None
        logged = [message for message in (self._way.logged if self._way else ()) if message.is_creation]
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
        if self._halt is not None:  # in a `finally` behind a wait that is not over
            raise Unwound
        if number is None:
            channel = self.action.machine, target, kind
            self.pending[channel] += 1
            before = self._way.sent_on(target, kind) if self._way is not None and self._way.sent else 0
            number = self.sent[channel] - before + self.pending[channel]
        recorded = _recorded(args, kwargs)
        try:
            objects = copy.deepcopy((args, kwargs))
        except Exception as error:
            raise self._refused(
                not_replayable(
                    self.action, f"sends {method} to {target} with an argument that cannot be copied ({error})"
                )
            ) from None
        self.outputs.append(Sent(target, kind, number, method, recorded, objects, **more))

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


def _held(one: Sent) -> Held:
    return Held(one.number, one.method, one.args, lambda: one.objects, one.class_name)


def _with_class(message: Message) -> str:
    return str(message) if message.class_name is None else f"{message} of {message.class_name}"


def _joined(given: Arguments) -> Any:
    """What one port of a join gets."""
    args, kwargs = given
    return args[0] if len(args) == 1 and not kwargs else args


def _is_keywords(item: Any) -> bool:
    return isinstance(item, dict) and "$kwargs" in item


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
    return differs(
        action, f"is impossible here: it accepts {what}, and the channel {told_channel(message.channel)} {there}"
    )


def _told_sent(told: tuple[Any, ...] | None) -> str:
    return "nothing" if told is None else told_message(*told[:5])
