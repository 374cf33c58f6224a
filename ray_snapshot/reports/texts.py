"""Values of a stranger's history as text of a bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ray_snapshot.views.streams import shown


def cut(text: str, most: int) -> str:
    """`text` with its first `most` characters, and how many are left out."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


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


def names(value: Any) -> list[str]:
    """A list of texts, as they are; nothing if it is none."""
    return [str(item) for item in value] if isinstance(value, list) else []


def names_in(value: Any, name: str) -> list[str]:
    """The list of texts under `name` in a dictionary; nothing if either is something else."""
    return names(value.get(name)) if isinstance(value, Mapping) else []


_TEXTS = ("machine", "class", "method", "call_site", "mode", "needs")


def records(value: Any) -> list[dict[str, Any]]:
    """The records of waits in a piece of evidence, as `wait_picture` and `views.report` read them; others are left out.

    Texts are as they are: who shows them makes them harmless.
    """
    found = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, Mapping) and isinstance(item.get("machine"), str):
            record: dict[str, Any] = {key: _text(item.get(key)) for key in _TEXTS}
            record |= {key: names(item.get(key)) for key in ("waits_for", "waits_for_calls")}
            record |= {key: item.get(key) is True for key in ("waits_for_later_call", "waits_for_a_reader")}
            record |= {key: item[key] for key in ("k", "count", "waits_for_count") if type(item.get(key)) is int}
            found.append(record)
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def distinct(texts: Iterable[str]) -> list[str]:
    """Each once, in order."""
    return list(dict.fromkeys(texts))
