"""A task of asyncio whose error nothing has read is a fact, as a thread is that an exception has ended."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime

from ray_snapshot.detectors.happened import sentence
from ray_snapshot.instrument.process.ended_threads import ENDED_THREADS, note_failed_tasks


async def fails() -> None:
    raise ValueError("no")


def test_a_task_that_failed_is_told_once_and_python_still_says_that_nothing_has_read_it() -> None:
    said: list[str] = []

    async def program() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
        unread = asyncio.create_task(fails(), name="pull-6")
        others = [asyncio.create_task(fails(), name="read"), asyncio.create_task(asyncio.sleep(60), name="cancelled")]
        others[1].cancel()
        await asyncio.wait([unread, *others])
        others[0].exception()
        note_failed_tasks()
        note_failed_tasks()
        del unread
        gc.collect()

    asyncio.run(program())
    (told,) = (one for one in ENDED_THREADS if one.is_task)
    assert (told.thread, told.error, told.call_site) == (
        "pull-6",
        "ValueError",
        f"{__file__}:{fails.__code__.co_firstlineno + 1}",
    )
    assert said == ["Task exception was never retrieved"]
    row = {"kind": "thread_ended", "machine": "Sandbox-0", "thread": told.thread, "error": told.error, "is_task": True}
    row |= {"at": "2026-03-01T10:01:00+00:00", "call_site": "sandbox.py:7"}
    text = sentence(row, datetime(2026, 3, 1, 10, 2, tzinfo=UTC))
    assert text == "Sandbox-0: task pull-6 was ended by ValueError at 10:01:00 (sandbox.py:7)"
