"""SIGTERM: a last snapshot is taken before a process ends, within `grace` seconds.

In the driver the handler only starts a thread, for it may have interrupted a `send` that holds a lock; the program works on
meanwhile. When the snapshot is safe, or the time is over, the signal is sent once more, and then the program ends: with exit
code 143, or as the handler says that the program itself had installed before it opened its first system.

In a host the signal belongs to Ray's main thread, whose handler cannot be replaced from an actor; what that handler calls can
(`WORKER_EXIT`, the one private name of Ray's that `runtime` uses). Where Ray has no such name, a host ends as if killed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

EXIT_CODE = 128 + signal.SIGTERM

WORKER_EXIT = "raise_sys_exit_with_custom_error_message"
"""What Ray's handler calls, in `ray._private.worker`, to end a worker."""


class Leaving:
    """The driver's handler, while a system is open that has something to save."""

    def __init__(self, save: Callable[[], None]) -> None:
        self.save = save
        self.previous: Any = None
        self.is_installed = self.is_leaving = self.is_saved = False

    def install(self) -> None:
        """Handle the signal, where that is possible: in the main thread, and if the program does not ignore it."""
        is_main = threading.current_thread() is threading.main_thread()
        if not self.is_installed and is_main and signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            self.previous = signal.signal(signal.SIGTERM, self._handle)
            self.is_installed = True

    def uninstall(self) -> None:
        """Put back what was there before, unless the program has installed another since."""
        is_main = threading.current_thread() is threading.main_thread()
        if self.is_installed and is_main and not self.is_leaving:
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, self.previous)
            self.is_installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_saved:
            if callable(self.previous) and not getattr(self.previous, "__module__", "").startswith("ray."):
                self.previous(number, frame)
                return
            raise SystemExit(EXIT_CODE)
        if not self.is_leaving:
            self.is_leaving = True
            threading.Thread(target=self._leave, name="ray-snapshot-last", daemon=True).start()

    def _leave(self) -> None:
        try:
            self.save()
        finally:
            self.is_saved = True
            os.kill(os.getpid(), signal.SIGTERM)


def before_worker_exit(act: Callable[[], None]) -> bool:
    """Do this when this worker gets SIGTERM, instead of ending: `act` must end it. Whether Ray lets us."""
    from ray._private import worker

    original = getattr(worker, WORKER_EXIT, None)
    if original is None:
        return False
    is_leaving = False

    def replaced(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_leaving
        if is_leaving or kwargs.get("exit_code") != 1 or "SIGTERM" not in str(args[:1]):
            return original(*args, **kwargs)
        is_leaving = True
        return act()

    setattr(worker, WORKER_EXIT, replaced)
    return True
