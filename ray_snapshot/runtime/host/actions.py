"""One action of a machine: a message performed, a machine constructed, or word that a snapshot is kept.

What the user's code raises stops the system with an error that says where; a call's error goes to its caller.
"""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import (
    HostDiedError,
    MachineFailedError,
    RaySnapshotError,
    RolledBackError,
    UnknownMethodError,
)
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import Creation, HostCore, Machine
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Mailbox, Message
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.faults import as_error, text_of
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.host.notices import HOOK, Notice
from ray_snapshot.runtime.host.ports import Ports
from ray_snapshot.runtime.host.replies import Replies
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.payload import opened, recorded_args
from ray_snapshot.runtime.tracing import Tracer
from ray_snapshot.runtime.transport.membership import Membership

_OWN_FOLDER = str(Path(__file__).parent.parent)
_LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<frozen ")
"""Where libraries and Python itself lie: an error raised there is blamed on the user's statement that called them."""


@dataclass(eq=False)
class Actions:
    """Carries out what the runner has chosen; in an action thread that holds the floor, without the lock."""

    member: Membership
    core: HostCore
    stage: Stage
    classes: ClassStore
    ports: Ports
    replies: Replies
    tracer: Tracer | None
    context: Callable[[Machine], Context]
    """What a machine can ask of its host."""
    construct_count: int = 0

    def perform(self, machine: Machine, taken: list[tuple[Mailbox, Message]]) -> Machine:
        mailbox, message = taken[0]
        HERE.machine = machine
        calls: tuple[str, ...] = ()
        name, payload = message[2], message[3]
        try:
            if len(taken) > 1:
                calls, name, payload = self._joined(machine, taken)
            elif type(mailbox.end) is tuple:  # not mail
                calls, payload = _unwrapped(mailbox.kind, payload)
            if calls:
                self.replies.answering[machine.name] = calls
            method = getattr(machine.body, name, None)
            if method is None:
                raise self._no_such_method(machine, name, mailbox.source)
            if type(payload) is tuple:
                result = method(*payload)
            else:
                args, kwargs = opened(payload)
                result = method(*args, **kwargs)
            if calls:
                self._answer(machine, name, calls, result, None)
        except BaseException as error:  # sys.exit() too: an action that does not end leaves a machine half changed
            if self.tracer is not None:
                self.tracer.raised(machine.name, error)
            if calls and isinstance(error, Exception):
                self._answer(machine, name, calls, None, error)
            else:
                self._failed(machine, name, mailbox.source, payload, error)
        return machine

    def construct(self, creation: Creation) -> Machine:
        key, blob, payload = creation.payload
        try:
            if blob is not None:
                self.classes.add(key, blob)
            kind = self.classes.get(key)
            body: Any = cast(Any, kind).__new__(kind)
        except BaseException as error:
            self._failed(self.core.machine(creation.child), "__new__", creation.creator, payload, error)
            return self.core.machine(creation.child)
        with self.member.lock:
            machine = self.core.machine(creation.child)
            machine.is_suspended = True  # not to act before its constructor is done
            self.core.born(creation.child, body, tuple(self.classes.joins[kind]))
            attach(body, self.context(machine))
            mailbox = Mailbox(creation.creator, MAIL, machine.inbox)
            self.stage.action = (machine, mailbox, (0, 0, "__init__", payload, 0.0, creation.colour))
            if self.tracer is not None:
                self.tracer.born(creation.creator, creation.child, kind, payload, self.core.colour_of(machine))
        HERE.machine = machine
        try:
            args, kwargs = opened(payload)
            body.__init__(*args, **kwargs)
        except BaseException as error:
            if self.tracer is not None:
                self.tracer.raised(machine.name, error)
            self._failed(machine, "__init__", creation.creator, payload, error)
        with self.member.lock:
            if (wrong := self.ports.wrong(machine)) is not None:
                self.member.fail(wrong)
            self.stage.action = HERE.machine = None
            self.construct_count += 1
            self.core.resume(machine)
        return machine

    def notify(self, notice: Notice) -> Machine:
        """Tell a machine that a snapshot is kept. This is no action of the machine: if the hook sends, that is an
        error."""
        machine = self.core.machine(notice.machine)
        HERE.machine = None
        try:
            notice.call_hook(machine.body)
        except BaseException as error:
            self._failed(machine, HOOK, "the service", (), error)
        notice.settle()
        return machine

    def _no_such_method(self, machine: Machine, name: str, source: str) -> UnknownMethodError:
        return UnknownMethodError(
            f"{machine.name} ({type(machine.body).__name__}) has no method {name!r}; {source} sent it",
            machine=machine.name,
            method=name,
        )

    def _joined(
        self, machine: Machine, taken: list[tuple[Mailbox, Message]]
    ) -> tuple[tuple[str, ...], str, tuple[Any, ...]]:
        ports = tuple(message[2] for _, message in taken)
        values: list[Any] = []
        calls: tuple[str, ...] = ()
        for mailbox, message in taken:
            answered, payload = _unwrapped(mailbox.kind, message[3])
            args, kwargs = opened(payload)
            values.append(args[0] if len(args) == 1 and not kwargs else args)
            calls += answered
        if self.tracer is not None:
            self.tracer.acts_as(machine.name, self.classes.joins[type(machine.body)][ports])
        return calls, self.classes.joins[type(machine.body)][ports], tuple(values)

    def _answer(
        self, machine: Machine, method: str, calls: tuple[str, ...], result: Any, error: Exception | None
    ) -> None:
        """A called method is over: its callers are told, with the colour that this host has now."""
        outcome = self.replies.outcome(machine.name, method, result, error)
        with self.member.lock:
            outcome.colour = self.core.colour_of(machine)
            self.replies.give(machine.name, calls, outcome)

    def _failed(self, machine: Machine, method: str, source: str, payload: Any, error: BaseException) -> None:
        """An action raised: the system stops, and says where."""
        if self.member.may_be_undone and _is_of_a_lost_host(error):
            self.stage.is_broken = True  # the system is about to be rolled back
            self.member.stop_with(
                RolledBackError(f"{machine.name}.{method} needed a host that is gone", snapshot_id=None)
            )
            self.member.later(LIMITS.broken_action_s, self._was_not_rolled_back, as_error(error))
            return
        if isinstance(error, UnknownMethodError) and error.machine == machine.name:
            self.member.fail(error)
            return
        if isinstance(error, TypeError) and _is_data(machine.body, method):
            self.member.fail(self._no_such_method(machine, method, source))
            return
        message = to_json(recorded_args(payload, method)[0]).text[:500]
        site, said = _raised_at(error), text_of(error)
        self.member.fail(
            MachineFailedError(
                f"{machine.name}.{method} raised {type(error).__name__}: {said}{f' at {site}' if site else ''}"
                f" (message from {source}, args {message})",
                machine=machine.name,
                method=method,
                message=message,
                source=source,
                traceback="".join(traceback.format_exception(error)),
            )
        )

    def _was_not_rolled_back(self, error: RaySnapshotError) -> None:
        """Fail: an action was cut short because a host is gone, and the system was not rolled back in time."""
        if not self.member.is_retired:
            self.member.service.fail.remote(error, self.member.generation)


def _unwrapped(kind: str, payload: Any) -> tuple[tuple[str, ...], Any]:
    """(ids of the calls that it is, arguments) of what a message of this kind carries."""
    if kind == CALL:
        call_id, payload = payload
        return (call_id,), payload
    return (), payload[1] if kind == TIMER else payload


def _is_data(body: Any, name: str) -> bool:
    """Whether the object has an attribute of this name that is no method."""
    found = inspect.getattr_static(body, name, None)
    return found is not None and not callable(found) and not isinstance(found, classmethod)


def _is_of_a_lost_host(error: BaseException | None) -> bool:
    """Whether an error is there because a host is gone, or because the others have been rolled back already."""
    while error is not None:
        if isinstance(error, (HostDiedError, RolledBackError)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _raised_at(error: BaseException) -> str | None:
    """ "file:line" of the statement that raised, or that called the library which did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN_FOLDER)]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    chosen = (own or frames)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else None
