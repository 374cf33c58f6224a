"""What asks a cluster, in a process of its own: Ray ends a process that loses its cluster, and it must not be the server.

`run` is the whole of that process: it answers one question after the other, until its pipe is closed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from ray_snapshot.errors import RaySnapshotError

ANSWER_S = 10.0

Answer = tuple[bool, Any]
"""(True, what was asked for) or (False, the words of an error)."""


def run(connection: Connection, address: str | None) -> None:
    """Answer until the pipe is closed. `address`: of the cluster; None: only `find` is asked."""
    from ray_snapshot.commands.visiting import visitor

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which closes the pipe
    with visitor():
        asked: Mapping[str, Callable[..., Any]] = {"find": _find} if address is None else _of_cluster(address)
        while True:
            try:
                name, *given = connection.recv()
            except (EOFError, OSError):
                return
            connection.send(_answer(asked[name], given))


def _answer(ask: Callable[..., Any], given: list[Any]) -> Answer:
    try:
        return True, ask(*given)
    except RaySnapshotError as error:
        return False, str(error)
    except Exception as error:  # Ray raises many kinds: the server says so on its page
        return False, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"


def _find(address: str | None) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """By address of a cluster: the systems that run there; and what could not be asked."""
    from ray_snapshot.instrument.clusters import find

    found = find(address)
    return {one.address: one.systems for one in found.clusters}, found.not_asked()


def _of_cluster(address: str) -> Mapping[str, Callable[..., Any]]:
    from ray_snapshot.instrument.clusters import authorize
    from ray_snapshot.runtime.cluster import ask, connect, service_of

    def connected() -> None:
        authorize(address)
        connect(address, is_visit=True)

    def glance(system: str, origin: str, place: int) -> dict[str, Any]:
        connected()
        found: dict[str, Any] = ask(service_of(system).glance.remote(origin, place), f"system {system}", ANSWER_S)
        return found

    return {"glance": glance}
