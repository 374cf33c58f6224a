"""The header of a call on its way through Ray.

Between our functions it is a hidden keyword, which no signature has. Ray makes one list of a call's arguments, each as two
elements, its name and its value, and sends each element by itself. So a header takes the place of the name of the first
positional argument, which is always the same; a call without positional arguments gets one element more. The header of a task
or of a constructor is an argument like others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any
from urllib.parse import quote, unquote

from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.instrument.guard import ours
from ray_snapshot.protocol.calls import Header

HEADER = "_ray_snapshot_header"
"""The hidden keyword: stamp, number of results and header as bytes; of a constructor (stamp, options, *header).

Who changes how a header travels changes this name: methods of a class that another version has made then take none, and an
actor that outlives its program is asked without one.
"""

MARK = b"__RAY_SNAPSHOT__ "
"""What the first argument of a call begins with if it holds a header."""


def flattening(own: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """What takes the place of Ray's `flatten_args`, which makes one list of a call's arguments."""

    def flatten_args(signature_parameters: Any, args: Any, kwargs: Any) -> list[Any]:
        wire = kwargs.get(HEADER) if type(kwargs) is dict else None
        if wire is not None:
            kwargs = {} if len(kwargs) == 1 else {name: given for name, given in kwargs.items() if name != HEADER}
        try:
            flat = own(signature_parameters, args, kwargs)
        except BaseException as error:
            ours(hide_ours, error)
            raise
        if type(wire) is bytes:
            is_positional = bool(flat) and type(flat[0]) is not str  # `args` cannot tell: it may have been read by now
            flat[: int(is_positional)] = [MARK + wire]
        elif wire is not None:
            flat += HEADER, wire
        return flat

    return flatten_args


def recovering(own: Callable[..., Any], positional: Any) -> Callable[..., Any]:
    """What takes the place of Ray's `recover_args`, which takes that list apart where the call runs.

    `positional`: what stands in the place of a name before a positional argument.
    """

    def recover_args(flattened_args: list[Any]) -> tuple[Any, dict[str, Any]]:
        first = flattened_args[0] if flattened_args else None
        if type(first) is not bytes or not first.startswith(MARK):
            found: tuple[Any, dict[str, Any]] = own(flattened_args)
            return found
        rest = flattened_args[1:]
        args, kwargs = own(rest if len(rest) % 2 == 0 else [positional, *rest])
        kwargs[HEADER] = first[len(MARK) :]
        return args, kwargs

    return recover_args


def validating(own: Callable[..., None]) -> Callable[..., None]:
    """What takes the place of Ray's `validate_args`, which makes a signature of the parameters and binds the arguments to it.

    Ray does so for each call. Where all arguments are positional, to count them tells as much. What does not fit, and what has
    keywords, is left to Ray, and so are its errors.
    """

    def validate_args(signature_parameters: Sequence[Parameter], args: Any, kwargs: Any) -> None:
        try:
            if kwargs or type(args) not in (list, tuple) or not ours(_takes, signature_parameters, len(args)):
                own(signature_parameters, args, kwargs)
        except BaseException as error:
            ours(hide_ours, error)
            raise

    return validate_args


def _takes(parameters: Sequence[Parameter], count: int) -> bool:
    """Whether a function with these parameters can be called with so many positional arguments, and no others."""
    for position, parameter in enumerate(parameters):
        if position >= count:
            if parameter.default is Parameter.empty and parameter.kind not in _MANY:
                return False
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            count = position  # it takes the rest
        elif parameter.kind not in _POSITIONAL:
            return False
    return count <= len(parameters)


_POSITIONAL = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
_MANY = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD


def packed(stamp: str, results: Any, header: Header, group: str | None = None) -> bytes:
    """The header of a call as bytes, which Ray sends as they are; anything else it pickles."""
    source, incarnation, number, colour, floor, is_retried = header
    named = "" if group is None else f"{quote(group, errors='surrogatepass')} "
    return f"{stamp} {results} {source} {incarnation} {is_retried:d} {named}{number} {colour} {floor}".encode()


def unpacked(wire: Any) -> tuple[str, Any, Header, str | None]:
    """(stamp, number of results, header, concurrency group if the call names one) of a call, or of a constructor."""
    if isinstance(wire, tuple):
        return wire[0], None, Header(*wire[2:]), None
    sender, number, colour, floor = wire.rsplit(b" ", 3)
    stamp, results, source, incarnation, is_retried, group = _sender(sender)
    return stamp, results, Header(source, incarnation, int(number), int(colour), int(floor), is_retried), group


@functools.lru_cache(256)
def _sender(sender: bytes) -> tuple[str, int | None, str, int, bool, str | None]:
    """What the headers of one sender have in common: all but the last three fields."""
    stamp, results, source, incarnation, is_retried, *named = sender.decode().split(" ")
    group = unquote(named[0], errors="surrogatepass") if named else None
    return stamp, int(results) if results.isdigit() else None, source, int(incarnation), is_retried == "1", group
