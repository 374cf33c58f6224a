"""What has changed, told to the pages that are open: ids only, by server-sent events; a page then asks for itself anew.

One look a second serves all viewers, and nobody looks while no page is open: a tab that is hidden closes its stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ray_snapshot.views.tables import json_text
from ray_snapshot.web import reading
from ray_snapshot.web.served import Served

LOOK_S = 1.0
ALIVE_S = 15.0
"""How often a stream says something, so that what stands between does not take it for dead."""
MOST_STREAMS = 500


class Events:
    """The streams of all pages."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.number = 0
        """Of the last change."""
        self.told: dict[str, Any] = {}
        """The last change."""
        self.streams = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._seen: dict[str, Any] | None = None

    async def stream(self, request: Request) -> Response:
        """A page listens; one that comes back hears at once what it has missed."""
        if self.streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", 503)
        last = request.headers.get("last-event-id", "")
        seen = int(last) if last.isascii() and last.isdigit() and len(last) < 16 else self.number
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        return StreamingResponse(self._lines(seen), media_type="text/event-stream")

    async def _lines(self, seen: int) -> AsyncIterator[str]:
        self.streams += 1
        try:
            yield f"id: {seen}\nretry: 2000\n\n"
            while True:
                try:
                    async with asyncio.timeout(ALIVE_S), self._changed:
                        while self.number == seen:
                            await self._changed.wait()
                except TimeoutError:
                    yield ": alive\n\n"
                    continue
                seen = self.number
                yield f"id: {seen}\nevent: changed\ndata: {json_text(self.told)}\n\n"
        finally:
            self.streams -= 1

    async def _look(self) -> None:
        """Look for changes while anybody listens."""
        idle = 0
        while idle < 3:
            idle = 0 if self.streams else idle + 1
            now = await run_in_threadpool(self._state)
            if self._seen is not None and now != self._seen:
                self.told = {name: value for name, value in now.items() if self._seen.get(name) != value}
                self.told |= {name: None for name in self._seen if name not in now}
                self.number += 1
                async with self._changed:
                    self._changed.notify_all()
            self._seen = now
            await asyncio.sleep(LOOK_S)

    def _state(self) -> dict[str, Any]:
        """By what is served: something that changes when there is more to see of it."""
        found: dict[str, Any] = {}
        for one in self.served.running():
            last = one.glances[-1].row["snapshot_id"] if one.glances else None
            found[f"system {one.name}"] = [last, [item["reported"] for item in one.about.get("open", ())], one.trouble]
        for place in list(self.served.places.values()):
            found[f"history {place.key}"] = [reading.commits(place, name) for name in ("snapshots", "verdicts")]
        return found
