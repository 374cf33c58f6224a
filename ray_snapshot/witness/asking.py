"""`possibly` and `definitely` of a traced run: see `modalities`.

The run's actions are done again by the witness (`stage`), which keeps what each machine was behind each of its own. A predicate
is then asked about states that belong together on some cut, whether or not a clock ever saw them so.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_snapshot import waits as declared
from ray_snapshot.errors import SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.inputs import arriving, half_join, wait_rows
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.staged import said_by
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, evaluate, load_detector, looks_at, told
from ray_snapshot.witness import modalities
from ray_snapshot.witness.log import Action, Log, Message, MessageId, NotReplayableError, Wait, reply_to
from ray_snapshot.witness.modalities import Answer, Causes, Cut, cuts_of
from ray_snapshot.witness.modules import Modules, loaded
from ray_snapshot.witness.proof import class_names
from ray_snapshot.witness.stage import Stage
from ray_snapshot.witness.traces import run_of, trace_of

if TYPE_CHECKING:
    from ray_snapshot.history import History

Predicate = Mapping[str, Callable[[Any], bool]] | Callable[[Mapping[str, Any]], bool] | Detector
MOST_CUTS = 100_000

MOST_MIXED = 4
"""Of more machines whose hooks ask for what is not in the trace, it is not tried which of them may be active."""


@dataclass(frozen=True, slots=True)
class Modal:
    """What was found out about a run."""

    holds: bool | None
    """None: not within `most_cuts`, or a detector could not tell on a cut that decides."""
    cut: dict[str, int] | None
    """By machine, how many of its actions have happened (an action that waits inside counts for as many as it has steps): a
    cut on which the predicate holds; of `definitely` one that the run must have passed, if machines were asked each by itself.
    None if there is none."""
    path: tuple[dict[str, int], ...]
    """Where `definitely` does not hold, and cuts were gone through: a path of the run on which the predicate never holds."""
    cuts: int
    """How many cuts were looked at; 0 where machines were asked each by itself."""
    reason: str | None
    """Why that is not known: the bound, or the first cut on which a detector could not tell, and what it said."""
    log: Log = field(repr=False)

    def diagram(self, path: str | os.PathLike[str]) -> str:
        """Draw the run with the cut as an SVG, and once more, the cut in front; returns the path. Raises `SettingError`
        without a cut."""
        from ray_snapshot.reports import runs
        from ray_snapshot.views import space_time

        if self.cut is None:
            raise SettingError("there is no cut to draw")
        cut = space_time.Cut("cut", self.cut)
        Path(path).write_text(runs.both_ways(runs.traced_events(self.log.actions), cut), encoding="utf-8")
        return os.fspath(path)


def possibly(
    history: str | os.PathLike[str],
    snapshot_id: str,
    predicate: Predicate,
    *,
    modules: Iterable[str] = (),
    most_cuts: int = MOST_CUTS,
) -> Modal:
    """Whether there was a moment at which the run could have been looked at, and a predicate would have held.

    `history`, `snapshot_id`: any snapshot of a run with `trace=True`. `predicate`: functions by machine, each of that machine's
    object, which must all be true (decided without going through the cuts); or a function of all machine objects by name; or a
    detector. `modules`: those whose machine classes may be imported because the history names them.

    Raises `HistoryNotFoundError` if there is no trace, `SettingError` for a machine that the run has not,
    `NotReplayableError` and `DiffersError` as the witness does.
    """
    opened = _opened(history)
    return asked(opened, run_of(opened, snapshot_id), predicate, modules=modules, most_cuts=most_cuts)


def definitely(
    history: str | os.PathLike[str],
    snapshot_id: str,
    predicate: Predicate,
    *,
    modules: Iterable[str] = (),
    most_cuts: int = MOST_CUTS,
) -> Modal:
    """Whether the run must have passed a moment at which a predicate held, however it went; as `possibly`."""
    opened = _opened(history)
    return asked(opened, run_of(opened, snapshot_id), predicate, must=True, modules=modules, most_cuts=most_cuts)


def asked(
    history: History,
    run_id: str,
    predicate: Predicate,
    *,
    must: bool = False,
    modules: Iterable[str] = (),
    most_cuts: int = MOST_CUTS,
) -> Modal:
    """`possibly`, or `definitely` (`must`), of a run of an open history; raises what they raise."""
    found = _Run(run_id, trace_of(history, run_id), modules)
    if must:
        return found.asked(predicate, modalities.definitely, modalities.definitely_each, most_cuts)
    return found.asked(predicate, modalities.possibly, modalities.possibly_each, most_cuts)


def _opened(history: str | os.PathLike[str]) -> History:
    from ray_snapshot.history import History

    return History(history)


def load_predicate(reference: str) -> Predicate:
    """What `module:name` names, to be asked of a run: a function, functions by machine, a detector or its class; or a
    ready-made detector by its own name. Raises `SettingError`, and `DetectorError` for a name of none."""
    module, colon, name = reference.partition(":")
    if not colon:
        return load_detector(reference)
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # whatever the user's module does when it is imported
        raise SettingError(f"predicate {reference!r} cannot be loaded: {told(error)}") from error
    if isinstance(found, type) and hasattr(found, "evaluate"):
        return load_detector(reference)
    if callable(found) or hasattr(found, "evaluate"):
        return found  # type: ignore[no-any-return]
    if isinstance(found, Mapping) and all(map(callable, found.values())):
        return found
    raise SettingError(
        f"predicate {reference!r} is none: give a function of the machines by name, functions by machine, or a detector"
    )


class _Run:
    """A run that was done again."""

    def __init__(self, run_id: str, log: Log, modules: Iterable[str]) -> None:
        self.run_id = run_id
        self.log = log
        self.bodies: dict[str, list[Any]] = {}
        """By machine, by how many of its actions have happened: a copy of its object; None before it was made."""
        self.recorded: dict[str, list[Any]] = {}
        """What a snapshot would record of these."""
        self.said: dict[str, list[tuple[str, declared.Wait | None]]] = {}
        """What their hooks say between actions: (status, for what they wait)."""
        self.asked_for: dict[tuple[str, int], str] = {}
        """Where a hook asks for what is not in the trace: what that is."""
        with Stage(run_id, Modules(loaded(class_names(log)) | frozenset(modules))) as stage:
            for action in log.actions:
                stage.perform(action)
                if action.machine != DRIVER:
                    self._keep(stage, action)
            self.stopped, self.raised_by = dict(stage.stopped_by), dict(stage.raised_by)
            self.refused_by = {key: (stop,) for key, stop in stage.refused_by.items()}
            """Where a machine has stopped itself, of which a call was then refused: who goes on knows of that."""
        self.doubt: str | None = None
        """The first cut on which a detector could not tell, and what it said there."""
        self.accepted = {(action.machine, action.number): action.accepted for action in log.actions if not action.step}
        self.call_ids = {message.key: message.call_id for action in log.actions for message in action.sent}

    def _keep(self, stage: Stage, action: Any) -> None:
        machine = action.machine
        try:
            body = copy.deepcopy(stage.bodies.get(machine))
        except Exception as error:
            raise NotReplayableError(
                f"{action}: what {machine} is then cannot be copied: {type(error).__name__}: {error}",
                machine=machine,
                number=action.number,
            ) from None
        self.bodies.setdefault(machine, [None]).append(body)
        self.recorded.setdefault(machine, [None]).append(None if body is None else stage.state_of(machine))
        stage.asked_outside.clear()
        said = self.said.setdefault(machine, [("passive", None)])
        said.append(_said(stage.bodies.get(machine)))
        if stage.asked_outside:
            self.asked_for[machine, len(said) - 1] = stage.asked_outside[0]

    @cached_property
    def causes(self) -> Causes:
        by = self.log.sent_by
        return cuts_of(
            (
                action.machine,
                [
                    *(by[message.key].key for message in action.accepted),
                    *(by[reply].key for reply in self._heard(action)),
                    *self.refused_by.get(action.key, ()),
                ],
            )
            for action in self.log.actions
        )

    def _heard(self, action: Action) -> tuple[MessageId, ...]:
        """The replies behind which a step goes on; of an error the one that has its text, too."""
        raised = self.raised_by.get(action.key, ())
        return raised[:1] if raised and not {*action.heard} & {*raised} else action.heard

    def asked(self, predicate: Predicate, any_of: Any, each: Any, most_cuts: int) -> Modal:
        if isinstance(predicate, Mapping):
            for name in predicate:
                if name not in self.bodies:
                    raise SettingError(f"the run has no machine {name!r}; it has {', '.join(sorted(self.bodies)[:10])}")
            true = {
                name: [body is not None and bool(holds(body)) for body in self.bodies[name]]
                for name, holds in predicate.items()
            }
            return self._told(each(self.causes, true), most_cuts)
        holds = self._of_detector(predicate) if hasattr(predicate, "evaluate") else self._of_function(predicate)
        found = any_of(self.causes, holds, most_cuts)
        return self._told(replace(found, holds=None) if found.holds is False and self.doubt else found, most_cuts)

    def _of_function(self, predicate: Any) -> Callable[[Cut], bool]:
        def holds(cut: Cut) -> bool:
            found = {name: self.bodies[name][count] for name, count in self._counts(cut).items() if name in self.bodies}
            return bool(predicate({name: body for name, body in found.items() if body is not None}))

        return holds

    def _of_detector(self, item: Any) -> Callable[[Cut], bool]:
        def holds(cut: Cut) -> bool:
            counts = self._counts(cut)
            found, sentence = self._evaluated(item, counts)
            if found is None and self.doubt is None:
                place = ", ".join(f"{count} of {name}" for name, count in counts.items())
                self.doubt = f"behind {place} it cannot be told: {sentence}"
            return found is True

        return holds

    def _evaluated(self, item: Any, counts: Mapping[str, int]) -> tuple[bool | None, str]:
        """What a detector says of a cut; None where that hangs on a hook that asks for what is not in the trace."""
        unsaid = {
            name: self.asked_for[place] for name, count in counts.items() if (place := (name, count)) in self.asked_for
        }
        said = evaluate(item, self._snapshot(counts))
        if unsaid and said.holds is not None and not self._is_the_same(item, counts, list(unsaid), said.holds):
            name, what = next(iter(unsaid.items()))
            return None, f"a hook of {name} asks for {what}, and what it was told is not in the trace"
        return said.holds, said.sentence

    def _is_the_same(self, item: Any, counts: Mapping[str, int], unsaid: Sequence[str], holds: bool) -> bool:
        """Whether a detector says so of a cut whatever the hooks of these machines would say: each active or passive.

        What a hook `waiting_for` would say can be anything: then it is so only of a detector that looks at states alone.
        """
        if looks_at(item) == frozenset({"states"}):
            return True
        kinds = (type(self.bodies[name][counts[name]]) for name in unsaid)
        if len(unsaid) > MOST_MIXED or any(kind.waiting_for is not SnapshotMixin.waiting_for for kind in kinds):
            return False
        mixes = product(("active", "passive"), repeat=len(unsaid))
        found = (evaluate(item, self._snapshot(counts, dict(zip(unsaid, mix, strict=True)))) for mix in mixes)
        return all(one.holds is holds for one in found)

    def _snapshot(self, counts: Mapping[str, int], status: Mapping[str, str] | None = None) -> Snapshot:
        """A cut as a snapshot; `status`: of machines in no action, in place of what their hooks say."""
        inside = [action for action in self.log.actions if action.place <= counts[action.machine]]
        now = {action.machine: action for action in inside}
        given = {reply for action in inside for reply in action.answers}
        done = {action.key for action in inside}
        waiting = {name: action.ends_in for name, action in now.items() if action.ends_in is not None}
        accepted = {message.key for action in inside for message in action.accepted}
        flying = [message for action in inside for message in action.sent if message.key not in accepted]
        return Snapshot.from_rows(
            machines=[
                {"machine": name, "class_name": type(self.bodies[name][counts[name]]).__qualname__, "state": state,
                 "status": _status(waiting[name]) if name in waiting
                 else (status or {}).get(name) or self.said[name][counts[name]][0]}
                for name, states in sorted(self.recorded.items())
                if (state := states[counts[name]]) is not None
            ],
            messages=[{**message.row, "call_id": message.call_id} for message in flying],
            calls=[
                {"machine": name, "call_id": m.call_id, "caller": m.key[0], "method": m.method, "call_site": wait.site}
                for name, wait in waiting.items()
                for m in self.accepted[name, now[name].number]
            ],
            waits=[
                {"machine": name, "k": wait.k, "on_machine": call[1], "on_call_id": self.call_ids.get(call),
                 "satisfied": reply_to(call) in given or self.stopped.get(call[1]) in done}
                for name, wait in waiting.items()
                if _status(wait) == "blocked"
                for call in wait.calls
            ]
            + [
                row
                for name, said in sorted(self.said.items())
                if name not in waiting and (wants := said[counts[name]][1]) is not None
                for row in wait_rows(name, wants, satisfied=None)
            ],
            run_id=self.run_id,
            coverage={"uncovered": [], **self._half_begun(counts, waiting, flying)},
        )  # fmt: skip

    def _half_begun(
        self, counts: Mapping[str, int], waiting: Mapping[str, Any], flying: Iterable[Message]
    ) -> dict[str, dict[str, str]]:
        """Machines that hold a part of a join: who sends the rest is declared by `System.connect`, which is in no trace."""
        found = {}
        keys = ((one.key[1], one.key[0], *one.key[2:], one.method) for one in flying)
        for name, channels in arriving(keys).items():
            body = self.bodies[name][counts[name]] if name in self.bodies else None
            if body is None or name in waiting or type(body).waiting_for is not SnapshotMixin.waiting_for:
                continue
            if (lacking := half_join(type(body), channels)) is not None:
                found[name] = lacking
        return {"undeclared": found} if found else {}

    def _counts(self, cut: Cut) -> dict[str, int]:
        return dict(zip(self.causes.machines, cut, strict=True))

    def _told(self, answer: Answer, most_cuts: int) -> Modal:
        cut = None if answer.cut is None else self._counts(answer.cut)
        reason = None
        if answer.holds is None:
            reason = f"not within {most_cuts:,} cuts" if answer.cuts >= most_cuts else self.doubt
        return Modal(answer.holds, cut, tuple(map(self._counts, answer.path)), answer.cuts, reason, self.log)


def _said(body: Any) -> tuple[str, declared.Wait | None]:
    """What the hooks of a machine that is in no action say, as on Ray (`runtime.host.copier`)."""
    status, wait = ("passive", None) if body is None else said_by(body)
    return (status, wait) if isinstance(wait, declared.Wait | None) else ("active", None)


def _status(wait: Wait) -> str:
    """As a snapshot would have it: who waits with a time-out may go on unasked."""
    return "active" if wait.may_act else "blocked"
