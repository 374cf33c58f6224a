"""How names that Ray does not promise are imported: where one is missing, the error says which Ray can be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray

from ray_snapshot.errors import UnsupportedRayError
from ray_snapshot.tested import RANGE


@contextmanager
def importing() -> Iterator[None]:
    """Private names are imported in the block; raises `UnsupportedRayError` if Ray has not got one."""
    try:
        yield
    except ImportError as error:
        raise unsupported(str(error)) from None


def unsupported(what: str) -> UnsupportedRayError:
    """This Ray is not the one that we know; `what`: the difference."""
    return UnsupportedRayError(
        f"Ray {ray.__version__}: {what}: this version of ray-snapshot cannot follow its calls; use Ray {RANGE}"
    )
