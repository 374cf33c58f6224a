"""Paths into JSON values, in the subset that Spark's `variant_get` understands: `$`, `.field`, `['field']`,
`[index]`.

A path is compiled once and then looked up in many values; Spark gets its text. What one of the two would
read in another way than the other is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ray_snapshot.errors import SettingError

_STEP = re.compile(
    r"""\.(?P<field>[^.\[\s][^.\[]*)
    | \['(?P<single>[^'?\s][^'?]*)'\] | \["(?P<double>[^"?\s][^"?]*)"\]
    | \[(?P<index>\d{1,9})\]""",
    re.VERBOSE | re.ASCII,
)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Missing()
"""What a path finds where there is nothing."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path; make it with `compile_path`."""

    text: str
    steps: tuple[str | int, ...]

    def find(self, value: Any) -> Any:
        """What the path leads to in `value` (as `json.loads` makes it), or `MISSING`."""
        for step in self.steps:
            if isinstance(step, str):
                value = value.get(step, MISSING) if type(value) is dict else MISSING
            else:
                value = value[step] if type(value) is list and step < len(value) else MISSING
            if value is MISSING:
                return MISSING
        return value


def compile_path(text: object) -> JsonPath:
    """Compile a path such as `$.balance`, `$[0]` or `$.pots['big one'][2]`; raises `SettingError`."""
    if not isinstance(text, str) or not text.startswith("$"):
        raise SettingError(f"JSON path {text!r} does not begin with $: write $.field, $['field'] or $[index]")
    steps: list[str | int] = []
    place = 1
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None:
            raise SettingError(
                f"JSON path {text!r} cannot be read from {text[place:]!r} on:"
                " only .field, ['field'] and [index] are understood"
            )
        steps.append(int(step["index"]) if step["index"] else step["field"] or step["single"] or step["double"])
        place = step.end()
    return JsonPath(text, tuple(steps))
