"""What goes to each worker with the setup hook: the app's own hook, and our modules. No cluster in here."""

import json
import os
import subprocess
import sys

import pytest
from clean import clean_environment
from ray._private import ray_constants

from ray_snapshot import __version__
from ray_snapshot.instrument import arriving, cluster_shape, watching
from ray_snapshot.instrument.delivery import fault, hook_of_the_job, inherited_hook
from ray_snapshot.instrument.hooks import environments

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
GIVEN = json.dumps({"runtime_env": {"worker_process_setup_hook": "my.hook", "working_dir": "/x"}, "metadata": {}})


def hook() -> None:
    """The program's."""


def test_the_hook_of_a_submitted_job_is_called_by_ours_and_rays_init_does_not_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(JOB, GIVEN)
    with hook_of_the_job({"env_vars": {}}) as own:
        assert own == "my.hook"
        assert json.loads(os.environ[JOB]) == {"runtime_env": {"working_dir": "/x"}, "metadata": {}}
    assert os.environ[JOB] == GIVEN


@pytest.mark.parametrize("job", [None, "{}", '{"runtime_env": null}', GIVEN])
def test_a_programs_own_hook_comes_first_and_a_job_without_one_stays_as_it_is(
    job: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program and a job with a hook each: Ray refuses that, with us as without."""
    monkeypatch.delenv(JOB, raising=False)
    if job is not None:
        monkeypatch.setenv(JOB, job)
    with hook_of_the_job({"worker_process_setup_hook": hook}) as own:
        assert own is hook
        assert os.environ.get(JOB) == job
    if job != GIVEN:
        with hook_of_the_job(None) as none:
            assert none is None


def test_a_worker_knows_its_hook_by_the_variable_that_ray_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arriving.HOOK_VARIABLE == ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR
    with inherited_hook():
        assert os.environ[arriving.HOOK_VARIABLE] == "ray_snapshot.instrument.arriving.inherited"
    assert arriving.HOOK_VARIABLE not in os.environ, "what the program itself starts has no part in it"
    monkeypatch.setenv(arriving.HOOK_VARIABLE, "another")
    with inherited_hook():
        pass
    assert os.environ[arriving.HOOK_VARIABLE] == "another"


@pytest.mark.parametrize(
    ("given", "joins", "starts"),
    [
        ({}, None, True),
        ({}, "192.0.2.1:6379", False),
        ({"runtime_env": {}}, None, True),
        ({"runtime_env": {"env_vars": {"A": "b"}}}, None, False),
    ],
)
def test_by_its_name_where_the_program_starts_the_cluster_and_asks_for_no_environment(
    given: dict[str, object], joins: str | None, starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JOB, raising=False)
    monkeypatch.setattr(cluster_shape, "address_to_join", lambda *_: joins)
    assert watching._starts_cluster(None, given) is starts
    monkeypatch.setenv(JOB, "{}")
    assert not watching._starts_cluster(None, given), "the job may bring an environment"


def test_what_ray_says_of_a_wrong_address_it_says_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOB, raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="nonsense"):
        cluster_shape.address_to_join("nonsense", None)
    assert not watching._starts_cluster("nonsense", {})


@pytest.mark.parametrize(
    ("given", "by_value"),
    [({"conda": "other"}, True), ({"pip": ["x"], "env_vars": {"A": "b"}}, True), ({"env_vars": {"A": "b"}}, False)],
)
def test_where_that_name_may_mean_nothing_by_value(given: dict[str, object], by_value: bool) -> None:
    environment = dict(given)
    told = environments._with_hook("key", lambda found, **options: (found, options), environment, serialize=True)
    variables = {**given.get("env_vars", {})}  # type: ignore[dict-item]
    if by_value:
        variables[arriving.HOOK_VARIABLE] = "key"
    assert told == ({**given, "env_vars": variables}, {"serialize": True})
    assert environment == given, "the app's own stays as it is"


WHERE_WE_ARE_NOT = """
import importlib, sys
from ray_snapshot.instrument import arriving, delivery

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray_snapshot":
            raise ModuleNotFoundError(f"{name} was not sent", name=name)

arriving._take_from(delivery.sources())
sys.meta_path.insert(1, Nowhere())
for name in sys.argv[1:]:
    importlib.import_module(f"ray_snapshot.{name}")
"""


@pytest.mark.parametrize(
    "modules",
    [
        [
            "instrument.hooks.attaching",
            "instrument.hooks.calls",
            "instrument.hooks.tracking",
            "instrument.watcher.rolling",
        ],  # in each worker
        ["instrument.watcher.watcher", "runtime.analyst.actor"],  # Ray loads their classes where a handle comes
    ],
    ids=["workers", "actors"],
)
def test_a_node_without_us_gets_every_module_that_its_workers_import(modules: list[str]) -> None:
    command = [sys.executable, "-c", WHERE_WE_ARE_NOT, *modules]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("version", "reason", "said"),
    [
        (__version__, "", None),
        ("0.0.9", "", "it has ray-snapshot 0.0.9"),
        ("0.0.9", "ModuleNotFoundError: no room of that name", "it has ray-snapshot 0.0.9"),
        (None, "ModuleNotFoundError: ray_snapshot", "ray_snapshot cannot be imported there (ModuleNotFoundError"),
        (__version__, "UnsupportedRayError: another Ray", "cannot be imported there (UnsupportedRayError"),
    ],
)
def test_of_a_node_its_version_is_told_first_and_then_what_keeps_it_from_being_imported(
    version: str | None, reason: str, said: str | None
) -> None:
    found = fault(version, reason)
    assert found is None if said is None else said in str(found)
