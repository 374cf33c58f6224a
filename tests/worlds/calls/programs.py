"""What the machines of a world of calls do: methods as lists of steps, like a Ray user's, reduced to what matters.

A running call keeps a list of refs: first those that came nested in its arguments, then one per `Call` and `Create` of its
own; steps name refs by their place in it. Imports the standard library only. Read `world` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ray_snapshot.protocol.demands import Demand


@dataclass(frozen=True, slots=True)
class Call:
    """`target.method.remote(...)`."""

    target: str
    method: str
    needs: tuple[int, ...] = ()
    """Refs as top-level arguments: Ray resolves them before the call begins."""
    gives: tuple[int, ...] = ()
    """Refs nested in arguments: the callee gets the refs."""
    is_retried: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """`Kind.options(name=child).remote()`."""

    child: str
    kind: str
    gives: tuple[int, ...] = ()
    demand: Demand | None = None
    """What it must find on a node, and keeps as long as it lives; None: nothing is said of that."""


@dataclass(frozen=True, slots=True)
class Drop:
    """`del child`: the only handle of an actor is dropped, so it ends when it has nothing more to do."""

    child: str


@dataclass(frozen=True, slots=True)
class Start:
    """`function.remote(...)` of a plain task; `is_retried`: Ray runs it once more if it raises, or its worker dies."""

    function: str
    needs: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()
    is_retried: bool = False
    demand: Demand | None = None


@dataclass(frozen=True, slots=True)
class Get:
    """`ray.get` of refs, or `ray.wait` for `k` of them; with a timeout it may give up."""

    refs: tuple[int, ...]
    k: int = 0
    """0: all, by `ray.get`, which ends at the first error."""
    has_timeout: bool = False


@dataclass(frozen=True, slots=True)
class Park:
    """`await event.wait()` on an event of the actor's own."""


@dataclass(frozen=True, slots=True)
class Notify:
    """`event.set()`: who is parked on this actor may go on."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something inside an action."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The method raises: the reader of its reply gets an error."""


@dataclass(frozen=True, slots=True)
class Post:
    """A message to a machine of a host (`parties`); with `waits`, a call whose reply the actor waits for."""

    target: str
    method: str
    waits: bool = False


Step = Call | Create | Drop | Start | Get | Park | Notify | Work | Fail | Post
Program = tuple[Step, ...]


@dataclass(frozen=True)
class Kind:
    """An actor class. Its constructor, `__init__`, has no steps unless it is among the methods."""

    methods: Mapping[str, Program] = field(default_factory=dict)
    slots: int = 1
    """`max_concurrency`; above 1: threads."""
    can_restart: bool = False

    def program(self, method: str) -> Program:
        return self.methods[method] if method != "__init__" else self.methods.get(method, ())

    def handles(self) -> set[str]:
        """The machines that its programs name."""
        steps = [step for program in self.methods.values() for step in program]
        return {step.target for step in steps if isinstance(step, Call)}
