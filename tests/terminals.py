"""A terminal of so many columns, in the tests' own process, and a real one for a process."""

import fcntl
import io
import os
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

BOUND_S = 120.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return plain(self.getvalue())


def plain(text: str) -> list[str]:
    """The lines of it, without colours."""
    return [line.rstrip() for line in _COLOURS.sub("", text).splitlines()]


def typed(command: Sequence[str | Path], columns: int, env: Mapping[str, str]) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines that it shows in a real terminal of so many columns."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=env, start_new_session=True)
    os.close(its)
    bound = threading.Timer(BOUND_S, process.kill)
    bound.start()
    try:
        shown = b"".join(iter(lambda: _read(ours), b""))
        return process.wait(), plain(shown.decode())
    finally:
        bound.cancel()
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed: Linux says so by an error
        return b""
