"""What calls came to where a run is done again, and what a wait for them gives: values and errors as they come on Ray.

A reply is what the called machine's action, done again, returns or raises: nothing is built from the history, which says only
which wait got which. Imports Ray where a machine has answered a call.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import MachineStoppedError, RaySnapshotError, UnpicklableMessageError
from ray_snapshot.runtime.staged_calls import as_raised
from ray_snapshot.witness.log import MessageId, Wait, reply_to, same, told_id

if TYPE_CHECKING:
    from ray_snapshot.runtime.reply import RaisedError, Reply


class Unlike(Exception):
    """The replies that are there are not what the trace says that a wait got."""


class NotLogged(Exception):
    """What a wait ended in is in no trace."""


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


def came_of(wait: Wait, answers: Mapping[MessageId, Answer]) -> Came:
    """What the trace says that came, of the answers that there are; raises `Unlike` and `NotLogged`."""
    came = wait.came or {}
    if "error" in came:
        raised = _raised_in(wait, came["error"], answers)
        if raised:
            return Came(wait, error=answers[raised[0]], raised=raised)
        return Came(wait, error=_error(wait, came["error"], answers))
    if wait.function == "locate":
        return Came(wait)
    if "places" in came:
        places = tuple(came["places"])
        for place in places:
            _there(wait.calls[place], answers)
        return Came(wait, places=places)
    if "values" not in came:
        raise NotLogged("ended in an error that is not Ray's")
    found = tuple(_there(call, answers) for call in wait.calls)
    _compare(wait, came["values"], found)
    return Came(wait, found)


def _there(call: MessageId, answers: Mapping[MessageId, Answer]) -> Answer:
    found = answers.get(reply_to(call))
    if found is None:
        raise Unlike(f"goes on with {told_id(reply_to(call))}, which nobody has given")
    return found


def _compare(wait: Wait, logged: Sequence[Any] | None, found: Sequence[Answer]) -> None:
    """`logged`: None where values are kept secret."""
    if logged is not None and len(logged) != len(found):
        raise Unlike(f"got {len(logged)} values for {len(found)} calls")
    for place, answer in enumerate(found):
        told = told_id(reply_to(wait.calls[place]))
        if answer.error is not None:
            raise Unlike(f"got a value in {told}, which is {_named(answer.error)} here")
        if logged is not None and not same(recorded(answer.value()), logged[place]):
            raise Unlike(f"got {_short(logged[place])} in {told}, which is {_short(recorded(answer.value()))} here")


def _raised_in(wait: Wait, said: Mapping[str, Any], answers: Mapping[MessageId, Answer]) -> tuple[MessageId, ...]:
    kind, text = said.get("type"), said.get("text")
    given = [(reply, answers[reply].error) for reply in map(reply_to, wait.calls) if reply in answers]
    return tuple(
        reply
        for reply, error in given
        if error is not None and type(error).__name__ == kind and (text is None or str(error).startswith(text))
    )


def _error(wait: Wait, said: Mapping[str, Any], answers: Mapping[MessageId, Answer]) -> BaseException:
    """An error that is no reply."""
    kind, text = said.get("type"), said.get("text")
    if kind == "GetTimeoutError" and said.get("own"):
        from ray.exceptions import GetTimeoutError

        late: BaseException = GetTimeoutError(text or "")
        return late
    if kind == "MachineStoppedError" and said.get("own"):
        return MachineStoppedError(text or "", machine=_refusing(wait, text, answers))
    if said.get("own") and kind != "UnpicklableMessageError":
        raise NotLogged(f"ended in {kind}: {str(text)[:200]}: what ends a process is in no trace")
    there = " and ".join(
        f"{told_id(reply_to(call))} is {_told(answers.get(reply_to(call)))}" for call in wait.calls[:3]
    )
    raise Unlike(f"got {kind}: {str(text)[:200]}, but {there}")


def _refusing(wait: Wait, text: str | None, answers: Mapping[MessageId, Answer]) -> str:
    """The machine that has stopped: the text begins with its name; where texts are kept secret, the first without an answer."""
    called = [call for call in wait.calls if text is None or text.startswith(f"{call[1]} ")] or [*wait.calls]
    return next((call for call in called if reply_to(call) not in answers), called[0])[1]


def _told(answer: Answer | None) -> str:
    if answer is None:
        return "not given"
    return f"{_short(recorded(answer.value()))} here" if answer.error is None else f"{_named(answer.error)} here"


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def _raised(answer: Answer, said: Mapping[str, Any]) -> BaseException:
    """As the caller meets it, fresh each time."""
    from ray import cloudpickle

    error: Any = cloudpickle.loads(cloudpickle.dumps(answer.error))
    return error if isinstance(error, RaySnapshotError) else as_raised(error, said.get("told") or str(error))


def recorded(value: Any) -> Any:
    """A value as a trace holds it."""
    return json.loads(to_json(value).text)


def _short(value: Any, most: int = 100) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 3]}..."
