"""Which verdicts a subscriber hears of; and who waits for some is not kept waiting when there will be none. No Ray in here."""

import asyncio
import threading
import time
from typing import Any

import pytest
from played import Played

from ray_snapshot import Verdict
from ray_snapshot.alarms import Notifier
from ray_snapshot.errors import HostDiedError
from ray_snapshot.news import News
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.analyst import actor as analysts
from ray_snapshot.runtime.subscribers import AlarmLog, AlarmTeller, Subscriber, Subscribers

BOUND_S = 10.0


def test_who_waits_for_verdicts_is_answered_when_woken() -> None:
    async def woken() -> float:
        analyst = analysts.Analyst("app", None, ())
        analyst.opened.set()
        waiting = asyncio.ensure_future(analyst.verdicts_after(0, BOUND_S))
        await asyncio.sleep(0)
        began = time.monotonic()
        await analyst.wake()
        assert await waiting == (0, [])
        assert not (await asyncio.wait_for(analyst.verdicts_after(0, 0.01), BOUND_S))[1], "the next one waits again"
        return time.monotonic() - began

    assert asyncio.run(woken()) < BOUND_S / 2


def test_subscribers_that_close_wake_their_analyst(monkeypatch: pytest.MonkeyPatch) -> None:
    woken, closing = threading.Event(), list[bool]()
    analyst = Played(
        subscribe=lambda: 0,
        wake=lambda: closing and woken.set(),
        verdicts_after=lambda seen, *_, **__: (woken.wait(BOUND_S), (seen, []))[1],
    )
    monkeypatch.setattr(waits, "answer_of", lambda ref: ref)
    subscribers = Subscribers(analyst)
    closing.append(True)
    subscribers.close(BOUND_S)
    assert woken.is_set()
    assert not subscribers.thread.is_alive()


def test_who_tells_of_alarms_says_so_once_when_the_analyst_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: Any) -> Any:
        if asked:
            raise HostDiedError("the analyst has died", host=None)
        return 0

    lines: list[str] = []
    hearing = threading.Event()
    monkeypatch.setattr(waits, "answer_of", answer)
    analyst = Played(subscribe=tuple, wake=tuple, verdicts_after=lambda *about, **_: (hearing.wait(BOUND_S), about)[1])
    subscribers = Subscribers(analyst)
    subscribers.hearing.append(AlarmTeller(Notifier("exit 0", lines.append), "bank", None, News(lambda _: True)))
    hearing.set()
    subscribers.thread.join(BOUND_S)
    assert lines == ["ray-snapshot: the analyst of bank is gone: no more alarms are told"]


ALARMS = {"deadlock": True, "money": False, "termination": None}


def verdict(name: str, holds: bool | None, *cores: str) -> Verdict:
    evidence: dict[str, Any] = {"cores": [list(core) for core in cores]} if cores else {}
    return Verdict(detector=name, holds=holds, evidence=evidence)


def heard(*found: Verdict, repeat: bool = False) -> list[int]:
    """The places of those that were told."""
    told: list[Verdict] = []
    subscriber = Subscriber(told.append, None if repeat else News(ALARMS.get))
    for number, one in enumerate(found):
        subscriber.hear(number, one)
    return [at for at, one in enumerate(found) if any(one is other for other in told)]


@pytest.mark.parametrize(
    ("name", "begins"),
    [("deadlock", True), ("money", False), ("termination", True)],
    ids=["an alarm", "an alarm when it is False", "no alarm"],
)
def test_each_is_told_when_it_begins_and_when_it_ends(name: str, begins: bool) -> None:
    answers = [not begins, begins, begins, None, begins, not begins, not begins, begins]
    assert heard(*(verdict(name, one) for one in answers)) == [1, 5, 7]


def test_with_repeat_every_verdict_is_told() -> None:
    found = [verdict("deadlock", one) for one in (False, True, True, None)]
    assert heard(*found, repeat=True) == [0, 1, 2, 3]


def test_another_deadlock_is_told_and_one_that_grows_is_not() -> None:
    found = [
        verdict("deadlock", True, "ab"),
        verdict("deadlock", True, "abc"),
        verdict("deadlock", True, "abc", "xy"),
        verdict("deadlock", True, "xyz"),
        verdict("deadlock", False),
        verdict("deadlock", True, "ab"),
    ]
    assert heard(*found) == [0, 2, 4, 5]


def test_each_alarm_that_begins_is_logged_and_no_end_of_one(caplog: pytest.LogCaptureFixture) -> None:
    log = AlarmLog("bank", News(ALARMS.get))
    for holds in (True, False, False, True):
        log.hear(
            1, Verdict(detector="money", holds=holds, alarm=not holds, snapshot_id="s", sentence="10 are missing.")
        )
    assert caplog.messages == ["ray-snapshot: alarm in bank (snapshot s): 10 are missing."]


def test_detectors_do_not_hide_each_other() -> None:
    assert heard(verdict("deadlock", True), verdict("money", False), verdict("deadlock", True)) == [0, 1]
