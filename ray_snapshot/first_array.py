"""A process's first Arrow array: at that pyarrow imports pandas, where it is installed, which takes 0.3 s and 50 MB.

Here it is refused to pyarrow, which hears of pandas when somebody else imports it: from then on a `Series` is one for it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib.machinery import ModuleSpec
from typing import Any


def warm_up() -> None:
    """Make this process's first Arrow array."""
    import pyarrow as pa

    if "pandas" not in sys.modules and _LATER not in sys.meta_path:
        _LATER.refused = threading.get_ident()
        sys.meta_path.insert(0, _LATER)
    try:
        pa.array([0])
    finally:
        _LATER.refused = None


class _Later:
    """An import finder that refuses pandas to one thread, and to the others gives it so that pyarrow hears of it."""

    refused: int | None = None

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if threading.get_ident() == self.refused:
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        found = next((spec for spec in others if spec is not None), None)
        if found is not None and found.loader is not None:
            found.loader.exec_module = _then_told(found.loader.exec_module)  # type: ignore[method-assign]
        return found


_LATER = _Later()


def _then_told(load: Any) -> Any:
    def load_and_tell(module: Any) -> None:
        import pyarrow as pa

        load(module)
        if _LATER in sys.meta_path:
            sys.meta_path.remove(_LATER)
        with suppress(ImportError):  # of a pandas that is too old for pyarrow
            pa.array([0]).to_pandas()

    return load_and_tell
