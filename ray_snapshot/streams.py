"""Standard output and error of a command: what a terminal would obey is shown, and a stream that is gone says so once.

Names, sentences and paths come from others: none of their control characters reaches the terminal, wherever they are printed.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

_BREAKS = re.compile(r"([\n\t])")


class StreamError(Exception):
    """Standard output cannot be written to; `__cause__` is an OSError."""


def shown(text: str) -> str:
    """`text` with every character that a terminal would obey escaped: controls, bidi marks and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def give_back() -> None:
    """From here on the streams are the user's own program's, as Python made them."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, Shown):
            setattr(sys, name, stream.restored())


class Shown:
    """A stream for text: line breaks and tabs pass, other control characters are shown. Raises `StreamError`.

    `rich` writes its colours to `rich_proxied_file`; what it is given has been made plain before. Once it is restored all
    passes as it is: a library that was imported before may keep this object, as Ray's log handler does.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.is_restored = False
        self.rich_proxied_file = stream
        self.errors_before = getattr(stream, "errors", None)
        _set_errors(stream, "backslashreplace")

    def restored(self) -> TextIO | None:
        """The stream as it was."""
        self.is_restored = True
        _set_errors(self.stream, self.errors_before)
        return self.stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write it, escaped."""
        if self.is_restored:
            return self._open().write(text)
        text = "".join(part if part in ("\n", "\t") else shown(part) for part in _BREAKS.split(text))
        try:
            return self._open().write(text)
        except OSError as error:
            raise StreamError from error

    def flush(self) -> None:
        """Hand over what was written."""
        try:
            if self.stream is not None:
                self.stream.flush()
        except OSError as error:
            if self.is_restored:
                raise
            raise StreamError from error

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self.stream is not None and self.stream.isatty()

    def discard_if_broken(self) -> None:
        """If it cannot be written to, write nothing more to it, at the end of the process neither."""
        with suppress(StreamError):
            self.flush()
            return
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._open().fileno())
            os.close(null)

    def _open(self) -> TextIO:
        if self.stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.stream


def _set_errors(stream: Any, errors: str | None) -> None:
    if errors is not None and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=errors)
