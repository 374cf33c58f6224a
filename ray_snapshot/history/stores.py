"""Object stores: addresses like `s3://bucket/path`, the client of a store, and what its faults mean to a person.

Everything that is secret comes from the environment, by the names that Delta's own Rust library reads (`AWS_*`, `GOOGLE_*`,
`AZURE_*`): no address, error or file holds any of it. Requests have a bound in time. Imports no Ray; `obstore`, which is
the same library as the one inside `deltalake`, is imported where it is used. Read `objects` next.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from ray_snapshot.addresses import SCHEMES, VARIABLES, AnyPath, StorePath
from ray_snapshot.errors import MissingExtraError, RaySnapshotError
from ray_snapshot.limits import LIMITS

_URL = re.compile(r"(https?://[^\s?]+)\?\S*")
_SECRET = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|SAS|CREDENTIAL|ACCOUNT", re.IGNORECASE)
_USER = re.compile(r"//[^/@\s]+@")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_TEXTS = re.compile(r"<(Code|Message)>([^<]*)</")


# ---- the client -----------------------------------------------------------------------------------------------------------


def client(path: StorePath) -> Any:
    """The client of a bucket, made once for each environment; raises `MissingExtraError` without `obstore`."""
    begins = VARIABLES[kind(path)]
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith(begins)))
    with told(path):
        return _client(path.root, settings)


@lru_cache(maxsize=16)
def _client(root: str, settings: tuple[tuple[str, str], ...]) -> Any:
    if find_spec("obstore") is None:
        raise MissingExtraError(f"a history at {root} needs obstore: pip install 'ray-snapshot[stores]'")
    from obstore.store import from_url

    allows_http = any(name.endswith("ALLOW_HTTP") and value.lower() in ("true", "1") for name, value in settings)
    times = {
        "connect_timeout": timedelta(seconds=LIMITS.store_connect_s),
        "timeout": timedelta(seconds=LIMITS.store_request_s),
    }
    options: Any = {
        "client_options": {**times, "allow_http": allows_http},
        "retry_config": {"max_retries": LIMITS.store_retries, "retry_timeout": timedelta(seconds=LIMITS.store_retry_s)},
    }
    return from_url(root, **options)


def kind(path: StorePath) -> str:
    """`s3`, `gs` or `az`."""
    return SCHEMES[path.root.partition(":")[0]]


def delta_options(path: AnyPath) -> dict[str, str] | None:
    """What `deltalake` is told beside the environment, which it reads itself; None for a folder."""
    if not isinstance(path, StorePath):
        return None
    found = {
        "connect_timeout": f"{LIMITS.store_connect_s}s",
        "timeout": f"{LIMITS.store_request_s}s",
        "max_retries": str(LIMITS.store_retries),
        "retry_timeout": f"{LIMITS.store_retry_s}s",
    }
    if kind(path) == "s3" and not {"AWS_CONDITIONAL_PUT", "AWS_COPY_IF_NOT_EXISTS"} & set(os.environ):
        found["aws_conditional_put"] = "etag"
    return found


# ---- what its faults mean -------------------------------------------------------------------------------------------------


class StoreFault(OSError):
    """A request to a store failed; the text says why, and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EIO, text)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreFault, (self.strerror,)


@contextmanager
def told(path: StorePath) -> Iterator[None]:
    """Turn what a client raises into `StoreFault`, and `FileNotFoundError` for what is not there."""
    try:
        yield
    except (RaySnapshotError, StoreFault):
        raise
    except FileNotFoundError as fault:
        if "NoSuchBucket" in str(fault):
            raise StoreFault(meaning(path, str(fault))) from None
        raise FileNotFoundError(errno.ENOENT, "there is no such object", str(path)) from None
    except OSError as fault:
        raise StoreFault(meaning(path, str(fault))) from None
    except Exception as fault:
        if type(fault).__module__.partition(".")[0] not in ("obstore", "_obstore", "builtins"):
            raise
        raise StoreFault(meaning(path, str(fault))) from None


def meaning(path: StorePath, text: str) -> str:
    """What a fault of a store's library means, in one line, with nothing of what is secret in it."""
    known = known_meaning(path, text)
    if known is not None:
        return known
    text = _COLOURS.sub("", text)
    codes = dict(_TEXTS.findall(text))
    if codes:
        return hidden(f"the store says: {codes.get('Message') or codes.get('Code')}"[:300])
    return hidden(" ".join(text.partition("Debug source:")[0].split())[:300])


def known_meaning(path: StorePath, text: str) -> str | None:
    """The same for what people meet often; None for anything else."""
    begins = VARIABLES[kind(path)]
    flat = " ".join(text.split())
    if "NoSuchBucket" in flat or "bucket does not exist" in flat:
        return f"there is no bucket {path.root}: make it first, or give another address"
    if "BadScheme" in flat or ("builder error" in flat and "http://" in flat):
        return f"its address is http://, without encryption: set {begins}ALLOW_HTTP=true if that is meant"
    if "169.254.169.254" in flat or "169.254.170" in flat or "metadata.google" in flat or "MissingCredentials" in flat:
        return f"there are no credentials for {path.root}: {_REMEDIES[kind(path)]}"
    for code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied"):
        if code in flat:
            return f"the store refuses what the environment gives as credentials ({code}): {_REMEDIES[kind(path)]}"
    if re.search(r"\b(401 Unauthorized|403 Forbidden)\b", flat):
        return f"the store refuses what the environment gives as credentials (403): {_REMEDIES[kind(path)]}"
    if "error sending request" in flat or "timed out" in flat or "connection closed" in flat or "dns error" in flat:
        found = _USER.sub("//", _URL.sub(r"\1", flat))
        where = re.search(r"https?://([^\s/]+)", found)
        at = where[1] if where else path.root
        return hidden(
            f"the store cannot be reached at {at}: look at the network, and at {begins}ENDPOINT_URL if it is set"
        )
    return None


_REMEDIES = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def hidden(text: str) -> str:
    """A text without users and queries of addresses, and without values that the environment has of secrets."""
    text = _USER.sub("//", _URL.sub(r"\1", text))
    for name, value in os.environ.items():
        if name.startswith(tuple(VARIABLES.values())) and _SECRET.search(name) and len(value) > 3:
            text = text.replace(value, "...")
    return text
