"""Values of a stranger's history as text of a bounded length."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ray_snapshot.streams import shown

MOST_ON_A_LINE = 100
"""Characters of an object in one line; a list of numbers or texts is one line however long it is."""
_INNERMOST = re.compile(r"([\[{])\n((?:[^\n]*[^\n\[{]\n)+?) *([\]}])")


def cut(text: str, most: int) -> str:
    """`text` with its first `most` characters, and how many are left out; itself where that would be no shorter."""
    shorter = f"{text[:most]} … ({len(text) - most:,} more characters)"
    return shorter if len(shorter) < len(text) else text


def plain(text: Any, most: int = 400) -> str:
    """One line, harmless to a terminal and to a reader of text."""
    told = str(text)
    return cut(shown(" ".join(told[: 20 * most].split())), most)


def pretty(value: Any, most: int) -> str:
    """JSON over few lines, cut: no more of it is made than a few times what is shown."""
    text, size = [], 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        text.append(piece[: 4 * most + 1])
        size += len(piece)
        if size > 4 * most:
            break
    told = "".join(text)[: 4 * most]
    if is_cut := size > 4 * most:
        told += "…\n]"
    for _ in range(4):  # so many levels
        told = _INNERMOST.sub(_joined, told)
    lines = "\n".join(map(shown, told[:most].split("\n")))
    return f"{lines} … (cut)" if is_cut or len(told) > most else lines


def _joined(found: re.Match[str]) -> str:
    """A list of plain values, or what is short, in one line."""
    values = " ".join(line.strip() for line in found[2].split("\n")).strip()
    is_plain = found[1] == "[" and not re.search(r"[\[{]", values)
    return found[1] + values + found[3] if is_plain or len(values) <= MOST_ON_A_LINE else found[0]


def compact(value: Any, most: int) -> str:
    """JSON in one line, cut."""
    return plain(pretty(value, 4 * most), most)


def at(moment: datetime | None) -> str:
    """To the second, in UTC."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def distinct(texts: Iterable[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(texts))
