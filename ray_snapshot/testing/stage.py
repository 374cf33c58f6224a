"""One action of a machine of the user's own class, as a value: state, message and inputs in; state, messages and end out.

An action that waits is never suspended. It is unwound where it waits (`Unwound`), and done again from its beginning once
there is one input more: a reply, an outcome of chance. What it sent before must be the same again; what differs is how
nondeterminism is found. What stands in for a host is a post (see `runtime.handles`) and a context (see `runtime.context`), as
for the witness. Never imports Ray unless an action calls.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable
from types import TracebackType
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
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.handles import POSTS, MachineHandle, handle_of
from ray_snapshot.runtime.mixin import SnapshotMixin, joins_of
from ray_snapshot.runtime.staged import MEMBER, StagedContext
from ray_snapshot.runtime.staged_calls import CallRef, Tracked
from ray_snapshot.runtime.unwinding import Unwound
from ray_snapshot.testing.acts import Act, AsksClock, Outcome, Ref, Sent, Waits
from ray_snapshot.testing.chance import Chance
from ray_snapshot.testing.comparing import Difference, difference, difference_before
from ray_snapshot.testing.endings import ended, raised_of
from ray_snapshot.testing.execution import Execution
from ray_snapshot.testing.guards import Guards, Site
from ray_snapshot.testing.kept import KeptBodies
from ray_snapshot.testing.values import (
    Loose,
    are_atoms,
    canonical,
    decoded,
    encoded,
    fill,
    opened,
    state_of,
)

RUN = "testing"
"""The run id of all machines here: the same in every process, so that a schedule fits in every process."""

LONGEST_TIMER_S = 1e8


NO_REFS = frozenset[Ref]()


class Stage:
    """Where the actions of one search or run are done; in a `with` block. One at a time, in one thread.

    `is_one_run`: machines and messages of atoms get no bytes (`kept`).
    """

    def __init__(self, build: Callable[[Any], object], *, is_one_run: bool = False) -> None:
        self.build = build
        self.kept = KeptBodies() if is_one_run else None
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
        self.member = MEMBER
        self.began_at = 0.0
        """What a machine's clock says at virtual time 0, in seconds."""
        self.opaque: dict[str, None] = {}
        """What could not be pickled, "a.lock (of type lock)"."""
        self.leaks: dict[str, None] = {}
        """Globals that actions have changed."""
        self.asked_clock = False
        """Whether any action has asked for the time."""
        self.executions = 0
        self._doing: Execution | None = None
        self._checked: dict[tuple[int, str], int] = {}
        self._task_errors: dict[Any, Any] = {}
        """The class of the error that an answer is raised as."""
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
        """A fresh object of a machine."""
        found = self.kinds[kind].__new__(self.kinds[kind])
        if state is not None:
            fill(found, opened(state))
        attach(found, StagedContext(self, machine))
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
        has_sites = is_compared or self.kept is None if has_sites is None else has_sites
        found = self._perform(act, inputs, clock, has_sites=has_sites)
        if is_compared:
            self._compare(act, found, self._perform(act, inputs, clock, has_sites=has_sites))
        return found

    def _perform(self, act: Act, inputs: tuple[Any, ...], clock: float | None, *, has_sites: bool) -> Outcome:
        self.executions += 1
        if not self.tracked.is_installed:
            self.tracked.look()
        sites: list[Site] | None = [] if has_sites else None
        doing = Execution(act, [*inputs], clock, act.around, sites, self.guards, self._differs)
        if act.machine != DRIVER:
            doing.body = self._body_of(act)
        self._doing = doing
        globals_before = self.guards.begin(act.kind)
        error: BaseException | None = None
        result = None
        try:
            result = self._run(act, doing.body)
        except Unwound as unwound:
            error = unwound
        except (NotDeterministicError, KeyboardInterrupt, MemoryError):
            raise
        except BaseException as raised:  # the user's own; sys.exit() too
            error = raised
        finally:
            self._doing = None
            changed = self.guards.end(act.kind, globals_before)
        if doing.is_to_begin_anew:
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
        if doing.end is not None:
            doing.check_unwound(self.told(act), error)
        return self._outcome(doing, result, error)

    def _body_of(self, act: Act) -> Any:
        """The machine's object in the state before an action."""
        found = None if self.kept is None else self.kept.take(act)
        return self.body(act.machine, act.kind, act.before) if found is None else found

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

    def _outcome(self, doing: Execution, result: Any, error: BaseException | None) -> Outcome:
        act, body = doing.act, doing.body
        if doing.place < len(doing.inputs):
            raise self._differs(act, "asks for less when it is done again")
        shown: Loose = b""
        refs, is_opaque = NO_REFS, False
        if body is not None:
            kept = None if error is not None or self.has_slots[act.kind] else self.kept
            atoms = None if kept is None else kept.keep(act, body)
            if atoms is not None:
                shown = atoms
            else:
                shown, refs, is_opaque = self._shown(doing)
        self.asked_clock |= doing.asked_clock
        end = doing.end or ended(act, self.told, result, error, self.guards.is_library)
        outputs, inputs, sites = tuple(doing.outputs), tuple(doing.inputs), tuple(doing.sites or ())
        return Outcome(shown, outputs, end, inputs, refs, doing.asked_clock, sites, is_opaque)

    def not_followed(self) -> list[str]:
        """Why a search may not be of all orders: what actions share with others, or have changed outside."""
        found = [f"{name} cannot be pickled: all states share it" for name in self.opaque]
        text = "is outside of the machines' states: what it does to other orders is not followed"
        return [*found, *(f"{name} {text}" for name in self.leaks)]

    def _shown(self, doing: Execution) -> tuple[bytes, frozenset[Ref], bool]:
        """A machine's state as bytes, the calls that it refers to, and whether some of it cannot be pickled."""
        machine, body = doing.act.machine, doing.body
        state = doing.halted or encoded(state_of(body))
        is_opaque = bool(state.opaque)
        for name in _opaque_attributes(body) if is_opaque else ():
            self.opaque[f"{machine}.{name}"] = None
        return state.data, state.refs, is_opaque

    def told(self, act: Act) -> str:
        """What is done, for a person."""
        if act.machine == DRIVER:
            return f"the program {getattr(self.build, '__name__', 'build')}"
        return f"{self.kinds[act.kind].__name__}.{act.method} of {act.machine}"

    def _compare(self, act: Act, one: Outcome, other: Outcome) -> None:
        self._check(act, difference(one, other))

    def check_prefix(self, act: Act, before: Outcome, now: Outcome) -> None:
        """What an action did before it waited, it must do again; raises `NotDeterministicError`."""
        self._check(act, difference_before(before, now))

    def _check(self, act: Act, found: Difference | None) -> None:
        if found is not None:
            raise self._differs(act, *found)

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
        return self._doing is not None

    def acting(self) -> Execution:
        """The action that is being done; raises `NotAMachineError` outside of one."""
        if self._doing is None:
            raise NotAMachineError(
                "sent outside of an action: only a machine's own actions send, not hooks or predicates"
            )
        if self._doing.end is not None:  # in a `finally` behind a wait that is not over
            raise Unwound
        return self._doing

    def now(self) -> float:
        """Virtual time."""
        return self.began_at + self.acting().time()

    def choose(self, options: int) -> int:
        """An outcome of chance, 0 to options - 1."""
        return 0 if options == 1 else self.acting().choice(options)

    def wait(self, refs: list[Any], k: int, timeout: float | None, *, is_get: bool) -> Any:
        """The answers that have come (`is_get`), or the places of those refs whose have; raises what was called raised."""
        wait = Waits(tuple(ref.key for ref in refs), k, is_get, timeout, self.guards.site())
        what, came = self.acting().answer(wait)
        if what == "raises":
            raise raised_of(came, self._task_errors)
        return [decoded(answer.data) for answer in came] if what == "values" else came

    # ---- outputs: what machines ask of their post ---------------------------------------------------------------------

    def gather(self, sent: Sent) -> None:
        """The action does something to the world."""
        self.acting().gather(sent)

    def send(self, handle: MachineHandle, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """`MethodSender.send`."""
        doing = self.acting()
        if doing.sites is not None or kwargs or doing.around.stopped or doing.act.is_loading or not are_atoms(args):
            self._send("mail", handle._name, method, args, kwargs)
        else:  # the same for the messages that most of a run are
            doing.outputs.append(Sent("mail", handle._name, method, args))

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
        doing = self.acting()
        if not self.tracked.is_installed:
            self.tracked.install()
            doing.is_to_begin_anew = True  # `ray.get(...)` looks its function up before it makes the call
            doing.unwind(AsksClock())
        taken = {*doing.act.used, *(sent.number for sent in doing.outputs if sent.what == "call")}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._send("call", handle._name, method, args, kwargs, number=number)
        return CallRef(doing.act.machine, number)

    def _send(
        self, what: str, target: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], **more: Any
    ) -> None:
        doing = self.acting()
        if target in doing.around.stopped:
            source = doing.act.machine
            raise MachineStoppedError(f"{source} sent {method} to {target}, which has stopped", machine=target)
        data, refs = self._payload(target, method, args, kwargs)
        self.gather(Sent(what, target, method, data, refs=refs, **more))

    def _payload(
        self, target: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Loose, frozenset[Ref]]:
        source = self.acting().act.machine
        if self.kept is not None and not kwargs and are_atoms(args):
            return args, NO_REFS
        try:
            found = encoded((args, kwargs))
        except Exception as error:
            raise _unpicklable(source, target, method, f"{type(error).__name__}: {error}") from error
        if found.opaque:
            raise _unpicklable(source, target, method, f"an object of type {found.opaque[0]}")
        return found.data, found.refs

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """`SnapshotMixin.spawn` and `System.spawn`."""
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
        doing = self.acting()
        return {*doing.around.names, *(sent.target for sent in doing.outputs if sent.what == "create"), DRIVER}


def _unpicklable(source: str, target: str, method: str, why: str) -> UnpicklableMessageError:
    return UnpicklableMessageError(
        f"{source} -> {target}.{method}: an argument cannot be pickled ({why});"
        " send plain values, or what pickle can rebuild",
        machine=source,
        method=method,
    )


def _opaque_attributes(body: Any) -> list[str]:
    """The attributes of a machine that cannot be pickled, each with its type."""
    found = []
    for name, value in vars(body).items():
        kinds = encoded(value).opaque
        if kinds:
            found.append(f"{name} (of type {', '.join(dict.fromkeys(kinds))})")
    return found


from ray_snapshot.testing.front import Front  # noqa: E402 - it needs `Stage`
