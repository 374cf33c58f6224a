"""The end of a watched program by a signal or by a verdict: what was seen is written first.

SIGTERM and SIGHUP end it as Python does without Ray, by that signal.
`ray.init` takes the handler of SIGTERM away, and puts one of Ray's own under Python's that prints stacks and aborts (exit code
134). So what the program had said before is put back behind it, and where it had said nothing, ours. A handler that the program
sets later replaces ours, those of asyncio included.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ray_snapshot.limits import LIMITS

FIRED = 3
"""The exit code of a program that is ended because of a verdict."""
INTERRUPTED = 130
"""That of one that Ctrl-C has ended."""

SIGNALS = (signal.SIGTERM, signal.SIGHUP)

TOLD: list[Callable[[int], None]] = []
"""Called with the exit code, once what was seen is written; each once."""


def tell_end(code: int) -> None:
    """The program ends with this exit code."""
    told, TOLD[:] = TOLD[:], []
    for tell in told:
        with suppress(Exception):
            tell(code)


class Ending:
    """Calls `write` when a signal comes, and then ends this process by that signal."""

    def __init__(self, write: Callable[[], None]) -> None:
        self.write = write

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Around `ray.init`: the handlers of the program stay, and where there are none, there are ours."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        yield
        for number, handler in before.items():
            is_the_programs = handler not in (signal.SIG_DFL, None)
            signal.signal(number, handler if is_the_programs else self._handle)

    def _handle(self, number: int, _: Any) -> None:
        """Runs in the main thread, which may hold any lock: so another thread writes, and this one waits for it."""
        signal.signal(number, signal.SIG_DFL)  # a second signal is not kept waiting
        writing = threading.Thread(target=self._write, args=(number,), name="ray-snapshot-ending", daemon=True)
        writing.start()
        writing.join(LIMITS.killed_writing_s)
        os.kill(os.getpid(), number)

    def _write(self, number: int) -> None:
        with suppress(Exception):
            self.write()
        tell_end(128 + number)


def end_program(write: Callable[[], None]) -> threading.Thread:
    """Write what was seen, and end the program with all that it has started, wherever its own threads are; by this thread."""

    def end() -> None:
        with suppress(Exception):
            write()
        tell_end(FIRED)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(FIRED)  # a cluster of the program's own ends with its driver

    thread = threading.Thread(target=end, name="ray-snapshot-exit", daemon=True)
    thread.start()
    return thread
