"""What is measured of running systems: the values, as `/metrics` has them, and as Debian's Prometheus reads and judges them."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from clean import clean_environment, ran
from incidents import deadlocked, healthy
from prometheus_client.parser import text_string_to_metric_families
from started import started
from until import until
from viewing import TOKEN, Bank, viewer

from ray_snapshot import Snapshot
from ray_snapshot.glances import MOST_KEPT
from ray_snapshot.metrics import METRICS
from ray_snapshot.web.app import make_app
from ray_snapshot.web.events import Events
from ray_snapshot.web.guard import Terms
from ray_snapshot.web.served import Served

ROOT = Path(__file__).parents[2]
PROMETHEUS = shutil.which("prometheus")
BOUND_S = 120.0


def given_up(number: int) -> Snapshot:
    return Snapshot.from_rows(
        machines=[], snapshot_id=f"x{number}", system="bank", sequence=number, status="aborted", abort_reason="slow"
    )


def values(text: str) -> dict[tuple[str, ...], float]:
    """By name and values of tags."""
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels) if key != "system")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_measured_is_what_the_last_snapshots_say() -> None:
    bank = Bank()
    with viewer(live=bank) as seen:
        first = values(seen.client.get("/metrics").text)
        zeros = {(f"ray_snapshot_{name}_total",): 0 for name in ("completed", "aborted", "restores")}
        assert first == {**zeros, ("ray_snapshot_up",): 1}
        bank.take(healthy(1))
        bank.take(given_up(2))
        bank.take(deadlocked(3, duration_ms=250.0), generation=2)
        for number in range(4, 4 + MOST_KEPT):
            bank.take(given_up(number), generation=2)
        answer = seen.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = values(answer.text)
    assert found["ray_snapshot_completed_total",] == 2
    assert found["ray_snapshot_aborted_total",] == 1 + MOST_KEPT, "and what the last complete one said stays"
    assert found["ray_snapshot_restores_total",] == 2
    assert found["ray_snapshot_duration_seconds",] == 0.25
    assert found["ray_snapshot_in_flight_messages",] == 2
    assert found["ray_snapshot_machines", "Account"] == found["ray_snapshot_blocked_machines", "Account"] == 2
    assert found["ray_snapshot_active_machines", "Account"] == 0
    assert found["ray_snapshot_largest_backlog_messages", "Account"] == 1
    assert found["ray_snapshot_largest_backlog_messages", "driver"] == 0
    assert found["ray_snapshot_verdict", "deadlock"] == found["ray_snapshot_alarm", "deadlock"] == 1
    assert found["ray_snapshot_verdict", "termination"] == found["ray_snapshot_alarm", "termination"] == 0
    assert {name for name, *_ in found} == {"ray_snapshot_up", *(f"ray_{one.name}" for one in METRICS)}


def test_a_system_that_does_not_answer_has_no_values_but_that() -> None:
    bank = Bank()
    bank.take(deadlocked(1))
    bank.trouble = "it did not answer within 30 s"
    with viewer(live=bank) as seen:
        assert values(seen.client.get("/metrics").text) == {("ray_snapshot_up",): 0}


def test_an_analyst_that_takes_the_place_of_another_counts_from_its_first_snapshot_on() -> None:
    bank = Bank()
    for number, generation in enumerate((5, 5, 6)):
        bank.take(healthy(number), generation=generation)
    assert bank.glances.totals.restores == 1


def test_what_cannot_be_told_is_minus_one_and_no_machine_is_named() -> None:
    bank = Bank()
    alone = [{"machine": "a", "class_name": "Account", "status": "passive"}]
    uncovered = {"uncovered": ["a thread of secret-machine"]}
    bank.take(Snapshot.from_rows(machines=alone, snapshot_id="x", system="bank", coverage=uncovered))
    with viewer(live=bank) as seen:
        text = seen.client.get("/metrics").text
    assert values(text)["ray_snapshot_verdict", "termination"] == -1
    assert "secret-machine" not in text
    assert '"a"' not in text


def test_nothing_is_told_without_the_token() -> None:
    with viewer(live=Bank()) as seen:
        seen.client.headers.pop("authorization")
        assert seen.client.get("/metrics").status_code == 401


def test_names_of_strangers_do_not_break_the_text() -> None:
    bank = Bank()
    bank.take(
        Snapshot.from_rows(machines=[{"machine": "a", "class_name": 'K"}\n1 2\\'}], snapshot_id="x", system="bank")
    )
    with viewer(live=bank) as seen:
        found = values(seen.client.get("/metrics").text)
    assert found["ray_snapshot_machines", 'K"}\n1 2\\'] == 1


# ---- Prometheus ----------------------------------------------------------------------------------------------------------


@contextmanager
def serving(bank: Bank) -> Iterator[int]:
    """The port of a server over this system."""
    served = Served(live=bank)
    app = make_app(served, Terms(TOKEN), Events(served))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        (port,) = (one.getsockname()[1] for item in server.servers for one in item.sockets)
        yield port
    finally:
        server.should_exit = True
        thread.join(30.0)


def asked(port: int, path: str, **given: str) -> Any:
    address = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(given)}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)["data"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def config(folder: Path, port: int) -> Path:
    """What docs/howto/metrics.md says, with a look each second."""
    (folder / "token").write_text(TOKEN)
    shutil.copy(ROOT / "ray_snapshot/grafana/alerts.yml", folder / "alerts.yml")
    path = folder / "prometheus.yml"
    path.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        "scrape_configs:\n"
        "  - job_name: ray-snapshot\n"
        f"    authorization: {{credentials_file: {folder / 'token'}}}\n"
        f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
    )
    return path


def is_needed() -> bool:
    """Where CI has installed it, a missing one is a failure."""
    return "PROMETHEUS_IS_NEEDED" in os.environ


needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None and not is_needed(), reason="needs Prometheus: apt-get install prometheus"
)


@needs_prometheus
def test_prometheus_reads_them_draws_every_panel_and_an_alert_fires_on_a_deadlock(tmp_path: Path) -> None:
    bank, port = Bank(), free_port()
    for number in range(1, 4):
        bank.take(healthy(number))
    panels = json.loads((ROOT / "ray_snapshot/grafana/dashboard.json").read_text())["panels"]
    queries = [target["expr"].replace("$system", ".*") for panel in panels for target in panel["targets"]]
    assert len(queries) >= 12
    with serving(bank) as ours:
        command = [
            str(PROMETHEUS),
            f"--config.file={config(tmp_path, ours)}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with started(command, env=clean_environment(HOME=str(tmp_path)), seconds=BOUND_S, stderr=subprocess.DEVNULL):

            def firing() -> list[str]:
                found = asked(port, "alerts")["alerts"]
                return [one["labels"]["detector"] for one in found if one["labels"]["alertname"] == "RaySnapshotAlarm"]

            def answered() -> list[str]:
                return [one for one in queries if asked(port, "query", query=one)["result"]]

            until(lambda: asked(port, "query", query="ray_snapshot_completed_total")["result"], again=(OSError,))
            assert firing() == []
            bank.take(deadlocked(9))
            until(firing, good=lambda names: names == ["deadlock"])
            until(answered, good=lambda good: good == queries)
            bank.take(healthy(10))
            until(firing, good=lambda names: names == [])


@pytest.mark.contract
@needs_prometheus
def test_the_alert_rules_say_what_they_mean(tmp_path: Path) -> None:
    shutil.copy(ROOT / "ray_snapshot/grafana/alerts.yml", tmp_path)
    (tmp_path / "rules.yml").write_text(RULES)
    done = ran("promtool", "test", "rules", "rules.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


RULES = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'ray_snapshot_last_completed_timestamp_seconds{system="bank"}'
        values: '0 60 120 120x20'
      - series: 'ray_snapshot_completed_total{system="bank"}'
        values: '0 20 40 40x20'
      - series: 'ray_snapshot_last_completed_timestamp_seconds{system="by hand"}'
        values: '0x30'
      - series: 'ray_snapshot_completed_total{system="by hand"}'
        values: '3x30'
      - series: 'ray_snapshot_aborted_total{system="bank"}'
        values: '0 0 0 0 1 2 3 4 5 5x12'
      - series: 'ray_snapshot_aborted_total{system="seen twice",instance="ray"}'
        values: '0 0 0 0 1 2 2x12'
      - series: 'ray_snapshot_aborted_total{system="seen twice",instance="serve"}'
        values: '0 0 0 0 1 2 2x12'
      - series: 'ray_snapshot_verdict{system="bank",detector="deadlock"}'
        values: '-1x30'
    alert_rule_test:
      - {eval_time: 6m, alertname: RaySnapshotNoneForLong}
      - eval_time: 9m
        alertname: RaySnapshotNoneForLong
        exp_alerts:
          - exp_labels: {system: bank, severity: warning}
            exp_annotations:
              summary: "no snapshot of bank for 7m 0s"
              description: "Either nothing asks for snapshots of bank any more, or they are given up: look at ray_snapshot_aborted_total, and at `ray-snapshot history list HISTORY`."
      - {eval_time: 5m, alertname: RaySnapshotsGivenUp}
      - eval_time: 8m
        alertname: RaySnapshotsGivenUp
        exp_alerts:
          - exp_labels: {system: bank, severity: warning}
            exp_annotations:
              summary: "snapshots of bank are given up"
              description: "A machine does not record in time; `ray-snapshot history list HISTORY` says which, and what it is doing."
      - {eval_time: 14m, alertname: RaySnapshotCannotBeTold}
      - eval_time: 16m
        alertname: RaySnapshotCannotBeTold
        exp_alerts:
          - exp_labels: {system: bank, detector: deadlock, severity: info}
            exp_annotations:
              summary: "deadlock of bank cannot be told"
              description: "Something that could act is not covered; `ray-snapshot diagnose bank` names it."
"""  # noqa: E501


def test_the_dashboard_and_the_rules_name_only_what_is_measured() -> None:
    known = {f"ray_{one.name}" for one in METRICS}
    for name in ("dashboard.json", "alerts.yml"):
        told = set(re.findall(r"ray_snapshot_[a-z_]+", (ROOT / "ray_snapshot/grafana" / name).read_text()))
        assert told - {"ray_snapshot_"} <= known
        assert told, name
