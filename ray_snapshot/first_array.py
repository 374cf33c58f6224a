"""A process's first Arrow array: at that pyarrow imports pandas, where it is installed, which takes some tenths of a second."""

from __future__ import annotations

import sys
from typing import Any


def warm_up() -> None:
    """Make this process's first Arrow array."""
    import pyarrow as pa

    pa.array([0])


class _NoPandas:
    """An import finder that refuses pandas."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - as Python calls it
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def warm_up_without_pandas() -> None:
    """`warm_up` without pandas (40 MB, which we do not use): for a process of ours that imports nothing else meanwhile.

    A detector that does, by `to_pandas()` or by its own import, gets it then.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        warm_up()
    finally:
        sys.meta_path.remove(finder)
