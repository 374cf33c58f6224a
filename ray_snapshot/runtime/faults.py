"""Errors on their way to the user: Ray's wrapping is taken off here, and nowhere else."""

from __future__ import annotations

import traceback
from pathlib import PurePath

from ray.exceptions import RayActorError, RayError

from ray_snapshot.errors import HostDiedError, RaySnapshotError


def own_error(error: BaseException) -> RaySnapshotError | None:
    """The error of ours in what Ray raised; None if there is none (an exception of the user's method)."""
    cause = getattr(error, "cause", None)
    for found in (cause, error):
        if isinstance(found, RaySnapshotError):
            return found
    for found in (cause, error):
        if isinstance(found, RayActorError):
            return HostDiedError(f"a process of the system is gone: {first_line(found)}", host=None, machines=[])
    return None


def as_error(error: BaseException) -> RaySnapshotError:
    """An error of ours for whatever ended a step of ours."""
    found = own_error(error)
    if found is not None:
        return found
    kind = "Ray" if isinstance(error, RayError) else "an internal step"
    return RaySnapshotError(f"{kind} failed: {in_a_line(error)}")


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    return next((line.strip() for line in text_of(error).splitlines() if line.strip()), type(error).__name__)


def in_a_line(error: BaseException) -> str:
    """An error's type and the first line of its text."""
    return f"{type(error).__name__}: {first_line(error)}"


def with_place(error: BaseException) -> str:
    """What `in_a_line` gives, and the innermost line of code that raised it: all that is said of a fault of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"{in_a_line(error)} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else in_a_line(error)
    )


def named(error: BaseException) -> str:
    """An error's type and text."""
    return f"{type(error).__name__}: {text_of(error)}"


def text_of(error: BaseException) -> str:
    """An error's text, also if its own code for that raises."""
    try:
        return str(error)
    except Exception as fault:  # the user's __str__
        return f"(its text cannot be had: {type(fault).__name__})"
