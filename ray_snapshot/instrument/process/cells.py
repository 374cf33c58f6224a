"""The cells of a notebook, or of an IPython terminal, by the files that it takes them for: places are told by their numbers."""

from __future__ import annotations

import sys
from contextlib import suppress

from ray_snapshot.limits import LIMITS


def cells() -> dict[str, str]:
    """By file name of the code in it: `In[4]`; none where no IPython runs the program."""
    if "IPython" not in sys.modules:
        return {}
    with suppress(Exception):  # of one that is not as we know it nothing is told
        numbers: dict[str, int] = dict(sys.modules["IPython"].get_ipython().compile._filename_map)
        latest = sorted(numbers.items(), key=lambda one: one[1])[-LIMITS.notebook_cells :]
        return {file: f"In[{number}]" for file, number in latest}
    return {}
