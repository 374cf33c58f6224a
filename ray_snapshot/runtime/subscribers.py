"""Subscribers: callbacks of the driver that get every verdict, called one after the other in a thread of their own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import safe_text_of
from ray_snapshot.verdicts import Verdict

POLL_S = 0.5
"""How long the analyst keeps an unanswered question."""

AGAIN_S = 0.1
"""How often an analyst that is being started anew is asked."""

MOST_HEARD = 10_000
"""So many verdicts are remembered as handed out: more than an analyst ever evaluates again."""


class Subscribers:
    """Hands each verdict from now on to every callback, exactly once, in order."""

    def __init__(self, analyst: Any, *, is_again: bool = False) -> None:
        self.analyst = analyst
        self.is_again = is_again
        """Whether another analyst takes the place of one that dies; it hands out again what it evaluates again."""
        self.heard: OrderedDict[tuple[str, str], None] = OrderedDict()
        """(snapshot, detector) of the latest verdicts that were handed out."""
        self.callbacks: list[Callable[[Verdict], None]] = []
        self.trouble: RaySnapshotError | None = None
        """What the first callback that failed raised; the others go on."""
        self.is_closing = threading.Event()
        self.seen: int = waits.answer_of(analyst.subscribe.remote())
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-subscribers", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            is_last = self.is_closing.is_set()
            try:
                fresh = self._ask(0.0 if is_last else POLL_S)
            except RaySnapshotError:  # the analyst is gone
                if not self.is_again or is_last:
                    return  # the system says so
                self.is_closing.wait(AGAIN_S)
                continue
            for verdict in fresh:
                self._hand_out(verdict)
            if is_last and not fresh:
                return

    def _ask(self, seconds: float) -> list[Verdict]:
        ref = self.analyst.verdicts_after.remote(self.seen, seconds, subscriber=True)
        self.seen, found = waits.answer_of(ref)
        return [verdict for _, verdict in found if not self.is_again or self._is_new(verdict)]

    def _is_new(self, verdict: Verdict) -> bool:
        key = verdict.snapshot_id, verdict.detector
        is_new = key not in self.heard
        self.heard[key] = None
        if len(self.heard) > MOST_HEARD:
            self.heard.popitem(last=False)
        return is_new

    def _hand_out(self, verdict: Verdict) -> None:
        for callback in list(self.callbacks):
            try:
                callback(verdict)
            except Exception as error:
                self.trouble = self.trouble or _raised(callback, verdict, error)

    def close(self, timeout: float) -> None:
        """Hand out what there is; the analyst must have evaluated everything."""
        self.is_closing.set()
        self.analyst.wake.remote()  # the thread may have just begun to wait
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout)


def _raised(callback: Any, verdict: Verdict, error: Exception) -> RaySnapshotError:
    name = getattr(callback, "__qualname__", repr(callback))
    return RaySnapshotError(
        f"the subscriber {name} raised {type(error).__name__}: {safe_text_of(error)} on the verdict of {verdict.detector}"
        f" on {verdict.snapshot_id}; the other verdicts were handed out",
        subscriber=name,
    )
