"""Ray's private names about clusters that this process is not connected to yet: where they run, their token, what they know.

Their shape is checked by `shape.check`, with that of all others. Imports Ray; nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from typing import Any

import ray
import ray.exceptions

from ray_snapshot.instrument.private import importing

with importing():
    from ray._private import services
    from ray._raylet import Config, InnerGcsClient  # type: ignore[attr-defined]

AuthenticationTokenLoader: Any = getattr(ray._raylet, "AuthenticationTokenLoader", None)
AuthenticationError: Any = getattr(ray.exceptions, "AuthenticationError", ())
"""Not there where Ray's clusters ask for no token; `except ()` catches nothing."""

READ: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    (
        "ray._raylet.InnerGcsClient",
        InnerGcsClient,
        ("standalone", "async_get_all_actor_info", "get_all_node_info", "internal_kv_get"),
    ),
    (
        "ray._private.services",
        services,
        ("canonicalize_bootstrap_address", "find_gcs_addresses", "_find_address_from_flag"),
    ),
)
"""See `shape.check`."""

AUTH_MODE = "RAY_AUTH_MODE"
"""The variable that tells Ray whether to show its token."""


def address_to_join(address: str | None, temp_dir: str | None) -> str | None:
    """The address of the cluster that `ray.init` joins; None if it starts one."""
    found: str | None = services.canonicalize_bootstrap_address(address, temp_dir)
    return found


def running_clusters() -> list[str]:
    """The addresses of the Ray clusters that run on this machine."""
    getattr(services.find_gcs_addresses, "cache_clear", lambda: None)()  # a later Ray remembers what it has found
    return sorted(services.find_gcs_addresses())


def nodes_here() -> set[str]:
    """The ids of the nodes that run on this machine, of any cluster."""
    if hasattr(services, "find_node_ids"):
        return set(services.find_node_ids())
    return set(services._find_address_from_flag("--node_id"))


def has_token() -> bool:
    """Whether Ray finds a token where it looks for one; raises `AuthenticationError` if it is told a wrong place."""
    if AuthenticationTokenLoader is None:
        return False
    loader = AuthenticationTokenLoader.instance()
    loader.reset_cache()
    try:
        return bool(loader.has_token(ignore_auth_mode=True))
    except TypeError:  # an earlier Ray looks for it only where it is to be shown
        return _has_token_to_show(loader)


def _has_token_to_show(loader: Any) -> bool:
    before = os.environ.get(AUTH_MODE)
    show_token(True)
    try:
        return bool(loader.has_token())
    finally:
        show_token(before == "token")


def show_token(is_shown: bool) -> None:
    """Whether this process, and those that it starts, show the token to the clusters that they ask from now on."""
    if is_shown:
        os.environ[AUTH_MODE] = "token"
    else:
        os.environ.pop(AUTH_MODE, None)
    Config.initialize("")
    if AuthenticationTokenLoader is not None:
        AuthenticationTokenLoader.instance().reset_cache()


def control_store(address: str, seconds: float) -> Any:
    """A connection to a cluster's control store; raises `AuthenticationError`, and `RpcError` if none answers there.

    With a token asked for by `AUTH_MODE` and none to be had, Ray ends the whole process: see `has_token`.
    """
    return InnerGcsClient.standalone(address, None, round(seconds * 1_000))


def version_known(store: Any, seconds: float) -> str | None:
    """The version of Ray that a cluster was started with, as Ray itself compares it; None if it does not say."""
    return _metadata(store, seconds).get("ray_version")


def python_known(store: Any, seconds: float) -> str | None:
    """The version of Python that a cluster was started with; None if it does not say."""
    return _metadata(store, seconds).get("python_version")


def is_python_let_in(version: str) -> bool:
    """Whether Ray lets this process into a cluster of that Python: by its first three numbers, or as many as it is told."""
    level = os.environ.get("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "patch")
    count = 2 if level == "minor" else 3
    return version.split(".")[:count] == platform.python_version().split(".")[:count]


def _metadata(store: Any, seconds: float) -> dict[str, str]:
    found = store.internal_kv_get(b"CLUSTER_METADATA", b"cluster", seconds)
    return {} if found is None else dict(json.loads(found))


def actors_known(store: Any, seconds: float) -> list[tuple[str, str]]:
    """(name, namespace) of the living actors of a cluster that have a name."""

    async def actors() -> Any:
        return await store.async_get_all_actor_info(timeout=seconds)

    found = asyncio.run(actors()).values()
    return [(item.name, item.ray_namespace) for item in found if item.name and item.state != item.DEAD]


def nodes_known(store: Any, seconds: float) -> set[str]:
    """The ids of the living nodes of a cluster."""
    found = store.get_all_node_info(timeout=seconds)
    return {key.hex() for key, node in found.items() if node.state == node.ALIVE}
