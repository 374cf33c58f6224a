"""The tests' cluster, as programs in processes of their own find it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from app_runner import Runner

from ray_snapshot.instrument.process import waiting


@pytest.fixture(scope="session")
def runner(ray_cluster: None) -> Runner:
    import ray

    return Runner(ray.get_runtime_context().gcs_address)


@pytest.fixture(scope="module")
def at_once() -> Iterator[Callable[..., Future[Any]]]:
    """Runs the programs of one file a few at a time: they wait more than they compute."""
    with ThreadPoolExecutor(3) as pool:
        yield pool.submit


@pytest.fixture(scope="module")
def scenarios(request: pytest.FixtureRequest) -> list[str]:
    """The parameters `scenario` of the tests of this file that run."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    return list(dict.fromkeys(item.callspec.params["scenario"] for item in items if "scenario" in item.callspec.params))


@pytest.fixture
def refs_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of a ref stands the id of the call that answers it."""
    monkeypatch.setattr(waiting, "apart", lambda refs: (list(refs), list(refs), []))
