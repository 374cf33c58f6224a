"""OpenTelemetry: a span of each snapshot with its parties below it, and alarms as events; on only where it is asked for."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment, ran
from incidents import START, deadlocked, healthy, judged
from limited import limit
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ray_snapshot import Snapshot
from ray_snapshot.runtime.analyst import spans
from ray_snapshot.runtime.analyst.spans import Spans
from ray_snapshot.verdicts import ReadyMade

DETECTORS: list[Any] = [ReadyMade("deadlock"), ReadyMade("termination")]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[Spans, InMemorySpanExporter]:
    monkeypatch.setenv(spans.SERVICE, "before")  # whatever it sets is undone
    exporter = InMemorySpanExporter()
    found = Spans("bank", {"OTEL_TRACES_EXPORTER": "none"})
    found.provider.add_span_processor(SimpleSpanProcessor(exporter))
    return found, exporter


def test_a_snapshot_is_a_span_with_its_parties_below_it_and_alarms_are_events(
    made: tuple[Spans, InMemorySpanExporter],
) -> None:
    found, exporter = made
    for one in (healthy(1), deadlocked(2), deadlocked(3), healthy(4)):
        found.take(one, judged(one), DETECTORS)
    ended = exporter.get_finished_spans()
    snapshots = [one for one in ended if one.name == "snapshot"]
    assert [one.attributes["snapshot.snapshot_id"] for one in snapshots if one.attributes] == [
        f"bank-0000{at}" for at in range(1, 5)
    ]
    assert snapshots[0].start_time == round((START.timestamp() + 1) * 1e9)
    assert [[event.name for event in one.events] for one in snapshots] == [[], ["alarm begins"], [], ["alarm ends"]]
    assert "a in Account.transfer" in str(dict(snapshots[1].events[0].attributes or {})["snapshot.sentence"])
    parties = [one for one in ended if one.name == "record"]
    assert {one.attributes["snapshot.party"] for one in parties if one.attributes} == {"pid-7", "host-0"}
    assert {one.parent.span_id for one in parties if one.parent} == {
        one.context.span_id for one in snapshots if one.context
    }


def test_a_snapshot_that_was_given_up_is_an_error_and_a_late_party_ends_with_it(
    made: tuple[Spans, InMemorySpanExporter],
) -> None:
    found, exporter = made
    late = Snapshot.from_rows(
        machines=[{"machine": "a", "record_delay_ms": 1e9}], snapshot_id="x", started_at=START, completed_at=START
    )
    aborted = Snapshot.from_rows(machines=[], snapshot_id="y", status="aborted", abort_reason="slow", started_at=START)
    for one in (late, aborted):
        found.take(one, [], DETECTORS)
    party, first, second = exporter.get_finished_spans()
    assert (party.name, party.end_time) == ("record", first.end_time)
    assert (second.status.is_ok, second.status.description) == (False, "slow")


def test_a_collector_that_does_not_answer_holds_up_nobody_for_long(
    made: tuple[Spans, InMemorySpanExporter], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = made
    held, is_asked = threading.Event(), threading.Event()
    limit(monkeypatch, last_spans_s=0.2)
    monkeypatch.setattr(found.provider, "force_flush", lambda: (is_asked.set(), held.wait(60)))
    found.flush()
    assert is_asked.is_set()
    held.set()


def test_it_is_on_only_where_an_exporter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in spans._WANTED:
        monkeypatch.delenv(name, raising=False)
    assert spans.settings() == {}
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    told = spans.settings()
    assert told["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4318"
    assert spans._exporters(told) == ["otlp_proto_http"]
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console,otlp")
    assert spans._exporters(spans.settings()) == ["console", "otlp_proto_http"]
    for name, value in (("OTEL_TRACES_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")):
        monkeypatch.setenv(name, value)
        assert spans.settings() == {}


def test_an_exporter_that_is_not_installed_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spans.SERVICE, "before")
    with pytest.raises(LookupError, match="install opentelemetry-exporter-zipkin"):
        Spans("bank", {"OTEL_TRACES_EXPORTER": "zipkin"})


PROGRAM = """
import pathlib, sys, time

import ray
import ray_snapshot as rs

class Idle(rs.SnapshotMixin):
    pass

with rs.System("idlers") as system:
    system.spawn(Idle, name="idle")
    system.snapshot()
    # What the analyst writes is in Ray's logs; whether Ray shows it before the program ends is a matter of time.
    logs, until = pathlib.Path(ray._private.worker._global_node.get_logs_dir_path()), time.monotonic() + 60
    while not any(sys.argv[1] in one.read_text(errors="replace") for one in logs.glob("worker-*")):
        assert time.monotonic() < until, "it was not said"
        time.sleep(0.1)
"""
SAID = {
    "console": '"name": "snapshot"',
    "zipkin": "no spans are sent: LookupError: there is no exporter of traces 'zipkin'",
}


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.parametrize("exporter", SAID)
def test_the_environment_of_a_program_says_where_its_spans_go(tmp_path: Path, exporter: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = clean_environment(HOME=str(tmp_path), OTEL_TRACES_EXPORTER=exporter)
    done = ran(sys.executable, tmp_path / "program.py", SAID[exporter], env=env, seconds=180)
    assert done.returncode == 0, done.stderr
