"""Ray itself: starting it, finding running systems, and saying plainly what is wrong."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ray_snapshot.addresses import is_address
from ray_snapshot.errors import ClusterError, HostDiedError, SettingError, SnapshotTimeoutError, SystemNotRunningError
from ray_snapshot.names import NAMESPACE, PREFIX, check_system_name
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import as_error, first_line
from ray_snapshot.runtime.here import BEHIND

_LONGEST_SOCKET_PATH = 107


def connect(address: str | None = None, temp_dir: str | None = None, *, is_visit: bool = False) -> bool:
    """Start or reach Ray if this process has not yet; returns whether it was done here. Raises `ClusterError`.

    `is_visit`: this process only looks, and prints nothing of what the cluster's workers print.
    """
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"logging_level": "ERROR", "namespace": NAMESPACE}
    if is_visit:
        options |= {"logging_level": "CRITICAL", "log_to_driver": False}
    _authorize(address)
    if address is not None:
        options["address"] = address
    else:
        options["include_dashboard"] = False
        if temp_dir is not None:
            _check_socket_path(temp_dir)
            options["_temp_dir"] = temp_dir
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises many kinds here, from its own and from the system's
        raise ClusterError(_explained(error, address)) from error
    return True


def _authorize(address: str | None) -> None:
    """If the cluster's address is known, check that it answers, and give it the token if it asks for one: Ray does
    not."""
    from ray_snapshot.instrument.clusters import address_given, authorize

    given = address_given(address)
    if given not in (None, "local"):
        authorize(given)


def _check_socket_path(temp_dir: str) -> None:
    path = f"{temp_dir}/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
    if len(path.encode()) > _LONGEST_SOCKET_PATH:
        raise ClusterError(
            f"Ray's temporary folder {temp_dir} is too long a path: its sockets may have {_LONGEST_SOCKET_PATH} bytes and"
            f" would get {len(path.encode())}; choose a shorter one, such as /tmp/ray"
        )


def _explained(error: Exception, address: str | None) -> str:
    text = first_line(error)
    if "AF_UNIX" in text or "socket path" in text.lower():
        return f"Ray's sockets do not fit: {text}; set RAY_TMPDIR to a short folder, such as /tmp"
    if address is not None:
        return f"no Ray cluster can be reached at {address!r}: {text}"
    return f"Ray cannot be started on this machine: {text}"


def check_shared(history: str | None, *, is_shared: bool) -> None:
    """Raise `SettingError` for a history in a folder of one computer while the cluster has several, unless it is shared."""
    if history is None or is_shared or is_address(history):
        return
    computers = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if len(computers) > 1:
        raise SettingError(
            f"the history {history} is a folder, and this cluster has {len(computers)} computers, each with folders of its"
            " own: give an address of an object store (s3://BUCKET/PATH), or say that all of them see this folder:"
            " history_is_shared=True (--shared-history)"
        )


def running_systems() -> list[str]:
    """The names of the systems that run on this cluster."""
    names = BEHIND.get("named_actors", ray.util.list_named_actors)(all_namespaces=True)
    found = [item["name"] for item in names if item["namespace"] == NAMESPACE]
    return sorted(name.removeprefix(PREFIX) for name in found if name.startswith(PREFIX))


def service_of(system: str) -> Any:
    """The service of a running system; raises `SystemNotRunningError`."""
    check_system_name(system)
    try:
        return ray.get_actor(PREFIX + system, namespace=NAMESPACE)
    except ValueError:
        running = ", ".join(running_systems()) or "none"
        raise SystemNotRunningError(
            f"no system {system!r} is running on this cluster; running: {running}", system=system
        ) from None


def ask(refs: Any, what: str, timeout: float = 60.0) -> Any:
    """`ray.get` with a bound in seconds; raises errors of ours, with Ray's wrapping taken off."""
    try:
        return waits.raw_get(refs, timeout=timeout)
    except GetTimeoutError:
        raise SnapshotTimeoutError(f"waited {timeout:g} s for {what}", waited_for=what, seconds=timeout) from None
    except RayError as error:
        found = as_error(error)
        if isinstance(found, HostDiedError) and found.host is None:
            found = HostDiedError(
                f"waited for {what}, but the process asked is gone: {first_line(error)}", host=None, machines=[]
            )
        raise found from None
