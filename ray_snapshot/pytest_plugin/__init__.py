"""The pytest plugin: a test that hangs in a deadlock fails with the reason, and the run goes on. Off unless it is asked for.

`pytest --ray-snapshot` (or `ray_snapshot = true` among pytest's settings) watches whatever the tests do with Ray: the hooks
are there before any conftest is loaded. This file is loaded with every pytest, and loads neither Ray nor anything of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ray_snapshot.pytest_plugin.watching import TestRun, WatchedTest

EVERY_S = 0.5
GRACE_S = 2.0

_RUN: pytest.StashKey[TestRun] = pytest.StashKey()
"""What a run of pytest has that is to watch; not one inside of it."""

_MARKER = (
    'ray_snapshot(every=SECONDS, expect="deadlock"): with --ray-snapshot, how often snapshots are taken while the test runs;'
    " whether it is to come to a deadlock"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options and settings."""
    group = parser.getgroup("ray-snapshot", "deadlocks of Ray programs")
    group.addoption(
        "--ray-snapshot", action="store_true", help="watch what the tests do with Ray, and fail those that deadlock"
    )
    group.addoption(
        "--ray-snapshot-every",
        type=float,
        default=EVERY_S,
        metavar="SECONDS",
        help="seconds between snapshots (%(default)s)",
    )
    group.addoption(
        "--ray-snapshot-grace",
        type=float,
        default=GRACE_S,
        metavar="SECONDS",
        help="so long a deadlock must stand before the test's wait ends in DeadlockError (%(default)s)",
    )
    group.addoption(
        "--ray-snapshot-on-deadlock",
        choices=["fail", "report"],
        default="fail",
        help="fail the test, whose wait ends in DeadlockError, or only warn (%(default)s)",
    )
    group.addoption(
        "--ray-snapshot-report", metavar="DIR", help="keep the history and the report of tests that fail in this folder"
    )
    parser.addini("ray_snapshot", "watch what the tests do with Ray, as --ray-snapshot", type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the tests is imported: classes and functions that Ray has made before are not followed."""
    given = early_config.known_args_namespace
    is_wanted = given.ray_snapshot or early_config.getini("ray_snapshot")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    hands_out = worker is None and bool(getattr(given, "tx", None) or getattr(given, "numprocesses", None))
    if not is_wanted or hands_out or given.collectonly or given.help or given.version or _is_inside_another():
        return
    from ray_snapshot.errors import RaySnapshotError
    from ray_snapshot.pytest_plugin.watching import Options, TestRun

    options = Options(
        worker or "main",
        given.ray_snapshot_every,
        given.ray_snapshot_grace,
        given.ray_snapshot_on_deadlock == "fail",
        given.ray_snapshot_report,
    )
    try:
        early_config.stash[_RUN] = TestRun(options)
    except RaySnapshotError as error:
        raise pytest.UsageError(f"--ray-snapshot: {error}") from None


def _is_inside_another() -> bool:
    """Whether a run of this process watches already: a test may run pytest itself."""
    module = sys.modules.get("ray_snapshot.pytest_plugin.watching")
    return module is not None and module.TestRun.is_one_there


def _run_of(config: pytest.Config) -> TestRun | None:
    return config.stash.get(_RUN, None)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a marker says wrongly is said before any test runs."""
    for item in items:
        for marker in item.iter_markers("ray_snapshot"):
            given = dict(marker.kwargs)
            expect, every = given.pop("expect", None), given.pop("every", 1.0)
            is_number = isinstance(every, (int, float)) and not isinstance(every, bool) and every > 0
            if given or marker.args or expect not in (None, "deadlock") or not is_number:
                text = 'ray_snapshot(every=SECONDS, expect="deadlock")'
                raise pytest.UsageError(f"{item.nodeid}: the marker is {text}, not {marker.args} {marker.kwargs}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What deadlocks behind its teardown is of no test."""
    try:
        return (yield)
    finally:
        if (run := _run_of(item.config)) is not None:
            run.end()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],  # noqa: ARG001 - a hook is called by its parameters' names
    request: pytest.FixtureRequest,
) -> Generator[None, Any, Any]:
    """A Ray that a fixture starts is called after what the fixture is for."""
    run = _run_of(request.config)
    if run is None:
        return (yield)
    with run.named(request.node.nodeid or "tests"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """From its setup on, what deadlocks is of this test; one that is run again begins anew."""
    if (run := _run_of(item.config)) is not None:
        run.begin(item)
    return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test passes if it came to what it is to come to."""
    run, marker = _run_of(item.config), item.get_closest_marker("ray_snapshot")
    if run is not None:
        with run.named(item.nodeid), run.judged():
            return (yield)
    if marker is not None and marker.kwargs.get("expect") is not None:
        pytest.fail("this test expects a deadlock, and would hang: run pytest with --ray-snapshot", pytrace=False)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    """A failure says where its history is."""
    report = yield
    if (run := _run_of(item.config)) is not None:
        run.reported(item, call, report)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """What was kept for tests that may fail is not needed any more."""
    if (run := _run_of(session.config)) is not None:
        run.close()


@pytest.fixture
def ray_snapshot(request: pytest.FixtureRequest) -> WatchedTest:
    """What this test does with Ray: `assert_terminates(timeout)`, `assert_conserved(detector)`, `snapshot()`."""
    run = _run_of(request.config)
    if run is None:
        pytest.fail(
            "the fixture ray_snapshot needs --ray-snapshot: Ray's calls must be followed from the start", pytrace=False
        )
    return run.watched(request.node)
