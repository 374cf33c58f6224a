"""A process's first Arrow array: at that pyarrow imports pandas, where it is installed, which takes 0.3 s and 50 MB."""

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
    """The same without pandas, in a process of ours alone; one that has it keeps it.

    A detector gets it by `to_pandas()`, by `Table.from_pandas()` or by its own import. But until one of the first two has
    been called, pyarrow takes a pandas `Series` for a sequence like any other, so that NaN is not null; `pd.NA` never is, for
    its C++ half does not ask again.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        warm_up()
    finally:
        sys.meta_path.remove(finder)
