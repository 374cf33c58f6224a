"""What runs in a worker before our package can be imported there: it is sent by value, and brings the package with it.

Imports the standard library only, and nothing of ours at the top: on a node where our package is not installed, there
is nothing to import yet. `delivery` sends it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

PACKAGE = "ray_snapshot"

HOOK_VARIABLE = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
"""The variable by which Ray tells a worker its setup hook."""

KEY_VARIABLE = "RAY_SNAPSHOT_HOOK_KEY"
"""Beside it, where that is by name: the key under which the cluster has the hook by value."""


def hook_with(
    version: str, sources: bytes, own: Callable[[], Any] | str | None, key: str | None = None
) -> Callable[[], None]:
    """The setup hook of workers: our package of this version (from `sources` if need be), our functions, the app's hook.

    `key`: where the cluster has this hook, if the job has none.
    """

    def ray_snapshot_hook() -> None:
        os.environ.pop(KEY_VARIABLE, None)
        try:
            if _installed() != version:
                _take_from(sources)
            _begin(key)
        except Exception as error:  # a hook that raises ends the worker, and Ray would start others for ever
            print(f"ray-snapshot: nothing is watched in this worker: {type(error).__name__}: {error}", file=sys.stderr)
        if isinstance(own, str):
            module, _, name = own.rpartition(".")
            getattr(importlib.import_module(module), name)()
        elif own is not None:
            own()

    return ray_snapshot_hook


def inherited() -> None:
    """The setup hook of workers whose cluster this program has started, in its own environment."""
    os.environ.pop(HOOK_VARIABLE, None)  # what the app itself starts has no part in it
    try:
        _begin(os.environ.pop(KEY_VARIABLE, None))
    except Exception as error:  # as above
        print(f"ray-snapshot: nothing is watched in this worker: {type(error).__name__}: {error}", file=sys.stderr)


def _begin(key: str | None) -> None:
    importlib.import_module(f"{PACKAGE}.instrument.hooks.attaching").replace_ray()
    if key is not None:
        importlib.import_module(f"{PACKAGE}.instrument.hooks.environments").keep_hook(key)


def version_here(needs_hook: bool = False) -> tuple[str | None, str]:
    """(the version of our package that this worker has, why it cannot be used)."""
    try:
        importlib.import_module(f"{PACKAGE}.instrument.hooks.attaching")
        shape = importlib.import_module(f"{PACKAGE}.instrument.shape")
        shape.check()
    except Exception as error:
        return _installed(), f"{type(error).__name__}: {error}"
    if needs_hook and not shape.is_replaced():
        return (
            _installed(),
            "it has joined a cluster that the program has started itself, and has workers without our hook",
        )
    return _installed(), ""


def _installed() -> str | None:
    try:
        found: str | None = getattr(importlib.import_module(PACKAGE), "__version__", None)
    except Exception:  # there is none, or it is broken
        return None
    return found


def _take_from(sources: bytes) -> None:
    """Import our package from these sources, and from nowhere else."""
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Delivered(sources))


class Delivered(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads the modules that came with the hook."""

    def __init__(self, sources: bytes) -> None:
        self.sources: dict[str, tuple[bool, str]] = json.loads(zlib.decompress(sources))

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - as Python calls it
        if fullname not in self.sources:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=self.get_filename(fullname))
        if spec is not None:
            spec.has_location = True
        return spec

    def get_filename(self, fullname: str) -> str:
        """A name for tracebacks."""
        return f"<{PACKAGE}>/{fullname.replace('.', '/')}.py"

    def is_package(self, fullname: str) -> bool:
        return self.sources[fullname][0]

    def get_source(self, fullname: str) -> str:
        return self.sources[fullname][1]

    def get_code(self, fullname: str) -> Any:
        return compile(self.get_source(fullname), self.get_filename(fullname), "exec", dont_inherit=True)
