"""No text of an error that is printed or recorded has a secret that this process knows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ray_snapshot import redaction
from ray_snapshot.errors import UnpicklableMessageError
from ray_snapshot.instrument import guard
from ray_snapshot.instrument.here import settle_in
from ray_snapshot.instrument.hooks import attaching
from ray_snapshot.instrument.process import process as processes
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.runtime import payload
from ray_snapshot.runtime.host import runner

SECRET = "hunter2-hunter2"
SHOWN = f"ValueError: {redaction.REPLACEMENT} is wrong"


@pytest.fixture(autouse=True)
def redacting() -> Iterator[None]:
    redaction.redact("password")
    redaction.learn(SECRET)
    yield
    redaction.forget()


def fail(*_: Any, **__: Any) -> Any:
    raise ValueError(f"{SECRET} is wrong")


class Unpicklable:
    __reduce__ = __reduce_ex__ = fail


class Failing:
    """Whatever is asked of it raises, in the asking process."""

    remote = fail

    def __getattr__(self, name: str) -> Any:
        return self


def test_why_a_message_cannot_be_pickled_or_opened_is_told_without_secrets() -> None:
    with pytest.raises(UnpicklableMessageError) as raised:
        payload.isolate("a", "b", "open", (Unpicklable(),), {})
    assert SHOWN in str(raised.value)
    broken = pickle.dumps(Opened())
    assert payload.recorded_args(broken, "open")[0] == [{"$unreadable": SHOWN}]


class Opened:
    """Cannot be built again."""

    def __reduce__(self) -> Any:
        return fail, ()


def test_why_a_host_failed_is_told_without_secrets() -> None:
    try:
        fail()
    except ValueError as error:
        text = str(runner._internal(error))
    assert SHOWN in text
    assert SECRET not in text


def test_why_a_process_without_a_machine_is_not_watched_is_told_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guard, "_told", [])
    guard.ours(fail)
    assert SHOWN in capsys.readouterr().err


def test_why_an_actor_is_not_watched_is_told_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attaching, "replace_ray", fail)
    monkeypatch.setattr(attaching, "_given_up", set())
    attaching.attach_actor("stamp", "key", colour=0, about={}, body=object())
    assert SHOWN in capsys.readouterr().err


def test_why_a_process_is_not_watched_any_more_is_told_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    process = Process("app:1", Failing(), CallLedger("A"), {})
    settle_in(process)
    try:
        process.control.thread.join(10.0)
        process.give_up(ValueError(f"{SECRET} is wrong"))
    finally:
        settle_in(None)
    text = capsys.readouterr().err
    assert f"A is not watched any more, by a fault of ours: {SHOWN}" in text
    assert SECRET not in text


class Listening:
    """A watcher that hears who is not watched any more, and answers nothing else."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *args: Any) -> Any:
        self.heard.append(args)
        raise ValueError("no answer")


def test_the_watcher_hears_of_a_process_that_is_not_watched_any_more_also_where_that_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    watcher = Listening()
    process = Process("app:1", watcher, CallLedger("A"), {})
    process.control.thread.join(10.0)
    watcher.heard.clear()
    monkeypatch.setattr(redaction, "scrubbed", fail)
    process.give_up(ValueError("x"))
    assert watcher.heard == [("A",)]
