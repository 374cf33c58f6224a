"""Where the app's own setup hook comes from, so that ours can call it. No cluster in here."""

from __future__ import annotations

import json
import os

import pytest

from ray_snapshot.instrument.delivery import hook_of_the_job

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
