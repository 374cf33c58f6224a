"""One Ray and one Spark for each process of a test run, Ray in a temporary folder of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_USE_UVLOOP", "0")
"""uvloop is here for the tests that ask for it; most users have none, so Ray uses it where a test or `make` says so."""


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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from ray_snapshot.spark_jobs.session import spark_session

    session = spark_session("local[2]", brief=True)
    # A dozen rows a query: generating code for each would be most of the time. `test_spark_command.py` runs with it.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()
