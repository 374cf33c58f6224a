"""What calls came to where a run is done again, and what a wait for them gives: values and errors as they come on Ray.

A reply is what the called machine's action, done again, returns or raises: nothing is built from the history, which says only
which wait got which. Imports Ray where a machine has answered a call.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import MachineStoppedError, RaySnapshotError, UnpicklableMessageError
from ray_snapshot.runtime.staged import recorded
from ray_snapshot.runtime.staged_calls import as_raised
from ray_snapshot.witness.log import (
    Action,
    DiffersError,
    MessageId,
    NotReplayableError,
    Wait,
    not_replayable,
    reply_to,
    same,
    short,
    told_id,
    unlike,
)

if TYPE_CHECKING:
    from ray_snapshot.runtime.reply import RaisedError, Reply


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call came to."""

    outcome: Reply | RaisedError

    @classmethod
    def of(cls, machine: str, method: str, result: Any, error: Exception | None) -> Answer:
        """As the host of a machine makes it (`runtime.host.replies`)."""
        from ray_snapshot.runtime.reply import RaisedError, Reply

        if error is None:
            try:
                return cls(Reply("", None, result))
            except Exception as fault:
                error = UnpicklableMessageError(
                    f"{machine}.{method} returned what cannot be pickled ({type(fault).__name__}: {fault});"
                    " return plain values, or what pickle can rebuild",
                    machine=machine,
                    method=method,
                )
        return cls(RaisedError("", None, error.with_traceback(None)))

    @property
    def error(self) -> Exception | None:
        return getattr(self.outcome, "error", None)

    def value(self) -> Any:
        """Fresh each time."""
        reply: Any = self.outcome
        return reply.value if reply.buffers is None else pickle.loads(reply.value, buffers=reply.buffers)


@dataclass(frozen=True, slots=True)
class Came:
    """What a wait that is over gives."""

    wait: Wait
    values: tuple[Answer, ...] = ()
    error: Answer | BaseException | None = None
    places: tuple[int, ...] = ()
    raised: tuple[MessageId, ...] = ()
    """The replies that can have been the error: those that are it, in class and text."""

    def give(self) -> Any:
        """Values of a get, fresh each time, or the places of those that are there; raises what it raised."""
        if isinstance(self.error, Answer):
            raise _raised(self.error, (self.wait.came or {}).get("error", {}))
        if self.error is not None:
            raise self.error.with_traceback(None)
        return [answer.value() for answer in self.values] if self.wait.function == "get" else list(self.places)


def came_of(action: Action, answers: Mapping[MessageId, Answer]) -> Came:
    """What the trace says that came of the wait behind which a step goes on, of the answers that there are.

    Raises `DiffersError` and `NotReplayableError`.
    """
    wait = action.behind
    assert wait is not None
    came = wait.came or {}
    if "error" in came:
        raised = _raised_in(wait, came["error"], answers)
        if raised:
            return Came(wait, error=answers[raised[0]], raised=raised)
        return Came(wait, error=_error(action, wait, answers))
    if wait.function == "locate":
        return Came(wait)
    if "places" in came:
        places = tuple(came["places"])
        for place in places:
            _there(action, wait.calls[place], answers)
        return Came(wait, places=places)
    if "values" not in came:
        raise _not_logged(action, "ended in an error that is not Ray's")
    found = tuple(_there(action, call, answers) for call in wait.calls)
    _compare(action, wait, found)
    return Came(wait, found)


def _not_logged(action: Action, text: str) -> NotReplayableError:
    site = None if action.behind is None else action.behind.site
    return not_replayable(action, f"goes on behind a wait at {site} that {text}: keep such errors out of the run")


def _unlike(action: Action, text: str) -> DiffersError:
    site = None if action.behind is None else action.behind.site
    return unlike(action, f"is impossible here: behind its wait at {site} it {text}")


def _there(action: Action, call: MessageId, answers: Mapping[MessageId, Answer]) -> Answer:
    found = answers.get(reply_to(call))
    if found is None:
        raise _unlike(action, f"goes on with {told_id(reply_to(call))}, which nobody has given")
    return found


def _compare(action: Action, wait: Wait, found: Sequence[Answer]) -> None:
    logged = (wait.came or {})["values"]  # None where values are kept secret
    if logged is not None and len(logged) != len(found):
        raise _unlike(action, f"got {len(logged)} values for {len(found)} calls")
    for place, answer in enumerate(found):
        told = told_id(reply_to(wait.calls[place]))
        if answer.error is not None:
            raise _unlike(action, f"got a value in {told}, which is {_named(answer.error)} here")
        if logged is not None and not same(recorded(answer.value()), logged[place]):
            here = short(recorded(answer.value()), 100)
            raise _unlike(action, f"got {short(logged[place], 100)} in {told}, which is {here} here")


def _raised_in(wait: Wait, said: Mapping[str, Any], answers: Mapping[MessageId, Answer]) -> tuple[MessageId, ...]:
    kind, text = said.get("type"), said.get("text")
    given = [(reply, answers[reply].error) for reply in map(reply_to, wait.calls) if reply in answers]
    return tuple(
        reply
        for reply, error in given
        if error is not None and type(error).__name__ == kind and (text is None or str(error).startswith(text))
    )


def _error(action: Action, wait: Wait, answers: Mapping[MessageId, Answer]) -> BaseException:
    """An error that is no reply."""
    said = (wait.came or {})["error"]
    kind, text = said.get("type"), said.get("text")
    if kind == "GetTimeoutError" and said.get("own"):
        from ray.exceptions import GetTimeoutError

        late: BaseException = GetTimeoutError(text or "")
        return late
    if kind == "MachineStoppedError" and said.get("own"):
        return MachineStoppedError(text or "", machine=_refusing(wait, text, answers))
    if said.get("own") and kind != "UnpicklableMessageError":
        raise _not_logged(action, f"ended in {kind}: {str(text)[:200]}: what ends a process is in no trace")
    there = " and ".join(
        f"{told_id(reply_to(call))} is {_told(answers.get(reply_to(call)))}" for call in wait.calls[:3]
    )
    raise _unlike(action, f"got {kind}: {str(text)[:200]}, but {there}")


def _refusing(wait: Wait, text: str | None, answers: Mapping[MessageId, Answer]) -> str:
    """The machine that has stopped: the text begins with its name; where texts are kept secret, the first without an answer."""
    called = [call for call in wait.calls if text is None or text.startswith(f"{call[1]} ")] or [*wait.calls]
    return next((call for call in called if reply_to(call) not in answers), called[0])[1]


def _told(answer: Answer | None) -> str:
    if answer is None:
        return "not given"
    return f"{short(recorded(answer.value()), 100)} here" if answer.error is None else f"{_named(answer.error)} here"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _raised(answer: Answer, said: Mapping[str, Any]) -> BaseException:
    """As the caller meets it, fresh each time."""
    from ray import cloudpickle

    error: Any = cloudpickle.loads(cloudpickle.dumps(answer.error))
    return error if isinstance(error, RaySnapshotError) else as_raised(error, said.get("told") or str(error))
