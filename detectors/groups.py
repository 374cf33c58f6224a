"""Groups of machines, by name: exact names, and patterns such as `worker-*`.

A group of exact names has all its members from the start; one of patterns grows with every machine that is born under
such a name, so what is true of all its members may become false when another one is born.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import Booleans, is_any_of, texts
from ray_snapshot.errors import SettingError
from ray_snapshot.waits import machine_name

_WILD = re.compile(r"[*?]")


def check_group(given: object, setting: str = "machines") -> list[str]:
    """Names and patterns of `given` (one, or several; handles too); raises `SettingError` if there are none."""
    items = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    found = list(dict.fromkeys(machine_name(item) for item in items))
    if not found or not all(found):
        raise SettingError(f"{setting}={given!r}: name machines, or patterns of names such as 'worker-*'")
    return found


def is_pattern(name: str) -> bool:
    """Whether it may stand for several machines."""
    return _WILD.search(name) is not None


def members(names: Any, group: Sequence[str]) -> Booleans:
    """Which of an Arrow array of names belong to the group."""
    found = is_any_of(names, *(name for name in group if not is_pattern(name)))
    for pattern in filter(is_pattern, group):
        matched = pc.match_substring_regex(texts(names), _regex(pattern))
        found = found | pc.fill_null(matched, False).to_numpy(zero_copy_only=False)
    return found


def _regex(pattern: str) -> str:
    """`*` for any text, `?` for any one character."""
    return f"^{re.escape(pattern).replace(chr(92) + '*', '.*').replace(chr(92) + '?', '.')}$"


def absent(names: Any, group: Sequence[str]) -> list[str]:
    """The exact names and patterns of the group that match none of an Arrow array of names."""
    exact = [name for name in group if not is_pattern(name)]
    known = set(texts(names).filter(pa.array(is_any_of(names, *exact))).to_pylist()) if exact else set()
    patterns = [one for one in group if is_pattern(one) and not np.any(members(names, [one]))]
    return [*(name for name in exact if name not in known), *patterns]
