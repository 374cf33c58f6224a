"""Values of a stranger's history as text of a bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ray_snapshot.streams import shown


def cut(text: str, most: int) -> str:
    """`text` with its first `most` characters, and how many are left out; itself where that would be no shorter."""
    shorter = f"{text[:most]} … ({len(text) - most:,} more characters)"
    return shorter if len(shorter) < len(text) else text


def plain(text: Any, most: int = 400) -> str:
    """One line, harmless to a terminal and to a reader of text."""
    told = str(text)
    return cut(shown(" ".join(told[: 20 * most].split())), most)


def pretty(value: Any, most: int) -> str:
    """JSON over several lines, cut: no more of it is made than is shown."""
    text, size = [], 0
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False, default=str).iterencode(value):
        text.append(piece[: most + 1])
        size += len(piece)
        if size > most:
            break
    lines = "\n".join(map(shown, "".join(text)[:most].split("\n")))
    return f"{lines} … (cut)" if size > most else lines


def compact(value: Any, most: int) -> str:
    """JSON in one line, cut."""
    return plain(pretty(value, 4 * most), most)


def at(moment: datetime | None) -> str:
    """To the second, in UTC."""
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def distinct(texts: Iterable[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(texts))
