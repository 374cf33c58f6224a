"""One action of a machine of the user's own class, as a value: state, message and inputs in; state, messages and end out.

An action that waits is never suspended. It is unwound where it waits (`Unwound`), and done again from its beginning once
there is one input more: a reply, an outcome of chance. What it sent before must be the same again; what differs is how
nondeterminism is found. What stands in for a host is a post (see `runtime.handles`) and a context (see `runtime.context`), as
for the witness. Never imports Ray unless an action calls.
"""

from __future__ import annotations

import copyreg
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace, TracebackType
from typing import Any

from ray_snapshot.errors import (
    DuplicateMachineError,
    MachineStoppedError,
    NotAMachineError,
    NotDeterministicError,
    SettingError,
    UnknownMethodError,
    UnpicklableMessageError,
)
from ray_snapshot.names import DRIVER, check_machine_name
from ray_snapshot.runtime.context import lend, take_back
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.mixin import SnapshotMixin, joins_of
from ray_snapshot.runtime.staged import StagedContext
from ray_snapshot.runtime.staged_calls import CallRef, Tracked, as_raised
from ray_snapshot.runtime.unwinding import Unwound
from ray_snapshot.testing.acts import (
    Act,
    Answer,
    Around,
    AsksClock,
    Chooses,
    Done,
    End,
    Outcome,
    Raised,
    Ref,
    Sent,
    Waits,
)
from ray_snapshot.testing.chance import Chance
from ray_snapshot.testing.guards import Guards, Site, caught_at, told_site
from ray_snapshot.testing.values import (
    Encoded,
    Loose,
    are_atoms,
    canonical,
    decoded,
    encoded,
    encoded_arguments,
    fill,
    opened,
    state_of,
)

RUN = "testing"
"""The run id of all machines here: the same in every process, so that a schedule fits in every process."""

LONGEST_TIMER_S = 1e8


NO_REFS = frozenset[Ref]()
_RETURNED_NOTHING = Done(Answer(encoded(None).data))


class Stage:
    """Where the actions of one search or run are done; in a `with` block. One at a time, in one thread.

    `is_one_run`: mostly an action begins where the last one of its machine has ended; then the machine's object stays, where
    nothing tells it from a copy, and states and messages that are made of atoms get no bytes (`values.Loose`).
    """

    def __init__(self, build: Callable[[Any], object], *, is_one_run: bool = False) -> None:
        self.build = build
        self.is_one_run = is_one_run
        self._bodies: dict[str, tuple[Loose, Any]] = {}
        """By machine: (state, its object in just that state)."""
        self.run_id = RUN
        self.kinds: list[Any] = [None]
        """Machine classes; 0 is the driver's program."""
        self.joins: list[dict[tuple[str, ...], str]] = [{}]
        self.has_slots = [False]
        """By class: whether its machines keep something outside of their `__dict__`."""
        self.chance = Chance(self.choose)
        self.guards = Guards()
        self.tracked = Tracked(self, "under ray_snapshot.testing")
        self.sources: dict[str, dict[str, tuple[str, ...]]] = {}
        """By machine and port: who is declared to send to it (`System.connect`)."""
        self.connections: list[tuple[str, str]] = []
        """(source, target) of every channel that was declared."""
        self.created: dict[str, type] = {}
        """By machine: its class."""
        self.member = SimpleNamespace(host=RUN)
        self.began_at = 0.0
        """What a machine's clock says at virtual time 0, in seconds."""
        self.opaque: dict[str, None] = {}
        """What could not be pickled, "a.lock (of type lock)"."""
        self.leaks: dict[str, None] = {}
        """Globals that actions have changed."""
        self.executions = 0
        self._act: Act | None = None
        self._around = Around()
        self._clock: float | None = None
        self._inputs: list[Any] = []
        self._place = 0
        self._outputs: list[Sent] = []
        self._sites: list[Site] | None = []
        """Where each output was sent; None: nobody asks."""
        self._contexts: dict[str, StagedContext] = {}
        self._end: End | None = None
        """Where the action was unwound."""
        self._checked: dict[tuple[int, str], int] = {}
        self._task_errors: dict[Answer, Any] = {}
        """The class of the error that an answer is raised as."""
        self._body: Any = None
        self._halted: Encoded | None = None
        """What the machine was where the action was unwound: a `finally` on the way out may change it."""
        self._asked_clock = False
        self._is_to_begin_anew = False
        self._outer: Any = None

    def __enter__(self) -> Stage:
        self._outer = POSTS.get(RUN)
        POSTS[RUN] = self  # type: ignore[assignment]
        self.guards.enter()
        self.tracked.watch_code(getattr(self.build, "__code__", None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracked.uninstall()
        self.guards.exit()
        if self._outer is None:
            POSTS.pop(RUN, None)
        else:
            POSTS[RUN] = self._outer

    # ---- classes ----------------------------------------------------------------------------------------------------

    def kind_of(self, kind: Any) -> int:
        """The number of a machine class; raises `SettingError` for what is none."""
        kind = getattr(kind, "machine_class", kind)
        kind = canonical(kind) if inspect.isclass(kind) else kind
        if kind in self.kinds:
            return self.kinds.index(kind)
        if not inspect.isclass(kind) or not issubclass(kind, SnapshotMixin):
            raise SettingError(f"{kind!r} cannot be spawned: a machine's class extends rs.SnapshotMixin")
        for name, member in inspect.getmembers(kind):
            if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                raise SettingError(
                    f"{kind.__name__}.{name} is async: an action of a machine is atomic; write a plain method"
                )
        self.joins.append(joins_of(kind))
        self.has_slots.append(bool(copyreg._slotnames(kind)))  # type: ignore[attr-defined]
        self.kinds.append(kind)
        self.guards.watch(kind)
        self.tracked.watch(kind)
        return len(self.kinds) - 1

    def body(self, machine: str, kind: int, state: Loose | None) -> Any:
        """A fresh object of a machine, its context lent to it."""
        found = self.kinds[kind].__new__(self.kinds[kind])
        if state is not None:
            fill(found, opened(state))
        lend(found, self._context(machine))
        return found

    def _context(self, machine: str) -> StagedContext:
        found = self._contexts.get(machine)
        if found is None:
            found = self._contexts[machine] = StagedContext(self, machine)
        return found

    # ---- one action -------------------------------------------------------------------------------------------------

    def perform(
        self, act: Act, inputs: tuple[Any, ...], clock: float | None, *, has_sites: bool | None = None
    ) -> Outcome:
        """Do an action from its beginning, with these inputs; `clock`: the time, or None.

        The first times, and now and then, it is done twice and compared. `has_sites`: whether to note where each output is
        sent; in one run by default only where it is compared. Raises `NotDeterministicError` and `UnwindingCaughtError`.
        """
        key = act.kind, act.method
        count = self._checked[key] = self._checked.get(key, 0) + 1
        is_compared = count <= 3 or count & (count - 1) == 0
        has_sites = is_compared or not self.is_one_run if has_sites is None else has_sites
        found = self._perform(act, inputs, clock, has_sites=has_sites)
        if is_compared:
            self._compare(act, found, self._perform(act, inputs, clock, has_sites=has_sites))
        return found

    def _perform(self, act: Act, inputs: tuple[Any, ...], clock: float | None, *, has_sites: bool) -> Outcome:
        self.executions += 1
        if not self.tracked.originals:
            self.tracked.look()
        self._act, self._around, self._clock, self._inputs, self._place = act, act.around, clock, [*inputs], 0
        self._outputs, self._sites, self._end, self._asked_clock = [], [] if has_sites else None, None, False
        body = None if act.machine == DRIVER else self._body_of(act)
        self._body, self._halted = body, None
        globals_before = self.guards.begin(act.kind)
        error: BaseException | None = None
        result = None
        try:
            result = self._run(act, body)
        except Unwound as unwound:
            error = unwound
        except (NotDeterministicError, KeyboardInterrupt, MemoryError):
            raise
        except BaseException as raised:  # the user's own; sys.exit() too
            error = raised
        finally:
            self._act = self._body = None
            changed = self.guards.end(act.kind, globals_before)
            if body is not None:
                take_back(body)
        if self._is_to_begin_anew:
            self._is_to_begin_anew = False
            return self._perform(act, inputs, clock, has_sites=has_sites)
        for name in changed:
            self.leaks[f"{name} (changed in {self.told(act)})"] = None
        if self.guards.trouble is not None:
            trouble, self.guards.trouble = self.guards.trouble, None
            raise NotDeterministicError(
                f"{self.told(act)} asks {trouble[0]} at {trouble[1]}: under ray_snapshot.testing time and chance are inputs, or"
                f" no run could be repeated; ask the machine: {trouble[2]}",
                machine=act.machine,
                method=act.method,
                call_site=trouble[1],
            )
        self._check_unwound(act, error)
        return self._outcome(act, body, result, error)

    def _body_of(self, act: Act) -> Any:
        """The machine's object in the state before an action, its context lent to it."""
        if self._bodies:
            state, found = self._bodies.pop(act.machine, (b"", None))
            if found is not None and state is act.before:
                lend(found, self._context(act.machine))
                return found
        return self.body(act.machine, act.kind, act.before)

    def _keep(self, machine: str, body: Any, state: Any, data: Loose) -> None:
        """Keep a machine's object for its next action: in the state that `data` is of, its attributes in the same order."""
        attributes = body.__dict__
        if [*attributes] != [*state]:
            attributes.clear()
            attributes.update(state)
        self._bodies[machine] = data, body

    def _atoms_of(self, act: Act, body: Any) -> dict[str, Any] | None:
        """A copy of a machine's attributes in the order of their names, if they are atoms; None if not."""
        attributes = body.__dict__
        if not are_atoms(attributes.values()) or self.has_slots[act.kind]:
            return None
        names = [*attributes]
        before = act.before
        if type(before) is dict and names == [*before]:
            return attributes.copy()  # type: ignore[no-any-return]
        return dict(sorted(attributes.items())) if all(type(name) is str for name in names) else None

    def _check_unwound(self, act: Act, error: BaseException | None) -> None:
        """An action that was unwound must not go on."""
        if self._end is not None and not isinstance(error, Unwound):
            raise caught_at(self._end, self.told(act), act.machine, act.method, self.guards.handler)

    def _run(self, act: Act, body: Any) -> Any:
        if body is None:
            return self.build(Front(self))
        given = [opened(payload) for payload in act.payloads]
        if act.is_join:
            method = getattr(body, act.method)
            return method(*(args[0] if len(args) == 1 and not kwargs else args for args, kwargs in given))
        if act.method == "__init__":
            method = body.__init__
        else:
            method = getattr(body, act.method, None)
            if method is None or not callable(method):
                raise UnknownMethodError(
                    f"{act.machine} ({type(body).__name__}) has no method {act.method!r}",
                    machine=act.machine,
                    method=act.method,
                )
        ((args, kwargs),) = given
        return method(*args, **kwargs)

    def _outcome(self, act: Act, body: Any, result: Any, error: BaseException | None) -> Outcome:
        if self._place < len(self._inputs):
            raise self._differs(act, "asks for less when it is done again")
        shown: Loose = b""
        refs, is_opaque = NO_REFS, False
        if body is not None:
            atoms = self._atoms_of(act, body) if self.is_one_run and error is None else None
            if atoms is not None:
                self._keep(act.machine, body, atoms, atoms)
                shown = atoms
            else:
                shown, refs, is_opaque = self._shown(act, body, error)
        end = self._end or self._ended(act, result, error)
        return Outcome(
            shown,
            tuple(self._outputs),
            end,
            tuple(self._inputs),
            refs,
            self._asked_clock,
            tuple(self._sites or ()),
            is_opaque,
        )

    def not_followed(self) -> list[str]:
        """Why a search may not be of all orders: what actions share with others, or have changed outside."""
        found = [f"{name} cannot be pickled: all states share it" for name in self.opaque]
        text = "is outside of the machines' states: what it does to other orders is not followed"
        return [*found, *(f"{name} {text}" for name in self.leaks)]

    def _shown(self, act: Act, body: Any, error: BaseException | None) -> tuple[bytes, frozenset[Ref], bool]:
        """A machine's state as bytes, the calls that it refers to, and whether some of it cannot be pickled."""
        if self._halted is None:
            found = state_of(body)
            state = encoded(found)
            if self.is_one_run and state.is_plain and type(found) is dict and error is None:
                self._keep(act.machine, body, found, state.data)
        else:
            state = self._halted
        is_opaque = bool(state.opaque)
        for name in _opaque_attributes(body) if is_opaque else ():
            self.opaque[f"{act.machine}.{name}"] = None
        return state.data, state.refs, is_opaque

    def _ended(self, act: Act, result: Any, error: BaseException | None) -> End:
        if error is None:
            if result is None:
                return _RETURNED_NOTHING
            try:
                answer = encoded(result)
                return Done(Answer(answer.data, refs=answer.refs))
            except Exception as fault:
                error = UnpicklableMessageError(
                    f"{act.machine}.{act.method} returned what cannot be pickled ({type(fault).__name__}: {fault})",
                    machine=act.machine,
                    method=act.method,
                )
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not self.guards.is_library(frame.filename)]
        site = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
        said = f"{type(error).__name__}: {_cause_of(error)}"
        trace = "\n".join(
            [
                f"ray::{act.method}()",
                *(f'  File "{one.filename}", line {one.lineno}, in {one.name}' for one in own),
                said,
            ]
        )
        return Raised(
            f"{self.told(act)} raised {said}{site}",
            Answer(_error_bytes(error), is_error=True, trace=trace),
            "".join(traceback.format_exception(error)),
        )

    def told(self, act: Act) -> str:
        """What is done, for a person."""
        if act.machine == DRIVER:
            return f"the program {getattr(self.build, '__name__', 'build')}"
        return f"{self.kinds[act.kind].__name__}.{act.method} of {act.machine}"

    def _compare(self, act: Act, one: Outcome, other: Outcome) -> None:
        one, other = one.exact(), other.exact()
        if one == other or (one.is_opaque and one == replace(other, shown=one.shown)):
            return
        for place, (first, second) in enumerate(zip(one.outputs, other.outputs, strict=False)):
            if first != second:
                raise self._differs(
                    act, f"sends something else as its message {place + 1}", told_site(one.sites[place])
                )
        if len(one.outputs) != len(other.outputs):
            more = max(one, other, key=lambda outcome: len(outcome.outputs))
            shorter = min(len(one.outputs), len(other.outputs))
            raise self._differs(act, "does not always send as many messages", told_site(more.sites[shorter]))
        if one.shown != other.shown:
            raise self._differs(act, f"leaves another state behind ({self._unlike(one.shown, other.shown)})")
        raise self._differs(act, "ends otherwise")

    def check_prefix(self, act: Act, before: Outcome, now: Outcome) -> None:
        """What an action did before it waited, it must do again; raises `NotDeterministicError`."""
        before, now = before.exact(), now.exact()
        count = len(before.outputs)
        if now.outputs[:count] == before.outputs:
            return
        place = next(
            place for place in range(count) if now.outputs[place : place + 1] != before.outputs[place : place + 1]
        )
        raise self._differs(
            act,
            f"sends something else as its message {place + 1} when it is done again",
            told_site(before.sites[place]),
        )

    def _unlike(self, one: Loose, other: Loose) -> str:
        first, second = opened(one), opened(other)
        if isinstance(first, dict) and isinstance(second, dict):
            names = sorted({*first, *second})
            unlike = [name for name in names if encoded(first.get(name)) != encoded(second.get(name))]
            return "attribute " + ", ".join(unlike)
        return "its attributes"

    def _differs(self, act: Act, what: str, site: str | None = None) -> NotDeterministicError:
        if site is None and act.machine != DRIVER:
            code = getattr(getattr(self.kinds[act.kind], act.method, None), "__code__", None)
            site = None if code is None else f"{code.co_filename}:{code.co_firstlineno}"
        return NotDeterministicError(
            f"{self.told(act)} {what}{f', at {site}' if site else ''}: it is not deterministic. Ask the time by self.now(),"
            " chance by self.random; keep files, threads and the order of sets out of what an action decides",
            machine=act.machine,
            method=act.method,
            call_site=site,
        )

    # ---- what machines ask of their host: see `runtime.staged` -------------------------------------------------------

    def stop(self, name: str) -> None:
        """A machine stops."""
        self.gather(Sent("stop", name))

    def request_snapshot(self) -> None:
        """A machine asks for a snapshot."""
        self.gather(Sent("snapshot"))

    # ---- inputs -----------------------------------------------------------------------------------------------------

    @property
    def is_acting(self) -> bool:
        """Whether an action is being done."""
        return self._act is not None

    def acting(self) -> Act:
        """The action that is being done; raises `NotAMachineError` outside of one."""
        if self._act is None:
            raise NotAMachineError(
                "sent outside of an action: only a machine's own actions send, not hooks or predicates"
            )
        if self._end is not None:  # in a `finally` behind a wait that is not over
            raise Unwound
        return self._act

    def _input(self, kind: str) -> Any:
        """The next input, which must be of this kind; None if it is still to come."""
        act = self.acting()
        if self._place == len(self._inputs):
            return None
        found = self._inputs[self._place]
        self._place += 1
        if found[0] != kind:
            raise self._differs(act, f"asks for {kind} where it asked for {found[0]} before", self.guards.site())
        return found

    def now(self) -> float:
        """Virtual time."""
        found = self._input("now")
        if found is None:
            self._asked_clock = True
            if self._clock is None:
                self._unwind(AsksClock())
            found = ("now", self._clock)
            self._inputs.append(found)
            self._place += 1
        seconds: float = found[1]
        return self.began_at + seconds

    def choose(self, options: int) -> int:
        """An outcome of chance, 0 to options - 1."""
        if options == 1:
            return 0
        found = self._input("chance")
        if found is None:
            self._unwind(Chooses(options, self.guards.site()))
        chosen: int = found[1]
        return chosen

    def wait(self, refs: list[Any], k: int, timeout: float | None, *, is_get: bool) -> Any:
        """The answers that have come (`is_get`), or the places of those refs whose have; raises what was called raised."""
        found = self._input("answer")
        if found is None:
            self._unwind(Waits(tuple(ref.key for ref in refs), k, is_get, timeout, self.guards.site()))
        _, what, came, self._around = found
        if what == "raises":
            raise self._error_of(came)
        return [decoded(answer.data) for answer in came] if what == "values" else came

    def _error_of(self, came: Answer) -> Any:
        """What a wait raises: an error of the called action comes as on Ray, as one of its class and a `RayTaskError`."""
        error = decoded(came.data)
        if not came.trace:
            return error
        from ray.exceptions import RayTaskError

        kind = self._task_errors.get(came)
        if kind is None:  # one class for one answer: equal errors stay equal
            kind = self._task_errors[came] = type(as_raised(error, came.trace))
        return RayTaskError("", came.trace, error, "ray", 1, "127.0.0.1") if kind is RayTaskError else kind(error)

    def _unwind(self, end: End) -> None:
        self._end = end
        if self._body is not None:
            self._halted = encoded(state_of(self._body))
        self.guards.note_unwinding(sys._getframe(2))
        raise Unwound

    # ---- outputs: what machines ask of their post ---------------------------------------------------------------------

    def gather(self, sent: Sent) -> None:
        """The action does something to the world."""
        if self.acting().is_loading:
            raise NotAMachineError("sent in restore_state: only a machine's own actions send, not hooks or predicates")
        self._outputs.append(sent)
        if self._sites is not None:
            self._sites.append(self.guards.place())

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`MethodSender.send`."""
        if self._sites is not None or kwargs or self._around.stopped or not are_atoms(args):
            self._send("mail", handle._name, method, args, kwargs)
            return
        act = self._act  # the same for the messages that most of a run are
        if act is None or self._end is not None or act.is_loading:
            self.gather(Sent("mail"))
        self._outputs.append(Sent("mail", handle._name, method, args))

    def send_after(
        self, seconds: float, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`MethodSender.send_after`."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_TIMER_S:
            raise SettingError(
                f"send_after({seconds!r}, ...): the first argument is how many seconds from now, 0 to {LONGEST_TIMER_S:g}"
            )
        self._send("timer", handle._name, method, args, kwargs, seconds=float(seconds))

    def call(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRef:
        """`MethodSender.remote`."""
        act = self.acting()
        if not self.tracked.is_installed:
            self.tracked.install()
            self._is_to_begin_anew = True  # `ray.get(...)` looks its function up before it makes the call
            self._unwind(AsksClock())
        taken = {*act.used, *(sent.number for sent in self._outputs if sent.what == "call")}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._send("call", handle._name, method, args, kwargs, number=number)
        return CallRef(act.machine, number)

    def _send(
        self, what: str, target: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], **more: Any
    ) -> None:
        act = self.acting()
        if target in self._around.stopped:
            raise MachineStoppedError(f"{act.machine} sent {method} to {target}, which has stopped", machine=target)
        data, refs = self._payload(target, method, args, kwargs)
        self.gather(Sent(what, target, method, data, refs=refs, **more))

    def _payload(
        self, target: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Loose, frozenset[Ref]]:
        source = self.acting().machine
        if self.is_one_run and not kwargs and are_atoms(args):
            return args, NO_REFS
        try:
            found = encoded_arguments(args, kwargs)
        except Exception as error:
            raise _unpicklable(source, target, method, f"{type(error).__name__}: {error}") from error
        if found.opaque:
            raise _unpicklable(source, target, method, f"an object of type {found.opaque[0]}")
        return found.data, found.refs

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """`SnapshotMixin.spawn` and `System.spawn`."""
        self.acting()
        number = self.kind_of(kind)
        if name is None:
            base, taken = self.kinds[number].__name__, self._taken()
            name = next(child for child in map(f"{base}-{{}}".format, range(len(taken) + 1)) if child not in taken)
        else:
            self.check_new(check_machine_name(name))
        payload, refs = self._payload(name, "__init__", args, kwargs)
        self.created[name] = self.kinds[number]
        self.gather(Sent("create", name, "__init__", payload, kind=number, refs=refs))
        return handle_of(RUN, name)

    def check_new(self, name: str) -> None:
        """Raise `DuplicateMachineError` if there is, or was, a machine of that name."""
        if name in self._taken():
            raise DuplicateMachineError(f"a machine {name!r} exists already; choose another name", machine=name)

    def _taken(self) -> set[str]:
        return {*self._around.names, *(sent.target for sent in self._outputs if sent.what == "create"), DRIVER}


def _unpicklable(source: str, target: str, method: str, why: str) -> UnpicklableMessageError:
    return UnpicklableMessageError(
        f"{source} -> {target}.{method}: an argument cannot be pickled ({why});"
        " send plain values, or what pickle can rebuild",
        machine=source,
        method=method,
    )


def _cause_of(error: BaseException) -> BaseException:
    """The error itself, without what Ray puts around it."""
    exceptions = sys.modules.get("ray.exceptions")
    if exceptions is not None and isinstance(error, exceptions.RayTaskError):
        cause: BaseException = error.cause
        return cause
    return error


def _error_bytes(error: BaseException) -> bytes:
    bare = _cause_of(error).with_traceback(None)
    try:
        found = encoded(bare).data
        decoded(found)
    except Exception:  # many exceptions cannot be rebuilt; their text still tells
        return encoded(RuntimeError(f"{type(error).__name__}: {error}")).data
    return found


def _opaque_attributes(body: Any) -> list[str]:
    """The attributes of a machine that cannot be pickled, each with its type."""
    found = []
    for name, value in vars(body).items():
        kinds = encoded(value).opaque
        if kinds:
            found.append(f"{name} (of type {', '.join(dict.fromkeys(kinds))})")
    return found


from ray_snapshot.testing.front import Front  # noqa: E402 - it needs `Stage`
