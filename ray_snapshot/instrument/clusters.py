"""The Ray clusters that a command or a program can reach: which run here, whether they answer, and what they ask for.

Ray itself shows its token only where `address="auto"` found the cluster; with an address, or several clusters, it tries for
20 s and says nothing of tokens. So a cluster is asked before `ray.init` is: first whether something answers there that speaks
as Ray's control store does, then without a token, and with the one that is there if the cluster wants it. Changes no file.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from ray_snapshot.errors import ClusterError, RaySnapshotError, SystemNotRunningError
from ray_snapshot.instrument import cluster_shape
from ray_snapshot.instrument.cluster_shape import AUTH_MODE, AuthenticationError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import NAMESPACE, PREFIX
from ray_snapshot.runtime.faults import first_line

NONE_RUNS = (
    "no Ray cluster runs on this machine: start your program first, with `ray-snapshot run SCRIPT`, and ask while it runs; for"
    " a cluster that is not found by itself say --address HOST:PORT"
)

_TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # the first that is set counts
_TOKEN_FILE = "~/.ray/auth_token"

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first; a server answers with its settings."""

_SETTINGS_FRAME = 4


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that has answered."""

    address: str
    systems: tuple[str, ...]
    """The names of the systems that run on it."""
    asks_for_token: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The clusters that a command may mean."""

    clusters: list[Cluster]
    silent: dict[str, list[str]] = field(default_factory=dict)
    """The addresses of the other clusters on this machine, by why they could not be asked."""

    def not_asked(self) -> list[str]:
        """Which clusters of this machine could not be asked, and why."""
        return [f"{', '.join(places)} ({why})" for why, places in self.silent.items()]

    def that_runs(self, system: str) -> Cluster:
        """The one cluster that runs this system.

        Raises `SystemNotRunningError`; `ClusterError` if several do, or some could not be asked.
        """
        having = [item for item in self.clusters if system in item.systems]
        if len(having) > 1:
            places = ", ".join(item.address for item in having)
            raise ClusterError(
                f"{len(having)} Ray clusters run a system {system!r}: say which with --address: {places}"
            )
        if not having:
            raise self._not_running_error(system)
        return having[0]

    def _not_running_error(self, system: str) -> RaySnapshotError:
        one = len(self.clusters) == 1
        where = "on this cluster" if one else f"on these {len(self.clusters)} Ray clusters"
        running = [name if one else f"{name} ({item.address})" for item in self.clusters for name in item.systems]
        summary = f"{where}; running: {', '.join(running) or 'none'}"
        if self.silent:
            silent = "".join(f"; not asked: {line}" for line in self.not_asked())
            return ClusterError(f"it cannot be told whether a system {system!r} runs: there is none {summary}{silent}")
        hint = "" if running else ": start your program with `ray-snapshot run SCRIPT`"
        return SystemNotRunningError(f"no system {system!r} is running {summary}{hint}", system=system)


def find(address: str | None, system: str | None = None) -> Found:
    """The cluster at an address, or else at `RAY_ADDRESS`, or else all that run on this machine. Raises `ClusterError`.

    If none of them runs `system`, those that did not answer are asked a second time: they may be starting or ending.
    """
    given = address_given(address)
    if given is not None:
        return Found([look(given)])
    found, silent = _look_at_all(alive())
    if silent and system is not None and not any(system in item.systems for item in found):
        again, silent = _look_at_all([item for places in silent.values() for item in places if is_alive(item)])
        found += again
    if not found:
        silence = "; ".join(Found([], silent).not_asked())
        raise ClusterError(f"no Ray cluster of this machine can be asked: {silence}" if silence else NONE_RUNS)
    return Found(found, silent)


def _look_at_all(addresses: Iterable[str]) -> tuple[list[Cluster], dict[str, list[str]]]:
    """The clusters there, and the addresses of those that could not be asked, by why."""
    found: list[Cluster] = []
    silent: dict[str, list[str]] = {}
    for item in addresses:
        try:
            found.append(look(item))
        except ClusterError as error:
            why = str(error).replace(f" at {item!r}", "").replace(f" at {item}", "")
            silent.setdefault(why, []).append(item)
    return found, silent


def alive() -> list[str]:
    """The addresses of the clusters on this machine whose port is not closed."""
    with ThreadPoolExecutor(8) as pool:
        listed = cluster_shape.running_clusters()
        return [item for item, lives in zip(listed, pool.map(is_alive, listed), strict=True) if lives]


def address_given(address: str | None) -> str | None:
    """The address that Ray would use: the one given, or that of the environment; None if it would look for one."""
    found = address if address not in (None, "", "auto") else os.environ.get("RAY_ADDRESS")
    return None if found in (None, "", "auto") else found


def look(address: str) -> Cluster:
    """Ask a cluster which systems it runs. Raises `ClusterError`."""
    before = os.environ.get(AUTH_MODE)
    with authorized(address) as store, _told(address):
        asks_for_token = before is None and AUTH_MODE in os.environ
        if not cluster_shape.nodes_known(store, LIMITS.cluster_answer_s) & cluster_shape.nodes_here():
            raise _error(
                f"the Ray cluster at {address} has no node on this machine", "run the command on one of its machines"
            )
        names = [
            name
            for name, namespace in cluster_shape.actors_known(store, LIMITS.cluster_answer_s)
            if namespace == NAMESPACE
        ]
    systems = sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX))
    return Cluster(address, tuple(systems), asks_for_token)


def _error(what: str, remedy: str, *, asks_for_token: bool = False) -> ClusterError:
    return ClusterError(f"{what}: {remedy}", what=what, remedy=remedy, asks_for_token=asks_for_token)


@contextmanager
def authorized(address: str) -> Iterator[Any]:
    """A connection to the control store of a cluster; meanwhile this process shows the token if that cluster asks for one.

    Raises `ClusterError` if there is no such cluster, or no token that it takes.
    """
    before = os.environ.get(AUTH_MODE)
    try:
        yield authorize(address)
    finally:
        if before is None and AUTH_MODE in os.environ:
            cluster_shape.show_token(False)


def authorize(address: str) -> Any:
    """A connection to the control store, as `authorized`, but this process goes on showing the token afterwards."""
    store = _authorized(address)
    with _told(address):
        version = cluster_shape.version_known(store, LIMITS.cluster_answer_s)
    if version not in (None, ray.__version__):
        raise _error(
            f"the Ray cluster at {address} runs Ray {version}, and this is Ray {ray.__version__}",
            "use the environment that it was started from",
        )
    return store


def _authorized(address: str) -> Any:
    check_answers(address)
    mode = os.environ.get(AUTH_MODE)
    with _told(address):
        if mode is not None and mode.lower() == "token" and not cluster_shape.has_token():
            raise _error(f"{AUTH_MODE}=token is set and there is no token", f"set RAY_AUTH_TOKEN, or unset {AUTH_MODE}")
        try:
            return cluster_shape.control_store(address, LIMITS.cluster_answer_s)
        except AuthenticationError:
            _check_token(address, mode)
        cluster_shape.show_token(True)
        try:
            return cluster_shape.control_store(address, LIMITS.cluster_answer_s)
        except AuthenticationError:
            raise _refused(address) from None


def _check_token(address: str, mode: str | None) -> None:
    if mode is not None and mode.lower() == "token":
        raise _refused(address)
    if mode is not None:
        what = f"the Ray cluster at {address} asks for a token, and {AUTH_MODE}={mode} is set"
        raise _error(what, "unset it", asks_for_token=True)
    if not cluster_shape.has_token():
        what = f"the Ray cluster at {address} asks for a token, and there is none in {_TOKEN_FILE}"
        raise _error(what, _SET_TOKEN, asks_for_token=True)


_SET_TOKEN = "set RAY_AUTH_TOKEN to the token that it was started with, or RAY_AUTH_TOKEN_PATH to its file"


def _refused(address: str) -> ClusterError:
    what = f"the Ray cluster at {address} refuses the token of {_token_place()}"
    return _error(what, _SET_TOKEN, asks_for_token=True)


def token_place() -> str | None:
    """Where Ray finds its token; None if there is none. Raises `ClusterError` if Ray is told a wrong place."""
    try:
        return _token_place() if cluster_shape.has_token() else None
    except AuthenticationError as error:
        raise ClusterError(first_line(error).partition(" Note: ")[0]) from None


def _token_place() -> str:
    return next((name for name in _TOKEN_VARIABLES if os.environ.get(name)), _TOKEN_FILE)


@contextmanager
def _told(address: str) -> Iterator[None]:
    """What Ray raises, as an error of ours."""
    try:
        yield
    except AuthenticationError as error:
        raise ClusterError(first_line(error).partition(" Note: ")[0]) from None
    except (RayError, TimeoutError, ValueError) as error:
        raise ClusterError(f"no Ray cluster answers at {address}: {first_line(error).rstrip(': ')}") from None


# ---- is anything there -------------------------------------------------------------------------------------------------


def check_answers(address: str) -> None:
    """Raise `ClusterError` if nothing that may be Ray's control store answers there; Ray itself tries for minutes."""
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port), LIMITS.greeting_s) as connection:
            if os.environ.get("RAY_USE_TLS", "0") not in ("1", "true"):  # those do not greet in clear
                connection.settimeout(LIMITS.greeting_s)
                connection.sendall(_GREETING)
                reply = connection.recv(9)
                if len(reply) < 4 or reply[3] != _SETTINGS_FRAME:
                    raise _error(f"what answers at {address} is no Ray cluster", "name the address that `run` printed")
    except (OSError, UnicodeError) as error:
        raise ClusterError(f"no Ray cluster can be reached at {address!r}: {first_line(error)}") from None


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of an address, checked. Raises `ClusterError`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if "/" in address or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:9]) < 65_536:
        raise _error(
            f"{address!r} is no address of a Ray cluster",
            "say HOST:PORT, such as 127.0.0.1:6379, as `ray-snapshot run` prints it (not ray:// nor http://)",
        )
    return host, int(port)


def is_alive(address: str) -> bool:
    """False if a cluster's remains may still be listed, but its port is closed."""
    try:
        socket.create_connection(host_and_port(address), LIMITS.greeting_s).close()
    except (ClusterError, ConnectionRefusedError):
        return False
    except OSError:  # it may be busy: who asks it says why it does not answer
        return True
    return True
