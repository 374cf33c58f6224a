"""The systems that run: one question a second for all viewers, and none without a viewer.

Clusters are asked by processes of their own (`asking`), one for each cluster with a system, so none of them can take the
server with it. What is not answered in time is said on the page; its process is ended, and begun again with the next question.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ray_snapshot.errors import ClusterError, RaySnapshotError
from ray_snapshot.glances import MOST_KEPT, Glance
from ray_snapshot.web.served import Running, Served

LOOKING = "the clusters: they are being looked for"

POLL_S = 1.0
OLD_S = 10.0
"""Answers that are older are waited for, `WAIT_S` at most."""
WAIT_S = 3.0
UNWANTED_S = 5.0
"""So long after the last page has asked nobody is asked any more."""
FIND_S = 5.0
"""How often it is looked which clusters and systems there are."""
ANSWER_S = 30.0


def _run(connection: Any, address: str | None) -> None:
    """The process that asks; what it loads (Ray) is loaded there only."""
    import_module("ray_snapshot.web.asking").run(connection, address)


class Asker:
    """A process that asks one cluster, or looks for clusters; one question at a time."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._process: Any = None
        self._connection: Any = None
        self._is_closed = False

    def ask(self, seconds: float, *question: Any) -> Any:
        """The answer; raises `ClusterError` if there is none within so many seconds."""
        with self._lock:
            try:
                if self._process is None or not self._process.is_alive():
                    self._begin()
                self._connection.send(question)
                if not self._connection.poll(seconds):
                    raise TimeoutError
                is_well, answer = self._connection.recv()
            except (TimeoutError, EOFError, OSError) as error:
                self._end()
                where = "the clusters of this machine" if self.address is None else f"the Ray cluster at {self.address}"
                why = f"within {seconds:g} s" if isinstance(error, TimeoutError) else "any more"
                raise ClusterError(f"{where} did not answer {why}") from None
        if not is_well:
            raise ClusterError(answer)
        return answer

    def _begin(self) -> None:
        if self._is_closed:
            raise EOFError
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        process = context.Process(target=_run, args=(theirs, self.address), daemon=True, name="ray-snapshot-asker")
        process.start()
        theirs.close()
        self._process = process

    def _end(self) -> None:
        process, self._process = self._process, None
        with suppress(OSError, AttributeError):
            self._connection.close()
        if process is not None:
            process.kill()
            process.join(5.0)

    def close(self) -> None:
        """End the process; whoever waits for its answer gets an error."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()
            process.join(5.0)


@dataclass(slots=True)
class _System:
    """A system that was found."""

    name: str
    address: str
    about: dict[str, Any] = field(default_factory=dict)
    glances: deque[Glance] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    origin: str = ""
    """Of the glances: those of another run, or of another analyst, are others."""
    place: str | None = None
    trouble: str = ""

    def take_in(self, about: dict[str, Any], place: str | None) -> None:
        """What the system has answered."""
        fresh: list[Glance] = about.pop("glances")
        if about["origin"] != self.origin:
            self.origin = about["origin"]
            self.glances.clear()
        self.glances.extend(fresh)
        self.about, self.place, self.trouble = about, place, ""


class Clusters:
    """The running systems of one cluster, or of all clusters on this machine.

    A thread asks them as long as somebody wants to know; pages get what it knows, and wait a moment only for what is old.
    """

    def __init__(self, served: Served, address: str | None = None) -> None:
        self.served = served
        self.address = address
        self.finder = Asker(None)
        self.askers: dict[str, Asker] = {}
        self._systems: dict[str, _System] = {}
        self._not_asked: list[str] = []
        self._found_at = self._polled_at = self._wanted_at = float("-inf")
        self._known: tuple[list[Running], list[str]] = ([], [LOOKING])
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def systems(self) -> list[Running]:
        """Those that run, as they were a second ago."""
        with self._changed:
            now = self._wanted_at = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="clusters", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            while now - self._polled_at > OLD_S and (left := now + WAIT_S - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._known[0]

    def not_asked(self) -> list[str]:
        """What could not be asked, and why."""
        return self._known[1]

    def look(self) -> None:
        """Look for clusters once; raises `ClusterError` if there is none, or none that can be asked."""
        self._find()
        if self._not_asked and not self._systems:
            raise ClusterError(self._not_asked[0])

    def _work(self) -> None:
        while not self._is_closed:
            with self._changed:
                if time.monotonic() - self._wanted_at > UNWANTED_S:
                    self._changed.wait(UNWANTED_S)
                    continue
            try:
                if time.monotonic() - self._found_at > FIND_S:
                    self._find()
                self._poll()
            except Exception as error:  # whatever it is: it is said, and they are asked again
                self._not_asked = [f"{type(error).__name__}: {error}"]
            known = [
                Running(one.name, one.about, tuple(one.glances), one.place, one.trouble)
                for one in self._systems.values()
                if not one.about.get("is_closed")  # its program may still hold it
            ]
            with self._changed:
                self._known, self._polled_at = (known, list(self._not_asked)), time.monotonic()
                self._changed.notify_all()
            time.sleep(POLL_S)

    def _find(self) -> None:
        """Which systems there are; those that are known stay if that cannot be found out."""
        self._found_at = time.monotonic()
        try:
            found, self._not_asked = self.finder.ask(ANSWER_S, "find", self.address)
        except ClusterError as error:
            self._not_asked = [str(error)]
            for one in self._systems.values():
                one.trouble = str(error)
            return
        there: dict[str, str] = {}
        for address, systems in found.items():
            for name in systems:
                if name in there:
                    self._not_asked.append(
                        f"{name} at {address} (one of that name runs at {there[name]}, too: say --address)"
                    )
                else:
                    there[name] = address
        for name, one in list(self._systems.items()):
            if there.get(name) != one.address:
                del self._systems[name]
        for name, address in there.items():
            self._systems.setdefault(name, _System(name, address))
        for address in set(self.askers) - set(there.values()):
            self.askers.pop(address).close()

    def _poll(self) -> None:
        """Ask every system, those of several clusters at once: one that does not answer holds up no other."""
        by_address: dict[str, list[_System]] = {}
        for one in self._systems.values():
            by_address.setdefault(one.address, []).append(one)
        if by_address:
            with ThreadPoolExecutor(len(by_address)) as pool:
                list(pool.map(self._ask_all, by_address.values()))

    def _ask_all(self, systems: Iterable[_System]) -> None:
        for one in systems:
            try:
                place = one.glances[-1].place if one.glances else 0
                about = self._asker(one.address).ask(ANSWER_S, "glance", one.name, one.origin, place)
                one.take_in(about, self._place_of(about.get("history")))
            except Exception as error:  # of this one it is said
                one.trouble = str(error) if isinstance(error, RaySnapshotError) else f"{type(error).__name__}: {error}"

    def _asker(self, address: str) -> Asker:
        return self.askers.setdefault(address, Asker(address))

    def _place_of(self, path: str | None) -> str | None:
        """The key of a system's history, if it can be read from here: it may lie on another machine, or be new."""
        if path is None:
            return None
        try:
            return self.served.add(path).key
        except RaySnapshotError:
            return None

    def close(self) -> None:
        """End all processes."""
        self._is_closed = True
        with self._changed:
            self._changed.notify_all()
        for asker in (self.finder, *self.askers.values()):
            asker.close()
