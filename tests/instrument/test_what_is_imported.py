"""Processes of the app, the watcher and a service carry no library that they do not use. No cluster in here."""

import json
import pickle
import subprocess
import sys

import pytest
from clean import clean_environment

from ray_snapshot.verdicts import READY_MADE, ReadyMade, load_detector

HEAVY = ("numpy", "pyarrow", "pandas", "scipy", "pydantic", "deltalake", "pyspark", "typer", "rich")


def imported(code: str) -> set[str]:
    """Which of the heavy libraries this code imports, on top of Ray."""
    program = f"import json, sys, ray\n{code}\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    command = [sys.executable, "-c", program]
    return set(json.loads(subprocess.check_output(command, text=True, env=clean_environment())))


WORKERS = (
    "instrument.watcher.watcher",  # also where Ray loads the class of a handle to it: in every worker of the app
    "runtime.analyst.actor",  # the same: a service has one
    "runtime.service.actor",  # one for each system, and it only passes on what hosts report
    "instrument.hooks.attaching",
    "instrument.hooks.calls",
    "instrument.hooks.tracking",
    "instrument.watcher.rolling",
)


@pytest.mark.contract
def test_what_runs_in_an_apps_workers_and_a_service_imports_no_library_of_ours() -> None:
    assert imported("; ".join(f"import ray_snapshot.{module}" for module in WORKERS)) == set()


def test_a_program_that_is_watched_begins_without_arrow() -> None:
    assert imported("import ray_snapshot.instrument.running") == {"pydantic"}


def test_the_analyst_imports_no_pandas_and_a_detector_that_wants_it_gets_it() -> None:
    code = (
        "from ray_snapshot.first_array import warm_up_without_pandas\n"
        "warm_up_without_pandas()\n"
        "from ray_snapshot import Snapshot, detectors\n"
        "snapshot = Snapshot.from_rows(machines=[{'machine': 'a'}])\n"
        "detectors.Deadlock().evaluate(snapshot), detectors.Termination().evaluate(snapshot)\n"
    )
    assert imported(code) == {"numpy", "pyarrow", "pydantic"}
    wanted = "assert snapshot.tables['machines'].to_pandas().machine.tolist() == ['a']"
    assert "pandas" in imported(code + wanted)


@pytest.mark.parametrize("name", READY_MADE)
def test_a_detector_by_its_name_alone_says_of_itself_what_the_detector_does_and_travels_as_it(name: str) -> None:
    alone, real = ReadyMade(name), load_detector(name)
    for word in ("name", "stable", "alarm_when", "spec"):
        assert getattr(alone, word) == getattr(real, word)
    assert type(pickle.loads(pickle.dumps(alone))) is type(real)
