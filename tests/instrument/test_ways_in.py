"""Every way to have machines beside plain actors watched, and every way in which Ray starts: one system, the same output."""

import sys
from tempfile import TemporaryDirectory

import pytest
from app_runner import APPS, COMMAND, Done, Runner
from clean import clean_environment

pytestmark = [pytest.mark.ray, pytest.mark.contract]

PAID = ["paid [3, 7]", "in the snapshot: Clerk driver till"]
REFUSED = ["refused", "in the snapshot: driver till"]
"""Where nothing is watched a plain actor is no part of the system."""

WAYS = {
    "run": ([COMMAND, "run", "ways_in.py"], "", PAID),
    "install": ([sys.executable, "ways_in.py", "install"], "", PAID),
    "cells that run again": ([sys.executable, "ways_in.py", "install", "again"], "", PAID + PAID),
    "the plugin": ([sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", "--ray-snapshot", "ways_in.py"], "", PAID),
    "watch": ([sys.executable, "ways_in.py"], "watch", PAID),
    "run of a program that watches itself": ([COMMAND, "run", "ways_in.py"], "watch", PAID),
    "a system alone": ([sys.executable, "ways_in.py"], "", REFUSED),
}  # fmt: skip
"""By name: the command, what comes behind `ray.init`, and what the program prints."""

OWN, KNOWN, GIVEN = "its own cluster", "the cluster in RAY_ADDRESS", "the address of a cluster"
STARTS = [(OWN, ""), (OWN, "init"), (KNOWN, ""), (KNOWN, "init"), (GIVEN, "system-at"), (GIVEN, "init-at")]


def ran(runner: Runner, way: str, cluster: str, start: str) -> Done:
    command, behind, _ = WAYS[way]
    with TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        steps = [step for step in (start, behind) if step]
        environment = clean_environment(RAY_TMPDIR=folder, RAY_LOG_TO_DRIVER="0", STEPS=" ".join(steps))
        if cluster != OWN:
            environment["RAY_AUTH_MODE"] = runner.auth_mode
            environment["RAY_ADDRESS" if cluster == KNOWN else "CLUSTER"] = runner.address
        given = [] if way == "the plugin" else steps
        return runner.finish(runner.start_in((*command, *given), APPS, environment))


@pytest.mark.nightly
@pytest.mark.parametrize(("cluster", "start"), STARTS, ids=lambda value: value or "started by the system")
@pytest.mark.parametrize("way", WAYS)
def test_a_plain_actor_calls_a_machine_and_is_in_its_snapshots(
    runner: Runner, way: str, cluster: str, start: str
) -> None:
    if WAYS[way][1] == "watch" and start == "system-at":
        start = "init-at"  # `watch` itself has no address
    done = ran(runner, way, cluster, start)
    assert [line for line in done.output.splitlines() if line.startswith(("paid", "refused", "in the"))] == WAYS[way][2]
    assert (done.exit_code, "not one system" in done.errors) == (0, False), done
