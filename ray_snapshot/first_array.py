"""A process's first Arrow array: at that pyarrow imports pandas, where it is installed, which takes some tenths of a second."""

from __future__ import annotations

import sys
import threading
from typing import Any

has_own_process = False
"""Whether this process was started for a command, and ends with it; set by `cli.main`."""


def warm_up() -> None:
    """Make this process's first Arrow array."""
    import pyarrow as pa

    pa.array([0])


class _NoPandas:
    """An import finder that refuses pandas to the thread that has made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - as Python calls it
        if name == "pandas" and threading.get_ident() == self.thread:
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


def warm_up_without_pandas() -> None:
    """`warm_up` without pandas (40 MB, which we do not use), for a process of ours; one that has it keeps it.

    A detector gets it by `to_pandas()`, by `Table.from_pandas()` or by its own import. But until one of the first two has
    been called, pyarrow takes a pandas `Series` for a sequence like any other, so that NaN is not null.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        warm_up()
    finally:
        sys.meta_path.remove(finder)
