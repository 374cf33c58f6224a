"""Verdicts, and what a detector is.

A detector looks at one completed snapshot and answers whether its predicate holds: True, False, or None where the
snapshot does not tell. It never raises because a property is false. The ready-made ones are in
`ray_snapshot.detectors`; any object with the attributes of `Detector` is one too, and `@detector` makes one of a
function.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from ray_snapshot.adding import total
from ray_snapshot.errors import DetectorError

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot


def word_of(holds: bool | None) -> str:
    """What an answer is called."""
    return {True: "holds", False: "does not hold", None: "cannot be told"}[holds]


PROVEN, SUSPECTED = "proven", "suspected"
"""Grades beside "cannot be told" and "does not hold". Suspected has no `holds`: nothing acts on it that knows of that alone."""


def grade_of(holds: bool | None) -> str:
    """How certain an answer is by itself."""
    return PROVEN if holds else word_of(holds)


class Verdict(BaseModel):
    """A detector's answer on one snapshot."""

    model_config = ConfigDict(extra="forbid")

    detector: str = ""
    """The detector's name."""
    holds: bool | None = None
    """True, False, or None: the snapshot does not tell."""
    evidence: dict[str, Any] = Field(default_factory=dict)
    """What the answer rests on; of `Deadlock`: `members` and `stuck_behind`, a record a machine, with `machine`, `class`,
    `method`, `call_site` ("file:line"), `waits_for`, `mode`; `is_cause` of the members that keep all others, if not all do."""
    sentence: str = ""
    """The answer in words."""
    snapshot_id: str = ""
    """The snapshot that was judged."""
    run_id: str = ""
    """The run that it is of."""
    detector_spec: dict[str, Any] | None = None
    """The detector as data, for `detectors.from_spec`; None if it is none."""
    evaluator: str = "live"
    """Who asked: "live", "spark", ..."""
    evaluated_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    """When it was asked, UTC."""
    duration_ms: float = 0.0
    """How long the answer took, in milliseconds."""
    alarm: bool = False
    """Whether `holds` is the answer that the detector's `alarm_when` names."""
    grade: str = ""
    """How certain the answer is: "proven", "suspected" (then `holds` is None), "cannot be told", "does not hold"."""
    unless: str = ""
    """Of a suspected one: what would refute it."""

    def __repr__(self) -> str:
        return f"<Verdict {self.detector}: {word_of(self.holds)}{', an alarm' if self.alarm else ''}; {self.sentence}>"

    __str__ = __repr__


@runtime_checkable
class Detector(Protocol):
    """What the detector service asks of a detector.

    `stable`: once true, stays true. `alarm_when`: the answer a person must hear of (True, False, or None: never).
    `evaluate` may take a second argument `earlier`: the snapshot to compare with, or None (`Standards` says which).
    """

    name: str
    """What it is called in verdicts."""
    stable: bool
    """Whether it stays true once it is."""
    alarm_when: bool | None
    """The answer that a person must hear of; None: never."""

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Its answer on this snapshot; raises nothing because a property is false."""
        ...


class ReadyMade:
    """A ready-made detector by its name alone, for a process that hands it on; what unpickles it has the detector itself.

    Arrow and numpy are loaded with the detector, which takes a third of a second.
    """

    def __init__(self, name: str, **settings: Any) -> None:
        """`name`: one of `READY_MADE`; `settings`: what its class takes."""
        self.name = name
        self.alarm_when, self.stable = READY_MADE[name]
        self.spec = {"type": name, "name": name, **settings}

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_spec, (self.spec,)

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        return _from_spec(self.spec).evaluate(snapshot)


def _from_spec(spec: dict[str, Any]) -> Detector:
    made: Detector = _detectors().from_spec(spec)
    return made


def _detectors() -> Any:
    from ray_snapshot import detectors

    return detectors


READY_MADE: dict[str, tuple[bool | None, bool]] = {
    "termination": (None, True),
    "deadlock": (True, True),
    "infeasible": (True, False),
    "restarting": (True, False),
    "collective": (True, False),
    "stall": (True, False),
}
"""The answer of each that is an alarm, and whether it is stable."""


class FunctionDetector:
    """A detector made of a function of one snapshot.

    The function returns True, False or None; or (holds, evidence); or (holds, evidence, sentence); or a `Verdict`.
    """

    def __init__(self, function: Callable[..., Any], *, name: str, stable: bool, alarm_when: bool | None) -> None:
        self.function = function
        self.name = name
        self.stable = stable
        self.alarm_when = alarm_when
        self.__doc__ = function.__doc__

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        return as_verdict(self.name, self.function(snapshot))

    def __call__(self, snapshot: Snapshot) -> Any:
        return self.function(snapshot)


class AddingDetector(FunctionDetector):
    """A detector made of three functions: of some rows, of two partial results, and of the whole result (`adding.AddsUp`)."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        partial: Callable[[Snapshot], Any],
        merge: Callable[[Any, Any], Any],
        *,
        name: str,
        stable: bool,
        alarm_when: bool | None,
    ) -> None:
        super().__init__(function, name=name, stable=stable, alarm_when=alarm_when)
        if len(inspect.signature(function).parameters) != 1:
            raise DetectorError(
                f"detector {name!r} adds up: its function has one parameter, what all rows come to", detector=name
            )
        self.partial = partial
        self.merge = merge

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        return as_verdict(self.name, self.function(total(self, snapshot)))

    def __call__(self, snapshot: Snapshot) -> Any:
        return self.function(total(self, snapshot))


@overload
def detector(function: Callable[..., Any], /) -> FunctionDetector: ...


@overload
def detector(
    *,
    stable: bool = True,
    alarm_when: bool | None = None,
    name: str | None = None,
    partial: Callable[[Snapshot], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], FunctionDetector]: ...


def detector(
    function: Callable[..., Any] | None = None,
    /,
    *,
    stable: bool = True,
    alarm_when: bool | None = None,
    name: str | None = None,
    partial: Callable[[Snapshot], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Make a `FunctionDetector` of a function of one snapshot; usable bare, or with settings.

    With `partial` and `merge` the function is one of what all rows come to: `partial(part)` makes a value of some rows of
    `machines` and `messages`, each of which is in one part, and `merge(one, other)` one value of two; `part.channels`, `calls`
    and `waits` are not all there. Hosts then send values in place of the rows of machines at rest. Raises `DetectorError` if
    one of both is missing.
    """
    if (partial is None) != (merge is None):
        raise DetectorError("a detector that adds up needs both, partial= and merge=", detector=name)

    def decorate(decorated: Callable[..., Any]) -> FunctionDetector:
        about: Any = {"name": name or decorated.__name__, "stable": stable, "alarm_when": alarm_when}
        if partial is None or merge is None:
            return FunctionDetector(decorated, **about)
        return AddingDetector(decorated, partial, merge, **about)

    return decorate if function is None else decorate(function)


def as_verdict(name: str, answer: Any) -> Verdict:
    """Turn what a detector returned into a `Verdict`; raises `DetectorError` if it is none."""
    if isinstance(answer, Verdict):
        return answer
    holds, evidence, sentence = _parts(answer)
    if not (holds is None or type(holds) is bool) or not isinstance(evidence, dict) or not isinstance(sentence, str):
        raise DetectorError(
            f"detector {name!r} returned {type(answer).__name__} {str(answer)[:80]!r}: return True, False or None,"
            " (holds, evidence dict), (holds, evidence dict, sentence), or a Verdict",
            detector=name,
        )
    return Verdict(detector=name, holds=holds, evidence=evidence, sentence=sentence or f"{name} {word_of(holds)}.")


def _parts(answer: Any) -> tuple[Any, Any, Any]:
    match answer:
        case (holds, evidence, sentence):
            return holds, evidence, sentence
        case (holds, evidence):
            return holds, evidence, ""
        case holds:
            return holds, {}, ""


def check_detector(item: Any) -> Detector:
    """Return `item` if it is a detector; raises `DetectorError` naming what it lacks."""
    if isinstance(item, str):
        return load_detector(item)
    if inspect.isclass(item):
        raise DetectorError(
            f"detector {item.__name__} is a class: pass an instance, {item.__name__}(...)", detector=item.__name__
        )
    lacks = [word for word in ("name", "stable", "alarm_when", "evaluate") if not hasattr(item, word)]
    if lacks:
        raise DetectorError(
            f"{item!r} is no detector: it lacks {', '.join(lacks)}; decorate a function with @rs.detector(...)",
            detector=str(item),
        )
    found: Detector = item
    return found


def load_detector(reference: str) -> Detector:
    """Load the detector that `module:name` names, or a ready-made one by its own name; raises `DetectorError`."""
    module, colon, name = reference.partition(":")
    if not colon:
        return _detectors().by_name(reference)  # type: ignore[no-any-return]
    try:
        found = getattr(import_module(module), name)
        is_ours = inspect.isclass(found) and hasattr(found, "evaluate")  # another class is never called
        found = check_detector(found() if is_ours else found)
    except DetectorError:
        raise
    except Exception as error:  # whatever the user's module does when it is imported
        raise DetectorError(f"detector {reference!r} cannot be loaded: {told(error)}", detector=reference) from error
    found.spec = {"type": "callable", "name": reference}  # type: ignore[attr-defined]
    return found


def told(error: BaseException) -> str:
    """An error with the place in the user's code at which it was raised, if it was there."""
    place = place_of(error)
    return f"{type(error).__name__}: {error}" + (f" (at {place})" if place else "")


def place_of(error: BaseException) -> str | None:
    """ "file:line" of the innermost frame of an error that is neither Python's, nor a library's, nor ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


_LIBRARIES = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
_OTHERS = ("<frozen ", *(f"{folder}{os.sep}" for folder in _LIBRARIES))


def compares(item: Detector) -> bool:
    """Whether a detector asks for the `earlier` snapshot, so that the snapshots of a run must come in order."""
    function = getattr(item.evaluate, "__func__", None)
    return (
        _asks(function)
        if isinstance(function, FunctionType)
        else "earlier" in inspect.signature(item.evaluate).parameters
    )


@lru_cache(maxsize=256)
def _asks(function: FunctionType) -> bool:
    """The same of a method's function; `inspect` takes a tenth of the time of a small verdict."""
    return "earlier" in inspect.signature(function).parameters


def looks_at(item: Detector) -> frozenset[str] | None:
    """What a ready-made detector looks at beside names and messages: "statuses" (and waits), "states" (and arguments).

    None: anything, for it is a user's own, whatever that calls `looks_at`. What one is made of by inheritance may look at more
    than that.
    """
    kind = type(item)
    is_ready_made = kind.__module__.startswith("ray_snapshot.detectors.")
    found: frozenset[str] | None = getattr(kind, "looks_at", None) if is_ready_made else None
    return found


class Standards:
    """What each detector compares a snapshot with: one rule for the live verdicts and for Spark.

    The standard is the last snapshot of the run whose answer was known and not the alarm. While there is none, it is the
    last whose answer would be known if it were compared with itself: so the first of a run serves, and one that could not
    be read does not. Inconsistent snapshots never serve. A restore begins anew: what was true of the past that was given
    up need not be true of what goes on from an older snapshot.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], Snapshot] = {}
        """By run and detector."""

    def standard(self, item: Detector, snapshot: Snapshot) -> Snapshot | None:
        """What a snapshot is compared with; None if there is nothing yet."""
        key = snapshot.run_id, item.name
        if key in self.known and self.known[key].restored_from != snapshot.restored_from:
            del self.known[key]
        return self.known.get(key)

    def evaluate(self, item: Detector, snapshot: Snapshot, *, evaluator: str = "live") -> Verdict:
        """As the function `evaluate`, compared with the standard; the snapshots of a run come in order."""
        if not compares(item):
            return evaluate(item, snapshot, evaluator=evaluator)
        standard = self.standard(item, snapshot)
        verdict = evaluate(item, snapshot, earlier=standard, evaluator=evaluator)
        if _serves(item, snapshot, verdict, standard):
            self.known[snapshot.run_id, item.name] = snapshot
        return verdict


def _serves(item: Detector, snapshot: Snapshot, verdict: Verdict, standard: Snapshot | None) -> bool:
    """Whether the next snapshot is compared with this one."""
    if verdict.alarm or snapshot.status != "complete" or not snapshot.consistent:
        return False
    if verdict.holds is None and standard is None:
        return evaluate(item, snapshot, earlier=snapshot).holds is not None
    return verdict.holds is not None


def evaluate(
    item: Detector, snapshot: Snapshot, *, earlier: Snapshot | None = None, evaluator: str = "live"
) -> Verdict:
    """Evaluate one detector on one snapshot and complete its verdict; a detector that raises gives holds None.

    The verdict of a snapshot that is inconsistent or was aborted is never True (and never an alarm).
    """
    began = time.perf_counter()
    try:
        if compares(item):
            verdict = as_verdict(item.name, item.evaluate(snapshot, earlier=earlier))  # type: ignore[call-arg]
        else:
            verdict = as_verdict(item.name, item.evaluate(snapshot))
    except Exception as error:  # reported as the detector's fault, so that it does not stop the others
        text = told(error)
        verdict = Verdict(evidence={"error": text}, sentence=f"Detector {item.name} failed: {text}.")
    if verdict.holds and not (snapshot.status == "complete" and snapshot.consistent):
        reason = "the snapshot was aborted" if snapshot.status != "complete" else "the cut is not consistent"
        verdict = verdict.model_copy(
            update={
                "holds": None,
                "sentence": f"{item.name} cannot be told: {reason}. (It answered: {verdict.sentence})",
            }
        )
    return verdict.model_copy(
        update={
            "detector": item.name,
            "snapshot_id": snapshot.snapshot_id,
            "run_id": snapshot.run_id,
            "detector_spec": getattr(item, "spec", None),
            "evaluator": evaluator,
            "evaluated_at": datetime.now(UTC),
            "duration_ms": (time.perf_counter() - began) * 1e3,
            "alarm": verdict.holds is not None and verdict.holds is item.alarm_when,
            "grade": SUSPECTED if verdict.holds is None and verdict.grade == SUSPECTED else grade_of(verdict.holds),
        }
    )
