"""How an action ends, and what a wait of another one gets of that: values as bytes, errors as on Ray."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import UnpicklableMessageError
from ray_snapshot.runtime.staged_calls import as_raised
from ray_snapshot.testing.acts import Act, Answer, Done, Raised
from ray_snapshot.testing.values import decoded, encoded

_RETURNED_NOTHING = Done(Answer(encoded(None).data))


def ended(
    act: Act,
    told: Callable[[Act], str],
    result: Any,
    error: BaseException | None,
    is_library: Callable[[str], bool],
) -> Done | Raised:
    """What an action has returned or raised; `told` says an action to a person."""
    if error is None and result is None:
        return _RETURNED_NOTHING
    if error is None:
        try:
            answer = encoded(result)
            return Done(Answer(answer.data, refs=answer.refs))
        except Exception as fault:
            error = UnpicklableMessageError(
                f"{act.machine}.{act.method} returned what cannot be pickled ({type(fault).__name__}: {fault})",
                machine=act.machine,
                method=act.method,
            )
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_library(frame.filename)]
    said = f"{type(error).__name__}: {_cause_of(error)}"
    lines = [f'  File "{one.filename}", line {one.lineno}, in {one.name}' for one in own]
    return Raised(
        f"{told(act)} raised {said}{f' at {own[-1].filename}:{own[-1].lineno}' if own else ''}",
        Answer(_error_bytes(error), is_error=True, trace="\n".join([f"ray::{act.method}()", *lines, said])),
        "".join(traceback.format_exception(error)),
    )


def raised_of(came: Answer, kinds: dict[Answer, Any]) -> Any:
    """What a wait raises: an error of the called action comes as on Ray, as one of its class and a `RayTaskError`.

    `kinds`: the class by answer, so that equal errors stay equal.
    """
    error = decoded(came.data)
    if not came.trace:
        return error
    from ray.exceptions import RayTaskError

    kind = kinds.get(came)
    if kind is None:
        kind = kinds[came] = type(as_raised(error, came.trace))
    return RayTaskError("", came.trace, error, "ray", 1, "127.0.0.1") if kind is RayTaskError else kind(error)


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
