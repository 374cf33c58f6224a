"""The tests' cluster, as programs in processes of their own find it."""

from __future__ import annotations

import pytest
from app_runner import Runner


@pytest.fixture(scope="session")
def runner(ray_cluster: None) -> Runner:
    import ray

    return Runner(ray.get_runtime_context().gcs_address)
