"""Subscribers: callbacks of the driver that hear of verdicts, called one after the other in a thread of their own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from ray_snapshot.alarms import Notifier, alarm_of
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.limits import LIMITS
from ray_snapshot.news import News
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.stderr import LOGGER
from ray_snapshot.verdicts import Verdict


class Subscriber:
    """A callback of the program's."""

    def __init__(self, callback: Callable[[Verdict], None], news: News | None) -> None:
        """`news`: what it hears; None: every verdict."""
        self.callback = callback
        self.news = news

    def hear(self, number: int, verdict: Verdict) -> None:  # noqa: ARG002 - others ask for it
        """A verdict on snapshot `number`."""
        if self.news is None or self.news.has(verdict):
            self.callback(verdict)

    def __repr__(self) -> str:
        return getattr(self.callback, "__qualname__", repr(self.callback))


class AlarmTeller:
    """Hears every verdict, and tells a command or an address which alarms begin and end."""

    def __init__(self, notifier: Notifier, system: str, history: str | None, news: News) -> None:
        self.notifier = notifier
        self.system = system
        self.history = history
        self.news = news

    def hear(self, number: int, verdict: Verdict) -> None:  # noqa: ARG002 - others ask for it
        """A verdict on snapshot `number`."""
        if self.news.is_alarm(verdict) and self.news.has(verdict):
            self.notifier.tell(alarm_of(verdict, self.system, self.history))

    def lost(self) -> None:
        """There will be no more verdicts."""
        self.notifier.say(f"ray-snapshot: the analyst of {self.system} is gone: no more alarms are told")


class AlarmLog:
    """Hears every verdict, and logs each that begins an alarm: so it stands on stderr, unless the program says otherwise."""

    def __init__(self, system: str, news: News) -> None:
        self.system = system
        self.news = news

    def hear(self, number: int, verdict: Verdict) -> None:  # noqa: ARG002 - others ask for it
        """A verdict on snapshot `number`."""
        if self.news.has(verdict) and verdict.alarm:
            LOGGER.warning(f"ray-snapshot: alarm in {self.system} (snapshot {verdict.snapshot_id}): {verdict.sentence}")


class Hears(Protocol):
    """Whatever is told of verdicts."""

    def hear(self, number: int, verdict: Verdict) -> None:
        """A verdict on snapshot `number`."""


class Subscribers:
    """Hands each verdict from now on to everybody who hears of them, exactly once, in order."""

    def __init__(self, analyst: Any, *, is_again: bool = False) -> None:
        self.analyst = analyst
        self.is_again = is_again
        """Whether another analyst takes the place of one that dies; it hands out again what it evaluates again."""
        self.heard: OrderedDict[tuple[str, str], None] = OrderedDict()
        """(snapshot, detector) of the latest verdicts that were handed out."""
        self.hearing: list[Hears] = []
        self.trouble: RaySnapshotError | None = None
        """What the first callback that failed raised; the others go on."""
        self.is_closing = threading.Event()
        self.seen: int = waits.answer_of(analyst.subscribe.remote())
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-subscribers", daemon=True)
        self.thread.start()

    @property
    def may_act(self) -> bool:
        """Whether any of them may do something about a verdict."""
        return not all(isinstance(one, AlarmLog) for one in self.hearing)

    def _run(self) -> None:
        while True:
            is_last = self.is_closing.is_set()
            try:
                fresh = self._ask(0.0 if is_last else LIMITS.verdicts_poll_s)
            except RaySnapshotError:  # the analyst is gone
                if not self.is_again or is_last:
                    if not is_last:
                        self._say_that_it_is_over()
                    return  # the system says so
                self.is_closing.wait(LIMITS.subscriber_again_s)
                continue
            for number, verdict in fresh:
                self._hand_out(number, verdict)
            if is_last and not fresh:
                return

    def _say_that_it_is_over(self) -> None:
        for one in list(self.hearing):
            if isinstance(one, AlarmTeller):
                one.lost()

    def _ask(self, seconds: float) -> list[tuple[int, Verdict]]:
        ref = self.analyst.verdicts_after.remote(self.seen, seconds, subscriber=True)
        self.seen, found = waits.answer_of(ref)
        return [one for one in found if not self.is_again or self._is_new(one[1])]

    def _is_new(self, verdict: Verdict) -> bool:
        key = verdict.snapshot_id, verdict.detector
        is_new = key not in self.heard
        self.heard[key] = None
        if len(self.heard) > LIMITS.heard_verdicts:
            self.heard.popitem(last=False)
        return is_new

    def _hand_out(self, number: int, verdict: Verdict) -> None:
        for one in list(self.hearing):
            try:
                one.hear(number, verdict)
            except Exception as error:
                self.trouble = self.trouble or _raised(one, verdict, error)

    def close(self, timeout: float) -> None:
        """Hand out what there is; the analyst must have evaluated everything."""
        self.is_closing.set()
        self.analyst.wake.remote()  # the thread may have just begun to wait
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout)


def _raised(one: Hears, verdict: Verdict, error: Exception) -> RaySnapshotError:
    name = repr(one)
    return RaySnapshotError(
        f"the subscriber {name} raised {type(error).__name__}: {text_of(error)} on the verdict of {verdict.detector}"
        f" on {verdict.snapshot_id}; the other verdicts were handed out",
        subscriber=name,
    )
