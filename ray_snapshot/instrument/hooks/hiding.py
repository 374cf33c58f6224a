"""What Ray lists for the program is the program's: the actors of ours are left out. Nothing here imports Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_snapshot.names import NAMESPACE


def named_actors(original: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    """In place of `ray.util.list_named_actors`: a program that kills all that it finds there does not find ours."""
    every = original(*args, **kwargs)
    return [one for one in every if not (isinstance(one, dict) and one.get("namespace") == NAMESPACE)]
