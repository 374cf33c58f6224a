"""Lines for a person that fit a terminal: broken between words, so that no name, number or path is cut in two.

What goes into a pipe or a file is not broken at all, nor what is there to be copied: commands, JSON, Markdown.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

INDENT = 4
"""The second line of one that was broken begins so many columns further right."""


def room_on(stream: Any) -> int | None:
    """How many columns the terminal has that `stream` writes to; None if it is none, or does not say."""
    try:
        if not stream.isatty():
            return None
        told = os.environ.get("COLUMNS", "")
        columns = int(told) if told.isascii() and told.isdigit() else os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return None
    return columns or None


def wrapped(line: str, room: int | None, hanging: int | None = None) -> list[str]:
    """`line` in lines of at most `room` columns, broken between words; a word that is longer has a line of its own.

    Lines behind the first begin in column `hanging`; None: a bit to the right of the first. `room` None: as it is.
    """
    if room is None or len(line) <= room:
        return [line]
    begin = len(line) - len(line.lstrip()) if hanging is None else hanging
    indent = min(begin + INDENT if hanging is None else hanging, room // 2)
    broken = textwrap.wrap(
        line[begin:],
        room,
        initial_indent=line[:begin],
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return broken or [line]


def print_text(text: str, *, is_error: bool = False) -> None:
    """Print a line or more for a person, on stdout or on stderr."""
    stream = sys.stderr if is_error else sys.stdout
    for line in fitting(text, stream):
        print(line, file=stream)


def fitting(text: str, stream: Any) -> Iterable[str]:
    """The lines of `text`, as they fit the terminal that `stream` writes to."""
    room = room_on(stream)
    return [part for line in text.split("\n") for part in wrapped(line, room)]
