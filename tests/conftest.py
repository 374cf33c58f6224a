"""One Ray for the whole test run, in a temporary folder of its own; with two processes, it is the first one's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a Ray or a Spark run in one process, the others file by file (`pytest -n 2 --dist loadgroup`)."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if item.get_closest_marker("ray") or "ray_cluster" in names:
            group = "ray"
        else:
            group = "spark" if item.get_closest_marker("spark") or "spark" in names else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray; tests that use it are marked `ray`."""
    import ray

    from ray_snapshot.runtime.cluster import connect

    folder = tempfile.mkdtemp(prefix="rs-", dir="/tmp")
    connect(temp_dir=folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
