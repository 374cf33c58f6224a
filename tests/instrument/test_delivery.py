"""What goes to each worker with the setup hook: the app's own hook, and our modules. No cluster in here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from clean import clean_environment

from ray_snapshot import __version__
from ray_snapshot.instrument.delivery import fault, hook_of_the_job

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
