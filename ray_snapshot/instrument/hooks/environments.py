"""Tasks and actors with a Python of their own: in it a worker may not find our package, and would not start for it.

Workers of a cluster that the program has started itself begin with our hook by its name, which is in their environment; in a
conda environment, a container or another virtual environment that name may mean nothing. So these get it by value.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from ray_snapshot.instrument import shape
from ray_snapshot.instrument.arriving import HOOK_VARIABLE

_OF_ANOTHER_PYTHON = ("conda", "container", "image_uri", "pip", "py_executable", "uv")
"""Fields of runtime environments."""


_given_early: list[str] = []
"""The keys that environments were given before it was known where the program runs."""


def keep_hook(key: str) -> None:
    """From now on, in this process: the hook is in the cluster's store under this key."""
    shape.replace_environments(functools.partial(_with_hook, key))


def joined() -> bool:
    """The job of this program has the hook in its runtime environment, and Ray gives it to all: from now on there is nothing to
    add. Returns whether something was added before."""
    shape.replace_environments(None)
    return bool(_given_early)


def _with_hook(key: str, original: Callable[..., Any], runtime_env: Any, *args: Any, **options: Any) -> Any:
    """In place of what tells Ray the runtime environment of a task, an actor or a job."""
    if any(runtime_env.get(name) for name in _OF_ANOTHER_PYTHON):
        _given_early[:] = [key]
        runtime_env = copy.copy(runtime_env)
        runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), HOOK_VARIABLE: key}
    return original(runtime_env, *args, **options)
