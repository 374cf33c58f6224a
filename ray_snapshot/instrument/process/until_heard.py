"""What the watcher must hear of a process that goes on without it: said again and again, until it hears it or has ended.

A watcher that stands still for a while (its computer sleeps, its connection breaks, a detector does not let go of the
interpreter) misses what is said to it, or takes it in long after the process has given up. Without this the process would be
waited for in each snapshot, or be in none and missing from the coverage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import ActorUnavailableError

from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.limits import LIMITS
from ray_snapshot.stderr import say


def until_heard(
    find: Callable[[], Any], notify: Callable[[Any], Any], *, behind: Any = None, then: str = ""
) -> threading.Thread:
    """Tell the watcher that `find` finds something, in a thread of its own: `notify(watcher)` returns the ref that answers.

    `behind`: the future of what it was asked before, which is waited for; if that gives None, it watches another app, and hears
    nothing. `then` is printed on stderr once it has heard.
    """
    thread = threading.Thread(
        target=_notify, args=(find, notify, behind, then), name="ray-snapshot-until-heard", daemon=True
    )
    thread.start()
    return thread


def _notify(find: Callable[[], Any], notify: Callable[[Any], Any], behind: Any, then: str) -> None:
    until = time.monotonic() + LIMITS.deaf_watcher_s
    if behind is not None and not _is_our_watcher(behind):
        return
    while (left := until - time.monotonic()) > 0:
        try:
            future = CONNECTION.use(lambda: notify(find()).future())
            if future is None:
                return
            future.result(left)
        except ActorUnavailableError:
            time.sleep(LIMITS.deaf_watcher_pause_s)
            continue
        except Exception:  # it has ended, or Ray has
            return
        if then and CONNECTION.is_open:
            say(f"ray-snapshot: {then}")
        return


def _is_our_watcher(joining: Any) -> bool:
    """Whether who was asked to take a process in may have done so, or may yet be there."""
    try:
        return joining.result(LIMITS.deaf_watcher_s) is not None
    except Exception as error:
        return not isinstance(error, TimeoutError)
