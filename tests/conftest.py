"""One Ray and one Spark for each process of a test run, Ray in a temporary folder of its own."""

import json
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from clean import hear_signals
from spread import spread
from stored import Store, environment

os.environ.setdefault("RAY_USE_UVLOOP", "0")
"""uvloop is here for the tests that ask for it; most users have none, so Ray uses it where a test or `make` says so."""

os.environ.setdefault("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "0")
"""The tests' Ray looks for new files of its workers twice a second, not ten times."""

hear_signals()

hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")
"""How long an example takes, beside other work, says nothing of it."""

LONGEST = (
    "test_loops_that_ask.py",
    "test_fuzzed_jobs.py",
    "test_fuzz.py",
    "test_a_fault_stays_ours.py",
    "test_crash_points.py",
    "test_a_history_of_before.py",
)
"""Files that take minutes, by day or at night: none of them is left over when all the others are through.

The last one is the first of those that need Spark, which go to one process (see below).
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed N` runs tests of chance as one did that failed with that seed."""
    parser.addoption("--seed", type=int, default=None, help="of tests that draw one and print it")


@pytest.fixture(autouse=True)
def _the_process_is_left_as_it_was() -> Iterator[None]:
    """What the whole process had, it has behind each test: another file's classes are looked for along the same path.

    A library that is imported meanwhile may add a path.
    """
    path, arguments, main, folder = list(sys.path), list(sys.argv), sys.modules["__main__"], os.getcwd()
    yield
    here = os.getcwd() if os.path.exists(".") else "a folder that is gone"
    left = [entry for entry in sys.path if entry in path], list(sys.argv), sys.modules["__main__"], here
    sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
    sys.argv[:], sys.modules["__main__"] = arguments, main
    logging.getLogger("ray_snapshot").setLevel(logging.NOTSET)
    os.chdir(folder)
    assert left == (path, arguments, main, folder)


@pytest.fixture(autouse=True)
def _nothing_is_redacted() -> Iterator[None]:
    """What a test redacts would be left out in the next, too."""
    yield
    from ray_snapshot import redaction

    if redaction.is_active:
        redaction.forget()


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests neither find the key of checkpoints that is this user's, nor leave one behind."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("settings"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Another one each time, printed where the test fails."""
    given: int | None = request.config.getoption("--seed")
    drawn = random.randrange(10**6) if given is None else given
    print(f"again with: pytest --seed {drawn} {request.node.nodeid}")
    return drawn


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of what is marked `by_day(n)`, all but n are for the night. Whole files stay together; the longest come first."""
    cases: dict[tuple[object, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("by_day") and not item.get_closest_marker("nightly"):
            cases.setdefault((item.parent, item.originalname), []).append(item)  # type: ignore[attr-defined]
    for alike in cases.values():
        (by_day,) = alike[0].get_closest_marker("by_day").args  # type: ignore[union-attr]
        for place in spread(len(alike))[by_day:]:
            alike[place].add_marker("nightly")
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(LONGEST)))


@cache
def needs_spark(file: Path) -> bool:
    return "mark.spark" in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, the files that need Spark go to one process: Java starts, and compiles what all ask, once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSpark(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "spark" if needs_spark(config.rootpath / file) else file

    return OneSpark(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A run that is broken off has said which tests failed; of a parallel run, the process that the workers belong to."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = "" if crash is None else f": {crash.message[:500]}"
        print(f"\nFAILED so far: {report.nodeid} ({report.when}){why}", flush=True)


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """A server of an object store; `bucket` has its address in the environment."""
    found = Store()
    yield found
    found.close()


@pytest.fixture
def bucket(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket of the store; this process may use it while the test lasts."""
    for name, value in environment(store.address).items():
        monkeypatch.setenv(name, value)
    return store.bucket()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str], list[str]]]:
    """Runs a command line in this process: (exit code, lines of stdout, lines of stderr)."""
    from ray_snapshot import cli

    def execute(*arguments: str) -> tuple[int, list[str], list[str]]:
        capsys.readouterr()
        code = cli.main(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out.splitlines(), captured.err.splitlines()

    return execute


@pytest.fixture
def rows(run: Callable[..., tuple[int, list[str], list[str]]]) -> Callable[..., list[dict[str, Any]]]:
    """The rows that a command prints with --json, parsed strictly."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    def execute(*arguments: str) -> list[dict[str, Any]]:
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, [])
        return [json.loads(line, parse_constant=refuse) for line in out]

    return execute


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


ROOM = "-Xms1g -Xmn600m -XX:ReservedCodeCacheSize=256m"
"""For a Java that answers hundreds of small queries: with less, it collects and throws away compiled code all the time."""

SMALL_QUERIES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}
"""A dozen rows a query: generating code for each, tasks without rows and planning anew would be most of the time.

`test_spark_command.py` runs without these, and so does the whole nightly run but for the first two.
"""


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    from ray_snapshot.spark_jobs.session import spark_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", ROOM)
        session = spark_session("local[2]", brief=True)
    is_by_day = "not nightly" in request.config.getoption("markexpr")
    for name, value in SMALL_QUERIES.items():
        if is_by_day or "codegen" in name:
            session.conf.set(name, value)
    yield session
    session.stop()
