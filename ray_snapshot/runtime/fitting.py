"""Whether a message fits its method: told in the driver, of machines that it has spawned.

Not in hosts: whether a send between machines raises must not depend on which of them live together. What cannot be told from
the class fits: a method that a descriptor makes, a class that answers for every name. A wrapper counts by its own signature,
not by that of what it wraps.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import FunctionType
from typing import Any

from ray_snapshot.errors import UnknownMethodError, WrongArgumentsError
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.mixin import joins_of, may_have

_PORT = inspect.Signature([inspect.Parameter("values", inspect.Parameter.VAR_POSITIONAL)])
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@lru_cache(10_000)
def counts_of(kind: type, method: str) -> range:
    """How many arguments fit a method of a class, if all are given by position; none where more has to be looked at."""
    signature = _signature(kind, method)
    if not may_have(kind, method):
        return range(0)
    if signature is None:
        return range(LIMITS.fitting_shapes)
    parameters = signature.parameters.values()
    if any(one.kind is inspect.Parameter.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        return range(0)
    named = [one for one in parameters if one.kind in _BY_POSITION]
    is_open = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    return range(sum(one.default is one.empty for one in named), LIMITS.fitting_shapes if is_open else len(named) + 1)


def check_fits(kind: type, machine: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise `UnknownMethodError` or `WrongArgumentsError` if this cannot be sent to a machine of that class."""
    if not kwargs and len(args) in counts_of(kind, method):
        return
    if not may_have(kind, method):
        raise UnknownMethodError(
            f"{machine} ({kind.__name__}) has no method {method!r}, and no port of that name; nothing was sent",
            machine=machine,
            method=method,
        )
    signature = _signature(kind, method)
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise WrongArgumentsError(
            f"{machine}.{method}: {error}; it is {kind.__name__}.{method}{signature}; nothing was sent",
            machine=machine,
            method=method,
        ) from None


def _signature(kind: type, method: str) -> inspect.Signature | None:
    """The signature of a method, without the machine itself, or of a port; None if it cannot be told."""
    if any(method in ports for ports in joins_of(kind)):
        return _PORT
    function = inspect.getattr_static(kind, method, None)
    answers_itself = inspect.getattr_static(kind, "__getattribute__") is not object.__getattribute__
    if answers_itself or not isinstance(function, FunctionType):
        return None
    parameters = [*inspect.signature(function, follow_wrapped=False).parameters.values()]
    if parameters and parameters[0].kind in _BY_POSITION:
        del parameters[0]
    return inspect.Signature(parameters)
