"""A process's first Arrow array: at that pyarrow imports pandas, where it is installed, which takes 0.3 s and 50 MB.

Here it is refused to pyarrow, which hears of pandas when somebody else imports it: from then on a `Series` is one for it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Any

import pyarrow as pa


def warm_up() -> None:
    """Make this process's first Arrow array."""
    if "pandas" not in sys.modules and _LATER not in sys.meta_path:
        _LATER.refused = threading.get_ident()
        sys.meta_path.insert(0, _LATER)
    pa.array([0])
    _LATER.refused = None


class _Later:
    """An import finder that refuses pandas to one thread, and to the others gives it so that pyarrow hears of it."""

    refused: int | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if threading.get_ident() == self.refused:
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
        others = (one for one in sys.meta_path if one is not self and hasattr(one, "find_spec"))
        found = next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
        with suppress(AttributeError, TypeError):  # not there, or a loader that cannot be changed
            found.loader.exec_module = partial(self._load, found.loader.exec_module)  # type: ignore
        return found

    def _load(self, load: Any, module: Any) -> None:
        load(module)
        with suppress(ValueError, ImportError):  # it was told before; or this pandas is too old for it
            sys.meta_path.remove(self)
            pa.array([0]).to_pandas()


_LATER = _Later()
